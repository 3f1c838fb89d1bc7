//! The door itself: both versions of HTTP, bounds, and an end that is orderly.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{House, admin};

fn address(house: &House) -> String {
    house.url.split("//").nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn http_2_is_spoken_too() {
    let house = House::open().await;
    let stream = TcpStream::connect(address(&house)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    let driving = tokio::spawn(connection);
    for _ in 0..3 {
        let uri = format!("{}/admin/clusters", house.url);
        let request = Request::builder().uri(uri).body(Full::<Bytes>::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "[]\n");
    }
    drop(sender);
    let _ = driving.await;
    house.close().await;
}

/// Sends bytes as they are and reads what comes back until the server hangs up.
async fn raw(house: &House, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address(house)).await.unwrap();
    // The server may hang up before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(30), read).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn what_is_no_http_ends_that_connection_and_nothing_else() {
    let house = House::open().await;
    let long = format!("GET /admin/clusters HTTP/1.1\r\nhost: x\r\nlong: {}\r\n\r\n", "x".repeat(200_000));
    let many = format!("GET /admin/clusters HTTP/1.1\r\nhost: x\r\n{}\r\n", "a: b\r\n".repeat(1000));
    let cases = [
        b"hello\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00".to_vec(),
        b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n".to_vec(),
        b"POST /admin/clusters HTTP/1.1\r\nhost: x\r\ncontent-length: nonsense\r\n\r\n".to_vec(),
        b"PUT /admin/clusters HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\ntransfer-encoding: chunked\r\n\r\n".to_vec(),
        long.into_bytes(),
        many.into_bytes(),
    ];
    for case in cases {
        let answer = raw(&house, &case).await;
        assert!(!answer.starts_with("HTTP/1.1 2") && !answer.starts_with("HTTP/1.1 5"), "{answer}");
    }
    house.get("/admin/clusters").await.expect(200);
    house.close().await;
}

#[tokio::test]
async fn a_body_that_ends_early_changes_nothing() {
    let house = House::open().await;
    house.furnish("one").await;
    let place = house.store.feed_end().await.unwrap();
    let head = format!(
        "PUT {}/labels HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"a\":\"b\"}}",
        admin("one")
    );
    let answer = raw(&house, head.as_bytes()).await;
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(house.store.feed_end().await.unwrap(), place);
    house.close().await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_connections_that_say_nothing() {
    let house = House::open().await;
    let silent = TcpStream::connect(address(&house)).await.unwrap();
    let idle = house.get("/admin/clusters").await.expect(200);
    assert_eq!(idle.text, "[]\n");
    let begun = tokio::time::Instant::now();
    house.close().await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(silent);
}

#[tokio::test]
async fn more_silent_clients_than_the_api_has_places_for_keep_nobody_out() {
    let house = House::guarded(|_, _| {}).await;
    let mut silent = Vec::new();
    for _ in 0..1100 {
        silent.push(TcpStream::connect(address(&house)).await.unwrap());
    }
    let answered = tokio::time::timeout(Duration::from_secs(8), house.get("/admin/clusters"));
    answered.await.expect("the silent ones had to make room").expect(200);
    drop(silent);
    house.close().await;
}

#[tokio::test]
async fn where_everybody_is_let_in_no_page_of_another_site_is() {
    let house = House::open().await;
    let refused = |headers: &'static [(&'static str, &'static str)]| {
        let house = &house;
        async move { house.ask(http::Method::GET, "/admin/clusters", headers, None).await }
    };
    // A name of somebody else that resolves to this machine, and a page that sends a form.
    for headers in [
        &[("host", "evil.example:8443")][..],
        &[("host", "localhost.evil.example")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
    ] {
        let reply = refused(headers).await.expect(403);
        assert_eq!(reply.refusal().1, "Forbidden");
        assert!(reply.text.contains("frontend.public_names"), "{}", reply.text);
    }
    for headers in [
        &[("host", "localhost:1")][..],
        &[("host", "[::1]")],
        &[("host", "management.example"), ("origin", "https://management.example")],
        &[("origin", "http://127.0.0.1:8444")],
    ] {
        refused(headers).await.expect(200);
    }
    house.close().await;
}

/// The certificate that the server shows to whoever comes now.
async fn shown(house: &House) -> CertificateDer<'static> {
    let pki = house.pki.as_ref().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&pki.authority).unwrap()).unwrap();
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let stream = TcpStream::connect(address(house)).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_without_a_restart() {
    let house = House::guarded(|_, _| {}).await;
    let pki = house.pki.clone().unwrap();
    let first = CertificateDer::from_pem_file(&pki.server).unwrap();
    assert_eq!(shown(&house).await, first);
    // A further name makes it another one.
    let now = api::clock::Clock::now(&api::clock::SystemClock);
    assert!(pki.renew(&["renewed.example".to_owned()], now).unwrap());
    let renewed = CertificateDer::from_pem_file(&pki.server).unwrap();
    assert_ne!(renewed, first);
    let met = async {
        while shown(&house).await != renewed {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.unwrap();
    house.get("/admin/clusters").await.expect(200);
    house.close().await;
}
