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
use crate::{ConnectionEvent, Listener, ListenerLimits, SharedService};

/// Longer than any test takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

struct RunningListener {
    address: SocketAddr,
    open: Arc<AtomicUsize>,
    shutdown: CancellationToken,
    serving: JoinSet<()>,
    connector: TlsConnector,
    _directory: tempfile::TempDir,
}

async fn start_listener(limits: ListenerLimits, with_tls: bool) -> RunningListener {
    let directory = tempfile::tempdir().unwrap();
    let generated = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("crt"), directory.path().join("key"));
    std::fs::write(&certificate, generated.cert.pem()).unwrap();
    std::fs::write(&key, generated.signing_key.serialize_pem()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(generated.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let open = Arc::new(AtomicUsize::new(0));
    let seen = open.clone();
    let mut listener =
        Listener::bind(([127, 0, 0, 1], 0).into(), limits).await.unwrap().with_observer(move |event| {
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
    serving.spawn(listener.serve(SharedService(super::service().0), shutdown.clone()));
    let connector = TlsConnector::from(Arc::new(client));
    RunningListener { address, open, shutdown, serving, connector, _directory: directory }
}

impl RunningListener {
    async fn close(mut self) {
        self.shutdown.cancel();
        tokio::time::timeout(TEST_TIMEOUT, self.serving.join_next()).await.unwrap().unwrap().unwrap();
    }

    /// A connection from another address of the loopback interface.
    async fn connect_from(&self, last: u8) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, last], 0).into()).unwrap();
        socket.connect(self.address).await.unwrap()
    }
}

/// Sends one request and returns the response.
async fn get(mut stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin) -> String {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut response = String::new();
    tokio::time::timeout(TEST_TIMEOUT, stream.read_to_string(&mut response)).await.unwrap().unwrap();
    response
}

/// Waits until the server closes the connection.
async fn wait_for_close(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // Without a TLS close notification the client gets an error, which is accepted too.
    let _ = tokio::time::timeout(TEST_TIMEOUT, stream.read_to_end(&mut rest))
        .await
        .expect("the connection stays open");
    assert!(rest.is_empty(), "{rest:?}");
}

#[tokio::test]
async fn a_client_that_sends_nothing_after_the_handshake_is_disconnected() {
    let limits = ListenerLimits { first_byte: Duration::from_millis(200), ..ListenerLimits::default() };
    let running = start_listener(limits, true).await;
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TcpStream::connect(running.address).await.unwrap();
    let mut silent = running.connector.connect(name.clone(), stream).await.unwrap();
    wait_for_close(&mut silent).await;
    let stream = TcpStream::connect(running.address).await.unwrap();
    assert!(get(running.connector.connect(name, stream).await.unwrap()).await.contains("hello"));
    running.close().await;
}

#[tokio::test]
async fn a_client_without_a_handshake_is_disconnected() {
    let limits = ListenerLimits { handshake: Duration::from_millis(200), ..ListenerLimits::default() };
    let running = start_listener(limits, true).await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    wait_for_close(&mut silent).await;
    running.close().await;
}

#[tokio::test]
async fn more_silent_clients_than_the_limit_do_not_block_others() {
    // Time limits that cannot help.
    let patient = Duration::from_secs(3600);
    let limits = ListenerLimits {
        handshake: patient,
        first_byte: patient,
        head: patient,
        idle: patient,
        ..ListenerLimits::default()
    };
    for with_tls in [false, true] {
        let running = start_listener(limits, with_tls).await;
        let mut silent = Vec::new();
        for _ in 0..1100 {
            silent.push(TcpStream::connect(running.address).await.unwrap());
        }
        for last in [1, 2] {
            let stream = running.connect_from(last).await;
            let response = if with_tls {
                let name = ServerName::try_from("localhost").unwrap();
                get(running.connector.connect(name, stream).await.unwrap()).await
            } else {
                get(stream).await
            };
            assert!(response.contains("hello"), "{response}");
        }
        let open = running.open.load(Ordering::SeqCst);
        assert!(open <= limits.connections_per_address + 2, "{open}");
        // The oldest generated room for the newest.
        wait_for_close(&mut silent[0]).await;
        drop(silent);
        running.close().await;
    }
}

#[tokio::test]
async fn silent_clients_do_not_delay_the_shutdown() {
    let running =
        start_listener(ListenerLimits { closing: TEST_TIMEOUT * 10, ..ListenerLimits::default() }, true)
            .await;
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    running.close().await;
    wait_for_close(&mut silent).await;
}
