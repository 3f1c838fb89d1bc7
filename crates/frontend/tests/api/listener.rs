//! The listener: both versions of HTTP, limits, and graceful shutdown.

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

use crate::fixture::{TestServer, admin};

fn address(server: &TestServer) -> String {
    server.url.split("//").nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn http_2_is_supported() {
    let server = TestServer::open().await;
    let stream = TcpStream::connect(address(&server)).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
    let driving = tokio::spawn(connection);
    for _ in 0..3 {
        let uri = format!("{}/admin/clusters", server.url);
        let request = Request::builder().uri(uri).body(Full::<Bytes>::default()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "[]\n");
    }
    drop(sender);
    let _ = driving.await;
    server.close().await;
}

/// Sends raw bytes and reads the response until the server closes the connection.
async fn raw(server: &TestServer, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address(server)).await.unwrap();
    // The server may close the connection before it has read everything.
    let _ = stream.write_all(bytes).await;
    let _ = stream.shutdown().await;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let _ = tokio::time::timeout(Duration::from_secs(30), read).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn invalid_http_closes_its_connection_only() {
    let server = TestServer::open().await;
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
        let answer = raw(&server, &case).await;
        assert!(!answer.starts_with("HTTP/1.1 2") && !answer.starts_with("HTTP/1.1 5"), "{answer}");
    }
    server.get("/admin/clusters").await.expect(200);
    server.close().await;
}

#[tokio::test]
async fn a_body_that_ends_early_changes_nothing() {
    let server = TestServer::open().await;
    server.prepare("one").await;
    let place = server.store.feed_end().await.unwrap();
    let head = format!(
        "PUT {}/labels HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{\"a\":\"b\"}}",
        admin("one")
    );
    let answer = raw(&server, head.as_bytes()).await;
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    assert_eq!(server.store.feed_end().await.unwrap(), place);
    server.close().await;
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_idle_connections() {
    let server = TestServer::open().await;
    let silent = TcpStream::connect(address(&server)).await.unwrap();
    let idle = server.get("/admin/clusters").await.expect(200);
    assert_eq!(idle.text, "[]\n");
    let begun = tokio::time::Instant::now();
    server.close().await;
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    drop(silent);
}

#[tokio::test]
async fn idle_clients_beyond_the_limit_do_not_block_others() {
    let server = TestServer::guarded(|_, _| {}).await;
    let mut silent = Vec::new();
    for _ in 0..1100 {
        silent.push(TcpStream::connect(address(&server)).await.unwrap());
    }
    let answered = tokio::time::timeout(Duration::from_secs(8), server.get("/admin/clusters"));
    answered.await.expect("the silent ones had to make room").expect(200);
    drop(silent);
    server.close().await;
}

#[tokio::test]
async fn without_authentication_pages_of_other_sites_are_rejected() {
    let server = TestServer::open().await;
    let refused = |headers: &'static [(&'static str, &'static str)]| {
        let server = &server;
        async move { server.send(http::Method::GET, "/admin/clusters", headers, None).await }
    };
    // A foreign host name that resolves to this machine, and a form of another site.
    for headers in [
        &[("host", "evil.example:8443")][..],
        &[("host", "localhost.evil.example")],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
    ] {
        let reply = refused(headers).await.expect(403);
        assert_eq!(reply.error().1, "Forbidden");
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
    server.close().await;
}

/// The certificate that the server presents to new connections.
async fn presented(server: &TestServer) -> CertificateDer<'static> {
    let pki = server.pki.as_ref().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&pki.authority).unwrap()).unwrap();
    let config =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
    let stream = TcpStream::connect(address(server)).await.unwrap();
    let name = "localhost".try_into().unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

#[tokio::test]
async fn a_renewed_certificate_is_presented_without_a_restart() {
    let server = TestServer::guarded(|_, _| {}).await;
    let pki = server.pki.clone().unwrap();
    let first = CertificateDer::from_pem_file(&pki.server).unwrap();
    assert_eq!(presented(&server).await, first);
    // An additional name makes it a new certificate.
    let now = api::clock::Clock::now(&api::clock::SystemClock);
    assert!(pki.renew(&["renewed.example".to_owned()], now).unwrap());
    let renewed = CertificateDer::from_pem_file(&pki.server).unwrap();
    assert_ne!(renewed, first);
    let met = async {
        while presented(&server).await != renewed {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), met).await.unwrap();
    server.get("/admin/clusters").await.expect(200);
    server.close().await;
}
