//! What is done and waited for inside the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::doc::{Identity, WorkerPoolStatus, secrets};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use kube::core::ObjectMeta;
use kubelink::apply::{Force, apply_one};
use kubelink::facts::{self, OperatorFacts};
use kubelink::patch::{Change, patch};
use serde_json::{Value, json};
use steps::credentials::CertificateUse;
use steps::engine::{Look, Outcome, StepContext, StepError, StepErrorKind};
use steps::lifecycle::certificates::{self as shared, condition, object};
use steps::lifecycle::registry;

use super::done;
use crate::Context;

/// So many workers must be ready before customers get the cluster.
const WORKERS_MIN: usize = 2;
/// Those whose settling means that the cluster has.
const SETTLED: [&str; 5] =
    ["kube-controller-manager", "kube-apiserver", "kube-scheduler", "console", "authentication"];

/// A cluster that is being made does not always answer; that is waited for, like anything else.
fn patiently(look: Result<Look, StepError>) -> Result<Look, StepError> {
    match look {
        Err(error) if matches!(error.kind(), StepErrorKind::Unreachable | StepErrorKind::Transient) => {
            Ok(Look::Waiting(error.whole()))
        }
        look => look,
    }
}

/// The API servers are available and not being rolled out.
pub(crate) async fn api_servers_ready(cx: Arc<Context>, _: StepContext) -> Result<Look, StepError> {
    patiently(operators_are(&cx, &["kube-apiserver"], |it| it.available && !it.progressing).await)
}

/// The operators that matter most have settled.
pub(crate) async fn operators_have_settled(cx: Arc<Context>, _: StepContext) -> Result<Look, StepError> {
    let settled = |it: &OperatorFacts| it.available && !it.progressing && !it.degraded;
    patiently(operators_are(&cx, &SETTLED, settled).await)
}

/// The console works.
pub(crate) async fn console_ready(cx: Arc<Context>, _: StepContext) -> Result<Look, StepError> {
    patiently(operators_are(&cx, &["console"], |it| it.available).await)
}

/// The default ingress works.
pub(crate) async fn ingress_controller_ready(cx: Arc<Context>, _: StepContext) -> Result<Look, StepError> {
    patiently(operators_are(&cx, &["ingress"], |it| it.available && !it.progressing).await)
}

async fn operators_are(
    cx: &Context,
    names: &[&str],
    so: impl Fn(&OperatorFacts) -> bool,
) -> Result<Look, StepError> {
    let link = cx.life.link().await?;
    let all = facts::operators(&link).await?.unwrap_or_default();
    for name in names {
        match all.iter().find(|it| it.name == *name) {
            Some(operator) if so(operator) => {}
            Some(operator) if operator.message.is_empty() => {
                return Ok(Look::Waiting(format!("operator {name} has not settled")));
            }
            Some(operator) => return Ok(Look::Waiting(format!("operator {name}: {}", operator.message))),
            None => return Ok(Look::Waiting(format!("operator {name} is not there yet"))),
        }
    }
    Ok(Look::Done(Outcome::default()))
}

/// The cluster's certificates are in it.
pub(crate) async fn certificates(cx: Arc<Context>, step: StepContext) -> Result<Outcome, StepError> {
    if !cx.life.ours().await?.is_domain_managed() {
        return Ok(Outcome::said("the customer keeps the cluster's certificates"));
    }
    Ok(Outcome::said(shared::carry(&cx.life, step.hold).await?))
}

/// The API server shows its certificate.
pub(crate) async fn api_server_certificate(cx: Arc<Context>, _: StepContext) -> Result<Outcome, StepError> {
    configure(&cx, CertificateUse::ApiServer).await
}

/// The default ingress shows its certificate.
pub(crate) async fn ingress_certificate(cx: Arc<Context>, _: StepContext) -> Result<Outcome, StepError> {
    configure(&cx, CertificateUse::Ingress).await
}

async fn configure(cx: &Context, what: CertificateUse) -> Result<Outcome, StepError> {
    if !cx.life.ours().await?.is_domain_managed() {
        return Ok(Outcome::said("the customer keeps the cluster's certificates"));
    }
    Ok(Outcome::said(shared::configure(&cx.life, what).await?))
}

/// Enough workers are ready, or fewer if the customer asked for fewer.
pub(crate) async fn minimum_worker_nodes_ready(cx: Arc<Context>, _: StepContext) -> Result<Look, StepError> {
    let ours = cx.life.ours().await?;
    let asked: u32 = ours.spec().workers.iter().map(|it| it.count).sum();
    let wanted = WORKERS_MIN.min(usize::try_from(asked).unwrap_or(WORKERS_MIN));
    let look = async {
        let nodes = facts::nodes(&cx.life.link().await?).await?;
        let workers = nodes.iter().filter(|it| it.roles.iter().any(|role| role == "worker"));
        let ready = workers.filter(|it| it.ready).count();
        if ready >= wanted {
            return Ok(Look::Done(Outcome::said(format!("{ready} workers are ready"))));
        }
        Ok(Look::Waiting(format!("{ready} of {wanted} workers are ready")))
    };
    patiently(look.await)
}

