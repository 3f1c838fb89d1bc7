//! Clusters whose machines belong to controllers in them: the installer creates what an installer of OpenShift does (the payload's
//! manifests, the Secrets that they need, the Machines of the control plane, a MachineSet for each zone) and writes nothing about
//! workers. The controllers create those, and the virtual machines boot into the cluster by their user data.

use std::pin::pin;

use anyhow::Context as _;
use api::install::InstallRequest;
use cloud::ResourceId;
use futures_util::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::watcher;
use serde_json::{Value, json};

use super::machines::{self, PlannedMachine};
use super::runner::{ensure, place};
use super::upkeep::quiet;
use crate::arm::assignments::{self, StoredAssignment};
use crate::arm::{Change, roles, store};
use crate::call_context::{CallContext, FaultEffects};
use crate::failure::Failure;
use crate::settings::{PrincipalSecretBody, Rights};
use crate::simulator::Simulator;
use crate::{identities, seed};

const NAMESPACE: &str = "openshift-machine-api";
const MACHINE_API: &str = "machine.openshift.io/v1beta1";
const CREDENTIALS: &str = "azure-cloud-credentials";
const CLUSTER_OPERATOR: &str = "ClusterOperator";
/// The variable with the version that an operator reports.
const RELEASE_VERSION: &str = "RELEASE_VERSION";
/// The description of the role assignments of the cluster's principal.
const ASSIGNMENT: &str = "Machine controllers of a simulated cluster";

/// The objects of a kind in the payload, by name.
fn names<'a>(simulator: &'a Simulator, kind: &'a str) -> impl Iterator<Item = &'a str> {
    let all = simulator.payload.iter().flat_map(|it| it.iter());
    all.filter(move |it| it["kind"] == kind).filter_map(|it| it["metadata"]["name"].as_str())
}

/// Whether the payload has an object, so that nobody else may write it.
pub(super) fn has(simulator: &Simulator, kind: &str, name: &str) -> bool {
    names(simulator, kind).any(|it| it == name)
}

/// Whether an operator reports its state itself.
pub(super) fn has_operator(simulator: &Simulator, name: &str) -> bool {
    has(simulator, CLUSTER_OPERATOR, name)
}

/// Creates the payload and what it works on. Repeating it changes nothing.
pub(super) async fn apply(
    simulator: &Simulator,
    request: &InstallRequest,
    client: &kube::Client,
) -> anyhow::Result<()> {
    for manifest in simulator.payload.iter().flat_map(|it| it.iter()) {
        create(client, &of_release(manifest.clone(), &request.version)).await?;
    }
    for pool in ["master", "worker"] {
        ensure(client, &user_data(request, pool)).await?;
    }
    ensure_credentials(simulator, request, client).await?;
    let balancer = simulator.within(FaultEffects::default(), |cx| public_balancer(cx, request))?;
    let balancer = balancer.as_deref();
    for machine in machines::masters(request) {
        let object = json!({
            "apiVersion": MACHINE_API, "kind": "Machine",
            "metadata": { "name": machine.name, "namespace": NAMESPACE, "labels": labels(request, &machine) },
            "spec": { "providerSpec": provider_spec(request, &machine, balancer) }
        });
        ensure(client, &object).await?;
    }
    for (machine, replicas) in machines::worker_sets(request) {
        ensure(client, &machine_set(request, &machine, replicas, balancer)).await?;
    }
    Ok(())
}

/// The manifest as a release of OpenShift has it: with the release's version in place of that of our executable.
fn of_release(mut manifest: Value, version: &str) -> Value {
    let containers = manifest.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut);
    let variables = containers.into_iter().flatten().filter_map(|it| it.get_mut("env")?.as_array_mut());
    for variable in variables.flatten().filter(|it| it["name"] == RELEASE_VERSION) {
        variable["value"] = json!(version);
    }
    manifest
}

