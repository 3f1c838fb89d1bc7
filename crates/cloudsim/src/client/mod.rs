//! The client of the simulated cloud: Azure's own client for what a cloud does, and the simulator's path for the rest.

mod installer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::secret::Secret;
use bytes::Bytes;
use cloud::{Cloud, CloudError};
use cloud_azure::AzureClient;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::endpoints::Endpoints;
use crate::faults::FaultRule;
use crate::protocol::{ErrorBody, InstallCall};
use crate::settings::{
    Denial, InstallationInfo, PrincipalInfo, PrincipalSecretBody, PrincipalWithSecret, Rights, Setting,
};

pub use installer::SimInstaller;

/// Longest time of a call: the service responds within milliseconds.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// Largest response: the list of a few thousand principals.
const RESPONSE_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Client of the simulated cloud. Cheap to clone; connections are shared.
#[derive(Clone)]
pub struct SimClient {
    inner: Arc<Inner>,
}

struct Inner {
    endpoints: Endpoints,
    token: HeaderValue,
    azure: AzureClient,
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// The endpoints of a simulated cloud cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SimClientError {
    /// A file cannot be read.
    #[error("{}: cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The file of endpoints has another content. The parser's message is left out, because it repeats the text.
    #[error("{}: expected the endpoints of a simulated cloud as JSON, as `shipshape cloud endpoints -o json` prints them", .0.display())]
    Endpoints(PathBuf),
    /// The URL is not one of the loopback interface.
    #[error("resourceManager is '{0}'; expected https:// with a host of the loopback interface and a port")]
    Url(String),
    /// The token cannot be sent.
    #[error("the token of the simulated cloud has characters that are not allowed in a header")]
    Token,
    /// The certificate authority cannot be used.
    #[error("{}: expected the certificate of an authority in PEM", .0.display())]
    Authority(PathBuf),
    /// A setting of Azure's client is wrong.
    #[error(transparent)]
    Settings(#[from] cloud_azure::SettingsError),
}

impl std::fmt::Debug for SimClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimClient")
            .field("url", &self.inner.endpoints.resource_manager)
            .finish_non_exhaustive()
    }
}

impl SimClient {
    /// The simulated cloud whose endpoints are in a file, its `endpoints.json`. Nothing is sent yet.
    pub fn open(path: &Path) -> Result<SimClient, SimClientError> {
        let endpoints =
            serde_json::from_str(&read(path)?).map_err(|_| SimClientError::Endpoints(path.to_owned()))?;
        SimClient::new(endpoints)
    }

