//! Machines that somebody else than the installer has made join the cluster that their user data names, as real ones do: the machine
//! asks for a client certificate with the bootstrap identity; when that is approved, its node registers, and asks for a serving
//! certificate. Nobody here approves anything.
//!
//! What is next for a machine follows from its record, the time and the cluster, so every step can be repeated.

use std::net::IpAddr;

use anyhow::Context as _;
use api::install::InstallRequest;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, PostParams};
use kubesim::SimulatedCluster;
use kubesim::kubelet::annotations;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use serde_json::{Value, json};

use crate::arm::kinds::boot::{self, BootStage, BootingMachine};
use crate::call_context::FaultEffects;
use crate::seed;
use crate::simulator::Simulator;

/// On a node: its machine has booted into the cluster, so the node outlives it until somebody deletes it.
pub(super) const BOOTED: &str = "sim.shipshape.dev/booted";

/// The identity with which machines ask for their first certificate.
const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const BOOTSTRAPPER_GROUPS: [&str; 2] =
    ["system:serviceaccounts", "system:serviceaccounts:openshift-machine-config-operator"];
const NODES_GROUP: &str = "system:nodes";

/// A certificate of a node, by what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Client,
    Serving,
}

/// What became of a request for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Approval {
    NotRequested,
    Pending,
    Approved,
    Denied,
}

/// The next action for a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BootStep {
    /// Nothing before somebody else acts, or the machine runs.
    Wait,
    /// Nothing before this time.
    WaitUntil(Timestamp),
    Request(Purpose),
    Join,
    Finish,
}

fn next_step(machine: &BootingMachine, approval: Approval, now: Timestamp) -> BootStep {
    if !machine.is_running {
        return BootStep::Wait;
    }
    if now < machine.due {
        return BootStep::WaitUntil(machine.due);
    }
    match (machine.stage, approval) {
        (BootStage::New, Approval::NotRequested) => BootStep::Request(Purpose::Client),
        (BootStage::New, Approval::Approved) => BootStep::Join,
        (BootStage::Joined, Approval::NotRequested) => BootStep::Request(Purpose::Serving),
        (BootStage::Joined, Approval::Approved) => BootStep::Finish,
        (BootStage::New | BootStage::Joined, Approval::Pending | Approval::Denied) => BootStep::Wait,
        (BootStage::Complete, _) => BootStep::Wait,
    }
}

/// The pool whose configuration a machine asks a cluster for; `None` when it asks another one.
fn pool<'a>(request: &InstallRequest, source: &'a str) -> Option<&'a str> {
    let (address, path) = source.strip_prefix("https://")?.split_once('/')?;
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let is_meant = host.eq_ignore_ascii_case(&format!("api-int.{}", request.domain));
    path.strip_prefix("config/").filter(|pool| is_meant && !pool.is_empty())
}

/// Takes every machine as far as it gets, and returns the time of the next step that nobody else causes.
pub(super) async fn advance(
    simulator: &Simulator,
    request: &InstallRequest,
    cluster: &SimulatedCluster,
) -> anyhow::Result<Option<Timestamp>> {
    let machines =
        simulator.within(FaultEffects::default(), |cx| boot::booting_in_group(cx, &request.group))?;
    let mut next = None;
    for mut machine in machines {
        let Some(pool) = pool(request, &machine.source).map(str::to_owned) else { continue };
        loop {
            let approval = approval(simulator, cluster, &machine).await?;
            let stage = match next_step(&machine, approval, simulator.clock.now()) {
                BootStep::Wait => break,
                BootStep::WaitUntil(due) => {
                    next = Some(next.map_or(due, |next: Timestamp| next.min(due)));
                    break;
                }
                BootStep::Request(purpose) => {
                    ask(simulator, cluster, &machine, purpose).await?;
                    continue;
                }
                BootStep::Join => {
                    join(cluster, &machine, &pool).await?;
                    BootStage::Joined
                }
                BootStep::Finish => BootStage::Complete,
            };
            simulator.within(FaultEffects::default(), |cx| boot::note_stage(cx, &machine.id, stage))?;
            machine.stage = stage;
        }
    }
    Ok(next)
}

fn purpose(stage: BootStage) -> Purpose {
    match stage {
        BootStage::New => Purpose::Client,
        BootStage::Joined | BootStage::Complete => Purpose::Serving,
    }
}

