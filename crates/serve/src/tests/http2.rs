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

use super::{LARGE, limits, served, since};

/// What the ping holds by which `h2` learns that its client has seen the end coming.
const SHUTDOWN_PING: [u8; 8] = [0x0b, 0x7b, 0xa2, 0xf0, 0x8b, 0x9b, 0xfe, 0x54];

type Sender = hyper::client::conn::http2::SendRequest<Empty<Bytes>>;

/// A client that pings every second and answers pings.
async fn pinging(client: tokio::io::DuplexStream) -> (Sender, JoinSet<()>) {
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
async fn pings_before_a_request_do_not_keep_a_connection() {
    let mut served = served(limits());
    let (_sender, mut driving) = pinging(served.client).await;
    let begun = Instant::now();
    driving.join_next().await.unwrap().unwrap();
    assert!((20..=23).contains(&since(begun)), "{}", since(begun));
    served.serving.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn pings_after_a_request_do_not_keep_a_connection() {
    let mut served = served(limits());
    let (mut sender, mut driving) = pinging(served.client).await;
    for pause in [0, 50, 59] {
        sleep(Duration::from_secs(pause)).await;
        let response = sender.send_request(get("/")).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
    }
    let begun = Instant::now();
    driving.join_next().await.unwrap().unwrap();
    assert!((60..=62).contains(&since(begun)), "{}", since(begun));
    served.serving.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_open_stream_keeps_its_connection() {
    let mut served = served(limits());
    let (mut sender, mut driving) = pinging(served.client).await;
    let mut response = sender.send_request(get("/stream")).await.unwrap().into_body();
    let stream = served.streams.recv().await.unwrap();
    for _ in 0..10 {
        sleep(Duration::from_secs(600)).await;
        stream.send(Bytes::from_static(b"data: x\n\n")).await.unwrap();
        assert_eq!(response.frame().await.unwrap().unwrap().into_data().unwrap(), "data: x\n\n");
    }
    drop(stream);
    assert_eq!(response.collect().await.unwrap().to_bytes(), "");
    let begun = Instant::now();
    driving.join_next().await.unwrap().unwrap();
    assert!((60..=62).contains(&since(begun)), "{}", since(begun));
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// GET at x over http, by HPACK's static table.
fn request(stream: u32, path: &str) -> Vec<u8> {
    let path = [&[0x04, u8::try_from(path.len()).unwrap()], path.as_bytes()].concat();
    frame(1, 5, stream, &[&[0x82], &path[..], &[0x86, 0x41, 1, b'x']].concat())
}

fn window_update(stream: u32, bytes: usize) -> Vec<u8> {
    frame(8, 0, stream, &u32::try_from(bytes).unwrap().to_be_bytes())
}

/// Which pings a client answers.
#[derive(Clone, Copy, PartialEq)]
enum Pongs {
    All,
    /// Those that find dead clients, but not the one that ends a connection.
    KeepAlive,
}

/// A client that asks for one path and decides itself about its windows.
struct RawClient {
    writing: Arc<Mutex<WriteHalf<DuplexStream>>>,
    /// Bytes of the response that arrived.
    received: watch::Receiver<usize>,
    _reading: JoinSet<()>,
}

impl RawClient {
    /// Sends the request. `window` is what the client takes before it is asked.
    async fn ask(client: DuplexStream, path: &str, window: u32, pongs: Pongs) -> RawClient {
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // SETTINGS_INITIAL_WINDOW_SIZE
        hello.extend(frame(4, 0, 0, &[&[0, 4], &window.to_be_bytes()[..]].concat()));
        hello.extend(request(1, path));
        let (mut reading, mut writing) = tokio::io::split(client);
        writing.write_all(&hello).await.unwrap();
        let writing = Arc::new(Mutex::new(writing));
        let (sender, received) = watch::channel(0);
        let (answers, mut tasks) = (writing.clone(), JoinSet::new());
        tasks.spawn(async move {
            let mut head = [0; 9];
            while reading.read_exact(&mut head).await.is_ok() {
                let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
                let mut payload = vec![0; length];
                if reading.read_exact(&mut payload).await.is_err() {
                    break;
                }
                let answer = match (head[3], head[4]) {
                    (0, _) => {
                        sender.send_modify(|received| *received += length);
                        continue;
                    }
                    (4, 0) => frame(4, 1, 0, &[]),
                    (6, 0) if pongs == Pongs::All || payload != SHUTDOWN_PING => frame(6, 1, 0, &payload),
                    _ => continue,
                };
                if answers.lock().await.write_all(&answer).await.is_err() {
                    break;
                }
            }
        });
        RawClient { writing, received, _reading: tasks }
    }

    /// Opens the windows by so many bytes; false when the connection is closed.
    async fn take(&self, bytes: usize) -> bool {
        let updates = [window_update(0, bytes), window_update(1, bytes)].concat();
        self.writing.lock().await.write_all(&updates).await.is_ok()
    }

    async fn has_received(&mut self, bytes: usize) {
        self.received.wait_for(|received| *received >= bytes).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_window_for_its_response_is_cut_off() {
    let mut served = served(limits());
    let begun = Instant::now();
    let _client = RawClient::ask(served.client, "/", 0, Pongs::KeepAlive).await;
    served.serving.join_next().await.unwrap().unwrap();
    assert!((119..=302).contains(&since(begun)), "{}", since(begun));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_one_large_chunk_is_served_and_one_that_stops_is_cut_off() {
    for stops in [false, true] {
        let mut served = served(limits());
        let mut client = RawClient::ask(served.client, "/large", 1024, Pongs::All).await;
        let until = if stops { LARGE / 2 } else { LARGE };
        let mut taken = 1024;
        while taken < until {
            // Long, but never as long as a stall.
            sleep(Duration::from_secs(100)).await;
            assert!(client.take(4096).await, "it was cut off after {taken} bytes");
            taken += 4096;
        }
        client.has_received(until.min(taken)).await;
        let begun = Instant::now();
        served.serving.join_next().await.unwrap().unwrap();
        // A stall, or the idle time after the end and a goodbye.
        let expected = if stops { 119..=122 } else { 60..=63 };
        assert!(expected.contains(&since(begun)), "{}", since(begun));
    }
}

#[tokio::test(start_paused = true)]
async fn a_displaced_client_that_only_answers_pings_is_gone_after_a_goodbye() {
    let mut served = served(limits());
    let mut client = RawClient::ask(served.client, "/", 1024, Pongs::KeepAlive).await;
    client.has_received("hello".len()).await;
    sleep(Duration::from_secs(1)).await;
    let begun = Instant::now();
    served.activity.displaced.cancel();
    served.serving.join_next().await.unwrap().unwrap();
    assert!((2..=3).contains(&since(begun)), "{}", since(begun));
}

#[tokio::test(start_paused = true)]
async fn a_displaced_client_gets_the_rest_of_a_response_that_is_under_way() {
    let mut served = served(limits());
    let mut client = RawClient::ask(served.client, "/large", 1024, Pongs::All).await;
    client.has_received(1024).await;
    served.activity.displaced.cancel();
    for step in 1..=4 {
        sleep(Duration::from_secs(2)).await;
        assert!(client.take(LARGE / 4).await);
        client.has_received(LARGE / 4 * step).await;
    }
    let begun = Instant::now();
    served.serving.join_next().await.unwrap().unwrap();
    assert!(since(begun) <= 3, "{}", since(begun));
}

#[tokio::test(start_paused = true)]
async fn a_displaced_client_does_not_stay_by_asking_for_a_stream() {
    let mut served = served(limits());
    let mut client = RawClient::ask(served.client, "/", 1024, Pongs::KeepAlive).await;
    client.has_received("hello".len()).await;
    let begun = Instant::now();
    served.activity.displaced.cancel();
    client.writing.lock().await.write_all(&request(3, "/stream")).await.unwrap();
    let _stream = served.streams.recv().await.unwrap();
    served.serving.join_next().await.unwrap().unwrap();
    assert!((10..=11).contains(&since(begun)), "{}", since(begun));
}