/// Sets the version of another release where the payload has one, as the operator of the cluster's version does.
pub(super) async fn set_release(
    simulator: &Simulator,
    client: &kube::Client,
    version: &str,
) -> anyhow::Result<()> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    let all = simulator.payload.iter().flat_map(|it| it.iter());
    for manifest in all.filter(|it| it["kind"] == "Deployment") {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
        let Some(present) = deployments.get_opt(name).await? else { continue };
        let wanted = of_release(serde_json::to_value(&present)?, version);
        let containers = wanted.pointer("/spec/template/spec/containers");
        let patch = json!({ "spec": { "template": { "spec": { "containers": containers } } } });
        deployments.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await?;
    }
    Ok(())
}

/// Creates an object of the payload, unless it is there or its kind is not served.
async fn create(client: &kube::Client, manifest: &Value) -> anyhow::Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let what = format!("{} {}", text(&manifest["kind"]), text(&manifest["metadata"]["name"]));
    match ensure(client, manifest).await {
        Err(error) if is_unserved(&error) => {
            tracing::debug!("Left {what} out: its kind is not served");
            Ok(())
        }
        done => done.context(what),
    }
}

/// Whether a request failed because nobody serves the kind, which differs from a missing namespace by its message.
fn is_unserved(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => {
            let is_about = |text: &str| status.message.contains(text);
            // The second is the response for a group of which nothing is served.
            status.code == 404
                && (is_about("could not find the requested resource") || is_about("404 page not found"))
        }
        _ => false,
    }
}

/// Waits until every MachineSet has its machines ready.
pub(super) async fn workers_ready(client: &kube::Client) -> anyhow::Result<()> {
    let sets = place(client, MACHINE_API, "MachineSet", Some(NAMESPACE))?;
    let mut changes = pin!(quiet(watcher(sets.clone(), watcher::Config::default())));
    loop {
        let all = sets.list(&ListParams::default()).await?;
        if all.iter().all(|it| is_ready(&it.data)) {
            return Ok(());
        }
        // After an error the watch starts again by itself, and the list above is current.
        let _ = changes.next().await.context("the watch of MachineSets ended")?;
    }
}

fn is_ready(set: &Value) -> bool {
    let ready = set["status"]["readyReplicas"].as_i64().unwrap_or(0);
    set["status"]["observedGeneration"].is_i64() && ready >= set["spec"]["replicas"].as_i64().unwrap_or(1)
}

/// Where a machine of a pool finds the rest of its configuration.
fn user_data(request: &InstallRequest, pool: &str) -> Value {
    let source = format!("https://api-int.{}:22623/config/{pool}", request.domain);
    let ignition =
        json!({ "ignition": { "config": { "merge": [{ "source": source }] }, "version": "3.2.0" } });
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": format!("{pool}-user-data"), "namespace": NAMESPACE },
        "stringData": { "disableTemplating": "true", "userData": ignition.to_string() }
    })
}

/// Creates the Secret with the credential of the controllers, as the operator of credentials does. Its principal may manage what is in
/// the group of the cluster, and join its subnets.
async fn ensure_credentials(
    simulator: &Simulator,
    request: &InstallRequest,
    client: &kube::Client,
) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    if secrets.get_opt(CREDENTIALS).await?.is_some() {
        return Ok(());
    }
    let (known, tenant) = simulator.within(FaultEffects::default(), |cx| {
        Ok((ensure_principal(cx, request)?, cx.endpoints.tenant_id.clone()))
    })?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": { "name": CREDENTIALS, "namespace": NAMESPACE },
        "stringData": {
            "azure_client_id": known.principal.client_id, "azure_client_secret": known.secret,
            "azure_tenant_id": tenant, "azure_subscription_id": request.group.subscription(),
            "azure_region": request.location, "azure_resourcegroup": request.group.resource_group(),
            "azure_resource_prefix": request.infra_id
        }
    });
    ensure(client, &secret).await
}

fn principal_name(request: &InstallRequest) -> String {
    format!("{}-openshift-machine-api", request.infra_id)
}

