//! The client of the simulated cloud.

mod installer;
mod roles;

use std::sync::Arc;
use std::time::Duration;

use api::secret::Secret;
use bytes::Bytes;
use cloud::{Cloud, CloudError, PullToken, Resource, VaultCertificate};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::faults::FaultRule;
use crate::protocol::{Call, ErrorBody};
use crate::settings::{
    Denial, InstallationInfo, PrincipalInfo, PrincipalSecretBody, PrincipalWithSecret, Rights, Setting,
};

pub use installer::SimInstaller;

/// A call that takes longer than this has hung: the service answers in milliseconds what it accepts.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// The largest answer is a list of a group with a few thousand resources.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Client of the simulated cloud. Cheap to clone; connections are shared.
#[derive(Clone)]
pub struct SimClient {
    inner: Arc<Inner>,
}

struct Inner {
    base: String,
    token: HeaderValue,
    limit: Duration,
    http: Client<HttpConnector, Full<Bytes>>,
}

/// An address or token that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimClientError {
    /// The URL is not one of the loopback interface.
    #[error(
        "'{0}' is no address of a simulated cloud; expected http:// with a host of the loopback interface and a port"
    )]
    Url(String),
    /// The token cannot be sent.
    #[error("the token of the simulated cloud holds characters that no token has")]
    Token,
}

impl std::fmt::Debug for SimClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimClient").field("url", &self.inner.base).finish_non_exhaustive()
    }
}

impl SimClient {
    /// The service at that URL, such as `http://127.0.0.1:4000`, with the token that it tells its owner. Nothing is sent yet.
    /// The token goes in the clear, so the URL must be of the loopback interface.
    pub fn new(url: &str, token: Secret<String>) -> Result<SimClient, SimClientError> {
        let wrong = || SimClientError::Url(url.to_owned());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let near = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
        if uri.scheme_str() != Some("http") || !near || uri.port().is_none() {
            return Err(wrong());
        }
        let mut token = HeaderValue::from_str(&format!("Bearer {}", token.expose().trim()))
            .map_err(|_| SimClientError::Token)?;
        token.set_sensitive(true);
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new()).build(connector);
        let base = url.trim_end_matches('/').to_owned();
        Ok(SimClient { inner: Arc::new(Inner { base, token, limit: CALL_TIME_MAX, http }) })
    }

    /// The same, but a call that takes longer than `limit` has failed.
    #[must_use]
    pub fn with_limit(&self, limit: Duration) -> SimClient {
        let Inner { base, token, http, .. } = self.inner.as_ref();
        let inner = Inner { base: base.clone(), token: token.clone(), limit, http: http.clone() };
        SimClient { inner: Arc::new(inner) }
    }

    /// The roles of this cloud.
    pub fn cloud(&self) -> Cloud {
        Cloud::from_provider(self.clone())
    }

    /// The installer of this cloud.
    pub fn installer(&self) -> SimInstaller {
        SimInstaller::new(self.clone())
    }

    /// Makes a principal. Its secret is not returned again.
    pub async fn create_principal(
        &self,
        name: &str,
        rights: Rights,
    ) -> Result<PrincipalWithSecret, CloudError> {
        let setting = Setting::CreatePrincipal { name: name.to_owned(), rights };
        self.set::<PrincipalSecretBody>(&setting).await.map(Into::into)
    }

    /// Gives a principal another secret.
    pub async fn change_secret(&self, client_id: &str) -> Result<PrincipalWithSecret, CloudError> {
        let setting = Setting::ChangeSecret { client_id: client_id.to_owned() };
        self.set::<PrincipalSecretBody>(&setting).await.map(Into::into)
    }

    /// The principals, by name.
    pub async fn principals(&self) -> Result<Vec<PrincipalInfo>, CloudError> {
        self.set(&Setting::Principals {}).await
    }

    /// The groups of a subscription, by id.
    pub async fn groups(&self, subscription: &str) -> Result<Vec<Resource>, CloudError> {
        self.set(&Setting::Groups { subscription: subscription.to_owned() }).await
    }

    /// The clusters that are or were being installed.
    pub async fn installations(&self) -> Result<Vec<InstallationInfo>, CloudError> {
        self.set(&Setting::Installations {}).await
    }

    /// The certificates of the vault, by name.
    pub async fn certificates(&self) -> Result<Vec<VaultCertificate>, CloudError> {
        self.set(&Setting::Certificates {}).await
    }

    /// The tokens of the registry, by name.
    pub async fn tokens(&self) -> Result<Vec<PullToken>, CloudError> {
        self.set(&Setting::Tokens {}).await
    }

    /// Forbids somebody an action.
    pub async fn deny(&self, denial: Denial) -> Result<(), CloudError> {
        self.set(&Setting::Deny(denial)).await
    }

    /// Arranges something whose answer says nothing: quotas, restrictions, providers, features, locks, claims.
    pub async fn arrange(&self, setting: Setting) -> Result<(), CloudError> {
        self.set(&setting).await
    }

    /// Lets something go wrong from now on.
    pub async fn inject(&self, rule: FaultRule) -> Result<(), CloudError> {
        self.exchange(Method::POST, "/sim/faults", "inject a fault", &rule).await
    }

    /// What goes wrong now.
    pub async fn faults(&self) -> Result<Vec<FaultRule>, CloudError> {
        self.exchange(Method::GET, "/sim/faults", "list the faults", &()).await
    }

    /// Lets nothing go wrong any longer.
    pub async fn clear_faults(&self) -> Result<(), CloudError> {
        self.exchange(Method::DELETE, "/sim/faults", "clear the faults", &()).await
    }

    async fn set<T: DeserializeOwned>(&self, setting: &Setting) -> Result<T, CloudError> {
        self.exchange(Method::POST, "/sim/settings", "arrange a setting", setting).await
    }

    /// One call, answered in time.
    async fn call<T: DeserializeOwned>(&self, call: &Call) -> Result<T, CloudError> {
        self.exchange(Method::POST, "/call", &format!("{call:?}"), call).await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        what: &str,
        body: &impl Serialize,
    ) -> Result<T, CloudError> {
        let inner = self.inner.as_ref();
        let body = serde_json::to_vec(body).map_err(|source| strange(what, Some(Box::new(source))))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", inner.base))
            .header(AUTHORIZATION, inner.token.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|source| strange(what, Some(Box::new(source))))?;
        let answered = async {
            let response = inner.http.request(request).await.map_err(|source| lost(what, source))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX)
                .collect()
                .await
                .map_err(|source| CloudError::Unavailable { what: what.to_owned(), source: Some(source) })?;
            Ok::<_, CloudError>((head.status, head.headers, body.to_bytes()))
        };
        let (status, headers, body) =
            tokio::time::timeout(inner.limit, answered).await.map_err(|late| lost(what, late))??;
        understand(what, status, &headers, &body)
    }
}

