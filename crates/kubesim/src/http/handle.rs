//! Handling of one request, from its headers to the response.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;
use hyper::body::{Body as HttpBody, Bytes};
use hyper::header::{
    CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT, WARNING, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::Query;
use super::request_info::RequestInfo;
use super::route::Route;
use super::{
    Body, Credentials, auth, decode, discovery, impersonate, list, logs, negotiate, openapi, options,
    reviews, watch, write,
};
use crate::cluster::ClusterInner;
use crate::faults::FaultAction;
use crate::kinds::Kind;
use crate::rbac;
use crate::status::{ApiResult, StatusError};
use crate::verbs::{Caller, Target};
use crate::webhooks::Gate;

/// The connection is reset instead of a response.
#[derive(Debug, thiserror::Error)]
#[error("the connection was reset")]
pub struct ConnectionReset;

/// A request without its body.
pub(super) struct ApiRequest<'a> {
    pub(super) cluster: &'a Arc<ClusterInner>,
    pub(super) method: Method,
    pub(super) headers: HeaderMap,
    pub(super) query: Query,
    pub(super) caller: Caller,
}

impl ApiRequest<'_> {
    /// The `User-Agent` header.
    pub(super) fn user_agent(&self) -> &str {
        self.headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or("unknown")
    }
}

/// Handles one request. Fails only if a fault resets the connection.
pub async fn handle<B>(
    cluster: Arc<ClusterInner>,
    credentials: Credentials,
    request: Request<B>,
) -> Result<Response<Body>, ConnectionReset>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let faults = cluster.faults.take(request.uri().path());
    if let Some(latency) = faults.latency {
        tokio::time::sleep(latency).await;
    }
    match faults.action {
        FaultAction::Proceed => {}
        FaultAction::Reset => return Err(ConnectionReset),
        FaultAction::Respond(failure) => return Ok(error_response(&failure)),
    }
    let (parts, body) = request.into_parts();
    let now = cluster.clock.now();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let info = RequestInfo::new(&parts.method, parts.uri.path(), &query);
    let mut body = Box::pin(body);
    let caller = match admitted_caller(&cluster, &credentials, &parts, &info, &query, now) {
        Ok(caller) => caller,
        Err(refusal) => {
            decode::drain(body.as_mut()).await;
            return Ok(error_response(&refusal));
        }
    };
    let request =
        ApiRequest { method: parts.method, query, caller, headers: parts.headers, cluster: &cluster };
    // A panic in one request becomes a 500 response; the connection and its other requests continue. The state is
    // unchanged: a verb writes its changes in one call at its very end.
    let result = AssertUnwindSafe(respond(&request, parts.uri.path(), body.as_mut())).catch_unwind().await;
    let response = result.unwrap_or_else(|_| {
        tracing::error!(
            cluster.id = cluster.name,
            "Panic in the simulated API server while handling {} {} of cluster {}",
            request.method,
            parts.uri.path(),
            cluster.name
        );
        Err(StatusError::internal(
            "the simulator panicked while handling this request; its log has the cause",
        ))
    });
    // A request that was rejected by its path has a body too. Reading it to its end keeps the connection usable.
    if !body.is_end_stream() {
        decode::drain(body.as_mut()).await;
    }
    Ok(response.unwrap_or_else(|failure| error_response(&failure)))
}

/// The user of a request, or as whom it is sent, if he may do what it asks for.
fn admitted_caller(
    cluster: &ClusterInner,
    credentials: &Credentials,
    parts: &Parts,
    info: &RequestInfo,
    query: &Query,
    now: Timestamp,
) -> ApiResult<Caller> {
    let (method, headers) = (&parts.method, &parts.headers);
    let user =
        auth::authenticate(cluster, credentials, headers, now).ok_or_else(StatusError::unauthorized)?;
    let attributes = info.attributes();
    let state = cluster.read();
    let user = impersonate::impersonate(&state, &user, headers, &attributes)?.unwrap_or(user);
    rbac::expect(&state, &user, &attributes)?;
    let is_gated = !matches!(*method, Method::GET | Method::HEAD) && !state.webhooks().is_empty();
    let gate = is_gated.then(|| Arc::new(Gate::new(options::sent(query))));
    Ok(Caller { user, now, gate })
}

async fn respond<B>(request: &ApiRequest<'_>, path: &str, body: B) -> ApiResult<Response<Body>>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let route = Route::parse(path, &request.cluster.kinds());
    let is_read = matches!(request.method, Method::GET | Method::HEAD);
    match route {
        Route::Objects(target) => {
            let result = handle_objects(request, &target, body).await;
            return with_deprecation(&target.kind, result);
        }
        Route::Watch(target) if is_read => {
            return with_deprecation(&target.kind, watch::watch(request, &target));
        }
        Route::UnknownResource => return Err(StatusError::no_such_resource()),
        Route::UnknownSubresource(kind, name) => {
            return with_deprecation(&kind, Err(StatusError::not_found(&kind, &name)));
        }
        Route::Unknown => return Ok(text(StatusCode::NOT_FOUND, "404 page not found\n")),
        _ if !is_read => return Err(StatusError::method_not_allowed()),
        _ => {}
    }
    let registry = request.cluster.kinds();
    match route {
        Route::Version => Ok(value(StatusCode::OK, &version())),
        Route::Health => Ok(text(StatusCode::OK, "ok")),
        Route::CoreVersions => discovery::core(&registry, &request.headers, request.cluster.address()),
        Route::Groups => discovery::groups(&registry, &request.headers),
        Route::Group(group) => discovery::group(&registry, &group),
        Route::Resources(group, version) => discovery::resources(&registry, &group, &version),
        Route::OpenApiV2 => Ok(openapi::v2(&registry, &request.headers)),
        Route::OpenApiIndex => openapi::index(request.cluster, &registry),
        Route::OpenApi(group, version) => openapi::document(request.cluster, &registry, &group, &version),
        Route::Watch(_)
        | Route::Objects(_)
        | Route::UnknownSubresource(..)
        | Route::UnknownResource
        | Route::Unknown => Err(StatusError::no_such_resource()),
    }
}

