//! The HTTP client under every call: hyper with rustls, bounded in time and size.
//!
//! It trusts the authorities of the system and those of the settings. It never repeats a request and never follows a redirect:
//! both are decided above, by those who know the call. The pipelines of azure_core and of the vault's crates run on it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::{HeaderName, HeaderValue, Headers};
use azure_core::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode, Url};
use bytes::Bytes;
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
const METADATA_HOST: &str = "169.254.169.254";

/// The transport of one client.
pub(crate) struct Transport {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    metadata: Option<Url>,
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
            .map_err(|error| SettingsError { setting: "ca_pem", why: error.to_string() })?
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
        Ok(Transport { http: Client::builder(TokioExecutor::new()).build(https), metadata })
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

/// The trusted authorities. Without one of the settings, those of the system are needed.
fn roots(ca_pem: Option<&str>) -> Result<RootCertStore, SettingsError> {
    let wrong = |why: String| SettingsError { setting: "ca_pem", why };
    let mut roots = RootCertStore::empty();
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
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
        tokio::time::timeout(CALL_TIME_MAX, call).await.unwrap_or_else(|_| {
            let message = format!("no response within {} s", CALL_TIME_MAX.as_secs());
            Err(Error::with_message(ErrorKind::Io, message))
        })
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
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                let message = format!("the response is larger than {} MiB", RESPONSE_BYTES_MAX >> 20);
                return Error::with_message(ErrorKind::DataConversion, message);
            }
            Error::new(ErrorKind::Io, error)
        })?;
        let mut headers = Headers::new();
        for (name, value) in &parts.headers {
            if let Ok(value) = value.to_str() {
                headers
                    .insert(HeaderName::from(name.as_str().to_owned()), HeaderValue::from(value.to_owned()));
            }
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
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_the_metadata_service_are_redirected() {
        let ca = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
        let transport = Transport::new(Some(&ca), Some("http://127.0.0.1:9")).unwrap();
        let target = |url: &str| transport.target(&Url::parse(url).unwrap()).to_string();
        assert_eq!(target("http://169.254.169.254/metadata/x?a=b"), "http://127.0.0.1:9/metadata/x?a=b");
        assert_eq!(target("https://management.azure.com/x"), "https://management.azure.com/x");
    }

    #[test]
    fn a_trusted_authority_must_be_a_certificate() {
        for pem in ["", "nothing", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----"] {
            let error = Transport::new(Some(pem), None).unwrap_err().to_string();
            assert!(error.starts_with("setting ca_pem: "), "{error}");
        }
    }
}
