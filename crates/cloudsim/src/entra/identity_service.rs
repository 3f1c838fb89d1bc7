//! The data plane of managed identities: a certificate for each identity that the caller names, with which Entra ID issues its tokens.
//!
//! Certificates are valid for 90 days and replaced from day 46 on; the replaced one stays good until its end. The member `client_secret` is
//! key and chain in PEM, encoded in base64. Azure sends PKCS#12 there; the SDKs' certificate credentials accept both.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::ResourceId;
use http::header::{HeaderName, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::principals::{IDENTITY_TYPE, property};
use super::{authenticate, decode_base64};
use crate::arm::{ArmError, store};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::fault_injection::{InjectedError, with_faults};
use crate::keyvault::issue::{self, CertificateOrder, KeyType};
use crate::simulator::Simulator;
use crate::{database, identities};

/// The audience of tokens for this service.
pub(super) const AUDIENCE: &str = "https://serviceidentity.azure.net";
const AUDIENCES: [&str; 3] =
    [AUDIENCE, "https://management.azure.com", "https://management.core.windows.net"];

const CREDENTIAL: &str = "identity-credential";
const VALID_DAYS: i64 = 90;
const RENEWAL_DAYS: i64 = 46;

/// The certificates of an identity, newest last.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCredential {
    /// An identity that was deleted and created again is another one.
    client_id: String,
    certificates: Vec<StoredCertificate>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCertificate {
    not_before: Timestamp,
    not_after: Timestamp,
    der: String,
    chain_pem: String,
    key_pem: String,
}

/// The routes of the data plane.
pub(crate) fn identity_routes(simulator: Arc<Simulator>) -> Router {
    Router::new()
        .route("/identities", post(credentials))
        .route("/identities/{*rest}", post(credentials))
        .route("/msi", post(credentials))
        .route("/msi/{*rest}", post(credentials))
        .with_state(simulator)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialRequest {
    #[serde(default)]
    identity_ids: Vec<String>,
}

async fn credentials(State(simulator): State<Arc<Simulator>>, headers: HeaderMap, body: Bytes) -> Response {
    let request: Result<CredentialRequest, _> = serde_json::from_slice(&body);
    let subject = request.as_ref().map(|it| it.identity_ids.join(" ")).unwrap_or_default();
    let injected = |error: InjectedError| {
        let (code, text) = match error {
            InjectedError::Throttled => ("TooManyRequests", "Too many requests."),
            InjectedError::Unavailable => ("ServiceUnavailable", "The service is unavailable."),
            InjectedError::Denied => ("Forbidden", "The caller has no access to the identity."),
            InjectedError::TokenExpired | InjectedError::ClaimsMissing => {
                ("ExpiredAuthenticationToken", "The access token expired.")
            }
        };
        rejected(&ArmError::new(error.status(), code, text))
    };
    with_faults(&simulator, "identityCertificate", &subject, injected, |effects| {
        let done = simulator.within(effects, |cx| {
            authenticate(cx, &headers, &AUDIENCES)?;
            let Ok(request) = request else {
                let why = "The body must be an object with the member 'identityIds'.";
                return Err(ArmError::bad_request("InvalidRequestContent", why).into());
            };
            let shown: Result<Vec<Value>, Failure> =
                request.identity_ids.iter().map(|id| credential(cx, id)).collect();
            Ok(json!({ "explicit_identities": shown? }))
        });
        match done {
            Ok(body) => Json(body).into_response(),
            Err(Failure::Arm(error)) if error.status == StatusCode::UNAUTHORIZED => {
                let tenant = identities::tenant(simulator.seed);
                let challenge =
                    format!("Bearer authorization=\"{}/{tenant}\"", simulator.endpoints().authority);
                with_header(rejected(&error), WWW_AUTHENTICATE, &challenge)
            }
            Err(Failure::Arm(error)) => rejected(&error),
            Err(failure) => {
                tracing::error!(error = &failure as &dyn std::error::Error, "The identity service failed");
                rejected(&ArmError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "InternalServerError",
                    "The identity service failed.",
                ))
            }
        }
    })
    .await
}

fn rejected(error: &ArmError) -> Response {
    (error.status, Json(error.body())).into_response()
}

fn with_header(mut response: Response, name: HeaderName, value: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

fn days(from: Timestamp, days: i64) -> Timestamp {
    from.saturating_add(SignedDuration::from_hours(24 * days)).unwrap_or(Timestamp::MAX)
}

fn stored(cx: &CallContext<'_>, identity: &ResourceId, client_id: &str) -> Result<StoredCredential, Failure> {
    let found: Option<StoredCredential> = database::record(cx.db, CREDENTIAL, &identity.key())?;
    let mut found = found.filter(|it| it.client_id == client_id).unwrap_or_default();
    found.certificates.retain(|it| cx.now < it.not_after);
    Ok(found)
}

/// The certificates with which an identity signs assertions, in DER.
pub(super) fn certificates(
    cx: &CallContext<'_>,
    identity: &ResourceId,
    client_id: &str,
) -> Result<Vec<Vec<u8>>, Failure> {
    let stored = stored(cx, identity, client_id)?;
    Ok(stored.certificates.iter().filter_map(|it| decode_base64(&it.der)).collect())
}

/// The credential of an identity, with a new certificate when the newest is due.
fn credential(cx: &CallContext<'_>, id: &str) -> Result<Value, Failure> {
    let unknown = || ArmError::not_found("IdentityNotFound", format!("The identity '{id}' does not exist."));
    let id: ResourceId = id.parse().map_err(|_| unknown())?;
    let identity = store::visible(cx, &id)?
        .filter(|it| it.type_name.eq_ignore_ascii_case(IDENTITY_TYPE))
        .ok_or_else(unknown)?;
    let client_id = property(&identity, "clientId").to_owned();
    let mut kept = stored(cx, &identity.id, &client_id)?;
    if kept.certificates.last().is_none_or(|it| days(it.not_before, RENEWAL_DAYS) <= cx.now) {
        let issued = issue::issue(
            cx,
            &CertificateOrder {
                not_before: cx.now,
                not_after: days(cx.now, VALID_DAYS),
                usages: vec!["1.3.6.1.5.5.7.3.2".to_owned()],
                ..CertificateOrder::new(&format!("CN={client_id}"), KeyType::Rsa2048)
            },
        )?;
        kept.client_id.clone_from(&client_id);
        kept.certificates.push(StoredCertificate {
            not_before: issued.not_before,
            not_after: issued.not_after,
            der: STANDARD.encode(&issued.der),
            chain_pem: issued.chain_pem,
            key_pem: issued.key_pem,
        });
        database::write(cx.db, CREDENTIAL, &identity.id.key(), &kept)?;
    }
    let Some(newest) = kept.certificates.last() else {
        return Err(Failure::Broken("a certificate of an identity is missing".to_owned()));
    };
    let time = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let authority = format!("{}/", cx.endpoints.authority);
    Ok(json!({
        "client_id": client_id,
        "object_id": property(&identity, "principalId"),
        "tenant_id": identities::tenant(cx.seed),
        "resource_id": identity.id.as_str(),
        "client_secret": STANDARD.encode(format!("{}{}", newest.key_pem, newest.chain_pem)),
        "client_secret_url": format!("{}/{}", cx.endpoints.identity_service, client_id),
        "authentication_endpoint": authority,
        "mtls_authentication_endpoint": authority,
        "not_before": time(newest.not_before),
        "not_after": time(newest.not_after),
        "renew_after": time(days(newest.not_before, RENEWAL_DAYS)),
        "cannot_renew_after": time(newest.not_after),
    }))
}
