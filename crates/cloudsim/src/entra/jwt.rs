//! JSON Web Tokens: our own are signed with ES256; assertions of others are read and verified with RS256.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::GeneralPurposeConfig;
use base64::engine::general_purpose::{GeneralPurpose, URL_SAFE_NO_PAD};
use base64::{alphabet, engine::DecodePaddingMode};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call_context::CallContext;
use crate::database;
use crate::failure::Failure;

/// The name of the signing key among the database's own values.
const SIGNING_KEY: &str = "entra-signing-key";

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// Decodes base64 of either alphabet, with or without padding.
pub(crate) fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let standard: String = text.trim().replace('-', "+").replace('_', "/");
    GeneralPurpose::new(&alphabet::STANDARD, LENIENT).decode(standard).ok()
}

/// A token cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VerifyError {
    Expired,
    Invalid(&'static str),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SigningKey {
    id: String,
    /// PKCS#8 in base64.
    private: String,
    /// The uncompressed point in base64.
    public: String,
}

fn signing_key(cx: &CallContext<'_>) -> Result<SigningKey, Failure> {
    if let Some(found) = database::record(cx.db, "meta", SIGNING_KEY)? {
        return Ok(found);
    }
    let broken = |_| Failure::Broken("a signing key cannot be made".to_owned());
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).map_err(broken)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random)
        .map_err(|_| Failure::Broken("a signing key cannot be read".to_owned()))?;
    let key = SigningKey {
        id: uuid::Uuid::new_v4().simple().to_string(),
        private: URL_SAFE_NO_PAD.encode(document.as_ref()),
        public: URL_SAFE_NO_PAD.encode(pair.public_key().as_ref()),
    };
    database::write(cx.db, "meta", SIGNING_KEY, &key)?;
    Ok(key)
}

/// The key by which tokens are verified, as a member of a JWKS.
pub(super) fn published_key(cx: &CallContext<'_>) -> Result<Value, Failure> {
    let key = signing_key(cx)?;
    let point = decode_base64(&key.public).unwrap_or_default();
    let coordinate = |from: usize| URL_SAFE_NO_PAD.encode(point.get(from..from + 32).unwrap_or_default());
    Ok(json!({
        "kty": "EC", "use": "sig", "alg": "ES256", "crv": "P-256", "kid": key.id, "x": coordinate(1), "y": coordinate(33),
    }))
}

/// Signs a token.
pub(super) fn sign(cx: &CallContext<'_>, claims: &Value) -> Result<String, Failure> {
    let key = signing_key(cx)?;
    let header = json!({ "typ": "JWT", "alg": "ES256", "kid": key.id });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(claims));
    let broken = || Failure::Broken("the signing key cannot be used".to_owned());
    let random = SystemRandom::new();
    let private = decode_base64(&key.private).ok_or_else(broken)?;
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &private, &random)
        .map_err(|_| broken())?;
    let signature = pair.sign(&random, signed.as_bytes()).map_err(|_| broken())?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
}

/// The claims of tokens whose signature was verified: a client sends the same token for an hour.
#[derive(Default)]
pub(crate) struct VerifiedTokens {
    claims: Mutex<HashMap<String, Arc<Value>>>,
}

impl VerifiedTokens {
    /// More principals than these are not at work at a time; when there are, every one is verified again.
    const COUNT_MAX: usize = 1000;

    fn find(&self, token: &str) -> Option<Arc<Value>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner).get(token).cloned()
    }

    fn add(&self, token: &str, claims: Arc<Value>) {
        let mut known = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= VerifiedTokens::COUNT_MAX {
            known.clear();
        }
        known.insert(token.to_owned(), claims);
    }
}

