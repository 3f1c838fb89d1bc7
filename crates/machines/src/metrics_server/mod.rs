//! Metrics over TLS, for callers whom the API server authenticates and authorizes: the duty of the proxies that OpenShift places before
//! its controllers.
//!
//! A caller presents the token of its ServiceAccount. A TokenReview says whose it is, a SubjectAccessReview whether that account may
//! `get` the `metrics` of the namespace. The certificate is that of files which another service writes, such as OpenShift's service
//! CA; until they exist, one that no client trusts.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use serve::pki::{CertificateAuthority, CertificateRequest, PkiError, Purpose, Validity};
use serve::tls::{ClientCertificates, ReplaceableCertificate, TlsError, server_config};
use serve::{Listener, ListenerLimits, SharedService};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

/// Time between two looks at the files of the certificate.
const FILES_INTERVAL: Duration = Duration::from_secs(5);
/// Requests whose callers are reviewed at once. Scrapers are few; more is a flood that the API server must not bear.
const REVIEWS_MAX: usize = 4;
/// Longest time of the reviews of one request: shorter than a scrape's.
const REVIEW_MAX: Duration = Duration::from_secs(8);
/// Longest token. Those of ServiceAccounts have about one KiB.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// Days for which a certificate of our own is valid: longer than any process runs.
const OWN_CERTIFICATE_DAYS: i64 = 3650;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Writes all metrics of the process.
pub type RenderMetrics = Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// The settings of the endpoint.
#[derive(Debug, Clone)]
pub struct MetricsConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The namespace whose metrics these are.
    pub namespace: String,
    /// A directory with `tls.crt` and `tls.key`, such as a mounted Secret; they may come later.
    pub certificate: Option<PathBuf>,
}

/// The metrics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum MetricsServerError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address} for metrics")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// No certificate can be made.
    #[error(transparent)]
    Certificate(#[from] PkiError),
    /// TLS cannot be configured.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The endpoint, bound but not yet serving.
pub struct MetricsServer {
    listener: Listener,
    certificate: Arc<ReplaceableCertificate>,
    files: Option<PathBuf>,
    state: Arc<Endpoint>,
}

impl fmt::Debug for MetricsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsServer").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl MetricsServer {
    /// Binds the address.
    pub async fn bind(
        config: MetricsConfig,
        client: Client,
        clock: &SharedClock,
        render: RenderMetrics,
    ) -> Result<MetricsServer, MetricsServerError> {
        let failed = |source| MetricsServerError::Listen { address: config.listen, source };
        let listener = Listener::bind(config.listen, ListenerLimits::default()).await.map_err(failed)?;
        let certificate = own_certificate(clock)?;
        let tls = server_config(certificate.clone(), ClientCertificates::NotRequested)?;
        let (namespace, reviews) = (config.namespace, Semaphore::new(REVIEWS_MAX));
        Ok(MetricsServer {
            listener: listener.with_tls(tls),
            certificate,
            files: config.certificate,
            state: Arc::new(Endpoint { client, namespace, render, reviews }),
        })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, shutdown: CancellationToken) {
        let MetricsServer { listener, certificate, files, state } = self;
        let router = Router::new()
            .route("/metrics", get(metrics))
            .fallback(async || (StatusCode::NOT_FOUND, "not found; try /metrics\n"))
            .with_state(state);
        let serving = listener.serve(SharedService(router), shutdown);
        tokio::select! {
            () = serving => {}
            () = follow(files, &certificate) => {}
        }
    }
}

fn own_certificate(clock: &SharedClock) -> Result<Arc<ReplaceableCertificate>, MetricsServerError> {
    let validity = Validity::days(clock.now(), OWN_CERTIFICATE_DAYS);
    let pair =
        CertificateAuthority::generate("machine-api-metrics", validity)?.issue(&CertificateRequest {
            common_name: "machine-api-metrics",
            organization: None,
            alternative_names: vec!["localhost".to_owned()],
            purpose: Purpose::Server,
            validity,
        })?;
    Ok(ReplaceableCertificate::new(&pair.certificate, &pair.key)?)
}

/// Serves the certificate of the files as soon as they exist, and each that replaces it. It does not end.
async fn follow(directory: Option<PathBuf>, certificate: &ReplaceableCertificate) {
    let Some(directory) = directory else { return std::future::pending().await };
    let mut served = None;
    let mut ticks = interval(FILES_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(found) = read_pair(&directory).await.filter(|found| served.as_ref() != Some(found)) else {
            continue;
        };
        match certificate.replace(&found.0, &found.1) {
            Ok(()) => tracing::info!("Metrics are served with the certificate in {}", directory.display()),
            // Also while one of the two files is of a newer pair than the other.
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "The certificate in {} cannot be used",
                directory.display()
            ),
        }
        served = Some(found);
    }
}

