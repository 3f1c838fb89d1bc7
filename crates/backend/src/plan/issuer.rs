//! The issuer of the tokens of a cluster's service accounts: its signing key, and the documents by which the cloud's directory verifies
//! the tokens. They are published in storage of the service, because the cluster's own API server may be private.

use std::sync::Arc;

use api::doc::secrets;
use api::secret::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use cloud::{CloudError, IssuerStorage};
use rsa::pkcs8::{DecodePrivateKey as _, EncodePrivateKey as _, EncodePublicKey as _, LineEnding};
use rsa::traits::PublicKeyParts as _;
use rsa::{RsaPrivateKey, RsaPublicKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use steps::engine::{StepContext, StepError, StepOutcome};
use steps::lifecycle::ClusterSnapshot;
use steps::offload;

use super::done;
use crate::Context;

/// Bits of the signing key. Entra ID accepts tokens of other issuers with RS256 only.
const KEY_BITS: usize = 2048;

/// The issuer of the cluster's tokens: the recorded one, else the one that its creation will record.
pub(crate) fn issuer(cx: &Context, snapshot: &ClusterSnapshot) -> Result<String, StepError> {
    match &snapshot.record().oidc_issuer {
        Some(recorded) => Ok(recorded.clone()),
        None => Ok(storage(cx)?.issuer(&cx.life.cluster().to_string())),
    }
}

/// Prefix of the names of the cluster's federated credentials, in every identity.
pub(crate) fn credential_prefix(issuer: &str) -> String {
    format!("{issuer}|")
}

fn storage(cx: &Context) -> Result<&IssuerStorage, StepError> {
    let missing = || CloudError::Configuration {
        setting: "issuer_account".to_owned(),
        why: "it is not set, so the tokens of clusters with managed identities could not be verified; \
              expected the resource id of a storage account with a website"
            .to_owned(),
    };
    cx.life.cloud.issuers.as_ref().ok_or_else(|| missing().into())
}

/// Ensures the signing key of the cluster's service account tokens, records their issuer and publishes its documents.
pub(crate) async fn create(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let storage = storage(&cx)?;
    let name = cx.life.cluster().to_string();
    let issuer = storage.issuer(&name);
    let stored = cx.life.records.secret_text(secrets::BOUND_SIGNING_KEY).await?;
    // An earlier release made keys that cannot sign such tokens. Nothing has been signed before the installation.
    let key = stored.and_then(|it| RsaPrivateKey::from_pkcs8_pem(it.expose()).ok());
    let (key, sealed) = match key {
        Some(key) => (key, None),
        None => {
            let key = generate().await?;
            let pem = key.to_pkcs8_pem(LineEnding::LF).map_err(unusable)?;
            (key, Some(Secret::new(pem.as_bytes().to_vec())))
        }
    };
    let fresh = sealed.iter().map(|it| (secrets::BOUND_SIGNING_KEY, it)).collect::<Vec<_>>();
    cx.life
        .records
        .update(step.hold, &fresh, |provisioned| provisioned.record.oidc_issuer = Some(issuer.clone()))
        .await?;
    let keys = key_set(&key.to_public_key())?;
    storage.publish(&name, &keys).await.map_err(of_service)?;
    Ok(StepOutcome::with_message(issuer))
}

/// Deletes the documents of the cluster's issuer, so that its tokens are accepted nowhere.
pub(crate) async fn withdraw(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    // A cluster of an earlier release has published none, and its service may have no storage for them.
    if let Some(storage) = &cx.life.cloud.issuers {
        storage.withdraw(&cx.life.cluster().to_string()).await.map_err(of_service)?;
    }
    done()
}

/// An error of the service's own storage, which no customer can fix.
fn of_service(error: CloudError) -> StepError {
    let error = StepError::from(error);
    StepError::new(error.kind(), error.code().to_owned(), "the documents of the token issuer")
        .with_retry_after(error.retry_after())
        .with_source(error)
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> StepError {
    StepError::transient("Key", "making the signing key of tokens failed").with_source(error)
}

async fn generate() -> Result<RsaPrivateKey, StepError> {
    let made = offload(|_| RsaPrivateKey::new(&mut rsa::rand_core::OsRng, KEY_BITS)).await;
    let made =
        made.ok_or_else(|| StepError::transient("Key", "making the signing key of tokens panicked"))?;
    made.map_err(unusable)
}

/// The JSON Web Key Set of a public key. Its id is the one that an API server writes into tokens: the digest of the key.
fn key_set(key: &RsaPublicKey) -> Result<Value, StepError> {
    let der = key.to_public_key_der().map_err(unusable)?;
    let id = URL_SAFE_NO_PAD.encode(Sha256::digest(der.as_bytes()));
    let encode = |number: &rsa::BigUint| URL_SAFE_NO_PAD.encode(number.to_bytes_be());
    Ok(json!({ "keys": [{
        "use": "sig", "kty": "RSA", "alg": "RS256", "kid": id, "n": encode(key.n()), "e": encode(key.e()),
    }] }))
}

#[cfg(test)]
mod tests {
    use rsa::pkcs8::DecodePublicKey as _;

    use super::*;

    /// The public key of a cluster, and the id that `kube-apiserver` gave it in `/openid/v1/jwks`.
    const PUBLIC: &str = include_str!("issuer/public.pem");
    const PUBLISHED: &str = include_str!("issuer/jwks.json");

    #[test]
    fn a_key_set_is_the_one_that_an_api_server_publishes() {
        let keys = key_set(&RsaPublicKey::from_public_key_pem(PUBLIC).unwrap()).unwrap();
        assert_eq!(keys, serde_json::from_str::<Value>(PUBLISHED).unwrap());
    }
}