/// The claims of a token of ours.
pub(super) fn verify(cx: &CallContext<'_>, token: &str) -> Result<Result<Arc<Value>, VerifyError>, Failure> {
    let claims = match cx.tokens.find(token) {
        Some(claims) => claims,
        None => match verify_signature(cx, token)? {
            Ok(claims) => {
                let claims = Arc::new(claims);
                cx.tokens.add(token, claims.clone());
                claims
            }
            Err(error) => return Ok(Err(error)),
        },
    };
    match seconds(&claims["exp"]) {
        Some(expires) if cx.now.as_second() < expires => Ok(Ok(claims)),
        _ => Ok(Err(VerifyError::Expired)),
    }
}

fn verify_signature(cx: &CallContext<'_>, token: &str) -> Result<Result<Value, VerifyError>, Failure> {
    let Some(parsed) = Jwt::parse(token) else { return Ok(Err(VerifyError::Invalid("it is no JWT"))) };
    let key = signing_key(cx)?;
    let point = decode_base64(&key.public).unwrap_or_default();
    let is_ours = parsed.header["kid"] == key.id.as_str()
        && parsed.header["alg"] == "ES256"
        && UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
            .verify(parsed.signed.as_bytes(), &parsed.signature)
            .is_ok();
    Ok(match is_ours {
        true => Ok(parsed.claims),
        false => Err(VerifyError::Invalid("its signature is not of this authority")),
    })
}

/// A time in seconds; SDKs write some as fractions.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a fraction of a second does not matter, and the cast saturates"
    )]
    let whole = |it: f64| it as i64;
    value.as_i64().or_else(|| value.as_f64().map(whole))
}

/// A token in its parts.
#[derive(Debug, Clone)]
pub(super) struct Jwt<'a> {
    pub(super) header: Value,
    pub(super) claims: Value,
    pub(super) signed: &'a str,
    pub(super) signature: Vec<u8>,
}

impl<'a> Jwt<'a> {
    pub(super) fn parse(token: &'a str) -> Option<Jwt<'a>> {
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, claims) = signed.split_once('.')?;
        let object = |part: &str| -> Option<Value> {
            let value: Value = serde_json::from_slice(&decode_base64(part)?).ok()?;
            value.is_object().then_some(value)
        };
        Some(Jwt {
            header: object(header)?,
            claims: object(claims)?,
            signed,
            signature: decode_base64(signature)?,
        })
    }

    /// A time among the claims, in seconds.
    pub(super) fn seconds(&self, name: &str) -> Option<i64> {
        seconds(&self.claims[name])
    }

    pub(super) fn text(&self, name: &str) -> &str {
        self.claims[name].as_str().unwrap_or_default()
    }

    /// The audiences; a single one is text, several are an array.
    pub(super) fn audiences(&self) -> Vec<&str> {
        match &self.claims["aud"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Whether the signature is by the RSA key with this public part (PKCS#1 in DER).
    pub(super) fn is_signed_by(&self, public: &[u8]) -> bool {
        let (signed, signature) = (self.signed.as_bytes(), self.signature.as_slice());
        match self.header["alg"].as_str() {
            Some("RS256") => {
                UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public).verify(signed, signature).is_ok()
            }
            Some("PS256") => {
                UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, public).verify(signed, signature).is_ok()
            }
            _ => false,
        }
    }

    /// Whether the signature is by a key of this JWKS: RSA with RS256, or P-256 with ES256.
    pub(super) fn is_signed_by_one_of(&self, keys: &Value) -> bool {
        let part = |key: &Value, name: &str| key[name].as_str().and_then(decode_base64).unwrap_or_default();
        let (signed, signature) = (self.signed.as_bytes(), self.signature.as_slice());
        let verify = |key: &Value| match self.header["alg"].as_str() {
            Some("RS256") => RsaPublicKeyComponents { n: part(key, "n"), e: part(key, "e") }
                .verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
                .is_ok(),
            Some("ES256") => {
                let point = [vec![4], part(key, "x"), part(key, "y")].concat();
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature).is_ok()
            }
            _ => false,
        };
        let named = |key: &&Value| self.header["kid"].is_null() || key["kid"] == self.header["kid"];
        keys["keys"].as_array().into_iter().flatten().filter(named).any(verify)
    }
}
