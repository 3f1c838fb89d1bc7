//! The keys of federated issuers: those that a setting registers, and those that an issuer publishes in the emulated blob service. Nothing
//! is fetched from elsewhere.

use serde_json::Value;

use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{blob, database};

const ISSUER_KEYS: &str = "issuer-keys";

/// What is known of the keys of an issuer.
pub(super) enum IssuerKeys {
    /// A JSON Web Key Set.
    Known(Value),
    /// The issuer should publish its keys in the emulated blob service, and does not.
    Unpublished,
    /// The issuer is elsewhere: its assertions are accepted unverified.
    Elsewhere,
}

/// Registers the keys (a JWKS) of an issuer.
pub(crate) fn register_issuer_keys(
    cx: &CallContext<'_>,
    issuer: &str,
    keys: Option<&Value>,
) -> Result<(), Failure> {
    match keys {
        Some(keys) => database::write(cx.db, ISSUER_KEYS, issuer, keys),
        None => database::delete(cx.db, ISSUER_KEYS, issuer).map(drop),
    }
}

/// The keys of an issuer.
pub(super) fn find(cx: &CallContext<'_>, issuer: &str) -> Result<IssuerKeys, Failure> {
    if let Some(registered) = database::record(cx.db, ISSUER_KEYS, issuer)? {
        return Ok(IssuerKeys::Known(registered));
    }
    if !issuer.starts_with(&format!("{}/", cx.endpoints.blob)) {
        return Ok(IssuerKeys::Elsewhere);
    }
    Ok(published(cx, issuer)?.map_or(IssuerKeys::Unpublished, IssuerKeys::Known))
}

/// The keys to which the discovery document of an issuer refers.
fn published(cx: &CallContext<'_>, issuer: &str) -> Result<Option<Value>, Failure> {
    let url = format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'));
    let document = read(cx, &url)?.filter(|it| it["issuer"] == issuer);
    match document.as_ref().and_then(|it| it["jwks_uri"].as_str()) {
        Some(keys) => read(cx, keys),
        None => Ok(None),
    }
}

fn read(cx: &CallContext<'_>, url: &str) -> Result<Option<Value>, Failure> {
    Ok(blob::public_content(cx, url)?.and_then(|it| serde_json::from_slice(&it).ok()))
}
