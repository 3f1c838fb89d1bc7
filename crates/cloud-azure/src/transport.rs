//! The HTTP client under every call: hyper with rustls, bounded in time and size.
//!
//! It trusts the authorities of the system and those of the settings. It never repeats a request and never follows a redirect:
//! both are decided above, by those who know the call. Connections are kept and used again. The pipelines of azure_core and of the
//! vault's crates run on it.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode, Url};
use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::settings::SettingsError;

/// Longest wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest time of one call with its body: the services answer within seconds what they accept.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);
/// Largest response: the list of sizes of a location has a few megabytes.
pub(crate) const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Address of the instance metadata service, which azure_identity does not let change.
pub(crate) const METADATA_HOST: &str = "169.254.169.254";

/// The transport of one client.
pub(crate) struct Transport {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    metadata: Option<Url>,
    call_time_max: Duration,
}

/// A response that was given up.
#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Abandoned {
    #[error("no response within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("the response is larger than {} MiB", RESPONSE_BYTES_MAX >> 20)]
    TooLarge,
}

/// Why a call has no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoResponse {
    /// There is no connection.
    Unreachable,
    /// The certificate of the other side is not trusted.
    Untrusted,
    /// The response did not come in time.
    Timeout,
    /// The response is larger than any that a service gives.
    TooLarge,
    /// The connection broke.
    Interrupted,
}

impl NoResponse {
    /// Finds the cause of an error of the pipeline.
    pub(crate) fn of(error: &Error) -> NoResponse {
        let is_connection = matches!(error.kind(), ErrorKind::Connection);
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut depth = 0;
        while let Some(current) = cause.filter(|_| depth < 16) {
            if let Some(abandoned) = current.downcast_ref::<Abandoned>() {
                return match abandoned {
                    Abandoned::Timeout(_) => NoResponse::Timeout,
                    Abandoned::TooLarge => NoResponse::TooLarge,
                };
            }
            if let Some(rustls::Error::InvalidCertificate(_)) = current.downcast_ref() {
                return NoResponse::Untrusted;
            }
            // The source of an I/O error is that of the error that it wraps, not that error itself.
            let wrapped = current.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            cause = match wrapped {
                Some(wrapped) => Some(wrapped),
                None => current.source(),
            };
            depth += 1;
        }
        if is_connection { NoResponse::Unreachable } else { NoResponse::Interrupted }
    }

    /// Whether the request may have reached the service.
    pub(crate) fn was_sent(self) -> bool {
        !matches!(self, NoResponse::Unreachable | NoResponse::Untrusted)
    }

    /// The cause and what would help, for the end of a sentence.
    pub(crate) fn describe(self, address: &str, setting: &str) -> String {
        match self {
            NoResponse::Unreachable => {
                format!("no connection to {address}; check that setting {setting} is right and reachable")
            }
            NoResponse::Untrusted => {
                format!("the certificate of {address} is not trusted; check settings {setting} and ca_file")
            }
            NoResponse::Timeout => format!("no response from {address} in time"),
            NoResponse::TooLarge => format!(
                "the response is larger than {} MiB; check setting {setting}",
                RESPONSE_BYTES_MAX >> 20
            ),
            NoResponse::Interrupted => format!("the connection to {address} broke"),
        }
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Transport {
    pub(crate) fn new(ca_pem: Option<&str>, metadata: Option<&str>) -> Result<Transport, SettingsError> {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| SettingsError { setting: "ca_file", why: error.to_string() })?
            .with_root_certificates(roots(ca_pem)?)
            .with_no_client_auth();
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIME_MAX));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let metadata = metadata.and_then(|it| Url::parse(it).ok());
        Ok(Transport {
            http: Client::builder(TokioExecutor::new()).build(https),
            metadata,
            call_time_max: CALL_TIME_MAX,
        })
    }

    /// The URL that a request goes to: that of the settings when it is meant for the metadata service.
    fn target(&self, url: &Url) -> Url {
        let Some(base) = &self.metadata else { return url.clone() };
        if url.host_str() != Some(METADATA_HOST) {
            return url.clone();
        }
        let mut target = base.clone();
        target.set_path(url.path());
        target.set_query(url.query());
        target
    }
}

/// The authorities that the system trusts. There are more than a hundred, so they are read once.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

/// The trusted authorities. Without one of the settings, those of the system are needed.
pub(crate) fn roots(ca_pem: Option<&str>) -> Result<RootCertStore, SettingsError> {
    let wrong = |why: String| SettingsError { setting: "ca_file", why };
    let mut roots = SYSTEM_ROOTS.clone();
    let Some(pem) = ca_pem else {
        if roots.is_empty() {
            return Err(wrong(
                "is not set, and the system has no trusted authorities; expected PEM".to_owned(),
            ));
        }
        return Ok(roots);
    };
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate =
            certificate.map_err(|error| wrong(format!("is not PEM of certificates: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(format!("holds a certificate that cannot be used: {error}")))?;
        count += 1;
    }
    if count == 0 {
        return Err(wrong("holds no certificate; expected one or more in PEM".to_owned()));
    }
    Ok(roots)
}

#[async_trait::async_trait]
impl HttpClient for Transport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let call = self.exchange(request);
        let limit = self.call_time_max;
        let response = tokio::time::timeout(limit, call).await;
        response.unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, Abandoned::Timeout(limit))))
    }
}

impl Transport {
    async fn exchange(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        let url = self.target(request.url());
        let mut builder = http::Request::builder().method(request.method().as_str()).uri(url.as_str());
        for (name, value) in request.headers().iter() {
            builder = builder.header(name.as_str(), value.as_str());
        }
        let body = match request.body() {
            Body::Bytes(bytes) => bytes.clone(),
            Body::SeekableStream(stream) => collect(stream.clone()).await?,
        };
        // A POST or PUT without content says so; some services answer 411 otherwise.
        let request =
            builder.body(Full::new(body)).map_err(|error| Error::new(ErrorKind::DataConversion, error))?;
        let response = self.http.request(request).await.map_err(|error| {
            let kind = if error.is_connect() { ErrorKind::Connection } else { ErrorKind::Io };
            Error::new(kind, error)
        })?;
        let (parts, body) = response.into_parts();
        let too_large = || Error::new(ErrorKind::DataConversion, Abandoned::TooLarge);
        // A length that is stated beforehand is not read first.
        if body.size_hint().lower() > RESPONSE_BYTES_MAX as u64 {
            return Err(too_large());
        }
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() { too_large() } else { Error::new(ErrorKind::Io, error) }
        })?;
        let mut headers = Headers::new();
        for name in parts.headers.keys() {
            // A header that comes twice, such as a challenge, is one with a comma.
            let values = parts.headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
            let value = values.collect::<Vec<_>>().join(", ");
            headers.insert(HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value));
        }
        Ok(AsyncRawResponse::from_bytes(StatusCode::from(parts.status.as_u16()), headers, body.to_bytes()))
    }
}

/// The content of a body that is a stream, as the blob client sends it.
async fn collect(mut stream: Box<dyn azure_core::stream::SeekableStream>) -> azure_core::Result<Bytes> {
    use futures_util::io::AsyncReadExt as _;
    let mut content = Vec::new();
    stream.read_to_end(&mut content).await.map_err(|error| Error::new(ErrorKind::Io, error))?;
    Ok(content.into())
}

#[cfg(test)]
mod tests;
