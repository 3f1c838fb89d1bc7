//! What every request passes: it is somebody's, or it is asked to sign in; what changes something comes from our own pages, from
//! somebody who may act, with the token of their session; and every answer carries the headers that keep a browser from doing
//! anything else with it.

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
use crate::session::{Role, SessionUser, same};
use crate::{PortalState, SignIn};

/// The name of our cookie; browsers take one of this prefix only from us, for us, over a connection they trust.
pub(crate) const COOKIE: &str = "__Host-shipshape";

/// Binds an attempt to sign in at a provider to the browser that began it.
pub(crate) const ATTEMPT_COOKIE: &str = "__Host-shipshape-attempt";

/// No form of ours is longer.
const BODY_BYTES_MAX: usize = 512 * 1024;

/// A browser that needs longer for a form is not waited for.
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

/// Lets a request for this portal pass, and sets the headers of every response.
pub(crate) async fn portal(State(state): State<Arc<PortalState>>, request: Request, next: Next) -> Response {
    let mut response = match check_names(&state, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => *refusal,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        // An asset says itself how long it may be kept.
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    if state.origin.starts_with("https:") {
        let year = HeaderValue::from_static("max-age=31536000");
        headers.insert(header::STRICT_TRANSPORT_SECURITY, year);
    }
    response
}

/// Where everybody is let in, a page of another site must not reach us by a name of its own that resolves to this machine.
fn check_names(state: &PortalState, request: &Request) -> Result<(), Box<Response>> {
    if !matches!(state.entry, SignIn::Open) {
        return Ok(());
    }
    let is_ours =
        |authority: &str| authority_host(authority).is_some_and(|host| state.own_names.contains(&host));
    let headers = request.headers();
    let hosts = headers.get_all(header::HOST).into_iter().map(|value| value.to_str().unwrap_or_default());
    let named: Vec<&str> =
        request.uri().authority().map(http::uri::Authority::as_str).into_iter().chain(hosts).collect();
    if named.is_empty() || !named.iter().all(|authority| is_ours(authority)) {
        let message = "The Host of this request is not a name of this portal, which answers to loopback names and the host of portal.url.";
        return Err(refuse(StatusCode::FORBIDDEN, message));
    }
    let mut origins =
        headers.get_all(header::ORIGIN).into_iter().map(|value| value.to_str().unwrap_or_default());
    // A form of a page that names no referrer comes from "null"; what the browser says of its site decides then.
    let is_form = |origin: &str| {
        origin == "null" && headers.get("sec-fetch-site").is_some_and(|it| it == "same-origin")
    };
    let is_own = |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| is_ours(authority));
    if !origins.all(|origin| is_own(origin) || is_form(origin)) {
        let message = "The Origin of this request is a page of another site.";
        return Err(refuse(StatusCode::FORBIDDEN, message));
    }
    Ok(())
}

/// For what is only ever read.
pub(crate) async fn only_read(request: Request, next: Next) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => next.run(request).await,
        _ => *refuse(StatusCode::METHOD_NOT_ALLOWED, "This is only read."),
    }
}

/// For addresses where there is nothing, whoever asks.
pub(crate) async fn nowhere() -> Response {
    let page = crate::layout::bare("Not found", "The address is not one of this portal.");
    (StatusCode::NOT_FOUND, page).into_response()
}

/// Lets a request of somebody who is signed in pass; others are asked to sign in.
pub(crate) async fn session(State(state): State<Arc<PortalState>>, request: Request, next: Next) -> Response {
    match admit(&state, request, next).await {
        Ok(response) => response,
        Err(refusal) => *refusal,
    }
}

