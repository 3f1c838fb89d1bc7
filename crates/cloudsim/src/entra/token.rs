//! The token endpoint, in its second form (`scope=`) and its first (`resource=`).

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, HeaderValue};
use serde_json::{Map, Value, json};

use super::error::{self, EntraError};
use super::principals::{self, Application};
use super::{assertion, is_tenant, jwt};
use crate::arm::ArmResource;
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::fault_injection::{InjectedError, with_faults};
use crate::identities;
use crate::simulator::Simulator;

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The audiences that the tenant knows, without the slash at their end.
const AUDIENCES: [&str; 10] = [
    "https://management.azure.com",
    "https://management.core.windows.net",
    "https://management.core.usgovcloudapi.net",
    "https://management.usgovcloudapi.net",
    "https://vault.azure.net",
    "https://vault.usgovcloudapi.net",
    "https://storage.azure.com",
    "https://graph.microsoft.com",
    "https://authorization.azure.net",
    super::identity_service::AUDIENCE,
];

/// The form of a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenVersion {
    First,
    Second,
}

/// An issued token.
pub(crate) struct IssuedToken {
    pub(crate) token: String,
    pub(crate) seconds: i64,
    /// When it expires, in seconds since the epoch.
    pub(crate) expires: i64,
    pub(crate) audience: String,
}

/// Answers a token request.
pub(super) async fn respond(
    simulator: &Simulator,
    tenant: &str,
    version: TokenVersion,
    body: &[u8],
) -> Response {
    let form: Vec<(String, String)> = form_urlencoded::parse(body).into_owned().collect();
    let client = parameter(&form, "client_id").unwrap_or_default().to_owned();
    let now = simulator.clock.now();
    let injected = |error: InjectedError| match error {
        // What a client sees whose new secret has not spread yet.
        InjectedError::Denied => EntraError::wrong_secret(&client).response(now),
        other => EntraError::temporary(other.status()).response(now),
    };
    with_faults(simulator, "principal", &client, injected, |effects| {
        match simulator.within(effects, |cx| issue(cx, tenant, version, &form)) {
            Ok(Ok(issued)) => shown(&issued, version),
            Ok(Err(rejected)) => rejected.response(now),
            Err(failure) => error::failed(&failure),
        }
    })
    .await
}

fn shown(issued: &IssuedToken, version: TokenVersion) -> Response {
    let body = match version {
        TokenVersion::Second => json!({
            "token_type": "Bearer",
            "expires_in": issued.seconds,
            "ext_expires_in": issued.seconds,
            "access_token": issued.token,
        }),
        TokenVersion::First => json!({
            "token_type": "Bearer",
            "expires_in": issued.seconds.to_string(),
            "ext_expires_in": issued.seconds.to_string(),
            "expires_on": issued.expires.to_string(),
            "not_before": (issued.expires - issued.seconds).to_string(),
            "resource": issued.audience,
            "access_token": issued.token,
        }),
    };
    let mut response = Json(body).into_response();
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store, no-cache"));
    response
}

fn parameter<'a>(form: &'a [(String, String)], name: &str) -> Option<&'a str> {
    form.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str()).filter(|it| !it.is_empty())
}

fn issue(
    cx: &CallContext<'_>,
    tenant: &str,
    version: TokenVersion,
    form: &[(String, String)],
) -> Result<Result<IssuedToken, EntraError>, Failure> {
    let known = identities::tenant(cx.seed);
    let checked = || -> Result<(&str, String), EntraError> {
        if !is_tenant(&known, tenant) {
            return Err(EntraError::unknown_tenant(tenant));
        }
        let required = |name| parameter(form, name).ok_or_else(|| EntraError::missing_parameter(name));
        let grant = required("grant_type")?;
        if grant != "client_credentials" {
            return Err(EntraError::unusable_grant(grant));
        }
        let client_id = required("client_id")?;
        let audience = match version {
            TokenVersion::First => required("resource")?.to_owned(),
            TokenVersion::Second => audience_of(required("scope")?)?,
        };
        Ok((client_id, audience))
    };
    let (client_id, audience) = match checked() {
        Ok(checked) => checked,
        Err(rejected) => return Ok(Err(rejected)),
    };
    let Some(application) = principals::find_application(cx, client_id)? else {
        return Ok(Err(EntraError::unknown_application(client_id, &known)));
    };
    let is_assertion = parameter(form, "client_assertion_type").is_none_or(|it| it == ASSERTION_TYPE);
    let proven = match (parameter(form, "client_secret"), parameter(form, "client_assertion")) {
        (Some(secret), _) => check_secret(cx, &application, secret)?,
        (None, Some(given)) if is_assertion => assertion::verify(cx, &application, given, &known)?,
        _ => Err(EntraError::missing_credential()),
    };
    if let Err(rejected) = proven {
        return Ok(Err(rejected));
    }
    if !is_audience(cx, &audience) {
        return Ok(Err(EntraError::unknown_audience(&audience, &known)));
    }
    issue_for(cx, &application, &audience).map(Ok)
}

