//! The HTTP client under the SDK: hyper with rustls, bounded in time and size. It trusts the authorities of the system and those of the
//! settings, never repeats a request, and keeps connections. The SDK's own client would bring HTTP/2 into every build of hyper-rustls.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as TcpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use crate::settings::SettingsError;

/// Longest wait for a connection.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Largest response: a page of a thousand instances has a few megabytes.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The transport of all clients of a process.
#[derive(Clone)]
pub struct Transport {
    http: Client<HttpsConnector<TcpConnector>, Full<Bytes>>,
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").finish_non_exhaustive()
    }
}

impl Transport {
    /// A transport that trusts the authorities in `ca_pem` besides those of the system.
    pub fn new(ca_pem: Option<&str>) -> Result<Transport, SettingsError> {
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| SettingsError { setting: "ca_pem", why: error.to_string() })?
            .with_root_certificates(roots(ca_pem)?)
            .with_no_client_auth();
        let mut connector = TcpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIME_MAX));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Transport { http: Client::builder(TokioExecutor::new()).build(https) })
    }

    async fn exchange(self, request: HttpRequest) -> Result<HttpResponse, ConnectorError> {
        let user = |error: Box<dyn std::error::Error + Send + Sync>| ConnectorError::user(error);
        let io = |error: Box<dyn std::error::Error + Send + Sync>| ConnectorError::io(error);
        let request = request.try_into_http1x().map_err(|error| user(error.into()))?;
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(user)?.to_bytes();
        let request = http::Request::from_parts(parts, Full::new(body));
        let response = self.http.request(request).await.map_err(|error| io(error.into()))?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(io)?.to_bytes();
        let response = http::Response::from_parts(parts, SdkBody::from(body));
        HttpResponse::try_from(response).map_err(|error| user(error.into()))
    }
}

impl HttpConnector for Transport {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        HttpConnectorFuture::new(self.clone().exchange(request))
    }
}

impl HttpClient for Transport {
    fn http_connector(&self, _: &HttpConnectorSettings, _: &RuntimeComponents) -> SharedHttpConnector {
        SharedHttpConnector::new(self.clone())
    }
}

/// The authorities that the system trusts. There are more than a hundred, so they are read once.
static SYSTEM_ROOTS: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    let (_, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

fn roots(ca_pem: Option<&str>) -> Result<RootCertStore, SettingsError> {
    let wrong = |why: String| SettingsError { setting: "ca_pem", why };
    let mut roots = SYSTEM_ROOTS.clone();
    let Some(pem) = ca_pem else { return Ok(roots) };
    let mut count = 0;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate =
            certificate.map_err(|error| wrong(format!("is not PEM of certificates: {error}")))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(format!("holds a certificate that cannot be used: {error}")))?;
        count += 1;
    }
    match count {
        0 => Err(wrong("holds no certificate; expected one or more in PEM".to_owned())),
        _ => Ok(roots),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities_that_are_not_pem_are_refused_in_a_sentence() {
        let error = Transport::new(Some("nonsense")).unwrap_err().to_string();
        assert_eq!(error, "setting ca_pem: holds no certificate; expected one or more in PEM");
        assert!(Transport::new(None).is_ok());
    }
}
