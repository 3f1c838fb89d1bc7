//! Steps that change or wait for objects in the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::doc::{Identity, WorkerPoolStatus, secrets};
use cloud::ResourceId;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::Api;
use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta};
use kubelink::apply::{Force, apply_one};
use kubelink::facts::{self, OperatorFacts};
use kubelink::patch::{Change, patch};
use serde_json::{Value, json};
use steps::credentials::CertificateUse;
use steps::engine::{PollStatus, StepContext, StepError, StepErrorKind, StepOutcome};
use steps::lifecycle::certificates::{self as shared, condition, object};
use steps::lifecycle::fault::{QUOTA_EXCEEDED, user_error};
use steps::lifecycle::registry;

use super::done;
use crate::Context;

/// Namespace of the cluster's machine objects.
const MACHINES_NAMESPACE: &str = "openshift-machine-api";
/// Ready workers that a new cluster needs.
const WORKERS_MIN: usize = 2;
/// Operators that must settle before the cluster counts as settled.
const CORE_OPERATORS: [&str; 5] =
    ["kube-controller-manager", "kube-apiserver", "kube-scheduler", "console", "authentication"];

/// Keeps a wait running while the cluster does not respond, as may happen during its installation.
fn retry_while_unreachable(status: Result<PollStatus, StepError>) -> Result<PollStatus, StepError> {
    status.map_err(|error| match error.kind() {
        StepErrorKind::Unreachable | StepErrorKind::Transient => error.keep_waiting(),
        StepErrorKind::Terminal | StepErrorKind::Precondition => error,
    })
}

/// Waits until the API servers are available and not progressing.
pub(crate) async fn api_servers_ready(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    retry_while_unreachable(
        poll_operators(&cx, &["kube-apiserver"], |it| it.available && !it.progressing).await,
    )
}

/// Waits until the core operators have settled.
pub(crate) async fn operators_have_settled(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let settled = |it: &OperatorFacts| it.available && !it.progressing && !it.degraded;
    retry_while_unreachable(poll_operators(&cx, &CORE_OPERATORS, settled).await)
}

/// Waits until the console is available.
pub(crate) async fn console_ready(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    retry_while_unreachable(poll_operators(&cx, &["console"], |it| it.available).await)
}

/// Waits until the default ingress is available.
pub(crate) async fn ingress_controller_ready(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    retry_while_unreachable(poll_operators(&cx, &["ingress"], |it| it.available && !it.progressing).await)
}

