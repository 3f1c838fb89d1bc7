//! Bearer tokens: signed by the issuer, for the configured audience, valid now, with a role.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde_json::{Map, Value};

use super::fetch::Fetcher;
use super::keys::IssuerKeys;
use super::{Audience, AuthenticationError, Role, identity};
use crate::config::Oidc;
use serve::tls::TlsError;

/// The accepted signature algorithms: only asymmetric ones, because the verification keys are public.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Largest accepted clock difference to the issuer.
const LEEWAY_SECONDS: i64 = 30;

/// Longest accepted token.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Verifies tokens and assigns roles to them.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    rules: Oidc,
    issuer: String,
    audience: String,
    keys: IssuerKeys,
}

impl TokenVerifier {
    /// The verifier for the configured issuer, if any.
    pub(crate) fn open(rules: &Oidc) -> Result<Option<TokenVerifier>, TlsError> {
        let (Some(issuer), Some(audience)) = (&rules.issuer, &rules.audience) else { return Ok(None) };
        let keys = IssuerKeys::new(issuer.clone(), Fetcher::open(rules.ca_file.as_deref())?);
        Ok(Some(TokenVerifier {
            rules: rules.clone(),
            issuer: issuer.clone(),
            audience: audience.clone(),
            keys,
        }))
    }

    /// The actor and role of a token for an audience.
    pub(crate) async fn holder(
        &self,
        token: &str,
        audience: Audience,
        now: Timestamp,
    ) -> Result<(String, Role), AuthenticationError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(AuthenticationError::new("the token is too long"));
        }
        let wrong = |error: jsonwebtoken::errors::Error| {
            AuthenticationError::new(format!("the token is not accepted: {error}"))
        };
        let header = decode_header(token).map_err(wrong)?;
        // This verifier supports no extensions, so a token with critical ones is rejected (RFC 7515, 4.1.11).
        if names_critical(token) {
            return Err(AuthenticationError::new(
                "the token's header names extensions that must be understood (crit)",
            ));
        }
        if !ALGORITHMS.contains(&header.alg) {
            return Err(AuthenticationError::new(format!(
                "the token is signed by {:?}, which is not accepted",
                header.alg
            )));
        }
        let key = self.keys.find(header.kid.as_deref(), header.alg).await?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        // `check_times` compares the times with `now`.
        validation.validate_exp = false;
        let claims = decode::<Map<String, Value>>(token, &key, &validation).map_err(wrong)?.claims;
        check_times(&claims, now)?;
        self.person(&claims, audience)
    }

    fn person(
        &self,
        claims: &Map<String, Value>,
        audience: Audience,
    ) -> Result<(String, Role), AuthenticationError> {
        let actor =
            claims.get(&self.rules.actor_claim).and_then(Value::as_str).filter(|name| !name.is_empty());
        let actor = actor.ok_or_else(|| {
            AuthenticationError::new(format!(
                "the token has no claim {:?} that names its holder",
                self.rules.actor_claim
            ))
        })?;
        let actor = identity(actor)?;
        let groups = words(claims.get(&self.rules.roles_claim));
        let holds = |wanted: &[String]| groups.iter().any(|group| wanted.iter().any(|it| it == group));
        if holds(&self.rules.operators) || (audience == Audience::Arm && holds(&self.rules.callers)) {
            Ok((actor, Role::Operator))
        } else if holds(&self.rules.readers) {
            Ok((actor, Role::Reader))
        } else {
            Err(AuthenticationError::new(format!(
                "{actor:?} has no role in the claim {:?}",
                self.rules.roles_claim
            )))
        }
    }
}

/// Whether a token's header has the member `crit` with any value. An unreadable header counts as one that has.
fn names_critical(token: &str) -> bool {
    let first = token.split('.').next().unwrap_or_default();
    let header: Option<Map<String, Value>> =
        URL_SAFE_NO_PAD.decode(first).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    header.is_none_or(|header| header.contains_key("crit"))
}

fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<(), AuthenticationError> {
    let second = |name: &str| claims.get(name).map(|value| value.as_f64().map(|it| it as i64));
    let now = now.as_second();
    match second("exp") {
        Some(Some(end)) if now < end.saturating_add(LEEWAY_SECONDS) => {}
        _ => return Err(AuthenticationError::new("the token has expired, or does not say when it does")),
    }
    match second("nbf") {
        None => Ok(()),
        Some(Some(begin)) if now >= begin.saturating_sub(LEEWAY_SECONDS) => Ok(()),
        Some(_) => Err(AuthenticationError::new("the token is not valid yet")),
    }
}

/// The values of a claim that is a list, or a string separated by spaces.
fn words(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => text.split_whitespace().collect(),
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