/// The name of a request: the same however often it is sent.
fn request_name(simulator: &Simulator, machine: &BootingMachine, purpose: Purpose) -> String {
    let words = ["csr", &machine.vm_id, &format!("{purpose:?}")];
    format!("csr-{}", seed::letters(simulator.seed, 8, &words))
}

async fn approval(
    simulator: &Simulator,
    cluster: &SimulatedCluster,
    machine: &BootingMachine,
) -> anyhow::Result<Approval> {
    if !machine.is_running || simulator.clock.now() < machine.due {
        return Ok(Approval::NotRequested);
    }
    let requests: Api<CertificateSigningRequest> = Api::all(cluster.client());
    let name = request_name(simulator, machine, purpose(machine.stage));
    let Some(found) = requests.get_opt(&name).await? else { return Ok(Approval::NotRequested) };
    let conditions = found.status.and_then(|it| it.conditions).unwrap_or_default();
    let has = |kind: &str| conditions.iter().any(|it| it.type_ == kind && it.status == "True");
    Ok(if has("Denied") {
        Approval::Denied
    } else if has("Approved") {
        Approval::Approved
    } else {
        Approval::Pending
    })
}

/// Requests a certificate in the name of those who do so in a real cluster.
async fn ask(
    simulator: &Simulator,
    cluster: &SimulatedCluster,
    machine: &BootingMachine,
    purpose: Purpose,
) -> anyhow::Result<()> {
    let node = format!("system:node:{}", machine.name);
    let (client, signer, usage) = match purpose {
        Purpose::Client => (
            cluster.client_as(BOOTSTRAPPER, &BOOTSTRAPPER_GROUPS),
            "kubernetes.io/kube-apiserver-client-kubelet",
            "client auth",
        ),
        Purpose::Serving => {
            (cluster.client_as(&node, &[NODES_GROUP]), "kubernetes.io/kubelet-serving", "server auth")
        }
    };
    let object: CertificateSigningRequest = serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": { "name": request_name(simulator, machine, purpose) },
        "spec": {
            "request": STANDARD.encode(signing_request(machine, &node, purpose)?),
            "signerName": signer, "usages": ["digital signature", usage]
        }
    }))?;
    ensure_rights(cluster).await?;
    create(&Api::all(client), &object).await
}

fn signing_request(machine: &BootingMachine, node: &str, purpose: Purpose) -> anyhow::Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, NODES_GROUP);
    params.distinguished_name.push(DnType::CommonName, node);
    if purpose == Purpose::Serving {
        let name = machine.name.as_str().try_into().context("the name of a computer")?;
        params.subject_alt_names.push(SanType::DnsName(name));
        let addresses = machine.addresses.iter().filter_map(|it| it.parse::<IpAddr>().ok());
        params.subject_alt_names.extend(addresses.map(SanType::IpAddress));
    }
    let key = KeyPair::generate()?;
    Ok(params.serialize_request(&key)?.pem()?)
}

/// Lets machines and nodes request certificates, as every cluster does: nodes have no authorizer of their own here.
async fn ensure_rights(cluster: &SimulatedCluster) -> anyhow::Result<()> {
    let group = "rbac.authorization.k8s.io";
    let binding: ClusterRoleBinding = serde_json::from_value(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "sim:node-certificate-requests" },
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": "system:node-bootstrapper" },
        "subjects": [
            { "apiGroup": group, "kind": "User", "name": BOOTSTRAPPER },
            { "apiGroup": group, "kind": "Group", "name": NODES_GROUP }
        ]
    }))?;
    create(&Api::all(cluster.client()), &binding).await
}

/// Registers the node. A node of the same name that is there already is taken over, as kubelets do.
async fn join(cluster: &SimulatedCluster, machine: &BootingMachine, pool: &str) -> anyhow::Result<()> {
    let node: Node = serde_json::from_value(node(machine, pool))?;
    create(&Api::all(cluster.client()), &node).await
}

async fn create<K>(api: &Api<K>, object: &K) -> anyhow::Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned + kube::Resource,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        done => Ok(done.map(drop)?),
    }
}

/// The id that the cloud's controller gives a node: subscription and group in lower case.
fn provider_id(machine: &BootingMachine) -> String {
    let (subscription, group) = (machine.id.subscription(), machine.id.resource_group());
    format!(
        "azure:///subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/{}",
        subscription.to_lowercase(),
        group.to_lowercase(),
        machine.id.name()
    )
}

