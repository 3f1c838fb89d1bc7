//! Middleware of every request. A request without a session is redirected to the sign-in page. A change must come from a page of the
//! portal, from an operator, with the CSRF token of their session. Every response has the security headers.

use std::sync::Arc;
use std::time::Duration;

use ::serve::authority_host;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use serde_json::json;

use crate::fields::{Fields, escaped};
use crate::session::{Role, SessionUser, secrets_equal};
use crate::{PortalState, SignIn};

/// Name of the session cookie. Browsers accept a cookie with this prefix only from the host itself, over TLS.
pub(crate) const COOKIE: &str = "__Host-shipshape";

/// Cookie that binds a sign-in at a provider to the browser that started it.
pub(crate) const ATTEMPT_COOKIE: &str = "__Host-shipshape-attempt";

/// Largest form body; no form of the portal is larger.
const BODY_BYTES_MAX: usize = 512 * 1024;

/// Time limit for receiving a form body.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

const HEADERS: [(HeaderName, &str); 8] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; \
         frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (
        HeaderName::from_static("permissions-policy"),
        "accelerometer=(), camera=(), display-capture=(), geolocation=(), gyroscope=(), magnetometer=(), microphone=(), \
         midi=(), payment=(), usb=()",
    ),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Checks the host of a request and sets the headers of every response.
