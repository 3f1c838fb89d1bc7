//! Listeners on real sockets, with and without TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_util::sync::CancellationToken;

use crate::tls::{self, CertificateFiles, ClientCertificates};
use crate::{ConnectionEvent, Limits, Listener, SameService};

/// More than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    serving: JoinSet<()>,
    connector: TlsConnector,
    _place: tempfile::TempDir,
}

async fn running(limits: Limits, with_tls: bool) -> Running {
    let place = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (place.path().join("crt"), place.path().join("key"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let open = Arc::new(AtomicUsize::new(0));
    let seen = open.clone();
    let mut listener =
        Listener::bind(([127, 0, 0, 1], 0).into(), limits).await.unwrap().observed_by(move |event| {
            if let ConnectionEvent::Open(count) = event {
                seen.store(count, Ordering::SeqCst);
            }
        });
    if with_tls {
        let files = CertificateFiles::open(&certificate, &key).unwrap();
        listener = listener.with_tls(tls::server_config(files, ClientCertificates::NotRequested).unwrap());
    }
    let (address, shutdown) = (listener.address(), CancellationToken::new());
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve(SameService(super::service().0), shutdown.clone()));
    let connector = TlsConnector::from(Arc::new(client));
    Running { address, open, shutdown, serving, connector, _place: place }
}

impl Running {
    async fn close(mut self) {
        self.shutdown.cancel();
        tokio::time::timeout(PATIENCE, self.serving.join_next()).await.unwrap().unwrap().unwrap();
    }

    /// A connection from another address of the loopback interface.
    async fn connect_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }
}

/// One request on a connection.
async fn asks(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    answer
}

/// Until the server hangs up.
async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // A server that hangs up without the goodbye of TLS makes an error of it, which is as good.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it stays open");
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_client_that_shakes_hands_and_says_nothing_is_closed() {
    let limits = Limits { first_byte: Duration::from_millis(200), ..Limits::default() };
    let running = running(limits, true).await;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(running.address).await.unwrap();
    let mut silent = running.connector.connect(name.clone(), stream).await.unwrap();
    closed(&mut silent).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    assert!(asks(running.connector.connect(name, stream).await.unwrap()).await.contains("hello"));
    running.close().await;
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_is_closed() {
    let limits = Limits { handshake: Duration::from_millis(200), ..Limits::default() };
    let running = running(limits, true).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    closed(&mut silent).await;
    running.close().await;
}

#[tokio::test]
async fn more_silent_clients_than_places_keep_nobody_out() {
    // No limit on time helps here.
    let patient = Duration::from_secs(3600);
    let limits =
        Limits { handshake: patient, first_byte: patient, head: patient, idle: patient, ..Limits::default() };
    for with_tls in [false, true] {
        let running = running(limits, with_tls).await;
        let mut silent = Vec::new();
        for _ in 0..1100 {
            silent.push(TcpStream::connect(running.address).await.unwrap());
        }
        for last in [1, 2] {
            let stream = running.connect_from(last).await;
            let answer = if with_tls {
                let name = ServerName::try_from("localhost").unwrap();
                asks(running.connector.connect(name, stream).await.unwrap()).await
            } else {
                asks(stream).await
            };
            assert!(answer.contains("hello"), "{answer}");
        }
        let open = running.open.load(Ordering::SeqCst);
        assert!(open <= limits.connections_per_address + 2, "{open}");
        // The oldest made room for the newest.
        closed(&mut silent[0]).await;
        drop(silent);
        running.close().await;
    }
}

#[tokio::test]
async fn silent_clients_do_not_delay_the_end() {
    let running = running(Limits { closing: PATIENCE * 10, ..Limits::default() }, true).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    running.close().await;
    closed(&mut silent).await;
}
