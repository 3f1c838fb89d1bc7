//! HTTP/1.1, in memory.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use super::{limits, serve, since};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// Reads until the text ends with `end`.
async fn read_to(client: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with(end) {
        let count = client.read(&mut byte).await.unwrap();
        assert_eq!(count, 1, "the connection was closed after {text:?}");
        text.push(char::from(byte[0]));
    }
    text
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_disconnected() {
    let mut connection = serve(limits());
    let start = Instant::now();
    let mut rest = Vec::new();
    connection.client.read_to_end(&mut rest).await.unwrap();
    assert_eq!((since(start), rest.len()), (10, 0));
    connection.serving.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_head_that_arrives_slowly_has_one_limit() {
    let mut connection = serve(limits());
    sleep(Duration::from_secs(5)).await;
    let start = Instant::now();
    let head = b"GET / HTTP/1.1\r\nhost: x\r\nx-long: ".iter().chain(std::iter::repeat(&b'a'));
    for byte in head {
        if connection.client.write_all(&[*byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    // The limit and some tolerance.
    assert!((20..=24).contains(&since(start)), "{}", since(start));
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_for_the_idle_limit() {
    let mut connection = serve(limits());
    for pause in [0, 50, 59] {
        sleep(Duration::from_secs(pause)).await;
        connection.client.write_all(GET).await.unwrap();
        read_to(&mut connection.client, "hello\r\n0\r\n\r\n").await;
    }
    let start = Instant::now();
    let mut rest = Vec::new();
    connection.client.read_to_end(&mut rest).await.unwrap();
    assert_eq!((since(start), rest.len()), (60, 0));
}

#[tokio::test(start_paused = true)]
async fn an_idle_limit_of_zero_closes_the_connection_after_each_response() {
    let mut connection = serve(crate::ListenerLimits { idle: Duration::ZERO, ..limits() });
    let start = Instant::now();
    connection.client.write_all(GET).await.unwrap();
    let mut rest = String::new();
    connection.client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("connection: close") && rest.contains("hello"), "{rest}");
    assert_eq!(since(start), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_stays_open_while_its_handler_is_active() {
    let mut connection = serve(limits());
    connection.client.write_all(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let stream = connection.streams.recv().await.unwrap();
    for _ in 0..10 {
        // Ten times the idle limit, and more than the stall limit, without data.
        sleep(Duration::from_secs(600)).await;
        stream.send(Bytes::from_static(b"data: x\n\n")).await.unwrap();
        read_to(&mut connection.client, "data: x\n\n").await;
    }
    drop(stream);
    read_to(&mut connection.client, "0\r\n\r\n").await;
    let start = Instant::now();
    connection.client.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(since(start), 60);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_served_and_a_stalled_one_is_disconnected() {
    let mut connection = serve(limits());
    connection.client.write_all(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let stream = connection.streams.recv().await.unwrap();
    let mut feeding = tokio::task::JoinSet::new();
    feeding.spawn(async move { while stream.send(Bytes::from(vec![b'x'; 64 * 1024])).await.is_ok() {} });
    let mut some = vec![0; 2048];
    for _ in 0..50 {
        sleep(Duration::from_secs(100)).await;
        connection.client.read_exact(&mut some).await.unwrap();
    }
    let start = Instant::now();
    connection.serving.join_next().await.unwrap().unwrap();
    assert!((119..=241).contains(&since(start)), "{}", since(start));
    feeding.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_body_that_stalls_fails_with_a_timeout() {
    let mut connection = serve(limits());
    let start = Instant::now();
    let head = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nsome";
    connection.client.write_all(head).await.unwrap();
    let mut rest = String::new();
    connection.client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("timeout: no data of the request body within 30 s"), "{rest}");
    assert!((30..=92).contains(&since(start)), "{}", since(start));
}

#[tokio::test(start_paused = true)]
async fn shutdown_completes_active_responses_and_waits_for_nothing_else() {
    let mut busy = serve(limits());
    busy.client.write_all(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let stream = busy.streams.recv().await.unwrap();
    let (mut silent, mut halfway, mut idle) = (serve(limits()), serve(limits()), serve(limits()));
    halfway.client.write_all(b"GET / HT").await.unwrap();
    idle.client.write_all(GET).await.unwrap();
    read_to(&mut idle.client, "0\r\n\r\n").await;
    let start = Instant::now();
    for other in [&mut silent, &mut halfway, &mut idle] {
        other.closing.cancel();
        other.serving.join_next().await.unwrap().unwrap();
    }
    assert_eq!(since(start), 0);
    busy.closing.cancel();
    sleep(Duration::from_secs(300)).await;
    stream.send(Bytes::from_static(b"last")).await.unwrap();
    drop(stream);
    read_to(&mut busy.client, "last\r\n0\r\n\r\n").await;
    busy.serving.join_next().await.unwrap().unwrap();
}
