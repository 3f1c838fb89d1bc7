//! What the directory knows beyond the names of principals: certificates, expiry of secrets, federated credentials.

use cloud::ResourceId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::decode_base64;
use crate::arm::store;
use crate::arm::{ArmError, ArmResource};
use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;
use crate::identities;

const CERTIFICATES: &str = "principal-certificates";
const FEDERATION: &str = "principal-federation";
const SECRET_EXPIRY: &str = "principal-secret-expiry";
const TOKEN_LIFETIME: &str = "token-lifetime";

/// The type of managed identities.
pub(crate) const IDENTITY_TYPE: &str = "Microsoft.ManagedIdentity/userAssignedIdentities";
const FEDERATION_TYPE: &str = "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials";

/// The lifetime of tokens unless a setting changes it.
const TOKEN_SECONDS: i64 = 3600;

/// A federated credential: the assertions that it accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Federation {
    pub(super) issuer: String,
    pub(super) subject: String,
    pub(super) audiences: Vec<String>,
}

/// What a token request can be for.
pub(super) struct Application {
    pub(super) client_id: String,
    pub(super) object_id: String,
    pub(super) identity: Option<ResourceId>,
    /// A managed identity has none.
    pub(super) secret: Option<String>,
    /// Claims besides those of every token.
    pub(super) claims: Vec<String>,
    pub(super) directory_roles: Vec<String>,
}

/// The application of a client id: a principal or a managed identity.
pub(super) fn find_application(
    cx: &CallContext<'_>,
    client_id: &str,
) -> Result<Option<Application>, Failure> {
    if let Some(found) = identities::find_principal(cx, client_id)? {
        return Ok(Some(Application {
            client_id: found.known.client_id,
            object_id: found.known.object_id,
            identity: None,
            secret: Some(found.secret),
            claims: found.claims,
            directory_roles: found.directory_roles,
        }));
    }
    let identity = find_identity(cx, |it| property(it, "clientId").eq_ignore_ascii_case(client_id))?;
    Ok(identity.map(|it| application_of(&it)))
}

/// A managed identity as an application.
pub(super) fn application_of(identity: &ArmResource) -> Application {
    Application {
        client_id: property(identity, "clientId").to_owned(),
        object_id: property(identity, "principalId").to_owned(),
        identity: Some(identity.id.clone()),
        secret: None,
        claims: vec!["oid".to_owned()],
        directory_roles: Vec::new(),
    }
}

pub(super) fn property<'a>(resource: &'a ArmResource, name: &str) -> &'a str {
    resource.property(name).and_then(Value::as_str).unwrap_or_default()
}

/// The first managed identity that fits.
pub(crate) fn find_identity(
    cx: &CallContext<'_>,
    fits: impl Fn(&ArmResource) -> bool,
) -> Result<Option<ArmResource>, Failure> {
    let identities = store::of_type_anywhere(cx.db, IDENTITY_TYPE)?;
    Ok(identities.into_iter().find(|it| it.is_visible(cx.now) && fits(it)))
}

/// The federated credentials of an application.
pub(super) fn federations(
    cx: &CallContext<'_>,
    application: &Application,
) -> Result<Vec<Federation>, Failure> {
    let Some(identity) = &application.identity else {
        return Ok(
            database::record(cx.db, FEDERATION, &application.client_id.to_lowercase())?.unwrap_or_default()
        );
    };
    let children = store::children(cx.db, identity, FEDERATION_TYPE)?;
    Ok(children
        .iter()
        .filter_map(|it| serde_json::from_value(it.body.get("properties")?.clone()).ok())
        .collect())
}

/// The certificates with which a principal signs assertions, in DER.
pub(super) fn certificates(cx: &CallContext<'_>, client_id: &str) -> Result<Vec<Vec<u8>>, Failure> {
    let stored: Vec<String> =
        database::record(cx.db, CERTIFICATES, &client_id.to_lowercase())?.unwrap_or_default();
    Ok(stored.iter().filter_map(|it| decode_base64(it)).collect())
}

fn known(cx: &CallContext<'_>, client_id: &str) -> Result<String, Failure> {
    match identities::find_principal(cx, client_id)? {
        Some(found) => Ok(found.known.client_id.to_lowercase()),
        None => Err(crate::failure::not_found(format!("principal {client_id}"))),
    }
}

/// Registers a certificate in PEM for assertions of a principal.
pub(crate) fn register_certificate(cx: &CallContext<'_>, client_id: &str, pem: &str) -> Result<(), Failure> {
    let key = known(cx, client_id)?;
    let body: String = pem
        .lines()
        .skip_while(|it| !it.contains("BEGIN CERTIFICATE"))
        .skip(1)
        .take_while(|it| !it.starts_with("-----"))
        .collect();
    let is_certificate =
        decode_base64(&body).is_some_and(|der| x509_parser::parse_x509_certificate(&der).is_ok());
    if !is_certificate {
        return Err(ArmError::bad_request("InvalidCertificate", "The value is no certificate in PEM.").into());
    }
    let mut stored: Vec<String> = database::record(cx.db, CERTIFICATES, &key)?.unwrap_or_default();
    if !stored.contains(&body) {
        stored.push(body);
    }
    database::write(cx.db, CERTIFICATES, &key, &stored)
}

/// Adds a federated credential to a principal.
pub(crate) fn register_federation(
    cx: &CallContext<'_>,
    client_id: &str,
    issuer: &str,
    subject: &str,
    audiences: &[String],
) -> Result<(), Failure> {
    let key = known(cx, client_id)?;
    let added =
        Federation { issuer: issuer.to_owned(), subject: subject.to_owned(), audiences: audiences.to_vec() };
    let mut stored: Vec<Federation> = database::record(cx.db, FEDERATION, &key)?.unwrap_or_default();
    stored.retain(|it| (&it.issuer, &it.subject) != (&added.issuer, &added.subject));
    stored.push(added);
    database::write(cx.db, FEDERATION, &key, &stored)
}

/// Sets when the secret of a principal expires.
pub(crate) fn set_secret_expiry(
    cx: &CallContext<'_>,
    client_id: &str,
    expires: Option<Timestamp>,
) -> Result<(), Failure> {
    let key = known(cx, client_id)?;
    match expires {
        Some(expires) => database::write(cx.db, SECRET_EXPIRY, &key, &expires),
        None => database::delete(cx.db, SECRET_EXPIRY, &key).map(drop),
    }
}

pub(super) fn secret_expiry(cx: &CallContext<'_>, client_id: &str) -> Result<Option<Timestamp>, Failure> {
    database::record(cx.db, SECRET_EXPIRY, &client_id.to_lowercase())
}

/// Sets the lifetime of tokens that are issued from now on; `None` is an hour.
pub(crate) fn set_token_lifetime(cx: &CallContext<'_>, seconds: Option<u32>) -> Result<(), Failure> {
    match seconds {
        Some(seconds) => database::write(cx.db, "meta", TOKEN_LIFETIME, &seconds),
        None => database::delete(cx.db, "meta", TOKEN_LIFETIME).map(drop),
    }
}

pub(super) fn token_lifetime(cx: &CallContext<'_>) -> Result<i64, Failure> {
    let seconds: Option<u32> = database::record(cx.db, "meta", TOKEN_LIFETIME)?;
    Ok(seconds.map_or(TOKEN_SECONDS, i64::from))
}
