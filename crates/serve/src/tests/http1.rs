//! HTTP/1.1, in memory.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, sleep};

use super::{limits, served, since};

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// Reads until what was read ends with `end`.
async fn read_to(client: &mut (impl tokio::io::AsyncRead + Unpin), end: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with(end) {
        let count = client.read(&mut byte).await.unwrap();
        assert_eq!(count, 1, "the connection ended after {text:?}");
        text.push(char::from(byte[0]));
    }
    text
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_closed() {
    let mut served = served(limits());
    let begun = Instant::now();
    let mut rest = Vec::new();
    served.client.read_to_end(&mut rest).await.unwrap();
    assert_eq!((since(begun), rest.len()), (10, 0));
    served.serving.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_head_that_dribbles_in_has_one_limit_for_all_of_it() {
    let mut served = served(limits());
    sleep(Duration::from_secs(5)).await;
    let begun = Instant::now();
    let head = b"GET / HTTP/1.1\r\nhost: x\r\nx-long: ".iter().chain(std::iter::repeat(&b'a'));
    for byte in head {
        if served.client.write_all(&[*byte]).await.is_err() {
            break;
        }
        sleep(Duration::from_secs(1)).await;
    }
    // The limit, and a moment in which it could have gone on.
    assert!((20..=24).contains(&since(begun)), "{}", since(begun));
}

#[tokio::test(start_paused = true)]
async fn between_requests_a_connection_is_kept_for_the_idle_time() {
    let mut served = served(limits());
    for pause in [0, 50, 59] {
        sleep(Duration::from_secs(pause)).await;
        served.client.write_all(GET).await.unwrap();
        read_to(&mut served.client, "hello\r\n0\r\n\r\n").await;
    }
    let begun = Instant::now();
    let mut rest = Vec::new();
    served.client.read_to_end(&mut rest).await.unwrap();
    assert_eq!((since(begun), rest.len()), (60, 0));
}

#[tokio::test(start_paused = true)]
async fn without_idle_time_every_response_ends_its_connection() {
    let mut served = served(crate::Limits { idle: Duration::ZERO, ..limits() });
    let begun = Instant::now();
    served.client.write_all(GET).await.unwrap();
    let mut rest = String::new();
    served.client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("connection: close") && rest.contains("hello"), "{rest}");
    assert_eq!(since(begun), 0);
}

#[tokio::test(start_paused = true)]
async fn a_stream_lasts_as_long_as_its_handler_has_something_to_say() {
    let mut served = served(limits());
    served.client.write_all(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let stream = served.streams.recv().await.unwrap();
    for _ in 0..10 {
        // Ten times the idle time, and more than a stall, without a word.
        sleep(Duration::from_secs(600)).await;
        stream.send(Bytes::from_static(b"data: x\n\n")).await.unwrap();
        read_to(&mut served.client, "data: x\n\n").await;
    }
    drop(stream);
    read_to(&mut served.client, "0\r\n\r\n").await;
    let begun = Instant::now();
    served.client.read_to_end(&mut Vec::new()).await.unwrap();
    assert_eq!(since(begun), 60);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_served_and_one_that_takes_nothing_is_cut_off() {
    let mut served = served(limits());
    served.client.write_all(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let stream = served.streams.recv().await.unwrap();
    let mut feeding = tokio::task::JoinSet::new();
    feeding.spawn(async move { while stream.send(Bytes::from(vec![b'x'; 64 * 1024])).await.is_ok() {} });
    let mut some = vec![0; 2048];
    for _ in 0..50 {
        sleep(Duration::from_secs(100)).await;
        served.client.read_exact(&mut some).await.unwrap();
    }
    let begun = Instant::now();
    served.serving.join_next().await.unwrap().unwrap();
    assert!((119..=241).contains(&since(begun)), "{}", since(begun));
    feeding.join_next().await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_body_that_stops_is_an_error_of_its_reader() {
    let mut served = served(limits());
    let begun = Instant::now();
    let head = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nsome";
    served.client.write_all(head).await.unwrap();
    let mut rest = String::new();
    served.client.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("nothing of the request body arrived within 30 s"), "{rest}");
    assert!((30..=92).contains(&since(begun)), "{}", since(begun));
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_a_listener_a_response_under_way_is_finished_and_nothing_else_is_waited_for() {
    let mut busy = served(limits());
    busy.client.write_all(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let stream = busy.streams.recv().await.unwrap();
    let (mut silent, mut halfway, mut idle) = (served(limits()), served(limits()), served(limits()));
    halfway.client.write_all(b"GET / HT").await.unwrap();
    idle.client.write_all(GET).await.unwrap();
    read_to(&mut idle.client, "0\r\n\r\n").await;
    let begun = Instant::now();
    for other in [&mut silent, &mut halfway, &mut idle] {
        other.closing.cancel();
        other.serving.join_next().await.unwrap().unwrap();
    }
    assert_eq!(since(begun), 0);
    busy.closing.cancel();
    sleep(Duration::from_secs(300)).await;
    stream.send(Bytes::from_static(b"last")).await.unwrap();
    drop(stream);
    read_to(&mut busy.client, "last\r\n0\r\n\r\n").await;
    busy.serving.join_next().await.unwrap().unwrap();
}
