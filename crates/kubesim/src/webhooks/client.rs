//! Calls of webhooks over HTTPS. Connections are kept for the next call.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::review::CallError;

/// Annotation of a Service with the address, on this machine, of the program that stands for its pods: simulated pods
/// have no network.
pub(super) const SERVICE_ADDRESS: &str = "sim.shipshape.dev/address";
/// Limit on a response, as on requests.
const RESPONSE_BYTES_MAX: usize = 3 << 20;
/// Idle connections that are kept for each webhook.
const IDLE_MAX: usize = 4;
/// Webhooks whose connections are kept.
const ENDPOINTS_MAX: usize = 32;

type Sender = SendRequest<Full<Bytes>>;

/// Where a webhook is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Endpoint {
    /// The URL, as messages show it.
    pub(super) url: String,
    /// Host and port to connect to.
    pub(super) address: String,
    /// The name in its certificate.
    pub(super) server_name: String,
    /// Certificates that are trusted, in PEM and base64.
    pub(super) authority: String,
}

impl Endpoint {
    /// Reads the client configuration of a webhook; `resolve` returns the address of a Service's port.
    pub(super) fn new(
        client: &Value,
        resolve: impl FnOnce(&str, &str, u64) -> Result<String, String>,
    ) -> Result<Endpoint, CallError> {
        let authority = client["caBundle"].as_str().unwrap_or_default().to_owned();
        let service = &client["service"];
        if service.is_null() {
            let url = client["url"].as_str().unwrap_or_default().to_owned();
            let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
            let host = uri.host().unwrap_or_default();
            let address = format!("{host}:{}", uri.port_u16().unwrap_or(443));
            let server_name = host.trim_matches(['[', ']']).to_owned();
            return Ok(Endpoint { url, address, server_name, authority });
        }
        let text = |field: &str| service[field].as_str().unwrap_or_default();
        let port = service["port"].as_u64().unwrap_or(443);
        let server_name = format!("{}.{}.svc", text("name"), text("namespace"));
        let path = text("path");
        let slash = if path.starts_with('/') { "" } else { "/" };
        let url = format!("https://{server_name}:{port}{slash}{path}");
        let address = resolve(text("namespace"), text("name"), port)
            .map_err(|why| format!("failed to call webhook: Post {url:?}: {why}"))?;
        Ok(Endpoint { url, address, server_name, authority })
    }
}

/// Connections to webhooks.
#[derive(Default)]
pub(crate) struct Connections {
    idle: Mutex<HashMap<Endpoint, Vec<Sender>>>,
    /// A task for each open connection. It ends with the last sender, or when the webhook closes the connection.
    tasks: Mutex<JoinSet<()>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").finish_non_exhaustive()
    }
}

impl Connections {
    /// Sends a review and returns the one that the webhook answers.
    pub(super) async fn call(
        &self,
        endpoint: &Endpoint,
        review: &Value,
        timeout: Duration,
    ) -> Result<Value, CallError> {
        let url = format!("{}?timeout={}s", endpoint.url, timeout.as_secs());
        let failed = |why: String| format!("failed to call webhook: Post {url:?}: {why}");
        let body = Bytes::from(review.to_string());
        match tokio::time::timeout(timeout, self.exchange(endpoint, &url, body)).await {
            Ok(Ok((200..=299, body))) => serde_json::from_slice(&body).map_err(|error| {
                format!("failed to call webhook: couldn't get version/kind; json parse error: {error}")
            }),
            Ok(Ok((code, body))) => {
                let shown = String::from_utf8_lossy(&body);
                let shown = shown.trim();
                Err(match (code, shown) {
                    (404, _) => {
                        "failed to call webhook: the server could not find the requested resource".to_owned()
                    }
                    (code, "") => format!("failed to call webhook: an error on the server (code {code})"),
                    (_, shown) => format!(
                        "failed to call webhook: an error on the server ({shown:?}) has prevented the request from succeeding"
                    ),
                })
            }
            Ok(Err(why)) => Err(failed(why)),
            Err(_) => Err(failed("context deadline exceeded".to_owned())),
        }
    }

    async fn exchange(&self, endpoint: &Endpoint, url: &str, body: Bytes) -> Result<(u16, Bytes), String> {
        let uri: Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        let request = || {
            Request::post(&path)
                .header(HOST, uri.authority().map_or("", |authority| authority.as_str()))
                .header(CONTENT_TYPE, "application/json")
                .header(ACCEPT, "application/json")
                .body(Full::new(body.clone()))
                .map_err(|error| error.to_string())
        };
        // A kept connection may have been closed meanwhile; then a new one is used.
        while let Some(mut sender) = self.take(endpoint) {
            if sender.ready().await.is_err() {
                continue;
            }
            if let Ok(response) = sender.send_request(request()?).await {
                return self.finish(endpoint, sender, response).await;
            }
        }
        let (mut sender, connection) = connect(endpoint).await?;
        self.drive(connection);
        let response = sender.send_request(request()?).await.map_err(|error| error.to_string())?;
        self.finish(endpoint, sender, response).await
    }

    async fn finish(
        &self,
        endpoint: &Endpoint,
        sender: Sender,
        response: hyper::Response<hyper::body::Incoming>,
    ) -> Result<(u16, Bytes), String> {
        let code = response.status().as_u16();
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // Webhooks that are gone, or have other certificates now.
        if idle.len() > ENDPOINTS_MAX {
            idle.clear();
        }
        let kept = idle.entry(endpoint.clone()).or_default();
        if kept.len() < IDLE_MAX && !sender.is_closed() {
            kept.push(sender);
        }
        Ok((code, body))
    }

    fn drive(&self, connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        // Its error is also that of the exchange.
        tasks.spawn(async { drop(connection.await) });
    }

    fn take(&self, endpoint: &Endpoint) -> Option<Sender> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(endpoint)?.pop()
    }
}

async fn connect(
    endpoint: &Endpoint,
) -> Result<(Sender, impl Future<Output = hyper::Result<()>> + Send + use<>), String> {
    let tls = tls(&endpoint.authority)?;
    let name = ServerName::try_from(endpoint.server_name.clone()).map_err(|error| error.to_string())?;
    let stream = TcpStream::connect(&endpoint.address).await.map_err(|error| {
        let address = endpoint.address.parse::<SocketAddr>().map(|it| it.to_string());
        let address = address.unwrap_or_else(|_| endpoint.address.clone());
        match error.kind() {
            std::io::ErrorKind::ConnectionRefused => {
                format!("dial tcp {address}: connect: connection refused")
            }
            _ => format!("dial tcp {address}: {error}"),
        }
    })?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|error| tls_error(&error))?;
    handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())
}

fn tls(authority: &str) -> Result<Arc<ClientConfig>, String> {
    let pem = STANDARD.decode(authority).map_err(|error| format!("caBundle is not base64: {error}"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem).flatten() {
        roots.add(certificate).map_err(|error| format!("caBundle has an unusable certificate: {error}"))?;
    }
    let config = ClientConfig::builder_with_provider(serve::tls::provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// A failed handshake, in the words of the real server where they are known.
fn tls_error(error: &std::io::Error) -> String {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer)) => {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        }
        Some(cause) => format!("tls: {cause}"),
        None => error.to_string(),
    }
}
