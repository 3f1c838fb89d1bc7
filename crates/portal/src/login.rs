//! Signing in and out.

use std::sync::Arc;

use ::serve::ClientAddress;
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use http::{HeaderMap, StatusCode, header};
use maud::html;

use crate::fields::{Fields, escaped};
use crate::layout;
use crate::middleware::{ATTEMPT_COOKIE, COOKIE, cookie, safe_path, set_cookie};
use crate::oidc::LoginError;
use crate::session::{Attempt, Role, SessionUser, same};
use crate::{PortalState, SignIn};

/// The page for those who are not signed in.
pub(crate) async fn page(State(state): State<Arc<PortalState>>, RawQuery(query): RawQuery) -> Response {
    let query = Fields::parse(&query.unwrap_or_default());
    let to = safe_path(query.one("to"));
    let body = match &state.entry {
        SignIn::Open => return Redirect::to(&to).into_response(),
        SignIn::OneTimeLink => html! {
            p { "Open the link that " code { "shipshape up" } " printed when it started. It works once, for this browser." }
            p class="quiet" { "Is it used up? Start " code { "shipshape up" } " again: it prints a new one." }
        },
        SignIn::Oidc(_) => html! {
            p { "Your organisation says who you are and whether you may look or act." }
            p { a class="button primary" href={ "/login/start?to=" (escaped(&to)) } { "Sign in" } }
        },
    };
    layout::alone("Sign in", &body).into_response()
}

/// Signs in by a link that works once.
pub(crate) async fn link(
    State(state): State<Arc<PortalState>>,
    Path(token): Path<String>,
    headers: HeaderMap,
    method: http::Method,
) -> Response {
    // A browser that only looks ahead must not use the link up.
    let looks_ahead = ["sec-purpose", "purpose"].iter().any(|name| {
        headers
            .get(*name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("prefetch"))
    });
    if looks_ahead || method == http::Method::HEAD {
        return StatusCode::NO_CONTENT.into_response();
    }
    match state.sessions.redeem(&token, state.clock.now()) {
        Some((user, role)) => enter(&state, &user, role, "/fleet"),
        None => {
            let message = "This link was used already, or is older than a day. Start shipshape up again: it prints a new one.";
            (StatusCode::FORBIDDEN, layout::bare("This link does not work", message)).into_response()
        }
    }
}

/// Sends somebody to the provider.
pub(crate) async fn start(
    State(state): State<Arc<PortalState>>,
    client: Option<Extension<ClientAddress>>,
    RawQuery(query): RawQuery,
) -> Response {
    let SignIn::Oidc(provider) = &state.entry else { return Redirect::to("/login").into_response() };
    let to = safe_path(Fields::parse(&query.unwrap_or_default()).one("to"));
    match provider.depart().await {
        Ok(departure) => {
            let network = client.map(|Extension(address)| address.network());
            let attempt = Attempt { verifier: departure.verifier, nonce: departure.nonce, to, network };
            state.sessions.attempt(attempt, &departure.state, state.clock.now());
            let mut response = Redirect::to(&departure.url).into_response();
            let bound = set_cookie(ATTEMPT_COOKIE, &departure.state);
            response.headers_mut().append(header::SET_COOKIE, bound);
            response
        }
        Err(error) => failed(&error),
    }
}

/// Somebody comes back from the provider.
pub(crate) async fn callback(
    State(state): State<Arc<PortalState>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let SignIn::Oidc(provider) = &state.entry else { return Redirect::to("/login").into_response() };
    let query = Fields::parse(&query.unwrap_or_default());
    if let Some(error) = query.one("error") {
        let said = query.one("error_description").unwrap_or(error).to_owned();
        return failed(&LoginError::Refused(said));
    }
    let (attempt_state, code) = (query.text("state"), query.text("code"));
    // The answer must be to a question of this very browser.
    let is_ours = cookie(&headers, ATTEMPT_COOKIE).is_some_and(|bound| same(bound, attempt_state));
    let attempt = if is_ours { state.sessions.answered(attempt_state, state.clock.now()) } else { None };
    let Some(attempt) = attempt else {
        let message = "This answer is to no question of ours, or came too late. Sign in again.";
        return (StatusCode::FORBIDDEN, layout::bare("You are not signed in", message)).into_response();
    };
    match provider.arrive(code, attempt.verifier, attempt.nonce).await {
        Ok((user, role)) => {
            let mut response = enter(&state, &user, role, &attempt.to);
            response.headers_mut().append(header::SET_COOKIE, set_cookie(ATTEMPT_COOKIE, ""));
            response
        }
        Err(error) => failed(&error),
    }
}

/// Signs out.
pub(crate) async fn logout(
    State(state): State<Arc<PortalState>>,
    Extension(user): Extension<SessionUser>,
) -> Response {
    state.sessions.end(&user);
    tracing::info!(actor = user.user, "{} signed out", user.user);
    let mut response = Redirect::to("/login").into_response();
    response.headers_mut().append(header::SET_COOKIE, set_cookie(COOKIE, ""));
    response
}

fn enter(state: &PortalState, user: &str, role: Role, to: &str) -> Response {
    match state.sessions.begin(user, role, state.clock.now()) {
        Ok(name) => {
            tracing::info!(actor = user, "{user} signed in as {role}");
            let mut response = Redirect::to(to).into_response();
            response.headers_mut().append(header::SET_COOKIE, set_cookie(COOKIE, &name));
            response
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "A session could not be begun");
            (StatusCode::INTERNAL_SERVER_ERROR, layout::bare("You are not signed in", &error.to_string()))
                .into_response()
        }
    }
}

fn failed(error: &LoginError) -> Response {
    tracing::info!("Somebody could not sign in: {error}");
    let (status, message) = match error {
        LoginError::Provider(_) => {
            (StatusCode::BAD_GATEWAY, "The provider could not be asked. Try again in a moment.")
        }
        LoginError::Refused(_) => {
            (StatusCode::FORBIDDEN, "What the provider answered is not accepted. Sign in again.")
        }
        LoginError::NoGroup { .. } => (
            StatusCode::FORBIDDEN,
            "You are known, but in no group that may come in. Ask whoever runs this portal.",
        ),
    };
    (status, layout::bare("You are not signed in", message)).into_response()
}
