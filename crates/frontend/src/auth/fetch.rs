//! An HTTPS client for the token issuer and similar services: limits on time and size, no redirects.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use serde::de::DeserializeOwned;

use serve::tls::{self, TlsError};

/// Discovery documents and key sets have a few kilobytes.
const DOCUMENT_BYTES_MAX: usize = 256 * 1024;

/// Longest time for one request. Callers wait for it only when a key is new.
const FETCH_TIME_MAX: Duration = Duration::from_secs(5);

/// A request to another service failed.
#[derive(Debug, thiserror::Error)]
#[error("{url}: {why}")]
pub(crate) struct FetchError {
    url: String,
    why: String,
}

/// The HTTPS client.
#[derive(Debug, Clone)]
pub(super) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

/// Whether a URL is authenticated by its transport: HTTPS, or HTTP on the loopback interface.
pub(crate) fn is_protected(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else { return false };
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    match uri.scheme_str() {
        Some("https") => !host.is_empty(),
        Some("http") => {
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        _ => false,
    }
}

impl Fetcher {
    /// A client that trusts the certificates in `ca_file`, or those of the system.
    pub(super) fn open(ca_file: Option<&Path>) -> Result<Fetcher, TlsError> {
        let mut roots = RootCertStore::empty();
        match ca_file {
            Some(path) => {
                for certificate in tls::certificates(path)? {
                    roots.add(certificate).map_err(|error| TlsError::unusable(path, error))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        let config = ClientConfig::builder_with_provider(tls::provider())
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Protocol)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build();
        Ok(Fetcher { client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Reads one document.
    pub(super) async fn get<T: DeserializeOwned>(&self, url: &str) -> Result<T, FetchError> {
        let failed = |why: String| FetchError { url: url.to_owned(), why };
        if !is_protected(url) {
            return Err(failed("the address is neither https:// nor on the loopback interface".to_owned()));
        }
        let uri: Uri = url.parse().map_err(|error| failed(format!("invalid URL: {error}")))?;
        let exchange = async {
            let response = self.client.get(uri).await.map_err(|error| failed(error.to_string()))?;
            if response.status() != http::StatusCode::OK {
                return Err(failed(format!("unexpected status {}", response.status())));
            }
            let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect().await;
            body.map(http_body_util::Collected::to_bytes).map_err(|error| failed(error.to_string()))
        };
        let body = tokio::time::timeout(FETCH_TIME_MAX, exchange)
            .await
            .map_err(|_| failed(format!("no response within {} s", FETCH_TIME_MAX.as_secs())))??;
        serde_json::from_slice(&body).map_err(|error| failed(format!("invalid response: {error}")))
    }
}

/// A request whose token is to be validated.
pub(super) struct Validation {
    pub(super) authorization: String,
    pub(super) uri: String,
    pub(super) method: String,
    pub(super) forwarded_for: String,
}

impl Fetcher {
    /// Sends a request to the token service and returns the status of its response.
    pub(super) async fn validate(
        &self,
        url: &str,
        validation: &Validation,
    ) -> Result<http::StatusCode, FetchError> {
        let failed = |why: String| FetchError { url: url.to_owned(), why };
        if !is_protected(url) {
            return Err(failed("the address is neither https:// nor on the loopback interface".to_owned()));
        }
        let request = http::Request::post(url)
            .header(http::header::AUTHORIZATION, &validation.authorization)
            .header("Original-Uri", &validation.uri)
            .header("Original-Method", &validation.method)
            .header("X-Forwarded-For", &validation.forwarded_for)
            .body(Empty::new())
            .map_err(|_| failed("the request has invalid headers".to_owned()))?;
        let exchange = self.client.request(request);
        let answered = tokio::time::timeout(FETCH_TIME_MAX, exchange)
            .await
            .map_err(|_| failed(format!("no response within {} s", FETCH_TIME_MAX.as_secs())))?;
        answered.map(|response| response.status()).map_err(|error| failed(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_for_this_machine_only() {
        for url in [
            "https://id.example",
            "https://id.example/x?y",
            "http://127.0.0.1:1",
            "http://[::1]:1",
            "http://localhost",
        ] {
            assert!(is_protected(url), "{url}");
        }
        for url in
            ["http://id.example", "http://127.0.0.1.example", "ftp://localhost", "id.example", "", "https://"]
        {
            assert!(!is_protected(url), "{url}");
        }
    }
}
