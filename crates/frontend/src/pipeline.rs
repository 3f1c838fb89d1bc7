//! The pipeline of every request, in this order: normalize the path, assign ids, authenticate the sender, check the api-version, route.
//! A panic in a handler becomes an error response.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::clock::SharedClock;
use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use tokio::time::Instant;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::auth::{Audience, Authenticator, ClientProof, Identity, RequestContext};
use crate::metrics::Metrics;
use crate::names::PublicNames;
use crate::qos;
use crate::wire::{
    ApiError, CLIENT_ID, Code, LoggedError, OriginalPath, Query, RequestIds, Scheme, check_segments, clean,
    client_request_id,
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");
const CORRELATION_ID: HeaderName = HeaderName::from_static("x-ms-correlation-request-id");
const RETURN_CLIENT_ID: HeaderName = HeaderName::from_static("x-ms-return-client-request-id");

/// Longest user agent in the log; the rest is cut.
const USER_AGENT_LETTERS_MAX: usize = 200;

/// Paths that need no authentication: they show only what the sources show.
const OPEN_PATHS: [&str; 2] = ["/openapi.json", "/healthz/ready"];

/// The client of a connection.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) address: String,
    pub(crate) scheme: Scheme,
    pub(crate) proof: ClientProof,
    /// Whether it is a component of this process.
    pub(crate) is_local: bool,
}

/// Handles every request of the API.
#[derive(Debug)]
pub(crate) struct RequestPipeline {
    pub(crate) router: Router,
    pub(crate) locations: Vec<String>,
    pub(crate) authenticator: Arc<Authenticator>,
    pub(crate) names: PublicNames,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Metrics,
}