async fn poll_operators(
    cx: &Context,
    names: &[&str],
    is_ready: impl Fn(&OperatorFacts) -> bool,
) -> Result<PollStatus, StepError> {
    let link = cx.life.link().await?;
    let all = facts::operators(&link).await?.unwrap_or_default();
    for name in names {
        match all.iter().find(|it| it.name == *name) {
            Some(operator) if is_ready(operator) => {}
            Some(operator) if operator.message.is_empty() => {
                return Ok(PollStatus::Waiting(format!("operator {name} has not settled")));
            }
            Some(operator) => {
                return Ok(PollStatus::Waiting(format!("operator {name}: {}", operator.message)));
            }
            None => return Ok(PollStatus::Waiting(format!("operator {name} was not found"))),
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Copies the certificates into the cluster.
pub(crate) async fn certificates(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    if !cx.life.snapshot().await?.is_domain_managed() {
        return Ok(StepOutcome::with_message("the customer manages the certificates"));
    }
    Ok(StepOutcome::with_message(shared::carry(&cx.life, step.hold).await?))
}

/// Configures the certificate of the API server.
pub(crate) async fn api_server_certificate(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<StepOutcome, StepError> {
    configure(&cx, CertificateUse::ApiServer).await
}

/// Configures the certificate of the default ingress.
pub(crate) async fn ingress_certificate(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    configure(&cx, CertificateUse::Ingress).await
}

async fn configure(cx: &Context, certificate: CertificateUse) -> Result<StepOutcome, StepError> {
    if !cx.life.snapshot().await?.is_domain_managed() {
        return Ok(StepOutcome::with_message("the customer manages the certificates"));
    }
    Ok(StepOutcome::with_message(shared::configure(&cx.life, certificate).await?))
}

/// Waits until [`WORKERS_MIN`] workers are ready, or all if the customer requested fewer.
pub(crate) async fn minimum_worker_nodes_ready(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let requested: u32 = snapshot.spec().workers.iter().map(|it| it.count).sum();
    let wanted = WORKERS_MIN.min(usize::try_from(requested).unwrap_or(WORKERS_MIN));
    let poll = async {
        let machines = machine_objects(&cx, "Machine").await?;
        let machines: Vec<&Value> = machines.iter().filter(|it| is_worker(it)).collect();
        if let Some(why) = machines.iter().find_map(|it| out_of_quota(it)) {
            return Err(user_error(QUOTA_EXCEEDED, why, Some("properties.workerProfiles[0].VMSize")));
        }
        let running = machines.iter().filter(|it| it["status"]["phase"] == "Running").count();
        let nodes = facts::nodes(&cx.life.link().await?).await?;
        let workers = nodes.iter().filter(|it| it.roles.iter().any(|role| role == "worker"));
        let ready = workers.filter(|it| it.ready).count();
        if running >= wanted && ready >= wanted {
            return Ok(PollStatus::Done(StepOutcome::with_message(format!("{ready} workers are ready"))));
        }
        Ok(PollStatus::Waiting(format!("{running} of {wanted} workers are running, {ready} are ready")))
    };
    retry_while_unreachable(poll.await)
}

fn is_worker(machine: &Value) -> bool {
    machine["metadata"]["labels"]["machine.openshift.io/cluster-api-machine-role"] != "master"
}

/// Error message of a machine that failed because a quota is exceeded or its size is unavailable: waiting does not help.
fn out_of_quota(machine: &Value) -> Option<String> {
    let status = &machine["status"];
    let message = status["errorMessage"].as_str().filter(|_| status["phase"] == "Failed")?;
    let words = ["QuotaExceeded", "SkuNotAvailable", "exceeding approved"];
    words.iter().any(|word| message.contains(word)).then(|| message.to_owned())
}

/// Disables the update channel: the service updates the cluster.
pub(crate) async fn disable_updates(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    let link = cx.life.link().await?;
    let target = object(&link, "config.openshift.io/v1", "ClusterVersion", None, "version").await?;
    let change = Change::Merge(json!({ "spec": { "channel": null, "upstream": null } }));
    patch(&link, &target, &change, None).await?;
    done()
}

/// Waits until the cluster version is available.
pub(crate) async fn cluster_version_ready(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let poll = async {
        let version = cluster_version(&cx).await?;
        if condition(&version, "Available") == Some("True") {
            return Ok(PollStatus::Done(StepOutcome::default()));
        }
        Ok(PollStatus::Waiting("the cluster version is not available".to_owned()))
    };
    retry_while_unreachable(poll.await)
}

async fn cluster_version(cx: &Context) -> Result<Value, StepError> {
    let link = cx.life.link().await?;
    let target = object(&link, "config.openshift.io/v1", "ClusterVersion", None, "version").await?;
    let found = link.get(&target).await?;
    let found = found.ok_or_else(|| StepError::transient("NotSeen", format!("{target} was not found")))?;
    Ok(serde_json::to_value(found).unwrap_or_default())
}

/// Adds the service's registry to the pull secret.
pub(crate) async fn pull_secret(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    let changed = registry::configure(&cx.life).await?;
    Ok(StepOutcome::with_message(if changed {
        "the pull secret was changed"
    } else {
        "the pull secret is up to date"
    }))
}

/// Writes the service principal's credential into the cluster.
pub(crate) async fn credentials(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let Identity::ServicePrincipal { client_id } = &snapshot.spec().identity else { return done() };
    let Some(secret) = cx.life.records.secret_text(secrets::CLIENT_SECRET).await? else { return done() };
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
            ("azure_region".to_owned(), bytes(&snapshot.document().location)),
            ("azure_subscription_id".to_owned(), bytes(&snapshot.document().subscription_id)),
        ])),
        ..KubeSecret::default()
    };
    let api = Api::namespaced(link.client(), "kube-system");
    apply_one(&link, &api, &object, Force::Yes).await?;
    done()
}

