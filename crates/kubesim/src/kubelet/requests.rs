//! The requests of kubelets about nodes and leases.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};

use super::{NodeTemplate, node};

/// The field manager of all writes. Stored objects of earlier versions have it too, so the name stays.
pub(super) const MANAGER: &str = "kubesim-life";

pub(super) fn patch_params() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

pub(super) fn delete_params(uid: &str) -> DeleteParams {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// Creates a node unless it exists.
pub(super) async fn create_node(nodes: &Api<Node>, plan: &NodeTemplate) -> kube::Result<()> {
    if nodes.get_metadata_opt(&plan.name).await?.is_some() {
        return Ok(());
    }
    let object: Node = serde_json::from_value(node::object(plan)).map_err(kube::Error::SerdeError)?;
    match nodes
        .create(&PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }, &object)
        .await
    {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}

/// Renews the lease of a node, or creates it.
pub(super) async fn renew(
    client: Client,
    name: &str,
    uid: &str,
    heartbeat: Duration,
    now: Timestamp,
) -> kube::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
    let lease = node::lease(name, uid, heartbeat, now);
    match leases.patch(name, &patch_params(), &Patch::Merge(&lease)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let created: Lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            leases.create(&PostParams::default(), &created).await.map(drop)
        }
        patched => patched.map(drop),
    }
}