impl RequestPipeline {
    /// Handles one request.
    pub(crate) async fn pass(self: Arc<Self>, peer: Peer, request: Request<Body>) -> Response {
        let begun = Instant::now();
        let (mut parts, body) = request.into_parts();
        let (body, received) = counted(body);
        let ids = ids(&parts.headers);
        let spelled = clean(parts.uri.path());
        let method = parts.method.clone();
        let headers = echo(&parts.headers, ids);
        let client_id = client_request_id(&parts.headers).unwrap_or_default().to_owned();
        let protocol = parts.version;
        let agent = parts.headers.get(header::USER_AGENT).cloned();
        let asked = parts.uri.clone();
        parts.uri = lower(&asked, &spelled);
        parts.extensions.insert(ids);
        if !peer.is_local {
            self.names.drop_foreign_referer(&mut parts.headers);
        }
        parts.extensions.insert(self.names.link_base(peer.scheme, &asked, &parts.headers));
        parts.extensions.insert(OriginalPath(spelled.as_str().into()));
        let request = Request::from_parts(parts, body);
        let routed = AssertUnwindSafe(self.admit(&peer, &asked, request)).catch_unwind().await;
        let (actor, mut response) = routed.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic");
            ("?".to_owned(), ApiError::internal(format!("a handler panicked: {text}")).into_response())
        });
        for (name, value) in headers {
            response.headers_mut().insert(name, value);
        }
        let status = response.status().as_u16();
        let route = response.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
        self.metrics.responded(&method, &route, asked.query(), status, begun.elapsed());
        let quality = match route.as_str() {
            // A request that was rejected before routing has no route.
            "none" => qos::classify(&method, &spelled.to_ascii_lowercase(), status),
            route => qos::classify(&method, route, status),
        };
        let error = response.extensions().get::<LoggedError>();
        tracing::info!(
            LOGKIND = quality.map(|_| "frontendqos"),
            operationType = quality.map(|it| it.operation),
            resultType = quality.map(|it| it.result),
            errorCode = quality.and(error).map(|it| it.code),
            errorDetails = quality.and(error).map(|it| it.message.as_str()),
            request.id = %ids.request,
            correlation.id = %ids.correlation,
            client.request.id = client_id,
            http.method = %method,
            http.path = spelled,
            http.protocol = ?protocol,
            http.status = status,
            http.received_bytes = received.map_or(0, |it| it.load(Ordering::Relaxed)),
            // Unknown for streams, which have only started.
            http.sent_bytes = response.body().size_hint().exact(),
            user_agent = agent.as_ref().map(user_agent).unwrap_or_default(),
            actor,
            peer = peer.address,
            duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            "{method} {spelled} {status}"
        );
        response
    }

    /// Authenticates the sender and routes the request. Returns the actor and the response.
    async fn admit(&self, peer: &Peer, asked: &Uri, mut request: Request<Body>) -> (String, Response) {
        if !peer.is_local
            && let Err(error) = self.names.check(asked, request.headers())
        {
            self.metrics.refused();
            return ("unauthenticated".to_owned(), error.into_response());
        }
        let path = request.uri().path().to_owned();
        let is_open =
            OPEN_PATHS.contains(&path.as_str()) && matches!(*request.method(), Method::GET | Method::HEAD);
        let identity = if is_open {
            Identity { actor: "anybody".to_owned(), role: crate::auth::Role::Reader }
        } else {
            let context = RequestContext {
                audience: audience(&path, request.uri().query()),
                method: request.method(),
                uri: asked,
                headers: request.headers(),
                peer: &peer.address,
            };
            match self.authenticator.identify(&peer.proof, &context, self.clock.now()).await {
                Ok(identity) => identity,
                Err(error) => {
                    self.metrics.refused();
                    tracing::info!(peer = peer.address, "Authentication failed: {}", error.0);
                    let error = ApiError::new(StatusCode::FORBIDDEN, Code::Forbidden, "Forbidden.");
                    return ("unauthenticated".to_owned(), error.into_response());
                }
            }
        };
        let actor = identity.actor.clone();
        if !identity.role.allows(request.method()) {
            let message = "Forbidden: this identity may only read.";
            return (actor, ApiError::new(StatusCode::FORBIDDEN, Code::Forbidden, message).into_response());
        }
        let spelled = request.extensions().get::<OriginalPath>().map(|it| it.0.clone()).unwrap_or_default();
        let checked = check_segments(&spelled.to_ascii_lowercase(), &self.locations);
        if let Err(error) = checked.and_then(|()| check_api_version(&path, request.uri().query())) {
            return (actor, error.into_response());
        }
        request.extensions_mut().insert(identity);
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        (actor, response)
    }
}

/// The body with a counter of the bytes that were read; no counter for an empty body.
fn counted(body: Body) -> (Body, Option<Arc<AtomicU64>>) {
    if body.is_end_stream() {
        return (body, None);
    }
    let read = Arc::new(AtomicU64::new(0));
    let sum = read.clone();
    let body = body.map_frame(move |frame| {
        let bytes = frame.data_ref().map_or(0, bytes::Bytes::len);
        sum.fetch_add(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        frame
    });
    (Body::new(body), Some(read))
}

/// The caller's user agent for the log: printable characters, within the limit.
fn user_agent(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes())
        .chars()
        .filter(|letter| !letter.is_control())
        .take(USER_AGENT_LETTERS_MAX)
        .collect()
}

/// The API that a request addresses.
fn audience(path: &str, query: Option<&str>) -> Audience {
    let is_admin_path = path == "/admin" || path.starts_with("/admin/");
    // An invalid query is rejected later; until then it needs the rights of the Admin API.
    let names_admin = Query::parse(query).map_or(true, |query| {
        query.get_all("api-version").any(|version| version.trim().eq_ignore_ascii_case("admin"))
    });
    if is_admin_path || names_admin { Audience::Admin } else { Audience::Arm }
}