/// The principal with a secret that nobody knows yet.
fn ensure_principal(cx: &CallContext<'_>, request: &InstallRequest) -> Result<PrincipalSecretBody, Failure> {
    let name = principal_name(request);
    let present = identities::principals(cx)?.into_iter().find(|it| it.name == name);
    let created = match present {
        Some(present) => identities::change_secret(cx, &present.client_id)?,
        None => identities::create_principal(cx, &name, Rights::ByRoles)?,
    };
    let object_id = &created.principal.object_id;
    assign(cx, object_id, &request.group, roles::CONTRIBUTOR)?;
    for pool in [&request.masters].into_iter().chain(&request.workers) {
        assign(cx, object_id, &pool.subnet, roles::MACHINE_API_OPERATOR)?;
    }
    Ok(created)
}

fn assign(cx: &CallContext<'_>, object_id: &str, scope: &ResourceId, role: &str) -> Result<(), Failure> {
    let assignment = StoredAssignment {
        name: seed::uuid(cx.seed, &["machine-api", object_id, &scope.key()]).to_string(),
        scope: scope.to_string(),
        role_definition_id: format!("/providers/Microsoft.Authorization/roleDefinitions/{role}"),
        principal_id: object_id.to_owned(),
        principal_type: "ServicePrincipal".to_owned(),
        description: Some(ASSIGNMENT.to_owned()),
        created: cx.now,
        effective: cx.now,
    };
    assignments::keep(cx, &assignment)
}

/// Removes the principal of a cluster.
pub(super) fn remove_principal(cx: &CallContext<'_>, request: &InstallRequest) -> Result<(), Failure> {
    let name = principal_name(request);
    for found in identities::principals(cx)?.iter().filter(|it| it.name == name) {
        identities::delete_principal(cx, &found.client_id)?;
    }
    Ok(())
}

/// The public load balancer, which gives machines a way out, if the cluster has one.
fn public_balancer(cx: &CallContext<'_>, request: &InstallRequest) -> Result<Option<String>, Failure> {
    let id = request.group.sibling("Microsoft.Network", "loadBalancers", &request.infra_id);
    let found = store::find(cx.db, &id.key())?.filter(|it| it.change != Change::Deleting);
    Ok(found.map(|_| request.infra_id.clone()))
}

fn labels(request: &InstallRequest, machine: &PlannedMachine) -> Value {
    let mut labels = json!({
        "machine.openshift.io/cluster-api-cluster": request.infra_id,
        "machine.openshift.io/cluster-api-machine-role": machine.pool,
        "machine.openshift.io/cluster-api-machine-type": machine.pool,
    });
    if let Some(set) = &machine.set {
        labels["machine.openshift.io/cluster-api-machineset"] = json!(set);
    }
    labels
}

fn provider_spec(request: &InstallRequest, machine: &PlannedMachine, balancer: Option<&str>) -> Value {
    let release: Vec<&str> = request.version.split('.').take(2).collect();
    let mut spec = json!({
        "apiVersion": MACHINE_API, "kind": "AzureMachineProviderSpec",
        "location": request.location, "vmSize": machine.size,
        "image": {
            "publisher": "azureopenshift", "offer": "aro4", "sku": format!("aro_{}", release.concat()),
            "version": format!("{}.0.0", release.concat()), "type": "MarketplaceNoPlan"
        },
        "osDisk": {
            "diskSizeGB": machine.disk_size_gb, "osType": "Linux",
            "managedDisk": { "storageAccountType": "Premium_LRS" }
        },
        "publicIP": false,
        "resourceGroup": request.group.resource_group(),
        "networkResourceGroup": machine.subnet.resource_group(),
        "vnet": machine.subnet.parent().map(|it| it.name().to_owned()), "subnet": machine.subnet.name(),
        "userDataSecret": { "name": format!("{}-user-data", machine.role()) },
        "credentialsSecret": { "name": CREDENTIALS, "namespace": NAMESPACE }
    });
    let mut set = |member: &str, value: Option<&str>| {
        if let Some(value) = value {
            spec[member] = json!(value);
        }
    };
    set("zone", machine.zone.as_deref());
    set("publicLoadBalancer", balancer);
    let internal = machine.set.is_none().then(|| request.load_balancer.name());
    set("internalLoadBalancer", internal);
    json!({ "value": spec })
}

