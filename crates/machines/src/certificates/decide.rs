//! Which certificate requests of Nodes are approved: those of a Machine. Pure.
//!
//! An approved request becomes a credential. Two are ours: the first client certificate of a Node that a Machine is about to become,
//! requested by the bootstrap identity; and the serving certificate of a Node that a Machine is, requested by that Node. Renewals of
//! client certificates are approved by Kubernetes itself.

use std::net::IpAddr;

use api::crd::machine::Machine;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::ResourceExt;
use kubelink::certificate::{SigningRequest, parse_signing_request};

pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
pub(crate) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
const NODES_GROUP: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// The identity with which Nodes request their first certificate.
const BOOTSTRAP_USER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const BOOTSTRAP_GROUPS: [&str; 3] = [
    "system:serviceaccounts",
    "system:serviceaccounts:openshift-machine-config-operator",
    "system:authenticated",
];

/// How long after its creation a Machine may still become a Node.
const BOOTSTRAP_WITHIN: SignedDuration = SignedDuration::from_hours(2);
/// How much earlier than the Machine a request may seem to be, by clocks that differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(10);
/// Time during which an undecided request counts as pending.
const PENDING_WITHIN: SignedDuration = SignedDuration::from_hours(1);
/// How many more requests than Machines and Nodes may be pending before none is approved.
const PENDING_MARGIN: usize = 100;

/// What happens to requests that no Machine explains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum UnexplainedRequests {
    /// They stay pending, for others or for a person.
    #[default]
    Leave,
    /// Those of the bootstrap identity and of Nodes are denied when they cannot become right.
    Deny,
}

/// What happens to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// For this reason.
    Approve(String),
    /// It is not what it should be, and never will be.
    Reject(String),
    /// It may become right, such as when its Machine gets an address.
    Wait(String),
    /// It is decided, or none of ours.
    Ignore,
}

/// What is known of the cluster.
pub(crate) struct Cluster<'a> {
    pub(crate) machines: &'a [std::sync::Arc<Machine>],
    /// Whether a Node of this name exists.
    pub(crate) has_node: &'a (dyn Fn(&str) -> bool + Sync),
}

/// Decides about a request.
pub(crate) fn decide(request: &CertificateSigningRequest, cluster: &Cluster<'_>, now: Timestamp) -> Decision {
    let spec = &request.spec;
    let is_client = spec.signer_name == CLIENT_SIGNER;
    if !is_pending(request) || !(is_client || spec.signer_name == SERVING_SIGNER) {
        return Decision::Ignore;
    }
    let is_bootstrap = spec.username.as_deref() == Some(BOOTSTRAP_USER);
    // Everyone may create requests; what others ask for is not ours to judge.
    if is_client && !is_bootstrap {
        return Decision::Ignore;
    }
    let decided = contents(spec).and_then(|(parsed, node)| {
        if is_client {
            bootstrap(request, &parsed, &node, cluster, now)
        } else {
            serving(spec, &parsed, &node, cluster)
        }
    });
    match decided {
        Ok(reason) => Decision::Approve(reason),
        Err(decision) => decision,
    }
}

/// Whether a request has not been decided.
pub(crate) fn is_pending(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.iter().filter_map(|status| status.conditions.as_deref()).flatten();
    !conditions.into_iter().any(|it| matches!(it.type_.as_str(), "Approved" | "Denied" | "Failed"))
}

/// Whether a request of Nodes has been undecided for less than an hour.
pub(crate) fn is_recently_pending(request: &CertificateSigningRequest, now: Timestamp) -> bool {
    let signer = request.spec.signer_name.as_str();
    let created = request.creation_timestamp().map(|time| time.0);
    let recent = created.is_none_or(|created| now.duration_since(created) < PENDING_WITHIN);
    (signer == CLIENT_SIGNER || signer == SERVING_SIGNER) && is_pending(request) && recent
}

/// Whether so many requests are pending that something floods the cluster with them.
pub(crate) fn too_many_pending(pending: usize, machines: usize, nodes: usize) -> Option<String> {
    let max = machines.max(nodes) + PENDING_MARGIN;
    (pending > max).then(|| {
        format!("{pending} certificate requests of nodes are pending, more than {max}; none is approved until fewer are")
    })
}

/// The parsed request and the name of its Node.
fn contents(spec: &CertificateSigningRequestSpec) -> Result<(SigningRequest, String), Decision> {
    let reject = |text: String| Err(Decision::Reject(text));
    let Some(parsed) = parse_signing_request(&spec.request.0) else {
        return reject("it contains no readable PEM request".to_owned());
    };
    let [common_name] = parsed.common_names.as_slice() else {
        return reject("its subject does not have exactly one common name".to_owned());
    };
    if parsed.organizations != [NODES_GROUP] {
        let found = parsed.organizations.join(", ");
        return reject(format!("its organization is {found:?} instead of {NODES_GROUP}"));
    }
    match common_name.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty()) {
        Some(node) => {
            let node = node.to_owned();
            Ok((parsed, node))
        }
        None => reject(format!("its common name {common_name:?} is not that of a node")),
    }
}

