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
use crate::session::{Attempt, Role, SessionUser, secrets_equal};
use crate::{PortalState, SignIn};

/// The page for users who are not signed in.
pub(crate) async fn page(State(state): State<Arc<PortalState>>, RawQuery(query): RawQuery) -> Response {
    let query = Fields::parse(&query.unwrap_or_default());
    let to = safe_path(query.get("to"));
    let body = match &state.sign_in {
        SignIn::Open => return Redirect::to(&to).into_response(),
        SignIn::OneTimeLink => html! {
            p { "Open the link that " code { "shipshape up" } " printed when it started. It works once, for this browser." }
            p class="quiet" { "If the link was used, restart " code { "shipshape up" } " to get a new one." }
        },
        SignIn::Oidc(_) => html! {
            p { "Your organisation's identity provider decides whether you may view or change things." }
            p { a class="button primary" href={ "/login/start?to=" (escaped(&to)) } { "Sign in" } }
        },
    };
    layout::signed_out_page("Sign in", &body).into_response()
}

/// Signs in with a one-time link.
pub(crate) async fn link(
    State(state): State<Arc<PortalState>>,
    Path(token): Path<String>,
    headers: HeaderMap,
    method: http::Method,
) -> Response {
    // A prefetch must not consume the link.
    let is_prefetch = ["sec-purpose", "purpose"].iter().any(|name| {
        headers
            .get(*name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.contains("prefetch"))
    });
    if is_prefetch || method == http::Method::HEAD {
        return StatusCode::NO_CONTENT.into_response();
    }
    match state.sessions.redeem(&token, state.clock.now()) {
        Some((user, role)) => sign_in(&state, &user, role, "/fleet"),
        None => {
            let message =
                "This link was already used, or is older than a day. Restart shipshape up to get a new one.";
            (StatusCode::FORBIDDEN, layout::message_page("The link is not valid", message)).into_response()
        }
    }
}

/// Redirects to the identity provider.
pub(crate) async fn start(
    State(state): State<Arc<PortalState>>,
    client: Option<Extension<ClientAddress>>,
    RawQuery(query): RawQuery,
) -> Response {
    let SignIn::Oidc(provider) = &state.sign_in else { return Redirect::to("/login").into_response() };
    let to = safe_path(Fields::parse(&query.unwrap_or_default()).get("to"));
    match provider.authorization_request().await {
        Ok(authorization) => {
            let network = client.map(|Extension(address)| address.network());
            let attempt =
                Attempt { verifier: authorization.verifier, nonce: authorization.nonce, to, network };
            state.sessions.insert_attempt(attempt, &authorization.state, state.clock.now());
            let mut response = Redirect::to(&authorization.url).into_response();
            let bound = set_cookie(ATTEMPT_COOKIE, &authorization.state);
            response.headers_mut().append(header::SET_COOKIE, bound);
            response
        }
        Err(error) => failed(&error),
    }
}

/// Handles the redirect from the identity provider.
pub(crate) async fn callback(
    State(state): State<Arc<PortalState>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let SignIn::Oidc(provider) = &state.sign_in else { return Redirect::to("/login").into_response() };
    let query = Fields::parse(&query.unwrap_or_default());
    if let Some(error) = query.get("error") {
        let message = query.get("error_description").unwrap_or(error).to_owned();
        return failed(&LoginError::Rejected(message));
    }
    let (attempt_state, code) = (query.text("state"), query.text("code"));
    // The sign-in must have been started in this browser.
    let is_bound = cookie(&headers, ATTEMPT_COOKIE).is_some_and(|bound| secrets_equal(bound, attempt_state));
    let attempt = if is_bound { state.sessions.take_attempt(attempt_state, state.clock.now()) } else { None };
    let Some(attempt) = attempt else {
        let message = "This sign-in was not started in this browser, or took too long. Sign in again.";
        return (StatusCode::FORBIDDEN, layout::message_page("Sign-in failed", message)).into_response();
    };
    match provider.exchange(code, attempt.verifier, attempt.nonce).await {
        Ok((user, role)) => {
            let mut response = sign_in(&state, &user, role, &attempt.to);
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
    state.sessions.remove(&user);
    tracing::info!(actor = user.user, "{} signed out", user.user);
    let mut response = Redirect::to("/login").into_response();
    response.headers_mut().append(header::SET_COOKIE, set_cookie(COOKIE, ""));
    response
}

fn sign_in(state: &PortalState, user: &str, role: Role, to: &str) -> Response {
    match state.sessions.create(user, role, state.clock.now()) {
        Ok(name) => {
            tracing::info!(actor = user, "{user} signed in as {role}");
            let mut response = Redirect::to(to).into_response();
            response.headers_mut().append(header::SET_COOKIE, set_cookie(COOKIE, &name));
            response
        }
        Err(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "Creating a session failed");
            (StatusCode::INTERNAL_SERVER_ERROR, layout::message_page("Sign-in failed", &error.to_string()))
                .into_response()
        }
    }
}

fn failed(error: &LoginError) -> Response {
    tracing::info!("A sign-in failed: {error}");
    let (status, message) = match error {
        LoginError::Provider(_) => {
            (StatusCode::BAD_GATEWAY, "The identity provider did not respond. Try again in a timestamp.")
        }
        LoginError::Rejected(_) => {
            (StatusCode::FORBIDDEN, "The response of the identity provider was rejected. Sign in again.")
        }
        LoginError::NoGroup { .. } => (
            StatusCode::FORBIDDEN,
            "None of your groups has access to this portal. Contact its administrators.",
        ),
    };
    (status, layout::message_page("Sign-in failed", message)).into_response()
}