/// What an answer means.
fn understand<T: DeserializeOwned>(
    what: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<T, CloudError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(body).map_err(|source| strange(what, Some(Box::new(source))));
    }
    // A proxy in between may throttle or fail too, with texts of its own.
    if status == StatusCode::TOO_MANY_REQUESTS {
        let seconds = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.trim().parse().ok());
        return Err(CloudError::Throttled { after: seconds.map(Duration::from_secs) });
    }
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(refused) => Err(refused.error.into()),
        Err(_) if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            Err(CloudError::Unavailable { what: what.to_owned(), source: None })
        }
        Err(source) => Err(strange(what, Some(Box::new(source)))),
    }
}

fn lost(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> CloudError {
    CloudError::Unavailable { what: what.to_owned(), source: Some(Box::new(source)) }
}

fn strange(what: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> CloudError {
    CloudError::UnexpectedResponse { what: what.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use api::error::{Class, Classify as _};

    use cloud::{Infrastructure as _, ResourceId, Usage};

    use super::*;
    use crate::protocol::{CallCredential, CallError};

    fn answered(status: StatusCode, retry_after: Option<&str>, body: &str) -> CloudError {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        }
        understand::<Vec<Usage>>("usages of s", status, &headers, body.as_bytes()).unwrap_err()
    }

    #[test]
    fn every_refusal_becomes_the_error_that_it_means() {
        let text = |it: &str| it.to_owned();
        let (what, why) = (text("a network"), text("it is so"));
        let cases = [
            (CallError::NotFound { what: what.clone() }, Class::Terminal, "a network was not found"),
            (
                CallError::Conflict { what: what.clone(), why: why.clone() },
                Class::Terminal,
                "a network: it is so",
            ),
            (CallError::Invalid { reason: text("BadCidr"), why }, Class::Terminal, "it is so"),
            (
                CallError::Denied { who: text("me"), action: text("join"), what: what.clone() },
                Class::Transient,
                "me may not join on a network",
            ),
            (
                CallError::Credential { who: text("me"), why: text("it is old") },
                Class::Terminal,
                "the credential of me was not accepted: it is old",
            ),
            (
                CallError::Quota { quota: text("cores"), limit: 10, used: 8, wanted: 4 },
                Class::Terminal,
                "the quota cores is exceeded: 8 of 10 are used and 4 more are requested",
            ),
            (
                CallError::InUse { what: what.clone(), by: text("a machine") },
                Class::Transient,
                "a network is in use by a machine",
            ),
            (
                CallError::Locked { what: what.clone(), action: text("delete") },
                Class::Terminal,
                "a network is locked against delete",
            ),
            (CallError::Unavailable { what }, Class::Transient, "the cloud did not respond to a network"),
        ];
        for (error, class, sentence) in cases {
            let body = serde_json::to_string(&ErrorBody { error: error.clone() }).unwrap();
            let error = answered(error.status(), None, &body);
            assert_eq!((error.class(), error.to_string().as_str()), (class, sentence));
        }
    }

    #[test]
    fn throttling_is_recognised_by_status_and_header_whatever_server_sends_it() {
        let error = answered(StatusCode::TOO_MANY_REQUESTS, Some(" 17 "), "slow down");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(17)));
        let error = answered(StatusCode::TOO_MANY_REQUESTS, Some("soon"), "");
        assert!(matches!(error, CloudError::Throttled { after: None }));
    }

    #[test]
    fn an_answer_that_nobody_understands_is_strange_unless_the_server_failed() {
        for (status, body, class) in [
            (StatusCode::OK, "{", Class::Terminal),
            (StatusCode::OK, "{\"quota\": 1}", Class::Terminal),
            (StatusCode::NOT_FOUND, "<html>", Class::Terminal),
            (StatusCode::BAD_GATEWAY, "<html>", Class::Transient),
            (StatusCode::INTERNAL_SERVER_ERROR, "", Class::Transient),
        ] {
            let error = answered(status, None, body);
            assert_eq!(error.class(), class, "{status} {body}: {error:?}");
        }
    }

    #[test]
    fn only_the_loopback_interface_is_spoken_to_in_the_clear() {
        let token = Secret::new("t".to_owned());
        assert!(SimClient::new("http://127.0.0.1:4000", token.clone()).is_ok());
        assert!(SimClient::new("http://[::1]:4000/", token.clone()).is_ok());
        for url in ["", "http://127.0.0.1", "https://127.0.0.1:1", "http://example.test:80", "127.0.0.1:80"] {
            assert_eq!(SimClient::new(url, token.clone()).err(), Some(SimClientError::Url(url.to_owned())));
        }
        let broken = Secret::new("a\nb".to_owned());
        assert_eq!(SimClient::new("http://127.0.0.1:1", broken).err(), Some(SimClientError::Token));
    }

    #[test]
    fn neither_a_call_nor_the_client_shows_a_secret() {
        let call = Call::Principal {
            credential: CallCredential::Client { client_id: "c".to_owned(), secret: "hunter2".to_owned() },
        };
        assert_eq!(format!("{call:?}"), "principal c");
        let call = Call::PutSecret { name: "n".to_owned(), value: "hunter2".to_owned(), expires: None };
        assert_eq!(format!("{call:?}"), "putSecret n");
        let client = SimClient::new("http://127.0.0.1:1", Secret::new("hunter2".to_owned())).unwrap();
        assert!(!format!("{client:?}").contains("hunter2"));
    }

    #[test]
    fn a_verb_is_written_as_it_is_parsed() {
        let name = || "n".to_owned();
        for call in [
            Call::RevokeRole { scope: ResourceId::group("s", "g"), name: name() },
            Call::IssuePassword { name: name() },
            Call::Get { id: ResourceId::group("s", "g") },
        ] {
            assert_eq!(serde_json::to_value(&call).unwrap()["verb"], call.verb());
        }
    }

    #[tokio::test]
    async fn a_service_that_is_not_there_may_come_back() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let client = SimClient::new(&url, Secret::new("t".to_owned())).unwrap();
        // It accepts and says nothing.
        let hung = client.with_limit(Duration::from_millis(50)).providers("s").await.unwrap_err();
        assert_eq!(hung.class(), Class::Transient);
        drop(listener);
        assert_eq!(client.providers("s").await.unwrap_err().class(), Class::Transient);
    }
}