    /// The simulated cloud with these endpoints. Reads the files that they name; nothing is sent yet. Its token is one of an
    /// administrator of everything, so the URL must be of the loopback interface.
    pub fn new(endpoints: Endpoints) -> Result<SimClient, SimClientError> {
        let wrong = || SimClientError::Url(endpoints.resource_manager.clone());
        let uri: Uri = endpoints.resource_manager.parse().map_err(|_| wrong())?;
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let is_loopback =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|it| it.is_loopback());
        if uri.scheme_str() != Some("https") || !is_loopback || uri.port().is_none() {
            return Err(wrong());
        }
        let mut token = HeaderValue::from_str(&format!("Bearer {}", read(&endpoints.token_file)?.trim()))
            .map_err(|_| SimClientError::Token)?;
        token.set_sensitive(true);
        let authority = read(&endpoints.ca_file)?;
        let http =
            http_client(&authority).ok_or_else(|| SimClientError::Authority(endpoints.ca_file.clone()))?;
        let secret = Secret::new(read(&endpoints.client_secret_file)?.trim_end().to_owned());
        let azure = AzureClient::new(endpoints.settings(secret, authority)?)?;
        Ok(SimClient { inner: Arc::new(Inner { endpoints, token, azure, http }) })
    }

    /// Another client of the same cloud, with connections and tokens of its own.
    pub fn reconnected(&self) -> Result<SimClient, SimClientError> {
        SimClient::new(self.inner.endpoints.clone())
    }

    /// The roles of this cloud, over Azure's protocol.
    pub fn cloud(&self) -> Cloud {
        self.inner.azure.cloud()
    }

    /// The client of Azure's protocol.
    pub fn azure(&self) -> &AzureClient {
        &self.inner.azure
    }

    /// The addresses of the emulated services at the time when this client was made.
    pub fn endpoints(&self) -> &Endpoints {
        &self.inner.endpoints
    }

    /// The installer of this cloud.
    pub fn installer(&self) -> SimInstaller {
        SimInstaller::new(self.clone())
    }

    /// Creates a principal. Its secret is not returned again.
    pub async fn create_principal(
        &self,
        name: &str,
        rights: Rights,
    ) -> Result<PrincipalWithSecret, CloudError> {
        let setting = Setting::CreatePrincipal { name: name.to_owned(), rights };
        self.set::<PrincipalSecretBody>(&setting).await.map(Into::into)
    }

    /// Replaces the secret of a principal.
    pub async fn change_secret(&self, client_id: &str) -> Result<PrincipalWithSecret, CloudError> {
        let setting = Setting::ChangeSecret { client_id: client_id.to_owned() };
        self.set::<PrincipalSecretBody>(&setting).await.map(Into::into)
    }

    /// The principals, by name.
    pub async fn principals(&self) -> Result<Vec<PrincipalInfo>, CloudError> {
        self.set(&Setting::Principals {}).await
    }

    /// The clusters that are installed or being installed.
    pub async fn installations(&self) -> Result<Vec<InstallationInfo>, CloudError> {
        self.set(&Setting::Installations {}).await
    }

    /// Denies a principal an action.
    pub async fn deny(&self, denial: Denial) -> Result<(), CloudError> {
        self.set(&Setting::Deny(denial)).await
    }

    /// Changes a setting that has no result: quotas, restrictions, providers, features, locks, claims.
    pub async fn arrange(&self, setting: Setting) -> Result<(), CloudError> {
        self.set(&setting).await
    }

    /// Adds a fault rule.
    pub async fn inject(&self, rule: FaultRule) -> Result<(), CloudError> {
        self.exchange(Method::POST, "/sim/faults", "inject a fault", &rule).await
    }

    /// The active fault rules.
    pub async fn faults(&self) -> Result<Vec<FaultRule>, CloudError> {
        self.exchange(Method::GET, "/sim/faults", "list the faults", &()).await
    }

    /// Removes all fault rules.
    pub async fn clear_faults(&self) -> Result<(), CloudError> {
        self.exchange(Method::DELETE, "/sim/faults", "clear the faults", &()).await
    }

    /// The certificate of the authority that issues the certificates of vaults, in PEM.
    pub async fn certificate_authority(&self) -> Result<String, CloudError> {
        self.exchange(Method::GET, "/sim/authority", "read the authority", &()).await
    }

    async fn set<T: DeserializeOwned>(&self, setting: &Setting) -> Result<T, CloudError> {
        self.exchange(Method::POST, "/sim/settings", "change a setting", setting).await
    }

    async fn call<T: DeserializeOwned>(&self, call: &InstallCall) -> Result<T, CloudError> {
        self.exchange(Method::POST, "/sim/installations", &format!("{call:?}"), call).await
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        what: &str,
        body: &impl Serialize,
    ) -> Result<T, CloudError> {
        let inner = self.inner.as_ref();
        let body = serde_json::to_vec(body).map_err(|source| unexpected(what, Some(Box::new(source))))?;
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", inner.endpoints.resource_manager))
            .header(AUTHORIZATION, inner.token.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|source| unexpected(what, Some(Box::new(source))))?;
        let response = async {
            let response = inner.http.request(request).await.map_err(|source| unavailable(what, source))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, RESPONSE_BYTES_MAX)
                .collect()
                .await
                .map_err(|source| CloudError::Unavailable { what: what.to_owned(), source: Some(source) })?;
            Ok::<_, CloudError>((head.status, head.headers, body.to_bytes()))
        };
        let (status, headers, body) =
            tokio::time::timeout(CALL_TIME_MAX, response).await.map_err(|late| unavailable(what, late))??;
        interpret(what, status, &headers, &body)
    }
}

fn read(path: &Path) -> Result<String, SimClientError> {
    std::fs::read_to_string(path).map_err(|source| SimClientError::File { path: path.to_owned(), source })
}

