//! Defaults of a new cluster: the console's brand, and no samples or operators whose images cannot be pulled.

use std::sync::Arc;

use api::doc::secrets;
use kubelink::patch::{Change, patch};
use kubelink::{Link, Target};
use serde_json::{Value, json};
use steps::engine::{StepContext, StepError, StepOutcome};
use steps::lifecycle::certificates::object;

use super::done;
use crate::Context;

/// Registry of the images of samples and of most operators; the pull secret names it if the customer may pull from it.
const REGISTRY: &str = "registry.redhat.io";
/// Operator sources whose images are in that registry.
const SOURCES: [&str; 2] = ["certified-operators", "redhat-operators"];

/// Sets the brand of the console.
pub(crate) async fn brand_console(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    let link = cx.life.link().await?;
    let console = object(&link, "operator.openshift.io/v1", "Console", None, "cluster").await?;
    merge(&link, &console, json!({ "spec": { "customization": { "brand": "azure" } } })).await?;
    done()
}

/// Removes the samples, unless the customer's pull secret allows to pull their images.
pub(crate) async fn disable_samples(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    if may_pull(&cx).await? {
        return Ok(StepOutcome::with_message("the customer's pull secret covers the registry"));
    }
    let link = cx.life.link().await?;
    let samples = object(&link, "samples.operator.openshift.io/v1", "Config", None, "cluster").await?;
    merge(&link, &samples, json!({ "spec": { "managementState": "Removed" } })).await?;
    done()
}

/// Disables operator sources, unless the customer's pull secret allows to pull their images.
pub(crate) async fn disable_hub_sources(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    if may_pull(&cx).await? {
        return Ok(StepOutcome::with_message("the customer's pull secret covers the registry"));
    }
    let link = cx.life.link().await?;
    let hub = object(&link, "config.openshift.io/v1", "OperatorHub", None, "cluster").await?;
    let found = link.get(&hub).await?;
    let found = found.ok_or_else(|| StepError::transient("NotSeen", format!("{hub} was not found")))?;
    let sources = without_sources(&found.data["spec"]["sources"]);
    merge(&link, &hub, json!({ "spec": { "sources": sources } })).await?;
    done()
}

async fn merge(link: &Link, target: &Target, change: Value) -> Result<(), StepError> {
    patch(link, target, &Change::Merge(change), None).await?;
    Ok(())
}

async fn may_pull(cx: &Context) -> Result<bool, StepError> {
    let secret = cx.life.records.secret_text(secrets::PULL_SECRET).await?;
    Ok(secret.is_some_and(|it| names_registry(it.expose())))
}

fn names_registry(pull_secret: &str) -> bool {
    let read: Value = serde_json::from_str(pull_secret).unwrap_or_default();
    read["auths"].get(REGISTRY).is_some()
}

/// The sources of a hub with [`SOURCES`] disabled; other sources are unchanged.
fn without_sources(sources: &Value) -> Vec<Value> {
    let others = sources.as_array().into_iter().flatten();
    let others = others.filter(|it| it["name"].as_str().is_none_or(|name| !SOURCES.contains(&name)));
    others.cloned().chain(SOURCES.map(|name| json!({ "name": name, "disabled": true }))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pull_secret_that_names_the_registry_covers_its_images() {
        for (secret, expect) in [
            (r#"{"auths":{"registry.redhat.io":{"auth":"x"}}}"#, true),
            (r#"{"auths":{"elsewhere":{}}}"#, false),
            (r#"{"auths":[]}"#, false),
            ("nonsense", false),
        ] {
            assert_eq!(names_registry(secret), expect, "{secret}");
        }
    }

    #[test]
    fn sources_are_disabled_once_and_others_are_unchanged() {
        let off = |name: &str| json!({ "name": name, "disabled": true });
        let disabled = || SOURCES.map(off).to_vec();
        assert_eq!(without_sources(&Value::Null), disabled());
        assert_eq!(without_sources(&json!(disabled())), disabled());
        let mixed = json!([{ "name": "redhat-operators" }, { "name": "mine" }]);
        assert_eq!(without_sources(&mixed), [vec![json!({ "name": "mine" })], disabled()].concat());
    }
}
