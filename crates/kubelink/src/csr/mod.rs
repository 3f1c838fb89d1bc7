//! Approval of certificate signing requests of nodes. Other requests are left to others, and reported.
//!
//! An approved request becomes a credential. The rule: a request may contain only what a known node may have, and its author must
//! be that node, or one of the bootstrap identities that the caller trusts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::certificate::{SigningRequest, parse_signing_request};
use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};

const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
const NODES_GROUP: &str = "system:nodes";
const NODE_PREFIX: &str = "system:node:";

/// Trusted identities besides the nodes of the cluster.
#[derive(Debug, Clone, Default)]
pub struct CsrPolicy {
    /// Nodes that are about to join, by name.
    pub expected_nodes: BTreeSet<String>,
    /// Users that may request a node's first client certificate, such as OpenShift's node-bootstrapper.
    pub bootstrap_users: BTreeSet<String>,
    /// Groups whose members may, such as `system:bootstrappers`.
    pub bootstrap_groups: BTreeSet<String>,
}

/// Result for the pending requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CsrReport {
    /// Approved by this call.
    pub approved: Vec<String>,
    /// Not approved, each with the reason.
    pub left: Vec<(String, String)>,
}

/// Names and addresses of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct NodeNames {
    dns_names: BTreeSet<String>,
    addresses: BTreeSet<IpAddr>,
}

/// Approves the pending requests of known nodes, and reports why others are not approved.
pub async fn approve(link: &Link, policy: &CsrPolicy) -> Result<CsrReport, LinkError> {
    let requests: Api<CertificateSigningRequest> = Api::all(link.client());
    let nodes: Api<Node> = Api::all(link.client());
    let all = requests.list(&ListParams::default()).await;
    let all = all.map_err(|error| link.failed("list", "certificate signing requests", error))?;
    let pending: Vec<_> = all.items.into_iter().filter(is_pending).collect();
    let mut report = CsrReport::default();
    if pending.is_empty() {
        return Ok(report);
    }
    let nodes =
        nodes.list(&ListParams::default()).await.map_err(|error| link.failed("list", "nodes", error))?;
    let known: BTreeMap<String, NodeNames> =
        nodes.items.iter().map(|node| (node.name_any(), known(node))).collect();
    for request in pending {
        let name = request.name_any();
        match decide(&request, &known, policy) {
            Err(why) => report.left.push((name, why)),
            Ok(why) => {
                if approve_one(link, &requests, &request, &why).await? {
                    report.approved.push(name);
                }
            }
        }
    }
    Ok(report)
}

