//! Tokens of ServiceAccounts: JSON web tokens, signed with a key of the cluster. What a token says is believed after
//! its signature was verified once; whether it is still valid is checked on each request.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};

use super::{AccessError, read_or_generate};

/// The issuer of all tokens, and their audience unless another one is requested.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";
/// The file with the signing key. Generated if it is missing: older clusters have none.
const KEY_FILE: &str = "service-account.key";
/// Tokens whose signature was verified; a cluster has few clients with tokens.
const VERIFIED_MAX: usize = 256;

/// An object that a token names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObjectClaim {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// The objects of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BoundClaims {
    pub(crate) namespace: String,
    pub(crate) serviceaccount: ObjectClaim,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<ObjectClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<ObjectClaim>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<ObjectClaim>,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) aud: Vec<String>,
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) bound: BoundClaims,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

impl Claims {
    /// Claims from now on, for `seconds`.
    pub(crate) fn new(bound: BoundClaims, audiences: Vec<String>, now: Timestamp, seconds: i64) -> Claims {
        let now = now.as_second();
        Claims {
            aud: audiences,
            exp: now.saturating_add(seconds),
            iat: now,
            iss: ISSUER.to_owned(),
            jti: uuid::Uuid::new_v4().to_string(),
            sub: format!("system:serviceaccount:{}:{}", bound.namespace, bound.serviceaccount.name),
            bound,
            nbf: now,
        }
    }
}

/// Signs and verifies the tokens of one cluster.
pub(super) struct TokenKey {
    key: EcdsaKeyPair,
    id: String,
    verified: Mutex<HashMap<[u8; 32], Arc<Claims>>>,
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenKey").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TokenKey {
    /// Reads the key in `directory`, or generates one.
    pub(super) fn open(directory: Option<&Path>) -> Result<TokenKey, AccessError> {
        let random = SystemRandom::new();
        let text = read_or_generate(directory, KEY_FILE, || {
            let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
            key.map(|key| STANDARD.encode(key)).map_err(|error| AccessError::Token(error.to_string()))
        })?;
        let bytes = STANDARD.decode(text.trim()).map_err(|error| AccessError::Token(error.to_string()))?;
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &bytes, &random)
            .map_err(|error| AccessError::Token(error.to_string()))?;
        let id = URL_SAFE_NO_PAD.encode(digest(&SHA256, key.public_key().as_ref()));
        Ok(TokenKey { key, id, verified: Mutex::default() })
    }

    /// Signs claims. Fails only if the system has no random numbers.
    pub(super) fn sign(&self, claims: &Claims) -> Result<String, String> {
        let header = serde_json::json!({"alg": "ES256", "kid": self.id});
        let claims = serde_json::to_vec(claims).map_err(|error| error.to_string())?;
        let mut token =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let signature =
            self.key.sign(&SystemRandom::new(), token.as_bytes()).map_err(|error| error.to_string())?;
        token.push('.');
        token.push_str(&URL_SAFE_NO_PAD.encode(signature));
        Ok(token)
    }

    /// The claims of a token that this cluster has signed; they may have expired.
    pub(super) fn verify(&self, token: &str) -> Option<Arc<Claims>> {
        let mut key = [0_u8; 32];
        key.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        let known = self.verified.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if known.is_some() {
            return known;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (_, claims) = signed.split_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .ok()?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        let claims = Arc::new(claims);
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if verified.len() >= VERIFIED_MAX {
            verified.clear();
        }
        verified.insert(key, claims.clone());
        Some(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        let bound = BoundClaims {
            namespace: "apps".to_owned(),
            serviceaccount: ObjectClaim { name: "web".to_owned(), uid: "1".to_owned() },
            pod: None,
            secret: None,
            node: None,
        };
        Claims::new(bound, vec![ISSUER.to_owned()], Timestamp::UNIX_EPOCH, 600)
    }

    #[test]
    fn a_token_is_accepted_by_the_cluster_that_signed_it_only() {
        let (key, other) = (TokenKey::open(None).unwrap(), TokenKey::open(None).unwrap());
        let token = key.sign(&claims()).unwrap();
        assert_eq!(key.verify(&token).unwrap().bound, claims().bound);
        assert_eq!(other.verify(&token), None);
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        let forged =
            URL_SAFE_NO_PAD.encode(serde_json::to_vec(&Claims { exp: i64::MAX, ..claims() }).unwrap());
        for invalid in
            [format!("{header}.{forged}.{signature}"), "a.b.c".to_owned(), String::new(), signed.to_owned()]
        {
            assert_eq!(key.verify(&invalid), None, "{invalid}");
        }
    }

    #[test]
    fn the_key_survives_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let token = TokenKey::open(Some(directory.path())).unwrap().sign(&claims()).unwrap();
        assert!(TokenKey::open(Some(directory.path())).unwrap().verify(&token).is_some());
    }
}