fn check_usages(spec: &CertificateSigningRequestSpec, needed: &str) -> Result<(), Decision> {
    let usages = spec.usages.as_deref().unwrap_or_default();
    let allowed = ["digital signature", "key encipherment", needed];
    if let Some(usage) = usages.iter().find(|usage| !allowed.contains(&usage.as_str())) {
        return Err(Decision::Reject(format!("usage {usage:?} is more than a node needs")));
    }
    match usages.iter().any(|usage| usage == needed) {
        true => Ok(()),
        false => Err(Decision::Reject(format!("usage {needed:?} is missing"))),
    }
}

/// The first client certificate of a Node.
fn bootstrap(
    request: &CertificateSigningRequest,
    parsed: &SigningRequest,
    node: &str,
    cluster: &Cluster<'_>,
    now: Timestamp,
) -> Result<String, Decision> {
    let groups = request.spec.groups.as_deref().unwrap_or_default();
    if let Some(missing) = BOOTSTRAP_GROUPS.iter().find(|group| !groups.iter().any(|it| it == *group)) {
        return Err(Decision::Reject(format!("its author is not in group {missing}")));
    }
    check_usages(&request.spec, "client auth")?;
    if !parsed.dns_names.is_empty() || !parsed.addresses.is_empty() || parsed.other_names > 0 {
        return Err(Decision::Reject(
            "a client certificate needs no names or addresses, but it requests some".to_owned(),
        ));
    }
    if (cluster.has_node)(node) {
        return Err(Decision::Reject(format!("node {node} exists, and renews its certificate itself")));
    }
    let is_candidate = |machine: &&std::sync::Arc<Machine>| {
        let status = machine.status.as_ref();
        let unlinked = status.is_some_and(|status| status.node_ref.is_none());
        let names = status.map(|status| status.addresses.as_slice()).unwrap_or_default();
        let named = |it: &&k8s_openapi::api::core::v1::NodeAddress| {
            matches!(it.type_.as_str(), "InternalDNS" | "Hostname") && it.address == node
        };
        unlinked && machine.metadata.deletion_timestamp.is_none() && names.iter().any(|it| named(&it))
    };
    let Some(machine) = cluster.machines.iter().find(is_candidate) else {
        return Err(Decision::Wait(format!("no Machine without a Node has the name {node}")));
    };
    let requested = request.creation_timestamp().map_or(now, |time| time.0);
    let created = machine.creation_timestamp().map_or(now, |time| time.0);
    let age = requested.duration_since(created);
    if age < -CLOCK_SKEW || age > BOOTSTRAP_WITHIN {
        return Err(Decision::Reject(format!(
            "it was not made within 2 hours after the creation of Machine {}",
            machine.name_any()
        )));
    }
    Ok(format!("first client certificate of node {node}, which is Machine {}", machine.name_any()))
}

/// The serving certificate of a Node.
fn serving(
    spec: &CertificateSigningRequestSpec,
    parsed: &SigningRequest,
    node: &str,
    cluster: &Cluster<'_>,
) -> Result<String, Decision> {
    let username = spec.username.as_deref().unwrap_or_default();
    let groups = spec.groups.as_deref().unwrap_or_default();
    if username != format!("{NODE_PREFIX}{node}") || !groups.iter().any(|group| group == NODES_GROUP) {
        return Err(Decision::Reject(format!(
            "{username:?} requests a serving certificate of node {node}, which only the node itself may"
        )));
    }
    check_usages(spec, "server auth")?;
    if parsed.other_names > 0 {
        return Err(Decision::Reject("it requests names other than DNS names and addresses".to_owned()));
    }
    if parsed.dns_names.is_empty() && parsed.addresses.is_empty() {
        return Err(Decision::Reject("it requests no name and no address".to_owned()));
    }
    let is_linked = |machine: &&std::sync::Arc<Machine>| {
        let reference = machine.status.as_ref().and_then(|status| status.node_ref.as_ref());
        reference.and_then(|reference| reference.name.as_deref()) == Some(node)
    };
    let Some(machine) = cluster.machines.iter().find(is_linked) else {
        return Err(Decision::Wait(format!("no Machine is linked to node {node}")));
    };
    let addresses = machine.status.as_ref().map(|status| status.addresses.as_slice()).unwrap_or_default();
    let name = machine.name_any();
    // A Machine's addresses may not be complete yet.
    if let Some(missing) = parsed.dns_names.iter().find(|wanted| {
        let is_name = |type_: &str| matches!(type_, "InternalDNS" | "ExternalDNS" | "Hostname");
        !addresses.iter().any(|it| is_name(&it.type_) && it.address == **wanted)
    }) {
        return Err(Decision::Wait(format!("DNS name {missing} is not one of Machine {name}")));
    }
    if let Some(missing) = parsed.addresses.iter().find(|wanted| {
        let is_ip = |type_: &str| matches!(type_, "InternalIP" | "ExternalIP");
        !addresses.iter().any(|it| is_ip(&it.type_) && it.address.parse::<IpAddr>() == Ok(**wanted))
    }) {
        return Err(Decision::Wait(format!("address {missing} is not one of Machine {name}")));
    }
    Ok(format!("serving certificate of node {node}, with the names and addresses of Machine {name}"))
}