/// Whether the tenant knows an audience. A cloud that is registered by its address has that of Microsoft Graph as one.
fn is_audience(cx: &CallContext<'_>, audience: &str) -> bool {
    let own = cx.endpoints.authority.as_str();
    let mut known = AUDIENCES.into_iter().chain([own]);
    known.any(|it| it.eq_ignore_ascii_case(audience.trim_end_matches('/')))
}

/// The audience of a scope. The reference asks with two slashes, which leaves one at the end of the audience.
fn audience_of(scope: &str) -> Result<String, EntraError> {
    let mut audiences = scope.split(' ').filter(|it| !it.is_empty()).map(|it| it.strip_suffix("/.default"));
    match (audiences.next(), audiences.next()) {
        (Some(Some(audience)), None) => Ok(audience.to_owned()),
        _ => Err(EntraError::unusable_scope(scope)),
    }
}

fn check_secret(
    cx: &CallContext<'_>,
    application: &Application,
    given: &str,
) -> Result<Result<(), EntraError>, Failure> {
    let client = &application.client_id;
    let is_same = application.secret.as_ref().is_some_and(|it| {
        let differ = it.bytes().zip(given.bytes()).fold(0, |differ, (one, other)| differ | (one ^ other));
        it.len() == given.len() && differ == 0
    });
    if !is_same {
        return Ok(Err(EntraError::wrong_secret(client)));
    }
    match principals::secret_expiry(cx, client)? {
        Some(expires) if expires <= cx.now => Ok(Err(EntraError::expired_secret(client))),
        _ => Ok(Ok(())),
    }
}

/// Issues a token to a managed identity, as the instance metadata service does.
pub(crate) fn issue_for_identity(
    cx: &CallContext<'_>,
    identity: &ArmResource,
    audience: &str,
) -> Result<Result<IssuedToken, EntraError>, Failure> {
    if !is_audience(cx, audience) {
        return Ok(Err(EntraError::unknown_audience(audience, &identities::tenant(cx.seed))));
    }
    issue_for(cx, &principals::application_of(identity), audience).map(Ok)
}

fn issue_for(
    cx: &CallContext<'_>,
    application: &Application,
    audience: &str,
) -> Result<IssuedToken, Failure> {
    let (now, seconds) = (cx.now.as_second(), principals::token_lifetime(cx)?);
    let tenant = identities::tenant(cx.seed);
    let issuer = format!("https://sts.windows.net/{tenant}/");
    let mut claims = Map::new();
    // Claims that a principal is given by a setting; the others are in every token.
    for name in &application.claims {
        let value = match name.as_str() {
            "oid" => Value::String(application.object_id.clone()),
            "groups" => json!([]),
            "_claim_names" => json!({ "groups": "src1" }),
            _ => Value::String(String::new()),
        };
        claims.insert(name.clone(), value);
    }
    let standard = json!({
        "aud": audience, "iss": issuer, "idp": issuer, "iat": now, "nbf": now, "exp": now + seconds,
        "appid": application.client_id, "appidacr": "1", "idtyp": "app", "sub": application.object_id,
        "tid": tenant, "ver": "1.0", "uti": uuid::Uuid::new_v4().simple().to_string(),
    });
    if let Value::Object(standard) = standard {
        claims.extend(standard);
    }
    if !application.directory_roles.is_empty() {
        claims.insert("roles".to_owned(), json!(application.directory_roles));
    }
    if let Some(identity) = &application.identity {
        claims.insert("xms_mirid".to_owned(), json!(identity.as_str()));
    }
    let token = jwt::sign(cx, &Value::Object(claims))?;
    Ok(IssuedToken { token, seconds, expires: now + seconds, audience: audience.to_owned() })
}