fn machine_set(
    request: &InstallRequest,
    machine: &PlannedMachine,
    replicas: u32,
    balancer: Option<&str>,
) -> Value {
    let name = machine.set.as_deref().unwrap_or_default();
    json!({
        "apiVersion": MACHINE_API, "kind": "MachineSet",
        "metadata": {
            "name": name, "namespace": NAMESPACE,
            "labels": { "machine.openshift.io/cluster-api-cluster": request.infra_id }
        },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": {
                "machine.openshift.io/cluster-api-cluster": request.infra_id,
                "machine.openshift.io/cluster-api-machineset": name
            } },
            "template": {
                "metadata": { "labels": labels(request, machine) },
                "spec": { "providerSpec": provider_spec(request, machine, balancer) }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::machines::tests::request;

    #[test]
    fn workers_have_a_machine_set_in_each_zone_and_masters_have_none() {
        let request = request();
        let sets: Vec<Value> = machines::worker_sets(&request)
            .iter()
            .map(|(machine, replicas)| machine_set(&request, machine, *replicas, Some("one-x7k2p")))
            .collect();
        let shown: Vec<(&str, i64)> = sets
            .iter()
            .map(|it| (it["metadata"]["name"].as_str().unwrap(), it["spec"]["replicas"].as_i64().unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                ("one-x7k2p-worker-westeurope1", 2),
                ("one-x7k2p-worker-westeurope2", 1),
                ("one-x7k2p-worker-westeurope3", 1)
            ]
        );
        let value = &sets[1]["spec"]["template"]["spec"]["providerSpec"]["value"];
        assert_eq!((value["zone"].as_str(), value["internalLoadBalancer"].as_str()), (Some("2"), None));
        assert_eq!(value["userDataSecret"]["name"], "worker-user-data");
        let master = provider_spec(&request, &machines::masters(&request)[0], None);
        assert_eq!(master["value"]["internalLoadBalancer"], "one-x7k2p-internal");
        assert_eq!(master["value"].get("publicLoadBalancer"), None);
    }

    #[test]
    fn where_there_are_no_zones_one_set_has_all_workers() {
        let request = InstallRequest { zones: Vec::new(), ..request() };
        let sets = machines::worker_sets(&request);
        let shown: Vec<(Option<&str>, u32)> =
            sets.iter().map(|(machine, replicas)| (machine.set.as_deref(), *replicas)).collect();
        assert_eq!(shown, [(Some("one-x7k2p-worker-westeurope"), 4)]);
    }

    #[test]
    fn operators_of_the_payload_report_the_version_of_the_cluster() {
        let container = |value: &str| json!({"name": "operator", "env": [{"name": "A", "value": "1"}, {"name": "RELEASE_VERSION", "value": value}]});
        let manifest =
            |value: &str| json!({"spec": {"template": {"spec": {"containers": [container(value)]}}}});
        assert_eq!(of_release(manifest("0.1.0"), "4.20.1"), manifest("4.20.1"));
        let service = json!({"kind": "Service", "spec": {"ports": []}});
        assert_eq!(of_release(service.clone(), "4.20.1"), service);
    }

    #[test]
    fn a_set_is_ready_when_its_controller_counts_all_machines() {
        let set = |status: Value| is_ready(&json!({ "spec": { "replicas": 2 }, "status": status }));
        assert!(!set(json!(null)));
        assert!(!set(json!({ "observedGeneration": 1, "readyReplicas": 1 })));
        assert!(set(json!({ "observedGeneration": 1, "readyReplicas": 2 })));
        assert!(is_ready(&json!({ "spec": { "replicas": 0 }, "status": { "observedGeneration": 1 } })));
    }
}