/// Records version, console URL and worker pools of the cluster.
pub(crate) async fn cluster_data(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let version = cluster_version(&cx).await?;
    let running = running_version(&version);
    let snapshot = cx.life.snapshot().await?;
    let console = format!("https://console-openshift-console.apps.{}/", snapshot.domain);
    let sets = machine_objects(&cx, "MachineSet").await?;
    let subscription = &snapshot.document().subscription_id;
    let workers: Vec<WorkerPoolStatus> = sets.iter().map(|set| pool_status(set, subscription)).collect();
    cx.life
        .record(step.hold, |record| {
            record.running_version = running.clone().or(record.running_version.take());
            record.console_url = Some(console.clone());
            record.workers.clone_from(&workers);
        })
        .await?;
    Ok(running
        .map_or_else(StepOutcome::default, |version| StepOutcome::with_message(format!("version {version}"))))
}

/// The Machine or MachineSet objects of the cluster, sorted by name.
async fn machine_objects(cx: &Context, kind: &str) -> Result<Vec<Value>, StepError> {
    let link = cx.life.link().await?;
    let (resource, _) = link.resolve("machine.openshift.io/v1beta1", kind).await?;
    let api: Api<DynamicObject> = Api::namespaced_with(link.client(), MACHINES_NAMESPACE, &resource);
    let listed = api.list(&ListParams::default()).await;
    let listed =
        listed.map_err(|error| link.failed("list", format!("{kind}s in {MACHINES_NAMESPACE}"), error))?;
    let mut objects = listed.items;
    objects.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    Ok(objects.into_iter().map(|it| serde_json::to_value(it).unwrap_or_default()).collect())
}

/// The status of a worker pool, from its MachineSet.
fn pool_status(set: &Value, subscription: &str) -> WorkerPoolStatus {
    let provider = &set["spec"]["template"]["spec"]["providerSpec"]["value"];
    let text = |name: &str| provider[name].as_str();
    let number = |value: &Value| value.as_u64().and_then(|it| u32::try_from(it).ok());
    let subnet = |group: &str, network: &str, subnet: &str| {
        let network =
            ResourceId::group(subscription, group).sibling("Microsoft.Network", "virtualNetworks", network);
        network.child("subnets", subnet).to_string()
    };
    let subnet_id = match (text("networkResourceGroup"), text("vnet"), text("subnet")) {
        (Some(group), Some(network), Some(name)) => Some(subnet(group, network, name)),
        _ => None,
    };
    WorkerPoolStatus {
        name: set["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
        vm_size: text("vmSize").map(str::to_owned),
        disk_size_gb: number(&provider["osDisk"]["diskSizeGB"]),
        subnet_id,
        count: number(&set["spec"]["replicas"]).unwrap_or_default(),
    }
}

/// The running version: the newest completed entry in the history of a ClusterVersion.
fn running_version(version: &Value) -> Option<String> {
    let history = version["status"]["history"].as_array()?;
    let complete = history.iter().find(|it| it["state"] == "Completed")?;
    complete["version"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_failed_because_of_quota_is_recognized() {
        let machine =
            |phase: &str, message: &str| json!({"status": {"phase": phase, "errorMessage": message}});
        let quota = "failed to create vm: QuotaExceeded: cores";
        assert_eq!(out_of_quota(&machine("Failed", quota)).as_deref(), Some(quota));
        assert_eq!(out_of_quota(&machine("Provisioning", quota)), None);
        assert_eq!(out_of_quota(&machine("Failed", "the image was not found")), None);
        assert_eq!(out_of_quota(&json!({"status": {"phase": "Running"}})), None);
    }

    #[test]
    fn the_status_of_a_pool_is_read_from_its_machine_set() {
        let set = json!({
            "metadata": {"name": "one-worker-eastus1"},
            "spec": {"replicas": 5, "template": {"spec": {"providerSpec": {"value": {
                "vmSize": "Standard_D4s_v5", "osDisk": {"diskSizeGB": 256},
                "networkResourceGroup": "net", "vnet": "v", "subnet": "w",
            }}}}},
        });
        let status = pool_status(&set, "s");
        assert_eq!(
            (status.name.as_str(), status.count, status.disk_size_gb),
            ("one-worker-eastus1", 5, Some(256))
        );
        assert_eq!(status.vm_size.as_deref(), Some("Standard_D4s_v5"));
        let subnet =
            "/subscriptions/s/resourceGroups/net/providers/Microsoft.Network/virtualNetworks/v/subnets/w";
        assert_eq!(status.subnet_id.as_deref(), Some(subnet));
        assert_eq!(pool_status(&json!({}), "s").subnet_id, None);
    }

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