async fn admit(
    state: &Arc<PortalState>,
    mut request: Request,
    next: Next,
) -> Result<Response, Box<Response>> {
    let now = state.clock.now();
    let known = cookie(request.headers(), COOKIE).and_then(|name| state.sessions.user(name, now));
    let (user, fresh) = match (known, &state.entry) {
        (Some(user), _) => (user, None),
        (None, SignIn::Open) => {
            let begun = state
                .sessions
                .begin("anonymous", Role::Operator, now)
                .map_err(|error| refuse(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()))?;
            let user = state.sessions.user(&begun, now);
            let gone = || refuse(StatusCode::INTERNAL_SERVER_ERROR, "The session is gone.");
            (user.ok_or_else(gone)?, Some(begun))
        }
        (None, SignIn::OneTimeLink | SignIn::Oidc(_)) => return Err(Box::new(ask_to_sign_in(&request))),
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

/// What changes something: from our own pages, by somebody who may, with their token. The form that it carried is handed on.
async fn check_change(
    state: &PortalState,
    user: &SessionUser,
    request: Request,
) -> Result<Request, Box<Response>> {
    if *request.method() != Method::POST {
        return Err(refuse(StatusCode::METHOD_NOT_ALLOWED, "Things are changed by POST."));
    }
    if !comes_from_us(state, request.headers()) {
        return Err(refuse(StatusCode::FORBIDDEN, "This did not come from a page of this portal."));
    }
    let (mut parts, body) = request.into_parts();
    let arriving = tokio::time::timeout(BODY_TIME_MAX, Limited::new(body, BODY_BYTES_MAX).collect());
    let late = |_| refuse(StatusCode::REQUEST_TIMEOUT, "The form did not arrive in time.");
    let body = arriving.await.map_err(late)?;
    let body = body.map_err(|_| refuse(StatusCode::PAYLOAD_TOO_LARGE, "The form is too large."))?.to_bytes();
    let fields = Fields::parse(&String::from_utf8_lossy(&body));
    let in_header = parts.headers.get("x-csrf-token").and_then(|value| value.to_str().ok());
    let token = in_header.or(fields.one("csrf")).unwrap_or_default();
    if !same(token, &user.csrf) {
        let message = "The page was too old, or not ours: its token is not that of your session. Load it again and retry.";
        return Err(refuse(StatusCode::FORBIDDEN, message));
    }
    let is_harmless = matches!(parts.uri.path(), "/logout" | "/preview/schedule");
    if user.role < Role::Operator && !is_harmless {
        return Err(refuse(StatusCode::FORBIDDEN, "You may look, but not act: your role is reader."));
    }
    parts.extensions.insert(fields);
    Ok(Request::from_parts(parts, Body::empty()))
}

/// Whether a browser says that one of our own pages sent it. One that says neither is older than any that we know. A page that is
/// told to name no referrer names no origin either when it sends a form; what it says of the site then counts alone, and no page
/// can make a browser say that.
fn comes_from_us(state: &PortalState, headers: &HeaderMap) -> bool {
    let word = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let site = word(HeaderName::from_static("sec-fetch-site"));
    match (word(header::ORIGIN), site) {
        (None | Some("null"), Some("same-origin")) => true,
        (Some(origin), None | Some("same-origin")) => origin == state.origin,
        (_, _) => false,
    }
}

fn ask_to_sign_in(request: &Request) -> Response {
    let path = request.uri().path();
    let is_page = *request.method() == Method::GET && path != "/live" && !path.starts_with("/json/");
    if !is_page {
        let error = json!({"error": {"code": "Unauthorized", "message": "Sign in first."}});
        return (StatusCode::UNAUTHORIZED, axum::Json(error)).into_response();
    }
    let to = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Redirect::to(&format!("/login?to={}", escaped(to))).into_response()
}

fn refuse(status: StatusCode, message: &str) -> Box<Response> {
    Box::new((status, crate::layout::bare("That was not done", message)).into_response())
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).into_iter().filter_map(|line| line.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// A cookie for this browser session; its value is one of our tokens, or empty to remove it.
pub(crate) fn set_cookie(name: &str, value: &str) -> HeaderValue {
    let ending = if value.is_empty() { "; Max-Age=0" } else { "" };
    let text = format!("{name}={value}; Path=/; Secure; HttpOnly; SameSite=Lax{ending}");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// Where somebody goes after signing in: a page of ours, whatever was asked for.
pub(crate) fn safe_path(to: Option<&str>) -> String {
    let is_ours = |to: &&str| {
        let is_odd = |letter: char| letter.is_control() || letter == '\\' || letter.is_whitespace();
        to.starts_with('/') && !to.starts_with("//") && !to.contains(is_odd) && !to.starts_with("/log")
    };
    to.filter(is_ours).unwrap_or("/fleet").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_page_of_ours_is_gone_to_after_signing_in() {
        for ours in ["/fleet", "/manifest/0192?x=1", "/json/admin/fleet", "/%2f%2fevil"] {
            assert_eq!(safe_path(Some(ours)), ours);
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
