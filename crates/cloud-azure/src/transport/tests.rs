//! Tests of the transport against servers on the loopback interface.

use std::io::{Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use azure_core::http::Method;
use cloud::Infrastructure as _;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::client::AzureClient;
use crate::settings::Settings;
use crate::testing::{ScriptedService, settings};

/// A server that answers each request of each connection with the same bytes, in threads of its own that end with the connections.
struct Server {
    url: Url,
    connections: Arc<AtomicUsize>,
    ca_pem: String,
}

impl Server {
    fn new(answer: impl Fn(&mut dyn Write) -> std::io::Result<()> + Send + Sync + 'static) -> Server {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let (config, answer) = (Arc::new(config), Arc::new(answer));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://localhost:{}/x", listener.local_addr().unwrap().port());
        let connections = Arc::new(AtomicUsize::new(0));
        let count = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                let (config, answer) = (config.clone(), answer.clone());
                std::thread::spawn(move || {
                    let connection = ServerConnection::new(config).unwrap();
                    let mut stream = StreamOwned::new(connection, stream);
                    // The end of a connection is not this server's matter.
                    while read_head(&mut stream).is_some() && answer(&mut stream).is_ok() {}
                });
            }
        });
        Server { url: url.parse().unwrap(), connections, ca_pem: cert.pem() }
    }

    fn transport(&self) -> Transport {
        Transport::new(Some(&self.ca_pem), None).unwrap()
    }

    async fn get(&self, transport: &Transport) -> azure_core::Result<(u16, Headers, Bytes)> {
        let request = Request::new(self.url.clone(), Method::Get);
        let response = transport.execute_request(&request).await?.try_into_raw_response().await?;
        let (status, headers, body) = response.deconstruct();
        Ok((status.into(), headers, body.into()))
    }
}

/// Reads the head of a request without a body; `None` at the end of the connection.
fn read_head(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(())
}

#[test]
fn only_requests_of_the_metadata_service_are_redirected() {
    let ca = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
    let transport = Transport::new(Some(&ca), Some("http://127.0.0.1:9")).unwrap();
    let target = |url: &str| transport.target(&Url::parse(url).unwrap()).to_string();
    assert_eq!(target("http://169.254.169.254/metadata/x?a=b"), "http://127.0.0.1:9/metadata/x?a=b");
    assert_eq!(target("https://management.azure.com/x"), "https://management.azure.com/x");
}

#[test]
fn a_trusted_authority_must_be_a_certificate() {
    for pem in ["", "nothing", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----"] {
        let error = Transport::new(Some(pem), None).unwrap_err().to_string();
        assert!(error.starts_with("setting ca_file: "), "{error}");
    }
}

#[tokio::test]
async fn a_connection_is_used_again() {
    let server = Server::new(|stream| {
        stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nwww-authenticate: a\r\nwww-authenticate: b\r\n\r\nok",
        )?;
        stream.flush()
    });
    let transport = server.transport();
    for _ in 0..5 {
        let (status, headers, body) = server.get(&transport).await.unwrap();
        assert_eq!((status, body.as_ref()), (200, b"ok".as_ref()));
        assert_eq!(headers.get_optional_str(&HeaderName::from_static("www-authenticate")), Some("a, b"));
    }
    assert_eq!(server.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_response_that_is_too_large_is_refused_with_or_without_its_length() {
    let with_length = Server::new(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 52428800\r\n\r\n")?;
        stream.flush()
    });
    let without = Server::new(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")?;
        for _ in 0..50 {
            stream.write_all(b"100000\r\n")?;
            stream.write_all(&vec![b'x'; 1 << 20])?;
            stream.write_all(b"\r\n")?;
        }
        stream.write_all(b"0\r\n\r\n")
    });
    for server in [with_length, without] {
        let error = server.get(&server.transport()).await.unwrap_err();
        let cause = NoResponse::of(&error);
        assert_eq!(cause, NoResponse::TooLarge);
        let shown = cause.describe("https://management.azure.com", "resource_manager");
        assert_eq!(shown, "the response is larger than 16 MiB; check setting resource_manager");
    }
}

/// Tokens of a script, and everything else over the network.
#[derive(Debug)]
struct WithTokens(ScriptedService, Transport);

#[async_trait::async_trait]
impl HttpClient for WithTokens {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        match request.url().path().ends_with("/token") {
            true => self.0.execute_request(request).await,
            false => self.1.execute_request(request).await,
        }
    }
}

#[tokio::test]
async fn a_response_of_fifty_megabytes_is_one_sentence() {
    let server = Server::new(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 52428800\r\n\r\n")?;
        stream.flush()
    });
    let origin = server.url.origin().ascii_serialization();
    let settings = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings();
        change(&mut settings);
        settings
    };
    let http = WithTokens(ScriptedService::new([]), server.transport());
    let of_manager = settings(&|it| it.resource_manager.clone_from(&origin));
    let client = AzureClient::with_http(of_manager, Arc::new(http)).unwrap();
    let error = client.providers("s").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the cloud's response to GET /subscriptions/s/providers (the response is larger than 16 MiB; \
         check setting resource_manager) has an unexpected form"
    );
    let of_authority = settings(&|it| it.authority.clone_from(&origin));
    let client = AzureClient::with_http(of_authority, Arc::new(server.transport())).unwrap();
    let error = client.providers("s").await.unwrap_err().to_string();
    assert_eq!(
        error,
        "the cloud's response to the token request for app (the response is larger than 16 MiB; \
         check setting authority) has an unexpected form"
    );
}

#[tokio::test]
async fn a_response_that_does_not_come_is_given_up() {
    let server = Server::new(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")?;
        stream.flush()
    });
    let transport = Transport { call_time_max: Duration::from_millis(200), ..server.transport() };
    let error = server.get(&transport).await.unwrap_err();
    assert_eq!(NoResponse::of(&error), NoResponse::Timeout);
    assert!(NoResponse::Timeout.was_sent());
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_named_as_the_cause() {
    let server = Server::new(|_| Ok(()));
    let other = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
    let error = server.get(&Transport::new(Some(&other), None).unwrap()).await.unwrap_err();
    let cause = NoResponse::of(&error);
    assert_eq!(cause, NoResponse::Untrusted);
    assert!(cause.describe("https://x", "vault").ends_with("check settings vault and ca_file"));
    assert!(!cause.was_sent());
}

#[tokio::test]
async fn a_connection_that_breaks_may_have_carried_the_request() {
    let server = Server::new(|stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")?;
        stream.flush()?;
        Err(std::io::Error::other("closed"))
    });
    let error = server.get(&server.transport()).await.unwrap_err();
    let cause = NoResponse::of(&error);
    assert_eq!((cause, cause.was_sent()), (NoResponse::Interrupted, true));
    // Nothing listens on a port that was just given back.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nowhere = Server { url: format!("https://localhost:{port}/x").parse().unwrap(), ..server };
    let error = nowhere.get(&nowhere.transport()).await.unwrap_err();
    let cause = NoResponse::of(&error);
    assert_eq!((cause, cause.was_sent()), (NoResponse::Unreachable, false));
}
