//! The registry token of a cluster. Its name is recorded before the token is created, its password is sealed beside the document
//! and copied into the cluster's pull secret, and a new password is issued before it expires.

use std::collections::BTreeMap;

use api::doc::RegistryToken;
use api::doc::secrets::{PULL_SECRET, REGISTRY_PASSWORD};
use api::secret::Secret;
use base64::Engine as _;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use kube::core::ObjectMeta;
use kubelink::apply::{Effect, Force, apply_one};
use serde_json::{Value, json};
use store::WorkLease;

use super::Lifecycle;
use crate::engine::StepError;

pub use crate::credentials::is_token_old as is_old;

/// Ensures a token with a password. The name is recorded before the token is created, so that a crash leaves no unknown token.
pub async fn ensure_token(cx: &Lifecycle, hold: WorkLease) -> Result<RegistryToken, StepError> {
    let name = format!("token-{}", cx.cluster());
    let recorded = cx
        .record(hold, |record| {
            let fresh =
                || RegistryToken { registry: String::new(), name: name.clone(), issued: None, expires: None };
            record.registry_token.get_or_insert_with(fresh);
        })
        .await?;
    let known = recorded.registry_token.clone();
    if let Some(known) = known.filter(|it| it.issued.is_some())
        && cx.records.secret(REGISTRY_PASSWORD).await?.is_some()
    {
        return Ok(known);
    }
    issue(cx, hold).await
}

/// Issues a further password and seals it. The recorded one stays valid, however often this is repeated after a crash or a lost
/// response: the cluster uses it until [`configure`].
pub async fn issue(cx: &Lifecycle, hold: WorkLease) -> Result<RegistryToken, StepError> {
    let cluster = cx.snapshot().await?;
    let recorded = cluster.record().registry_token.as_ref();
    let name = recorded.map_or_else(|| format!("token-{}", cx.cluster()), |it| it.name.clone());
    let in_use = recorded.and_then(|it| it.issued);
    cx.cloud.registry.ensure_token(&name).await?;
    let issued = cx.cloud.registry.issue_password(&name, in_use).await?;
    let token = RegistryToken {
        registry: issued.token.registry.clone(),
        name,
        issued: issued.token.issued.or_else(|| Some(cx.clock.now())),
        expires: issued.token.expires,
    };
    let password = Secret::new(issued.password.expose().as_bytes().to_vec());
    let recorded = token.clone();
    cx.records
        .update(hold, &[(REGISTRY_PASSWORD, &password)], move |provisioned| {
            provisioned.record.registry_token = Some(recorded.clone());
        })
        .await?;
    Ok(token)
}

/// Adds the token's password to the cluster's pull secret, beside the customer's. Returns whether that changed the cluster.
pub async fn configure(cx: &Lifecycle) -> Result<bool, StepError> {
    let cluster = cx.snapshot().await?;
    let missing = || StepError::terminal("NotRecorded", "the cluster has no registry token");
    let token = cluster.record().registry_token.clone().ok_or_else(missing)?;
    let password = cx.records.secret_text(REGISTRY_PASSWORD).await?.ok_or_else(missing)?;
    let customers = cx.records.secret_text(PULL_SECRET).await?;
    let merged = pull_secret(customers.as_ref().map(|it| it.expose().as_str()), &token, password.expose());
    let link = cx.link().await?;
    let secret = KubeSecret {
        metadata: ObjectMeta {
            name: Some("pull-secret".to_owned()),
            namespace: Some("openshift-config".to_owned()),
            ..ObjectMeta::default()
        },
        type_: Some("kubernetes.io/dockerconfigjson".to_owned()),
        data: Some(BTreeMap::from([(".dockerconfigjson".to_owned(), ByteString(merged.into_bytes()))])),
        ..KubeSecret::default()
    };
    let api = Api::namespaced(link.client(), "openshift-config");
    let (_, effect) = apply_one(&link, &api, &secret, Force::Yes).await?;
    Ok(effect != Effect::Unchanged)
}

/// The customer's pull secret with the service's registry added.
fn pull_secret(customers: Option<&str>, token: &RegistryToken, password: &str) -> String {
    let parsed = customers.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let mut merged = parsed.filter(Value::is_object).unwrap_or_else(|| json!({}));
    let auth =
        base64::engine::general_purpose::STANDARD.encode(format!("{}:{password}", token.name).as_bytes());
    if !merged["auths"].is_object() {
        merged["auths"] = json!({});
    }
    merged["auths"][&token.registry] = json!({ "auth": auth });
    merged.to_string()
}

#[cfg(test)]
mod tests {
    use jiff::{SignedDuration, Timestamp};

    use super::*;

    fn token(issued: Option<Timestamp>) -> RegistryToken {
        RegistryToken { registry: "r.example".to_owned(), name: "t".to_owned(), issued, expires: None }
    }

    #[test]
    fn a_password_is_rotated_after_140_days_or_the_same_share_of_a_shorter_lifetime() {
        let now = Timestamp::from_second(1_000_000_000).unwrap();
        let days = |count: i64| Some(now - SignedDuration::from_hours(24 * count));
        assert!(is_old(None, now) && is_old(Some(&token(None)), now));
        assert!(!is_old(Some(&token(days(139))), now));
        assert!(is_old(Some(&token(days(140))), now));
        let ends_in = |age: i64, left: i64| RegistryToken { expires: days(-left), ..token(days(age)) };
        assert!(!is_old(Some(&ends_in(69, 21)), now));
        assert!(is_old(Some(&ends_in(70, 20)), now));
        assert!(is_old(Some(&ends_in(90, 0)), now) && is_old(Some(&ends_in(1, -1)), now));
        assert!(is_old(Some(&ends_in(140, 400)), now), "whatever lifetime the registry allows");
    }

    #[test]
    fn the_registry_is_added_to_the_customers_pull_secret() {
        let customers = r#"{"auths":{"cloud.example":{"auth":"eA=="}}}"#;
        let merged: Value = serde_json::from_str(&pull_secret(Some(customers), &token(None), "pw")).unwrap();
        assert_eq!(merged["auths"]["cloud.example"]["auth"], "eA==");
        assert_eq!(merged["auths"]["r.example"]["auth"], "dDpwdw==");
        for odd in [None, Some("no json"), Some("[]")] {
            let merged: Value = serde_json::from_str(&pull_secret(odd, &token(None), "pw")).unwrap();
            assert_eq!(merged["auths"].as_object().map(serde_json::Map::len), Some(1), "{odd:?}");
        }
    }
}
