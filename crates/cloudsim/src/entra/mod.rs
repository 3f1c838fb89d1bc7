//! Entra ID: discovery, tokens for principals and managed identities, the data plane of managed identities, and Microsoft Graph.
//!
//! Tokens are JWTs signed with a key of the database (ES256, published as a JWKS) and valid for an hour unless a setting shortens that.
//! The signature of a federated assertion is verified with the keys that its issuer publishes in the emulated blob service, or that a
//! setting registers ([`Setting::IssuerKeys`](crate::settings::Setting::IssuerKeys)). The emulator fetches nothing from elsewhere, so
//! that assertions of other issuers are accepted unverified. Issuer, subject, audience and times are always compared.

mod assertion;
mod error;
mod graph;
mod identity_service;
mod issuers;
mod jwt;
mod principals;
mod token;

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cloud::ResourceId;
use http::header::AUTHORIZATION;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::arm::ArmError;
use crate::call_context::{CallContext, FaultEffects};
use crate::failure::Failure;
use crate::identities;
use crate::simulator::Simulator;

pub(crate) use error::EntraError;
pub(crate) use graph::graph_routes;
pub(crate) use identity_service::identity_routes;
pub(crate) use issuers::register_issuer_keys;
pub(crate) use jwt::{VerifiedTokens, VerifyError, decode_base64};
pub(crate) use principals::{
    find_identity, register_certificate, register_federation, set_secret_expiry, set_token_lifetime,
};
pub(crate) use token::{TokenVersion, issue_for_identity};

/// Names in place of a tenant that discovery knows. Tokens are issued to signed-in users there, of whom there are none.
const SHARED_TENANTS: [&str; 2] = ["organizations", "common"];

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) client_id: String,
    pub(crate) object_id: String,
    pub(crate) tenant_id: String,
    /// The managed identity, when the caller is one.
    pub(crate) identity: Option<ResourceId>,
}

/// The routes of Entra ID.
pub(crate) fn routes(simulator: Arc<Simulator>) -> Router {
    Router::new()
        .route("/{tenant}/v2.0/.well-known/openid-configuration", get(discovery))
        .route("/{tenant}/.well-known/openid-configuration", get(discovery))
        .route("/common/discovery/instance", get(instance))
        .route("/{tenant}/discovery/v2.0/keys", get(keys))
        .route("/{tenant}/discovery/keys", get(keys))
        .route("/{tenant}/oauth2/v2.0/token", post(token_v2))
        .route("/{tenant}/oauth2/token", post(token_v1))
        .with_state(simulator)
}

/// The caller by the bearer token of a request, which must be for one of the audiences.
pub(crate) fn authenticate(
    cx: &CallContext<'_>,
    headers: &HeaderMap,
    audiences: &[&str],
) -> Result<Caller, Failure> {
    let refused =
        |code: &str, message: &str| Failure::from(ArmError::new(StatusCode::UNAUTHORIZED, code, message));
    let header = headers.get(AUTHORIZATION).and_then(|it| it.to_str().ok());
    let token =
        header.and_then(|it| it.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
    let Some((_, token)) = token.filter(|(_, token)| !token.trim().is_empty()) else {
        return Err(refused(
            "AuthenticationFailed",
            "Authentication failed. The 'Authorization' header is missing or does not hold a bearer token.",
        ));
    };
    let claims = match jwt::verify(cx, token.trim())? {
        Ok(claims) => claims,
        Err(VerifyError::Expired) => {
            return Err(refused("ExpiredAuthenticationToken", "The access token expired."));
        }
        Err(VerifyError::Invalid(why)) => {
            return Err(refused(
                "InvalidAuthenticationToken",
                &format!("The access token is invalid: {why}."),
            ));
        }
    };
    let text = |name: &str| claims[name].as_str().unwrap_or_default().to_owned();
    let audience = text("aud");
    if !audiences
        .iter()
        .any(|it| it.trim_end_matches('/').eq_ignore_ascii_case(audience.trim_end_matches('/')))
    {
        let message = format!(
            "The access token has been obtained for wrong audience or resource '{audience}'. It should exactly match with one of the allowed audiences '{}'.",
            audiences.join("','")
        );
        return Err(refused("InvalidAuthenticationTokenAudience", &message));
    }
    Ok(Caller {
        client_id: text("appid"),
        object_id: text("sub"),
        tenant_id: text("tid"),
        identity: claims["xms_mirid"].as_str().and_then(|id| id.parse().ok()),
    })
}

fn respond(simulator: &Simulator, work: impl FnOnce(&CallContext<'_>) -> Result<Value, Failure>) -> Response {
    match simulator.within(FaultEffects::default(), work) {
        Ok(body) => Json(body).into_response(),
        Err(failure) => error::failed(&failure),
    }
}

async fn discovery(State(simulator): State<Arc<Simulator>>, Path(tenant): Path<String>) -> Response {
    let known = identities::tenant(simulator.seed);
    let is_shared = SHARED_TENANTS.iter().any(|it| it.eq_ignore_ascii_case(&tenant));
    if !is_tenant(&known, &tenant) && !is_shared {
        return EntraError::unknown_tenant(&tenant).response(simulator.clock.now());
    }
    let issuer_tenant = if is_shared { "{tenantid}" } else { &known };
    let authority = &simulator.endpoints().authority;
    Json(json!({
        "token_endpoint": format!("{authority}/{tenant}/oauth2/v2.0/token"),
        "authorization_endpoint": format!("{authority}/{tenant}/oauth2/v2.0/authorize"),
        "device_authorization_endpoint": format!("{authority}/{tenant}/oauth2/v2.0/devicecode"),
        "end_session_endpoint": format!("{authority}/{tenant}/oauth2/v2.0/logout"),
        "issuer": format!("{authority}/{issuer_tenant}/v2.0"),
        "jwks_uri": format!("{authority}/{tenant}/discovery/v2.0/keys"),
        "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt"],
        "response_modes_supported": ["query", "fragment", "form_post"],
        "response_types_supported": ["code", "id_token", "token"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["ES256"],
        "scopes_supported": ["openid"],
        "claims_supported": ["sub", "iss", "aud", "exp", "iat", "oid", "tid", "appid"],
        "tenant_region_scope": null,
    }))
    .into_response()
}

/// Every host is this emulator's: there is one cloud.
async fn instance(State(simulator): State<Arc<Simulator>>) -> Response {
    let endpoints = simulator.endpoints();
    let host = endpoints.authority.trim_start_matches("https://");
    let tenant = identities::tenant(simulator.seed);
    Json(json!({
        "tenant_discovery_endpoint":
            format!("{}/{tenant}/v2.0/.well-known/openid-configuration", endpoints.authority),
        "api-version": "1.1",
        "metadata": [{ "preferred_network": host, "preferred_cache": host, "aliases": [host] }],
    }))
    .into_response()
}

async fn keys(State(simulator): State<Arc<Simulator>>, Path(_tenant): Path<String>) -> Response {
    respond(&simulator, |cx| Ok(json!({ "keys": [jwt::published_key(cx)?] })))
}

async fn token_v2(state: State<Arc<Simulator>>, tenant: Path<String>, body: Bytes) -> Response {
    token::respond(&state.0, &tenant.0, TokenVersion::Second, &body).await
}

async fn token_v1(state: State<Arc<Simulator>>, tenant: Path<String>, body: Bytes) -> Response {
    token::respond(&state.0, &tenant.0, TokenVersion::First, &body).await
}

/// Whether a path names the tenant.
fn is_tenant(known: &str, given: &str) -> bool {
    known.eq_ignore_ascii_case(given)
}