async fn handle_objects<B>(request: &ApiRequest<'_>, target: &Target, body: B) -> ApiResult<Response<Body>>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let verb = verb(request, target)?;
    let allowed = match target.kind.subresource(&target.subresource) {
        Some(subresource) => subresource.verbs,
        None => target.kind.verbs(),
    };
    if !allowed.contains(&verb) {
        return Err(StatusError::method_not_allowed());
    }
    match verb {
        "get" if target.subresource == "log" => logs::read(request, target),
        "get" => list::get(request, target),
        "list" => list::list(request, target),
        "watch" => watch::watch(request, target),
        "create" | "update" | "patch" | "delete" | "deletecollection" => {
            let body = decode::collect(body).await?;
            match target.subresource.as_str() {
                _ if reviews::is_review(target) => reviews::review(request, target, &body),
                "token" => reviews::token(request, target, &body),
                _ => write::admitted(request, target, verb, &body).await,
            }
        }
        _ => Err(StatusError::method_not_allowed()),
    }
}

fn verb(request: &ApiRequest<'_>, target: &Target) -> ApiResult<&'static str> {
    let is_collection = target.name.is_empty();
    Ok(match (&request.method, is_collection) {
        (&Method::GET | &Method::HEAD, true) if request.query.flag("watch") => "watch",
        (&Method::GET | &Method::HEAD, true) => "list",
        (&Method::GET | &Method::HEAD, false) => "get",
        (&Method::POST, true) => "create",
        (&Method::POST, false) if !target.subresource.is_empty() => "create",
        (&Method::PUT, false) => "update",
        (&Method::PATCH, false) => "patch",
        (&Method::DELETE, true) => "deletecollection",
        (&Method::DELETE, false) => "delete",
        _ => return Err(StatusError::method_not_allowed()),
    })
}

fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "emulationMajor": "1", "emulationMinor": "37", "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "36", "gitVersion": "v1.37.1", "gitCommit": "unknown", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "go1.26.8", "compiler": "gc", "platform": "linux/amd64",
    })
}

/// A response with a JSON value.
pub(super) fn value(code: StatusCode, value: &Value) -> Response<Body> {
    json_body(code, Body::whole(value.to_string()))
}

/// A response with JSON text.
pub(super) fn json_body(code: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// A response with plain text.
pub(super) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Adds a `Warning` header for each warning.
pub(super) fn with_warnings(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for header in warnings.iter().filter_map(|warning| warning_header(warning)) {
        response.headers_mut().append(WARNING, header);
    }
    response
}

fn warning_header(warning: &str) -> Option<HeaderValue> {
    let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

/// Adds the warning of a deprecated version before the other warnings; errors have it too.
fn with_deprecation(kind: &Kind, result: ApiResult<Response<Body>>) -> ApiResult<Response<Body>> {
    let warning = kind.custom().and_then(|custom| custom.deprecation.as_deref());
    let Some(header) = warning.and_then(warning_header) else { return result };
    let mut response = result.unwrap_or_else(|failure| error_response(&failure));
    let others: Vec<HeaderValue> = response.headers().get_all(WARNING).iter().cloned().collect();
    response.headers_mut().insert(WARNING, header);
    for other in others {
        response.headers_mut().append(WARNING, other);
    }
    Ok(response)
}

/// The response for an error.
pub(super) fn error_response(failure: &StatusError) -> Response<Body> {
    let code = StatusCode::from_u16(failure.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = value(code, &failure.status());
    if let Some(seconds) = failure.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if failure.code == 401 {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"kubernetes\""));
    }
    response
}

/// Fails unless the client accepts JSON or text.
pub(super) fn require_json(request: &ApiRequest<'_>) -> ApiResult<()> {
    negotiate::any(&request.headers)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use crate::access::User;
    use crate::cluster::{ClusterOptions, SimulatedCluster};

    /// A connection whose next request would start in the middle of an unread body has to be closed.
    #[tokio::test]
    async fn the_body_of_a_request_with_an_invalid_path_is_read_to_its_end() {
        let cluster = SimulatedCluster::start("test", ClusterOptions::default()).await.unwrap();
        for path in ["/nowhere", "/apis/nobody.example/v1/things", "/version"] {
            let (sender, end) = tokio::sync::oneshot::channel();
            let first = stream::once(async { Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"{}"))) });
            let last = stream::once(async move {
                let _ = sender.send(());
                Ok(Frame::data(Bytes::new()))
            });
            let body = StreamBody::new(first.chain(last));
            let request = Request::builder().method("POST").uri(path).body(body).unwrap();
            let credentials = Credentials::User(User::admin());
            let response = handle(cluster.shared(), credentials, request).await.unwrap();
            assert!(response.status().is_client_error(), "{path}: {}", response.status());
            end.await.unwrap();
        }
    }
}
