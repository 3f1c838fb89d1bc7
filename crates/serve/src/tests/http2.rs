//! HTTP/2, in memory.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{limits, served, since};

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

#[tokio::test(start_paused = true)]
async fn a_client_that_opens_no_window_for_its_response_is_cut_off() {
    let mut served = served(limits());
    let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    // SETTINGS_INITIAL_WINDOW_SIZE = 0, then GET / at x over http, by HPACK's static table.
    hello.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    hello.extend(frame(1, 5, 1, &[0x82, 0x84, 0x86, 0x41, 1, b'x']));
    let begun = Instant::now();
    let (mut reading, mut writing) = tokio::io::split(served.client);
    writing.write_all(&hello).await.unwrap();
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        // Answers every ping, and says nothing else.
        let mut head = [0; 9];
        while reading.read_exact(&mut head).await.is_ok() {
            let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
            let mut payload = vec![0; length];
            reading.read_exact(&mut payload).await.unwrap();
            let answer = match (head[3], head[4]) {
                (4, 0) => frame(4, 1, 0, &[]),
                (6, 0) => frame(6, 1, 0, &payload),
                _ => continue,
            };
            if writing.write_all(&answer).await.is_err() {
                break;
            }
        }
    });
    served.serving.join_next().await.unwrap().unwrap();
    assert!((119..=302).contains(&since(begun)), "{}", since(begun));
}
