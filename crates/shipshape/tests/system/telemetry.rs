//! Traces, as a collector receives them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use super::executable::Home;

/// One POST as a collector sees it, answered with `200`.
fn receive(stream: TcpStream) -> (String, Vec<u8>) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(reader.read_line(&mut head).unwrap(), 0, "{head}");
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.expect("a length")];
    reader.read_exact(&mut body).unwrap();
    reader.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
    (head, body)
}

#[test]
fn traces_reach_the_collector_before_the_process_ends() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("telemetry.otlp_endpoint=http://{}", collector.local_addr().unwrap());
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        let (stream, _) = collector.accept().unwrap();
        sender.send(receive(stream)).unwrap();
    });
    let home = Home::new();
    let up = home.up(&["--set", &endpoint, "--set", "telemetry.service_name=the-flagship"]);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
    let (head, body) = received.recv_timeout(Duration::from_secs(60)).expect("an export");
    assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
    assert!(head.contains("application/x-protobuf"), "{head}");
    let holds = |text: &str| body.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("the-flagship") && holds("start"), "the service and its first span");
}

#[test]
fn an_unreachable_collector_costs_one_line_and_no_failure() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let home = Home::new();
    let up = home.up(&["--set", &format!("telemetry.otlp_endpoint=http://{nobody}")]);
    assert_eq!(up.get("/readyz").0, 200);
    up.signal("TERM");
    let answer = up.end();
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert_eq!(answer.stderr.matches("Traces cannot be sent").count(), 1, "{answer:?}");
}

#[test]
fn a_collector_that_never_responds_causes_no_long_delay() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap(); // accepts into its queue and stays silent
    let home = Home::new();
    let endpoint = format!("telemetry.otlp_endpoint=http://{}", collector.local_addr().unwrap());
    let up = home.up(&["--set", &endpoint]);
    up.signal("TERM");
    let begun = std::time::Instant::now();
    assert_eq!(up.end().code, Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
