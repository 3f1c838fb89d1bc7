//! Bearer tokens: signed by the issuer with a key of its own, for us, now, by somebody of a role.

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

/// What may sign a token: public-key algorithms only, so that nobody can sign with what everybody can read.
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

/// Clocks of issuers differ from ours by no more.
const LEEWAY_SECONDS: i64 = 30;

/// A longer token is none.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// The rules for tokens.
#[derive(Debug)]
pub(crate) struct TokenVerifier {
    rules: Oidc,
    issuer: String,
    audience: String,
    keys: IssuerKeys,
}

impl TokenVerifier {
    /// The tokens of the configured issuer; none when the configuration names none.
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

    /// Whose token it is: the actor's name and role at that door.
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
        // No extension is understood here, so none that must be is accepted (RFC 7515, 4.1.11).
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
        // The times are compared below, with the clock that is handed in.
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

/// Whether a token's header has the member `crit`, whatever its value. A header that cannot be read counts as one that has.
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

/// A claim that is a list of words, or words in one text.
fn words(claim: Option<&Value>) -> Vec<&str> {
    match claim {
        Some(Value::String(text)) => text.split_whitespace().collect(),
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}