pub(crate) async fn portal(State(state): State<Arc<PortalState>>, request: Request, next: Next) -> Response {
    let mut response = match check_names(&state, &request) {
        Ok(()) => next.run(request).await,
        Err(response) => *response,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        // Assets set their own cache control.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if state.origin.starts_with("https:") {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    response
}

/// Without authentication, a page of another site must not reach the portal through a host name of its own that resolves to this
/// machine (DNS rebinding).
fn check_names(state: &PortalState, request: &Request) -> Result<(), Box<Response>> {
    if !matches!(state.sign_in, SignIn::Open) {
        return Ok(());
    }
    let is_own_host =
        |authority: &str| authority_host(authority).is_some_and(|host| state.own_names.contains(&host));
    let headers = request.headers();
    let hosts = headers.get_all(header::HOST).into_iter().map(|value| value.to_str().unwrap_or_default());
    let named: Vec<&str> =
        request.uri().authority().map(http::uri::Authority::as_str).into_iter().chain(hosts).collect();
    if named.is_empty() || !named.iter().all(|authority| is_own_host(authority)) {
        let message = "The Host of this request is not a name of this portal, which accepts loopback names and the host of portal.url.";
        return Err(reject(StatusCode::FORBIDDEN, message));
    }
    let mut origins =
        headers.get_all(header::ORIGIN).into_iter().map(|value| value.to_str().unwrap_or_default());
    // The Origin of a form on a page without a referrer is "null"; Sec-Fetch-Site decides then.
    let is_form = |origin: &str| {
        origin == "null" && headers.get("sec-fetch-site").is_some_and(|it| it == "same-origin")
    };
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| is_own_host(authority));
    if !origins.all(|origin| is_own(origin) || is_form(origin)) {
        let message = "The Origin of this request is a page of another site.";
        return Err(reject(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

/// Rejects all methods but GET and HEAD.
pub(crate) async fn read_only(request: Request, next: Next) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => next.run(request).await,
        _ => *reject(StatusCode::METHOD_NOT_ALLOWED, "Only GET and HEAD are allowed."),
    }
}

/// Responds to paths that do not exist, with or without a session.
pub(crate) async fn not_found() -> Response {
    let page = crate::layout::message_page("Not found", "The address is not one of this portal.");
    (StatusCode::NOT_FOUND, page).into_response()
}

/// Authenticates a request by its session cookie.
pub(crate) async fn session(State(state): State<Arc<PortalState>>, request: Request, next: Next) -> Response {
    match admit(&state, request, next).await {
        Ok(response) => response,
        Err(response) => *response,
    }
}

async fn admit(
    state: &Arc<PortalState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Box<Response>> {
    let now = state.clock.now();
    let user = cookie(request.headers(), COOKIE).and_then(|name| state.sessions.user(name, now));
    let (user, fresh) = match (user, &state.sign_in) {
        (Some(user), _) => (user, None),
        (None, SignIn::Open) => {
            let session = state
                .sessions
                .create("anonymous", Role::Operator, now)
                .map_err(|error| reject(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))?;
            let user = state.sessions.user(&session, now);
            let gone = || reject(StatusCode::INTERNAL_SERVER_ERROR, "The session no longer exists.");
            (user.ok_or_else(gone)?, Some(session))
        }
        (None, SignIn::OneTimeLink | SignIn::Oidc(_)) => return Err(Box::new(redirect_to_sign_in(&request))),
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        request = check_change(state, &user, request).await?;
    }
    request.extensions_mut().insert(user);
    let mut response = next.run(request).await;
    if let Some(name) = fresh {
        response.headers_mut().append(header::SET_COOKIE, set_cookie(COOKIE, &name));
    }
    Ok(response)
}

/// Checks origin, CSRF token and role of a change. Adds its form to the request.
async fn check_change(
    state: &PortalState,
    user: &SessionUser,
    request: Request,
) -> Result<Request, Box<Response>> {
    if *request.method() != Method::POST {
        return Err(reject(StatusCode::METHOD_NOT_ALLOWED, "Changes need the method POST."));
    }
    if !is_same_origin(state, request.headers()) {
        return Err(reject(StatusCode::FORBIDDEN, "This request did not come from a page of this portal."));
    }
    let (mut parts, body) = request.into_parts();
    let arriving = tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect());
    let late = |_| reject(StatusCode::REQUEST_TIMEOUT, "The form was not received in time.");
    let body = arriving.await.map_err(late)?;
    let body = body.map_err(|_| reject(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large."))?.to_bytes();
    let fields = Fields::parse(&String::from_utf8_lossy(&body));
    let in_header = parts.headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
    let token = in_header.or(fields.get("csrf")).unwrap_or_default();
    if !secrets_equal(token, &user.csrf) {
        let message =
            "The CSRF token is not that of your session: the page is outdated. Reload it and retry.";
        return Err(reject(StatusCode::FORBIDDEN, message));
    }
    let is_harmless = matches!(parts.uri.path(), "/logout" | "/preview/schedule");
    if user.role < Role::Operator && !is_harmless {
        return Err(reject(StatusCode::FORBIDDEN, "This needs the role operator; your role is reader."));
    }
    parts.extensions.insert(fields);
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Whether the headers of a browser show that a page of the portal sent the request. All supported browsers send one of them. A
/// form on a page without a referrer has the Origin `null`; Sec-Fetch-Site alone decides then, which no page can set.
fn is_same_origin(state: &PortalState, headers: &HeaderMap) -> bool {
    let value = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = value(HeaderName::from_static("sec-fetch-site"));
    match (value(header::ORIGIN), site) {
        (None | Some("null"), Some("same-origin")) => true,
        (Some(origin), None | Some("same-origin")) => origin == state.origin,
        (_, _) => false,
    }
}

fn redirect_to_sign_in(request: &Request) -> Response {
    let path = request.uri().path();
    let is_page = *request.method() == Method::GET && path != "/live" && !path.starts_with("/json/");
    if !is_page {
        let error = json!({"error": {"code": "Unauthorized", "message": "Sign in first."}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    }
    let to = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Redirect::to(&format!("/login?to={}", escaped(to))).into_response()
}

fn reject(status: StatusCode, message: &str) -> Box<Response> {
    Box::new((status, crate::layout::message_page("Request rejected", message)).into_response())
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// A session cookie; an empty value removes it.
pub(crate) fn set_cookie(name: &str, value: &str) -> HeaderValue {
    let ending = if value.is_empty() { "; Max-Age=0" } else { "" };
    let text = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{ending}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// The path to redirect to after sign-in: the requested one if it is a page of the portal, otherwise the fleet page.
pub(crate) fn safe_path(to: Option<&str>) -> String {
    let is_page = |to: &&str| {
        let is_odd = |letter: char| letter.is_control() || letter == '\\' || letter.is_whitespace();
        to.starts_with('/') && !to.starts_with("//") && !to.contains(is_odd) && !to.starts_with("/log")
    };
    to.filter(is_page).unwrap_or("/fleet").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_the_portal_is_redirected_to_after_sign_in() {
        for own in ["/fleet", "/manifest/0192?x=1", "/json/admin/fleet", "/%2f%2fevil"] {
            assert_eq!(safe_path(Some(own)), own);
        }
        let foreign = [
            "",
            "fleet",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil",
            "https://evil.example",
            "javascript:alert(1)",
            "/\t/evil",
            "/ /evil",
            "/login",
            "/logout",
            "///evil",
        ];
        for foreign in foreign {
            assert_eq!(safe_path(Some(foreign)), "/fleet", "{foreign}");
        }
        assert_eq!(safe_path(None), "/fleet");
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, "a=1; __Host-shipshape-x=no; __Host-shipshape=yes=".parse().unwrap());
        assert_eq!(cookie(&headers, COOKIE), Some("yes="));
        assert_eq!(cookie(&headers, "b"), None);
    }
}