/// Returns whether this call approved it: it may be gone, or decided by another, by now.
async fn approve_one(
    link: &Link,
    api: &Api<CertificateSigningRequest>,
    request: &CertificateSigningRequest,
    why: &str,
) -> Result<bool, LinkError> {
    let name = request.name_any();
    let mut conditions = serde_json::to_value(
        request.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default(),
    )
    .unwrap_or_else(|_| json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.push(
            json!({"type": "Approved", "status": "True", "reason": "ShipshapeApproved", "message": why,
            "lastUpdateTime": link.clock().now().to_string()}),
        );
    }
    let patch = json!({"metadata": {"resourceVersion": request.resource_version()}, "status": {"conditions": conditions}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let done = api.patch_approval(&name, &params, &Patch::Merge(patch)).await;
    match done.map_err(|error| link.failed("approve", format!("certificate signing request {name}"), error)) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.failure, Failure::NotFound { .. } | Failure::Conflict { .. }) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn is_pending(request: &CertificateSigningRequest) -> bool {
    let status = request.status.as_ref();
    let decided = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    !decided.iter().any(|condition| matches!(condition.type_.as_str(), "Approved" | "Denied" | "Failed"))
}

fn known(node: &Node) -> NodeNames {
    let mut known = NodeNames { dns_names: BTreeSet::from([node.name_any()]), ..NodeNames::default() };
    for address in node.status.iter().filter_map(|status| status.addresses.as_deref()).flatten() {
        match address.type_.as_str() {
            "Hostname" | "InternalDNS" | "ExternalDNS" => {
                known.dns_names.insert(address.address.clone());
            }
            _ => known.addresses.extend(address.address.parse::<IpAddr>()),
        }
    }
    known
}

/// Why a request may be approved, or why not.
fn decide(
    request: &CertificateSigningRequest,
    nodes: &BTreeMap<String, NodeNames>,
    policy: &CsrPolicy,
) -> Result<String, String> {
    let spec = &request.spec;
    let serving = match spec.signer_name.as_str() {
        CLIENT_SIGNER => false,
        SERVING_SIGNER => true,
        other => return Err(format!("signer {other} is not one of a node's")),
    };
    let Some(request) = parse_signing_request(&spec.request.0) else {
        return Err("it contains no readable PEM request".to_owned());
    };
    let node = node_of(&request)?;
    check_usages(spec.usages.as_deref().unwrap_or_default(), serving)?;
    let username = spec.username.as_deref().unwrap_or_default();
    let groups = spec.groups.as_deref().unwrap_or_default();
    let is_the_node =
        username == format!("{NODE_PREFIX}{node}") && groups.iter().any(|group| group == NODES_GROUP);
    if serving {
        if !is_the_node {
            return Err(format!(
                "{username:?} requests a serving certificate of node {node}, which only the node itself may"
            ));
        }
        let Some(known) = nodes.get(node) else { return Err(format!("there is no node {node}")) };
        check_names(&request, node, known)?;
        return Ok(format!("serving certificate of node {node}, with its own names"));
    }
    if !request.dns_names.is_empty() || !request.addresses.is_empty() || request.other_names > 0 {
        return Err("a client certificate needs no names or addresses, but it requests some".to_owned());
    }
    if is_the_node {
        return match nodes.contains_key(node) {
            true => Ok(format!("renewed client certificate of node {node}")),
            false => Err(format!("there is no node {node}")),
        };
    }
    let trusted = policy.bootstrap_users.contains(username)
        || groups.iter().any(|group| policy.bootstrap_groups.contains(group));
    if !trusted {
        return Err(format!("{username:?} may not request a client certificate of node {node}"));
    }
    match policy.expected_nodes.contains(node) {
        true => Ok(format!("first client certificate of the expected node {node}")),
        false => Err(format!("node {node} is not expected")),
    }
}

fn node_of(request: &SigningRequest) -> Result<&str, String> {
    let [common_name] = request.common_names.as_slice() else {
        return Err("its subject does not have exactly one common name".to_owned());
    };
    if request.organizations != [NODES_GROUP] {
        return Err(format!(
            "its organization is {:?} instead of {NODES_GROUP}",
            request.organizations.join(", ")
        ));
    }
    match common_name.strip_prefix(NODE_PREFIX).filter(|node| !node.is_empty()) {
        Some(node) => Ok(node),
        None => Err(format!("its common name {common_name:?} is not that of a node")),
    }
}

fn check_usages(usages: &[String], serving: bool) -> Result<(), String> {
    let needed = if serving { "server auth" } else { "client auth" };
    let allowed = ["digital signature", "key encipherment", needed];
    if let Some(usage) = usages.iter().find(|usage| !allowed.contains(&usage.as_str())) {
        return Err(format!("usage {usage:?} is more than a node needs"));
    }
    match usages.iter().any(|usage| usage == needed) {
        true => Ok(()),
        false => Err(format!("usage {needed:?} is missing")),
    }
}

fn check_names(request: &SigningRequest, node: &str, known: &NodeNames) -> Result<(), String> {
    if request.other_names > 0 {
        return Err("it requests names other than DNS names and addresses".to_owned());
    }
    if request.dns_names.is_empty() && request.addresses.is_empty() {
        return Err("it requests no name and no address".to_owned());
    }
    if let Some(name) = request.dns_names.iter().find(|name| !known.dns_names.contains(*name)) {
        return Err(format!("DNS name {name} is not one of node {node}"));
    }
    if let Some(address) = request.addresses.iter().find(|address| !known.addresses.contains(address)) {
        return Err(format!("address {address} is not one of node {node}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
