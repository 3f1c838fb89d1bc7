//! HTTP/2, in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, WriteHalf};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{LARGE, limits, serve, since};

/// The payload of the ping with which `h2` checks that its client has seen the GOAWAY frame.
const SHUTDOWN_PING: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

type Sender = hyper::client::conn::http2::SendRequest<Empty<Bytes>>;

/// A client that sends a ping every second and replies to pings.
async fn connect_with_pings(client: tokio::io::DuplexStream) -> (Sender, JoinSet<()>) {
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(Duration::from_secs(1))
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    let mut driving = JoinSet::new();
    driving.spawn(async move {
        let _ = connection.await;
    });
    (sender, driving)
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://x{path}")).body(Empty::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn pings_before_a_request_do_not_extend_the_first_byte_limit() {
    let mut connection = serve(limits());
    let (_sender, mut driving) = connect_with_pings(connection.client).await;
    let start = Instant::now();
    driving.join_next().await.unwrap().unwrap();
    assert!((20..=23).contains(&since(start)), "{}", since(start));
    connection.serving.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn pings_after_a_request_do_not_extend_the_idle_limit() {
    let mut connection = serve(limits());
    let (mut sender, mut driving) = connect_with_pings(connection.client).await;
    for pause in [0, 50, 59] {
        sleep(Duration::from_secs(pause)).await;
        let response = sender.send_request(get("/")).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    let start = Instant::now();
    driving.join_next().await.unwrap().unwrap();
    assert!((60..=62).contains(&since(start)), "{}", since(start));
    connection.serving.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_its_connection_open() {
    let mut connection = serve(limits());
    let (mut sender, mut driving) = connect_with_pings(connection.client).await;
    let mut response = sender.send_request(get("/stream")).await.unwrap().into_body();
    let stream = connection.streams.recv().await.unwrap();
    for _ in 0..10 {
        sleep(Duration::from_secs(600)).await;
        stream.send(Bytes::from_static(b"data: x\n\n")).await.unwrap();
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "data: x\n\n");
    }
    drop(stream);
    assert_eq!(response.collect().await.unwrap().to_bytes(), "");
    let start = Instant::now();
    driving.join_next().await.unwrap().unwrap();
    assert!((60..=62).contains(&since(start)), "{}", since(start));
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// GET of `http://x`, with HPACK's static table.
fn request(stream: u32, path: &str) -> Vec<u8> {
    let path = [&[0x04, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat();
    frame(1, 5, stream, &[&[0x82], &path[..], &[0x86, 0x41, 1, b'x']].concat())
}

fn window_update(stream: u32, bytes: usize) -> Vec<u8> {
    frame(8, 0, stream, &u32::try_from(bytes).unwrap().to_be_bytes())
}

/// The pings that a client replies to.
#[derive(Clone, Copy, PartialEq)]
enum PingReplies {
    All,
    /// Keep-alive pings, but not the ping of a graceful shutdown.
    KeepAlive,
}

/// A client that requests one path and controls its flow-control windows.
struct RawClient {
    writing: Arc<Mutex<WriteHalf<DuplexStream>>>,
    /// Bytes of the response that arrived.
    received: watch::Receiver<usize>,
    _reading: JoinSet<()>,
}

impl RawClient {
    /// Sends the request. `window` is the initial window.
    async fn request(client: DuplexStream, path: &str, window: u32, replies: PingReplies) -> RawClient {
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE
        hello.extend(frame(4, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat()));
        hello.extend(request(1, path));
        let (mut reading, mut writing) = tokio::io::split(client);
        writing.write_all(&hello).await.unwrap();
        let writing = Arc::new(Mutex::new(writing));
        let (sender, received) = watch::channel(0);
        let (reply_writer, mut tasks) = (writing.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut head = [0; 9];
            while reading.read_exact(&mut head).await.is_ok() {
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                let mut payload = vec![0; length];
                if reading.read_exact(&mut payload).await.is_err() {
                    break;
                }
                let reply = match (head[3], head[4]) {
                    (0, _) => {
                        sender.send_modify(|received| *received += length);
                        continue;
                    }
                    (4, 0) => frame(4, 1, 0, &[]),
                    (6, 0) if replies == PingReplies::All || payload != SHUTDOWN_PING => {
                        frame(6, 1, 0, &payload)
                    }
                    _ => continue,
                };
                if reply_writer.lock().await.write_all(&reply).await.is_err() {
                    break;
                }
            }
        });
        RawClient { writing, received, _reading: tasks }
    }

    /// Opens the windows by `bytes`; false when the connection is closed.
    async fn open_window(&self, bytes: usize) -> bool {
        let updates = [window_update(0, bytes), window_update(1, bytes)].concat();
        self.writing.lock().await.write_all(&updates).await.is_ok()
    }

    async fn has_received(&mut self, bytes: usize) {
        self.received.wait_for(|received| *received >= bytes).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_window_is_disconnected() {
    let mut connection = serve(limits());
    let start = Instant::now();
    let _client = RawClient::request(connection.client, "/", 0, PingReplies::KeepAlive).await;
    connection.serving.join_next().await.unwrap().unwrap();
    assert!((119..=302).contains(&since(start)), "{}", since(start));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_a_large_chunk_is_served_and_a_stalled_one_is_disconnected() {
    for stops in [false, true] {
        let mut connection = serve(limits());
        let mut client = RawClient::request(connection.client, "/large", 1024, PingReplies::All).await;
        let until = if stops { LARGE / 2 } else { LARGE };
        let mut read = 1024;
        while read < until {
            // Less than the stall limit.
            sleep(Duration::from_secs(100)).await;
            assert!(client.open_window(4096).await, "disconnected after {read} bytes");
            read += 4096;
        }
        client.has_received(until.min(read)).await;
        let start = Instant::now();
        connection.serving.join_next().await.unwrap().unwrap();
        // The stall limit, or the idle limit after the response and a graceful close.
        let expected = if stops { 119..=122 } else { 60..=63 };
        assert!(expected.contains(&since(start)), "{}", since(start));
    }
}

#[tokio::test(start_paused = true)]
async fn a_displaced_client_that_only_replies_to_pings_is_disconnected() {
    let mut connection = serve(limits());
    let mut client = RawClient::request(connection.client, "/", 1024, PingReplies::KeepAlive).await;
    client.has_received("hello".len()).await;
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    connection.activity.displaced.cancel();
    connection.serving.join_next().await.unwrap().unwrap();
    assert!((2..=3).contains(&since(start)), "{}", since(start));
}

#[tokio::test(start_paused = true)]
async fn a_displaced_client_gets_the_rest_of_an_active_response() {
    let mut connection = serve(limits());
    let mut client = RawClient::request(connection.client, "/large", 1024, PingReplies::All).await;
    client.has_received(1024).await;
    connection.activity.displaced.cancel();
    for step in 1..=4 {
        sleep(Duration::from_secs(2)).await;
        assert!(client.open_window(LARGE / 4).await);
        client.has_received(LARGE / 4 * step).await;
    }
    let start = Instant::now();
    connection.serving.join_next().await.unwrap().unwrap();
    assert!(since(start) <= 3, "{}", since(start));
}

#[tokio::test(start_paused = true)]
async fn a_displaced_client_cannot_stay_with_a_new_stream() {
    let mut connection = serve(limits());
    let mut client = RawClient::request(connection.client, "/", 1024, PingReplies::KeepAlive).await;
    client.has_received("hello".len()).await;
    let start = Instant::now();
    connection.activity.displaced.cancel();
    client.writing.lock().await.write_all(&request(3, "/stream")).await.unwrap();
    let _stream = connection.streams.recv().await.unwrap();
    connection.serving.join_next().await.unwrap().unwrap();
    assert!((10..=11).contains(&since(start)), "{}", since(start));
}
