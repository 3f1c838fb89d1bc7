//! Client assertions: a JWT signed with a registered certificate, or a token of a federated issuer.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest;

use super::error::EntraError;
use super::issuers::{self, IssuerKeys};
use super::jwt::Jwt;
use super::principals::{self, Application};
use super::{decode_base64, identity_service};
use crate::call_context::CallContext;
use crate::failure::Failure;

/// The difference between clocks that is tolerated, in seconds.
const SKEW_SECONDS: i64 = 300;

/// Verifies an assertion of an application. An assertion that the application issued itself is signed with a certificate; any other
/// is a federated one.
pub(super) fn verify(
    cx: &CallContext<'_>,
    application: &Application,
    assertion: &str,
    tenant: &str,
) -> Result<Result<(), EntraError>, Failure> {
    let Some(jwt) = Jwt::parse(assertion) else {
        return Ok(Err(EntraError::malformed_assertion("three parts in base64 are expected")));
    };
    match jwt.text("iss").eq_ignore_ascii_case(&application.client_id) {
        true => certificate(cx, application, &jwt, tenant),
        false => federated(cx, application, &jwt),
    }
}

fn is_in_time(cx: &CallContext<'_>, jwt: &Jwt<'_>) -> bool {
    let now = cx.now.as_second();
    let begins = jwt.seconds("nbf").or_else(|| jwt.seconds("iat"));
    jwt.seconds("exp").is_some_and(|expires| now < expires + SKEW_SECONDS)
        && begins.is_none_or(|begins| begins <= now + SKEW_SECONDS)
}

fn certificate(
    cx: &CallContext<'_>,
    application: &Application,
    jwt: &Jwt<'_>,
    tenant: &str,
) -> Result<Result<(), EntraError>, Failure> {
    let mut registered = principals::certificates(cx, &application.client_id)?;
    if let Some(identity) = &application.identity {
        registered.extend(identity_service::certificates(cx, identity, &application.client_id)?);
    }
    let header = |name: &str| jwt.header[name].as_str().and_then(decode_base64);
    let (sha1, sha256) = (header("x5t"), header("x5t#S256"));
    let fits = |der: &&Vec<u8>| {
        let is = |given: &Option<Vec<u8>>, algorithm: &'static digest::Algorithm| {
            given.as_ref().is_some_and(|it| it.as_slice() == digest::digest(algorithm, der).as_ref())
        };
        is(&sha1, &digest::SHA1_FOR_LEGACY_USE_ONLY) || is(&sha256, &digest::SHA256)
    };
    let Some(der) = registered.iter().find(fits) else {
        let shown = sha1.or(sha256).map(|it| URL_SAFE_NO_PAD.encode(it)).unwrap_or_default();
        return Ok(Err(EntraError::unknown_key(&shown)));
    };
    let is_signed = x509_parser::parse_x509_certificate(der)
        .is_ok_and(|(_, it)| jwt.is_signed_by(&it.public_key().subject_public_key.data));
    if !is_signed {
        return Ok(Err(EntraError::wrong_signature()));
    }
    if !is_in_time(cx, jwt) {
        return Ok(Err(EntraError::assertion_outside_time(cx.now)));
    }
    // The audience is the token endpoint or the authority of the tenant, by SDK.
    let audiences = jwt.audiences();
    match audiences.iter().any(|it| it.to_lowercase().contains(&tenant.to_lowercase())) {
        true => Ok(Ok(())),
        false => {
            Ok(Err(EntraError::wrong_assertion_audience(audiences.first().copied().unwrap_or_default())))
        }
    }
}

fn federated(
    cx: &CallContext<'_>,
    application: &Application,
    jwt: &Jwt<'_>,
) -> Result<Result<(), EntraError>, Failure> {
    let mut fitting = principals::federations(cx, application)?;
    if fitting.is_empty() {
        return Ok(Err(EntraError::no_federation(&application.client_id)));
    }
    // Entra ID compares all three with case.
    let (issuer, subject) = (jwt.text("iss"), jwt.text("sub"));
    fitting.retain(|it| it.issuer == issuer);
    if fitting.is_empty() {
        return Ok(Err(EntraError::unknown_issuer(issuer)));
    }
    fitting.retain(|it| it.subject == subject);
    if fitting.is_empty() {
        return Ok(Err(EntraError::unknown_subject(subject)));
    }
    let audiences = jwt.audiences();
    fitting.retain(|it| it.audiences.iter().any(|accepted| audiences.contains(&accepted.as_str())));
    if fitting.is_empty() {
        return Ok(Err(EntraError::unknown_assertion_audience(
            audiences.first().copied().unwrap_or_default(),
        )));
    }
    if !is_in_time(cx, jwt) {
        return Ok(Err(EntraError::assertion_outside_time(cx.now)));
    }
    Ok(match issuers::find(cx, issuer)? {
        IssuerKeys::Known(keys) if !jwt.is_signed_by_one_of(&keys) => Err(EntraError::wrong_signature()),
        IssuerKeys::Unpublished => Err(EntraError::unreachable_issuer()),
        IssuerKeys::Known(_) | IssuerKeys::Elsewhere => Ok(()),
    })
}
