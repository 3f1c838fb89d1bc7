//! Requests of an instance metadata service.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{sleep, timeout};

/// The address at which every cloud has the metadata of an instance.
const LINK_LOCAL: &str = "http://169.254.169.254";

/// Attempts of a request that may succeed later: the first, and the three retries of Amazon's SDK.
const ATTEMPTS: u32 = 4;
/// Wait before the first retry; it doubles with each.
const RETRY: Duration = Duration::from_millis(200);
/// Largest response; a list of events has a few hundred bytes for each.
const RESPONSE_BYTES_MAX: usize = 256 * 1024;

/// The address of a metadata service: `http`, a host, perhaps a port and a path below which everything is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataAddress(String);

impl Default for MetadataAddress {
    fn default() -> MetadataAddress {
        MetadataAddress(LINK_LOCAL.to_owned())
    }
}

impl fmt::Display for MetadataAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for MetadataAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<MetadataAddress, String> {
        let invalid =
            || format!("{text:?} must be an address such as {LINK_LOCAL}, without TLS, user and query");
        let uri: Uri = text.parse().map_err(|_| invalid())?;
        let is_plain = uri.scheme_str() == Some("http") && uri.query().is_none() && !text.contains('#');
        let has_host = uri.host().is_some_and(|host| !host.is_empty());
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !is_plain || !has_host || has_user {
            return Err(invalid());
        }
        Ok(MetadataAddress(text.trim_end_matches('/').to_owned()))
    }
}

/// The metadata could not be read.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// There was no response, or one that may be another one later, also after retries.
    #[error("the instance metadata {url} could not be read in {ATTEMPTS} attempts: {cause}")]
    Unavailable {
        /// What was asked for.
        url: String,
        /// The last failure.
        cause: String,
    },
    /// The service refused.
    #[error("the instance metadata {url} were answered with {status}; expected {expected}")]
    Refused {
        /// What was asked for.
        url: String,
        /// The response.
        status: StatusCode,
        /// What is understood.
        expected: &'static str,
    },
    /// The response makes no sense.
    #[error("the instance metadata {url} cannot be understood; expected {expected}")]
    Unintelligible {
        /// What was asked for.
        url: String,
        /// What is understood.
        expected: &'static str,
    },
}

/// A response that the service means.
pub(super) struct MetadataResponse {
    pub(super) url: String,
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
}

impl MetadataResponse {
    /// The response is one that the caller does not know.
    pub(super) fn refused(self, expected: &'static str) -> MetadataError {
        MetadataError::Refused { url: self.url, status: self.status, expected }
    }

    pub(super) fn unintelligible(self, expected: &'static str) -> MetadataError {
        MetadataError::Unintelligible { url: self.url, expected }
    }
}

/// A client of one metadata service. It follows no redirects and uses no proxy: the metadata are of this machine alone.
pub(super) struct MetadataClient {
    address: MetadataAddress,
    http: Client<HttpConnector, Empty<Bytes>>,
}

impl MetadataClient {
    pub(super) fn new(address: MetadataAddress) -> MetadataClient {
        MetadataClient { address, http: Client::builder(TokioExecutor::new()).build(HttpConnector::new()) }
    }

    /// Sends a request until there is a response that is meant. Server errors, throttling, lost connections and `limit` are not.
    pub(super) async fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        limit: Duration,
    ) -> Result<MetadataResponse, MetadataError> {
        let url = format!("{}{path}", self.address);
        let mut wait = RETRY;
        let mut attempt = 1;
        loop {
            let sent = timeout(limit, self.send_once(method, &url, headers)).await;
            let cause = match sent {
                Ok(Ok((status, body))) if !is_passing(status) => {
                    return Ok(MetadataResponse { url, status, body });
                }
                Ok(Ok((status, _))) => status.to_string(),
                Ok(Err(cause)) => cause,
                Err(_) => format!("no response within {} s", limit.as_secs_f64()),
            };
            if attempt == ATTEMPTS {
                return Err(MetadataError::Unavailable { url, cause });
            }
            sleep(wait).await;
            (attempt, wait) = (attempt + 1, wait * 2);
        }
    }

    async fn send_once(
        &self,
        method: &Method,
        url: &str,
        headers: &HeaderMap,
    ) -> Result<(StatusCode, Bytes), String> {
        let mut request = Request::builder().method(method).uri(url);
        if let Some(all) = request.headers_mut() {
            all.clone_from(headers);
        }
        let request = request.body(Empty::new()).map_err(|error| error.to_string())?;
        let response = self.http.request(request).await.map_err(|error| chain(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
        Ok((status, body.map_err(|error| error.to_string())?.to_bytes()))
    }
}

/// Whether a later response may be another one. Azure says `410 Gone` while its service is updated.
fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::GONE)
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