/// The request's id and the caller's correlation id. A correlation id that is no UUID is ignored.
fn ids(headers: &HeaderMap) -> RequestIds {
    let request = Uuid::now_v7();
    let given = headers.get(&CORRELATION_ID).and_then(|value| value.to_str().ok());
    let correlation = given.and_then(|text| Uuid::try_parse(text).ok()).filter(|id| !id.is_nil());
    RequestIds { request, correlation: correlation.unwrap_or(request) }
}

/// The headers of every response.
fn echo(headers: &HeaderMap, ids: RequestIds) -> Vec<(HeaderName, HeaderValue)> {
    let mut echoed = Vec::with_capacity(3);
    for (name, id) in [(REQUEST_ID, ids.request), (CORRELATION_ID, ids.correlation)] {
        if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
            echoed.push((name, value));
        }
    }
    let wanted = headers.get(&RETURN_CLIENT_ID).and_then(|value| value.to_str().ok());
    if wanted.is_some_and(|text| text.eq_ignore_ascii_case("true"))
        && let Some(id) = client_request_id(headers).and_then(|id| HeaderValue::from_str(id).ok())
    {
        echoed.push((CLIENT_ID, id));
    }
    echoed
}

/// The URI for routing, with the path in lower case.
fn lower(uri: &Uri, spelled: &str) -> Uri {
    let path = spelled.to_ascii_lowercase();
    let text = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = text.parse().ok();
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// `api-version=admin` is required on the maintenance routes and optional elsewhere; another value is always wrong.
fn check_api_version(path: &str, query: Option<&str>) -> Result<(), ApiError> {
    if path != "/admin" && !path.starts_with("/admin/") {
        return Ok(());
    }
    let query = Query::parse(query)?;
    let mut given = query.get_all("api-version").peekable();
    let segments: Vec<&str> = path.split('/').skip(2).collect();
    // Only the segments after a cluster's id count: resource groups and clusters may have any name.
    let asked = match &segments[..] {
        ["subscriptions", _, "resourcegroups", _, "providers", _, _, _, asked @ ..] => asked,
        all => all,
    };
    let is_needed =
        asked.last() == Some(&"selectors") || asked.iter().any(|it| it.starts_with("maintenance"));
    let is_right = given.peek().is_some() || !is_needed;
    if is_right && given.all(|version| version == "admin") {
        return Ok(());
    }
    let message = if is_needed {
        "This route needs api-version=admin."
    } else {
        "The api-version must be admin, or absent."
    };
    let error = ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidApiVersionParameter, message);
    Err(error.with_target("api-version"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline(router: Router) -> Arc<RequestPipeline> {
        Arc::new(RequestPipeline {
            router,
            locations: Vec::new(),
            authenticator: Arc::new(Authenticator::AllowAll),
            names: PublicNames::new(&crate::Config::default(), None, ([127, 0, 0, 1], 1).into()),
            clock: Arc::new(api::clock::SystemClock),
            metrics: Metrics::default(),
        })
    }

    #[test]
    fn the_api_version_is_required_on_maintenance_routes_and_checked_everywhere() {
        let check = |path: &str, query: &str, expect: bool| {
            assert_eq!(check_api_version(path, Some(query)).is_ok(), expect, "{path}?{query}");
        };
        check("/admin/maintenanceschedules", "api-version=admin", true);
        check("/admin/maintenanceschedules", "", false);
        check("/admin/maintenanceschedules", "api-version=2025-07-25", false);
        check("/admin/maintenanceschedules", "api-version=admin&api-version=x", false);
        check("/admin/subscriptions/s/x/maintenancemanifests/i/cancel", "", false);
        check("/admin/subscriptions/s/x/selectors", "", false);
        check("/admin/clusters", "", true);
        let id =
            "/admin/subscriptions/s/resourcegroups/maintenance-g/providers/p/openshiftclusters/maintenance-c";
        for (asked, expect) in [
            ("", true),
            ("/import", true),
            ("/labels", true),
            ("/selectors", false),
            ("/maintenancemanifests", false),
        ] {
            check(&format!("{id}{asked}"), "", expect);
        }
        check("/admin/clusters", "api-version=admin", true);
        check("/admin/clusters", "api-version=2025-07-25", false);
        check("/subscriptions/s", "api-version=2025-07-25", true);
    }

    #[tokio::test]
    async fn a_panic_becomes_an_error_response_and_the_next_request_is_served() {
        let router = Router::new()
            .route("/bad", axum::routing::get(async || -> &'static str { panic!("a bug") }))
            .route("/good", axum::routing::get(async || "fine"));
        let pipeline = pipeline(router);
        let (address, proof) = ("test".to_owned(), ClientProof::default());
        let peer = Peer { address, scheme: Scheme::Http, proof, is_local: true };
        let request = |path: &str| {
            let request = Request::builder().uri(path).body(Body::empty()).unwrap();
            pipeline.clone().pass(peer.clone(), request)
        };
        let bad = request("/bad").await;
        assert_eq!(bad.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(bad.headers().contains_key(&REQUEST_ID));
        let body = axum::body::to_bytes(bad.into_body(), 10_000).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["code"], "InternalServerError");
        assert_eq!(body["error"]["message"], "Internal server error.");
        assert_eq!(request("/good").await.status(), StatusCode::OK);
    }

    /// Collects the log of this thread as `field=value`.
    struct Log(Arc<std::sync::Mutex<Vec<String>>>);

    impl tracing::field::Visit for Log {
        fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}"));
        }
    }

    impl tracing::Subscriber for Log {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }
        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
        fn event(&self, event: &tracing::Event<'_>) {
            event.record(&mut Log(self.0.clone()));
        }
        fn enter(&self, _: &tracing::span::Id) {}
        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test]
    async fn the_access_log_has_protocol_user_agent_and_byte_counts() {
        let router = Router::new().route("/echo", axum::routing::put(async |body: String| body + "!"));
        let pipeline = pipeline(router);
        let (address, proof) = ("test".to_owned(), ClientProof::default());
        let peer = Peer { address, scheme: Scheme::Http, proof, is_local: true };
        let request = Request::builder()
            .method(Method::PUT)
            .uri("/Echo")
            .header("user-agent", HeaderValue::from_bytes(b"tool/1\tx\xff").unwrap())
            .body(Body::from("12345"))
            .unwrap();
        let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
        let _guard = tracing::subscriber::set_default(Log(lines.clone()));
        assert_eq!(pipeline.pass(peer, request).await.status(), StatusCode::OK);
        let lines = lines.lock().unwrap().clone();
        for expect in [
            "http.protocol=HTTP/1.1",
            "http.received_bytes=5",
            "http.sent_bytes=6",
            "http.status=200",
            "user_agent=\"tool/1x\u{fffd}\"",
        ] {
            assert!(lines.iter().any(|line| line == expect), "{expect} in {lines:?}");
        }
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        assert_eq!(user_agent(&HeaderValue::from_static("tool/1")), "tool/1");
        assert_eq!(user_agent(&"x".repeat(5000).parse().unwrap()).len(), USER_AGENT_LETTERS_MAX);
    }

    #[test]
    fn a_path_is_routed_in_lower_case_with_its_query_untouched() {
        let uri: Uri = "/Admin/Clusters?Name=A".parse().unwrap();
        assert_eq!(lower(&uri, "/Admin/Clusters").to_string(), "/admin/clusters?Name=A");
    }

    #[test]
    fn only_a_uuid_is_accepted_as_correlation_id() {
        let mut headers = HeaderMap::new();
        headers.insert(&CORRELATION_ID, HeaderValue::from_static("no uuid"));
        let made = ids(&headers);
        assert_eq!(made.correlation, made.request);
        let given = "0192d0e0-0000-7000-8000-000000000001";
        headers.insert(&CORRELATION_ID, HeaderValue::from_static(given));
        assert_eq!(ids(&headers).correlation.to_string(), given);
    }
}
