//! The signing keys of the token issuer: found by discovery, cached, and refreshed when a token names an unknown one.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jsonwebtoken::jwk::{Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use tokio::time::Instant;

use super::AuthenticationError;
use super::fetch::{FetchError, Fetcher};

/// Shortest time between two refreshes, so that tokens with random key ids cause no load on the issuer.
const REFRESH_PAUSE: Duration = Duration::from_secs(60);

/// Older keys are refreshed, so that a key which the issuer has withdrawn is not accepted forever.
const KEYS_AGE_MAX: Duration = Duration::from_secs(60 * 60);

/// The keys of one issuer.
#[derive(Debug)]
pub(super) struct IssuerKeys {
    issuer: String,
    fetcher: Fetcher,
    known: Mutex<Arc<CachedKeys>>,
    /// The time of the last refresh. A request that holds the lock refreshes; requests with a cached key do not wait for it.
    asked: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct CachedKeys {
    keys: Vec<Jwk>,
    read: Option<Instant>,
}

#[derive(Debug, Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

impl IssuerKeys {
    pub(super) fn new(issuer: String, fetcher: Fetcher) -> IssuerKeys {
        IssuerKeys { issuer, fetcher, known: Mutex::default(), asked: tokio::sync::Mutex::default() }
    }

    /// The key that signed a token. A cached key is returned at once, also during a refresh.
    pub(super) async fn find(
        &self,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<DecodingKey, AuthenticationError> {
        let known = self.known();
        let found = known.find(id, algorithm);
        let is_fresh = known.read.is_some_and(|at| at.elapsed() < KEYS_AGE_MAX);
        let asking = match &found {
            Some(_) if is_fresh => None,
            Some(_) => self.asked.try_lock().ok(),
            None => Some(self.asked.lock().await),
        };
        if let Some(mut asked) = asking
            && asked.is_none_or(|at| at.elapsed() >= REFRESH_PAUSE)
        {
            *asked = Some(Instant::now());
            self.refresh().await;
        }
        let found = self.known().find(id, algorithm);
        found.ok_or_else(|| {
            AuthenticationError::new("the token was signed with a key that the issuer does not publish")
        })
    }

    fn known(&self) -> Arc<CachedKeys> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn refresh(&self) {
        match self.read().await {
            Ok(keys) => {
                let known = CachedKeys { keys, read: Some(Instant::now()) };
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(known);
            }
            Err(error) => {
                let cause: &dyn std::error::Error = &error;
                tracing::warn!(error = cause, "Cannot read the issuer's keys: {error}");
            }
        }
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

impl CachedKeys {
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
        // A token without a key id is unambiguous only when there is one key.
        if candidates.next().is_some() {
            return None;
        }
        DecodingKey::from_jwk(first).ok()
    }
}