async fn read_pair(directory: &Path) -> Option<(String, String)> {
    let certificate = tokio::fs::read_to_string(directory.join("tls.crt")).await.ok()?;
    let key = tokio::fs::read_to_string(directory.join("tls.key")).await.ok()?;
    Some((certificate, key))
}

struct Endpoint {
    client: Client,
    namespace: String,
    render: RenderMetrics,
    reviews: Semaphore,
}

/// Why a caller gets no metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rejection {
    NoToken,
    Unauthenticated,
    Forbidden(String),
    TooMany,
    Unavailable,
}

impl IntoResponse for Rejection {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Rejection::NoToken => (
                StatusCode::UNAUTHORIZED,
                "metrics need the token of a ServiceAccount: Authorization: Bearer TOKEN\n".to_owned(),
            ),
            Rejection::Unauthenticated => {
                (StatusCode::UNAUTHORIZED, "the API server does not accept this token\n".to_owned())
            }
            Rejection::Forbidden(user) => (
                StatusCode::FORBIDDEN,
                format!("{user} may not get namespace/metrics; a Role of the namespace grants that\n"),
            ),
            Rejection::TooMany => {
                (StatusCode::TOO_MANY_REQUESTS, "too many callers are being authenticated\n".to_owned())
            }
            Rejection::Unavailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                "the API server cannot authenticate callers now\n".to_owned(),
            ),
        };
        let mut response = (status, text).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

async fn metrics(State(endpoint): State<Arc<Endpoint>>, headers: HeaderMap) -> Response {
    let Some(token) = bearer_token(&headers) else { return Rejection::NoToken.into_response() };
    let reviewed = {
        let Ok(_permit) = endpoint.reviews.try_acquire() else { return Rejection::TooMany.into_response() };
        timeout(REVIEW_MAX, endpoint.review(token)).await.unwrap_or(Err(Rejection::Unavailable))
    };
    if let Err(rejection) = reviewed {
        return rejection.into_response();
    }
    match (endpoint.render)() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response(),
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();
    let is_token = !token.is_empty() && token.len() <= TOKEN_BYTES_MAX;
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then_some(token)
}

impl Endpoint {
    /// Whether the owner of a token may read the metrics.
    async fn review(&self, token: &str) -> Result<(), Rejection> {
        let review = TokenReview {
            spec: TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() },
            ..TokenReview::default()
        };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let reviewed = reviews.create(&PostParams::default(), &review).await;
        let status = reviewed.map_err(|error| unavailable(&error))?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let user = user.ok_or(Rejection::Unauthenticated)?;
        let name = user.username.clone().unwrap_or_default();
        let review = SubjectAccessReview { spec: self.access_of(user), ..SubjectAccessReview::default() };
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let reviewed = reviews.create(&PostParams::default(), &review).await;
        let status = reviewed.map_err(|error| unavailable(&error))?.status.unwrap_or_default();
        if status.allowed { Ok(()) } else { Err(Rejection::Forbidden(name)) }
    }

    fn access_of(&self, user: UserInfo) -> SubjectAccessReviewSpec {
        SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            resource_attributes: Some(ResourceAttributes {
                namespace: Some(self.namespace.clone()),
                verb: Some("get".to_owned()),
                version: Some("v1".to_owned()),
                resource: Some("namespace".to_owned()),
                subresource: Some("metrics".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        }
    }
}

fn unavailable(error: &kube::Error) -> Rejection {
    tracing::warn!(error = error as &dyn std::error::Error, "A caller of the metrics could not be reviewed");
    Rejection::Unavailable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_that_of_the_bearer_scheme() {
        let token = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            bearer_token(&headers).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer  abc ").as_deref(), Some("abc"));
        for none in ["Basic abc", "Bearer", "Bearer ", "abc"] {
            assert_eq!(token(none), None, "{none}");
        }
        assert_eq!(token(&format!("Bearer {}", "a".repeat(TOKEN_BYTES_MAX + 1))), None);
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn the_certificate_of_the_files_is_served_as_soon_as_there_is_one() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(read_pair(directory.path()).await, None);
        std::fs::write(directory.path().join("tls.crt"), "certificate").unwrap();
        assert_eq!(read_pair(directory.path()).await, None);
        std::fs::write(directory.path().join("tls.key"), "key").unwrap();
        let pair = read_pair(directory.path()).await;
        assert_eq!(pair, Some(("certificate".to_owned(), "key".to_owned())));
    }
}