/// Updates come from us, not from the customer's channel.
pub(crate) async fn disable_updates(cx: Arc<Context>, _: StepContext) -> Result<Outcome, StepError> {
    let link = cx.life.link().await?;
    let target = object(&link, "config.openshift.io/v1", "ClusterVersion", None, "version").await?;
    let change = Change::Merge(json!({ "spec": { "channel": null, "upstream": null } }));
    patch(&link, &target, &change, None).await?;
    done()
}

/// The cluster has its version.
pub(crate) async fn cluster_version_ready(cx: Arc<Context>, _: StepContext) -> Result<Look, StepError> {
    let look = async {
        let version = cluster_version(&cx).await?;
        if condition(&version, "Available") == Some("True") {
            return Ok(Look::Done(Outcome::default()));
        }
        Ok(Look::Waiting("the cluster's version is not available".to_owned()))
    };
    patiently(look.await)
}

async fn cluster_version(cx: &Context) -> Result<Value, StepError> {
    let link = cx.life.link().await?;
    let target = object(&link, "config.openshift.io/v1", "ClusterVersion", None, "version").await?;
    let found = link.get(&target).await?;
    let found = found.ok_or_else(|| StepError::transient("NotSeen", format!("{target} is not there yet")))?;
    Ok(serde_json::to_value(found).unwrap_or_default())
}

/// The pull secret has our registry in it.
pub(crate) async fn pull_secret(cx: Arc<Context>, _: StepContext) -> Result<Outcome, StepError> {
    let changed = registry::configure(&cx.life).await?;
    Ok(Outcome::said(if changed { "the pull secret was changed" } else { "the pull secret was so already" }))
}

/// The credential by which the cluster works in the cloud.
pub(crate) async fn credentials(cx: Arc<Context>, _: StepContext) -> Result<Outcome, StepError> {
    let ours = cx.life.ours().await?;
    let Identity::ServicePrincipal { client_id } = &ours.spec().identity else { return done() };
    let Some(secret) = cx.life.secret_text(secrets::CLIENT_SECRET).await? else { return done() };
    let link = cx.life.link().await?;
    let bytes = |text: &str| ByteString(text.as_bytes().to_vec());
    let object = KubeSecret {
        metadata: ObjectMeta {
            name: Some("azure-credentials".to_owned()),
            namespace: Some("kube-system".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            ("azure_client_id".to_owned(), bytes(client_id)),
            ("azure_client_secret".to_owned(), bytes(secret.expose())),
            ("azure_region".to_owned(), bytes(&ours.document().location)),
            ("azure_subscription_id".to_owned(), bytes(&ours.document().subscription_id)),
        ])),
        ..KubeSecret::default()
    };
    let api = Api::namespaced(link.client(), "kube-system");
    apply_one(&link, &api, &object, Force::Yes).await?;
    done()
}

/// What was seen of the cluster is recorded: version, console, workers.
pub(crate) async fn cluster_data(cx: Arc<Context>, step: StepContext) -> Result<Outcome, StepError> {
    let version = cluster_version(&cx).await?;
    let seen = running_version(&version);
    let ours = cx.life.ours().await?;
    let console = format!("https://console-openshift-console.apps.{}/", ours.domain);
    let workers: Vec<WorkerPoolStatus> = ours
        .spec()
        .workers
        .iter()
        .map(|pool| WorkerPoolStatus {
            name: format!("{}-{}", ours.made().infra_id.as_deref().unwrap_or_default(), pool.name),
            vm_size: Some(pool.vm_size.clone()),
            disk_size_gb: Some(pool.disk_size_gb),
            subnet_id: Some(pool.subnet_id.clone()),
            count: pool.count,
        })
        .collect();
    cx.life
        .record(step.hold, |record| {
            record.running_version = seen.clone().or(record.running_version.take());
            record.console_url = Some(console.clone());
            record.workers.clone_from(&workers);
        })
        .await?;
    Ok(seen.map_or_else(Outcome::default, |version| Outcome::said(format!("version {version}"))))
}

/// The version that a ClusterVersion has reached: the newest entry of its history that is complete.
fn running_version(version: &Value) -> Option<String> {
    let history = version["status"]["history"].as_array()?;
    let complete = history.iter().find(|it| it["state"] == "Completed")?;
    complete["version"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_version_is_the_newest_complete_one() {
        let version = json!({"status": {"history": [
            {"state": "Partial", "version": "4.18.0"},
            {"state": "Completed", "version": "4.17.3"},
            {"state": "Completed", "version": "4.16.9"},
        ]}});
        assert_eq!(running_version(&version).as_deref(), Some("4.17.3"));
        assert_eq!(running_version(&json!({})), None);
    }
}
