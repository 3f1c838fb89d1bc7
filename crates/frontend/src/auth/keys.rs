//! The issuer's keys: found by discovery, kept, and read again when a token names one that is new.

use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Stranger;
use super::fetch::{FetchError, Fetcher};

/// An issuer is asked no more often than this, whatever tokens say.
const REFRESH_PAUSE: Duration = Duration::from_secs(60);

/// Keys older than this are read again: one that the issuer has withdrawn must not live here for ever.
const KEYS_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct Keys {
    issuer: String,
    fetcher: Fetcher,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    keys: Vec<Jwk>,
    read: Option<Instant>,
    asked: Option<Instant>,
}

#[derive(Debug, Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl Keys {
    pub(super) fn of(issuer: String, fetcher: Fetcher) -> Keys {
        Keys { issuer, fetcher, known: Mutex::default() }
    }

    /// The key with which a token was signed. One caller asks the issuer; the others wait for its answer.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<DecodingKey, Stranger> {
        let mut known = self.known.lock().await;
        let is_fresh = known.read.is_some_and(|at| at.elapsed() < KEYS_AGE_MAX);
        let may_ask = known.asked.is_none_or(|at| at.elapsed() >= REFRESH_PAUSE);
        if may_ask && (!is_fresh || known.find(id, algorithm).is_none()) {
            known.asked = Some(Instant::now());
            match self.read().await {
                Ok(keys) => {
                    known.keys = keys;
                    known.read = Some(Instant::now());
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "The issuer's keys could not be read: {error}"
                    );
                }
            }
        }
        let found = known.find(id, algorithm);
        found
            .ok_or_else(|| Stranger::because("the token was signed with a key that the issuer does not show"))
    }

    async fn read(&self) -> Result<Vec<Jwk>, KeysError> {
        let base = self.issuer.trim_end_matches('/');
        let found: Discovery = self.fetcher.get(&format!("{base}/.well-known/openid-configuration")).await?;
        if found.issuer != self.issuer {
            return Err(KeysError::OtherIssuer { expected: self.issuer.clone(), found: found.issuer });
        }
        let set: JwkSet = self.fetcher.get(&found.jwks_uri).await?;
        Ok(set.keys)
    }
}

#[derive(Debug, thiserror::Error)]
enum KeysError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("the discovery document is of issuer {found:?}, not of {expected:?}")]
    OtherIssuer { expected: String, found: String },
}

impl Known {
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let fits = |key: &&Jwk| {
            let said = key.common.key_algorithm.map(|said| said.to_string());
            let for_signing =
                !matches!(key.common.public_key_use, Some(jsonwebtoken::jwk::PublicKeyUse::Encryption));
            for_signing && said.is_none_or(|said| said == format!("{algorithm:?}"))
        };
        let mut candidates = self.keys.iter().filter(fits).filter(|key| match id {
            Some(id) => key.common.key_id.as_deref() == Some(id),
            None => true,
        });
        let first = candidates.next()?;
        // A token that does not say which key is meant is only clear when there is one.
        if candidates.next().is_some() {
            return None;
        }
        DecodingKey::from_jwk(first).ok()
    }
}