/// An HTTP client that trusts one authority; `None` when the PEM has no certificate.
fn http_client(authority: &str) -> Option<Client<HttpsConnector<HttpConnector>, Full<Bytes>>> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.ok()?).ok()?;
    }
    if roots.is_empty() {
        return None;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .ok()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    let https = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http1()
        .wrap_connector(connector);
    Some(Client::builder(TokioExecutor::new()).build(https))
}

/// The result of a call, or its error.
fn interpret<T: DeserializeOwned>(
    what: &str,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<T, CloudError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(body).map_err(|source| unexpected(what, Some(Box::new(source))));
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        let seconds = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.trim().parse().ok());
        return Err(CloudError::Throttled { after: seconds.map(Duration::from_secs) });
    }
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(response) => Err(response.error.into()),
        Err(_) if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => {
            Err(CloudError::Unavailable { what: what.to_owned(), source: None })
        }
        Err(source) => Err(unexpected(what, Some(Box::new(source)))),
    }
}

fn unavailable(what: &str, source: impl std::error::Error + Send + Sync + 'static) -> CloudError {
    CloudError::Unavailable { what: what.to_owned(), source: Some(Box::new(source)) }
}

fn unexpected(what: &str, source: Option<Box<dyn std::error::Error + Send + Sync>>) -> CloudError {
    CloudError::UnexpectedResponse { what: what.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use api::error::{Class, Classify as _};

    use super::*;
    use crate::protocol::CallError;

    fn answered(status: StatusCode, retry_after: Option<&str>, body: &str) -> CloudError {
        let mut headers = HeaderMap::new();
        if let Some(text) = retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from_str(text).unwrap());
        }
        interpret::<Vec<PrincipalInfo>>("usages of s", status, &headers, body.as_bytes()).unwrap_err()
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

    /// Endpoints with their files in a directory.
    fn endpoints(directory: &Path) -> Endpoints {
        let file = |name: &str, text: &str| {
            let path = directory.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap().cert.pem();
        Endpoints {
            authority: "https://127.0.0.1:4000".to_owned(),
            tenant_id: "t".to_owned(),
            resource_manager: "https://127.0.0.1:4000".to_owned(),
            vaults: [("shipshape".to_owned(), "https://127.0.0.1:4001".to_owned())].into(),
            registry:
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerRegistry/registries/images"
                    .to_owned(),
            blob: "https://127.0.0.1:4002".to_owned(),
            issuer_account:
                "/subscriptions/s/resourceGroups/g/providers/Microsoft.Storage/storageAccounts/web".to_owned(),
            issuer_url: "https://127.0.0.1:4002/web/$web".to_owned(),
            client_id: "c".to_owned(),
            client_secret_file: file("client-secret", "hunter2"),
            ca_file: file("ca.pem", &authority),
            token_file: file("token", "hunter3"),
            metadata: "http://127.0.0.1:4003".to_owned(),
            identity_service: "https://127.0.0.1:4000/identities".to_owned(),
            ..Endpoints::default()
        }
    }

    #[test]
    fn only_a_cloud_on_the_loopback_interface_is_used_and_what_is_wrong_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let good = endpoints(directory.path());
        assert!(SimClient::new(good.clone()).is_ok());
        for url in ["", "https://127.0.0.1", "http://127.0.0.1:1", "https://example.test:80", "127.0.0.1:80"]
        {
            let wrong = Endpoints { resource_manager: url.to_owned(), ..good.clone() };
            let error = SimClient::new(wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("resourceManager is '{url}'")), "{error}");
        }
        std::fs::write(&good.ca_file, "nothing").unwrap();
        let error = SimClient::new(good.clone()).unwrap_err().to_string();
        assert!(error.contains("ca.pem: expected the certificate"), "{error}");
        let missing = Endpoints { token_file: directory.path().join("nowhere"), ..good };
        let error = SimClient::new(missing).unwrap_err().to_string();
        assert!(error.ends_with("nowhere: cannot be read"), "{error}");
    }

    #[test]
    fn no_secret_is_shown() {
        let directory = tempfile::tempdir().unwrap();
        let endpoints = endpoints(directory.path());
        let shown = format!("{:?} {endpoints:?}", SimClient::new(endpoints.clone()).unwrap());
        assert!(!shown.contains("hunter"), "{shown}");
    }
}