fn node(machine: &BootingMachine, pool: &str) -> Value {
    let zone =
        machine.zone.as_ref().map_or_else(|| "0".to_owned(), |it| format!("{}-{it}", machine.location));
    let mut labels = json!({
        annotations::SIMULATED_LABEL: "true",
        "kubernetes.io/hostname": machine.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.openshift.io/os_id": "rhcos", "node.kubernetes.io/instance-type": machine.size,
        "topology.kubernetes.io/region": machine.location, "topology.kubernetes.io/zone": zone,
    });
    let mut spec = json!({ "providerID": provider_id(machine) });
    if pool == "master" {
        labels["node-role.kubernetes.io/control-plane"] = json!("");
        labels["node-role.kubernetes.io/master"] = json!("");
        spec["taints"] = json!([{ "key": "node-role.kubernetes.io/master", "effect": "NoSchedule" }]);
    } else {
        labels["node-role.kubernetes.io/worker"] = json!("");
    }
    let mut marks = json!({ BOOTED: "true" });
    if let Some(address) = machine.addresses.first() {
        marks[annotations::NODE_IP] = json!(address);
    }
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": machine.name, "labels": labels, "annotations": marks },
        "spec": spec
    })
}

#[cfg(test)]
mod tests {
    use cloud::ResourceId;

    use super::super::machines::tests::request;
    use super::*;

    fn machine(stage: BootStage, is_running: bool) -> BootingMachine {
        BootingMachine {
            id: ResourceId::group("S1", "Managed").sibling("Microsoft.Compute", "virtualMachines", "m"),
            name: "m".to_owned(),
            vm_id: "v".to_owned(),
            source: "https://api-int.one.example.test:22623/config/worker".to_owned(),
            stage,
            due: Timestamp::from_second(100).unwrap(),
            is_running,
            size: "Standard_D8s_v5".to_owned(),
            location: "westeurope".to_owned(),
            zone: Some("2".to_owned()),
            addresses: vec!["10.0.0.4".to_owned()],
        }
    }

    #[test]
    fn a_machine_joins_only_when_its_request_is_approved() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let check = |stage, approval, expect| {
            assert_eq!(next_step(&machine(stage, true), approval, at(100)), expect);
        };
        check(BootStage::New, Approval::NotRequested, BootStep::Request(Purpose::Client));
        check(BootStage::New, Approval::Pending, BootStep::Wait);
        check(BootStage::New, Approval::Denied, BootStep::Wait);
        check(BootStage::New, Approval::Approved, BootStep::Join);
        check(BootStage::Joined, Approval::NotRequested, BootStep::Request(Purpose::Serving));
        check(BootStage::Joined, Approval::Approved, BootStep::Finish);
        let early = next_step(&machine(BootStage::New, true), Approval::NotRequested, at(99));
        assert_eq!(early, BootStep::WaitUntil(at(100)));
        let stopped = next_step(&machine(BootStage::New, false), Approval::NotRequested, at(100));
        assert_eq!(stopped, BootStep::Wait);
    }

    #[test]
    fn user_data_that_names_another_cluster_is_not_for_this_one() {
        let check =
            |source: &str, expect: Option<&str>| assert_eq!(pool(&request(), source), expect, "{source}");
        check("https://api-int.one.example.test:22623/config/worker", Some("worker"));
        check("https://API-INT.one.example.test:22623/config/master", Some("master"));
        check("https://api-int.two.example.test:22623/config/worker", None);
        check("https://api-int.one.example.test.evil:22623/config/worker", None);
        check("https://api-int.one.example.test:22623/config/", None);
    }

    #[test]
    fn a_node_has_the_identity_and_the_address_of_its_machine() {
        let node = node(&machine(BootStage::New, true), "worker");
        assert_eq!(
            node["spec"]["providerID"],
            "azure:///subscriptions/s1/resourceGroups/managed/providers/Microsoft.Compute/virtualMachines/m"
        );
        assert_eq!(node["metadata"]["annotations"][annotations::NODE_IP], "10.0.0.4");
        assert_eq!(node["metadata"]["labels"]["topology.kubernetes.io/zone"], "westeurope-2");
        assert_eq!(node["metadata"]["labels"]["node-role.kubernetes.io/worker"], "");
    }

    #[test]
    fn a_serving_request_has_the_names_and_addresses_of_the_node() {
        let text =
            signing_request(&machine(BootStage::Joined, true), "system:node:m", Purpose::Serving).unwrap();
        assert!(text.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{text}");
    }
}
