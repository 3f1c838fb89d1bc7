//! Cordon and uncordon, with a record on the node of who did it and why.
//!
//! A node that someone else cordoned is theirs: we neither take over nor undo it. The record is what lets a process that
//! takes over after a crash, or an operator months later, know whose cordon it is.

use std::fmt;

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};

/// The annotation that holds the id of whoever cordoned the node.
pub const CORDONED_BY: &str = "shipshape.dev/cordoned-by";
/// The annotation that says why.
pub const CORDONED_BECAUSE: &str = "shipshape.dev/cordoned-because";
/// The annotation that says since when.
pub const CORDONED_AT: &str = "shipshape.dev/cordoned-at";

/// How often a node may change under our hands before we give up; a kubelet writes every few seconds, not every few
/// milliseconds.
const CONFLICTS_MAX: u32 = 10;

/// Who cordons, and why. The id outlives the process: a manifest's or a machine maintenance's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Stable across retries and takeovers.
    pub id: String,
    /// For people who look at the node.
    pub reason: String,
}

impl Holder {
    /// A holder by its id and reason.
    pub fn new(id: impl Into<String>, reason: impl Into<String>) -> Holder {
        Holder { id: id.into(), reason: reason.into() }
    }
}

/// What a cordon found or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cordoned {
    /// It is cordoned now, by this call, and recorded.
    Now,
    /// This holder had cordoned it before.
    Before,
    /// Someone else cordoned it: another holder, or a person, whom we do not know.
    ByOther(Option<String>),
}

impl Cordoned {
    /// Whether the cordon is this holder's to undo.
    pub fn is_ours(&self) -> bool {
        matches!(self, Cordoned::Now | Cordoned::Before)
    }
}

impl fmt::Display for Cordoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cordoned::Now => f.write_str("cordoned"),
            Cordoned::Before => f.write_str("cordoned already"),
            Cordoned::ByOther(Some(holder)) => write!(f, "cordoned by {holder}"),
            Cordoned::ByOther(None) => f.write_str("cordoned by someone else"),
        }
    }
}

/// What an uncordon found or did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Uncordoned {
    /// It takes pods again.
    Now,
    /// It took pods before, and bears no record of this holder.
    Before,
    /// Someone else cordoned it, and so it stays.
    ByOther(Option<String>),
}

/// Makes sure that `node` takes no new pods, and that it says who wanted that.
pub async fn cordon(link: &Link, node: &str, holder: &Holder) -> Result<Cordoned, LinkError> {
    let nodes: Api<Node> = Api::all(link.client());
    let told = format!("node {node}");
    let mut conflicts = 0;
    loop {
        let seen = nodes.get(node).await.map_err(|error| link.failed("cordon", &told, error))?;
        let found = match decide_cordon(&seen, &holder.id) {
            Some(found) => return Ok(found),
            None => Cordoned::Now,
        };
        let patch = json!({
            "metadata": {"resourceVersion": seen.resource_version(), "annotations": {
                CORDONED_BY: holder.id, CORDONED_BECAUSE: holder.reason, CORDONED_AT: link.clock().now().to_string()}},
            "spec": {"unschedulable": true},
        });
        match patched(link, "cordon", &nodes, node, &Patch::Merge(patch)).await {
            Ok(()) => return Ok(found),
            Err(error) if matches!(error.failure, Failure::Conflict { .. }) && conflicts < CONFLICTS_MAX => {
                conflicts += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Lets `node` take pods again if `holder` cordoned it. One request when the record is as expected.
pub async fn uncordon(link: &Link, node: &str, holder_id: &str) -> Result<Uncordoned, LinkError> {
    let nodes: Api<Node> = Api::all(link.client());
    let path = |annotation: &str| format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
    // The test makes it ours in the same moment as it is undone; nobody's cordon can slip in between.
    let ours: json_patch::Patch = serde_json::from_value(json!([
        {"op": "test", "path": path(CORDONED_BY), "value": holder_id},
        {"op": "add", "path": "/spec/unschedulable", "value": false},
        {"op": "remove", "path": path(CORDONED_BY)},
        {"op": "add", "path": path(CORDONED_BECAUSE), "value": ""},
        {"op": "remove", "path": path(CORDONED_BECAUSE)},
        {"op": "add", "path": path(CORDONED_AT), "value": ""},
        {"op": "remove", "path": path(CORDONED_AT)},
    ]))
    .map_err(|error| link.error("uncordon", format!("node {node}"), Failure::Request(Box::new(error))))?;
    match patched(link, "uncordon", &nodes, node, &Patch::Json::<()>(ours)).await {
        Ok(()) => return Ok(Uncordoned::Now),
        Err(error) if matches!(error.failure, Failure::Invalid { code: 422, .. }) => {}
        Err(error) => return Err(error),
    }
    let seen =
        nodes.get(node).await.map_err(|error| link.failed("uncordon", format!("node {node}"), error))?;
    Ok(decide_uncordon(&seen))
}

/// The nodes that `holder_id` cordoned and has not uncordoned: what is left to undo after a crash.
pub async fn cordoned_by(link: &Link, holder_id: &str) -> Result<Vec<String>, LinkError> {
    let nodes: Api<Node> = Api::all(link.client());
    let all =
        nodes.list(&ListParams::default()).await.map_err(|error| link.failed("list", "nodes", error))?;
    let ours = all.items.iter().filter(|node| holder_of(node) == Some(holder_id));
    Ok(ours.map(ResourceExt::name_any).collect())
}

async fn patched<P: serde::Serialize + fmt::Debug>(
    link: &Link,
    verb: &'static str,
    nodes: &Api<Node>,
    node: &str,
    patch: &Patch<P>,
) -> Result<(), LinkError> {
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let done = nodes.patch(node, &params, patch).await;
    done.map(drop).map_err(|error| link.failed(verb, format!("node {node}"), error))
}

fn is_unschedulable(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

fn holder_of(node: &Node) -> Option<&str> {
    node.annotations().get(CORDONED_BY).map(String::as_str)
}

/// What a cordon need not change; `None` if it must write. A record on a node that takes pods is stale: someone
/// uncordoned it behind our back.
fn decide_cordon(node: &Node, holder_id: &str) -> Option<Cordoned> {
    match (is_unschedulable(node), holder_of(node)) {
        (true, Some(holder)) if holder == holder_id => Some(Cordoned::Before),
        (true, other) => Some(Cordoned::ByOther(other.map(str::to_owned))),
        (false, _) => None,
    }
}

/// What is true of a node that does not bear this holder's record.
fn decide_uncordon(node: &Node) -> Uncordoned {
    match is_unschedulable(node) {
        true => Uncordoned::ByOther(holder_of(node).map(str::to_owned)),
        false => Uncordoned::Before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(unschedulable: Option<bool>, holder: Option<&str>) -> Node {
        let annotations = holder.map(|holder| json!({CORDONED_BY: holder}));
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}, "spec": {"unschedulable": unschedulable}}))
            .unwrap()
    }

    #[test]
    fn a_cordon_is_taken_only_where_nobody_has_it() {
        let check = |unschedulable, holder, expect: Option<Cordoned>| {
            assert_eq!(
                decide_cordon(&node(unschedulable, holder), "me"),
                expect,
                "{unschedulable:?} {holder:?}"
            );
        };
        check(None, None, None);
        check(Some(false), None, None);
        check(Some(false), Some("me"), None);
        check(None, Some("other"), None);
        check(Some(true), Some("me"), Some(Cordoned::Before));
        check(Some(true), Some("other"), Some(Cordoned::ByOther(Some("other".into()))));
        check(Some(true), None, Some(Cordoned::ByOther(None)));
    }

    #[test]
    fn a_node_without_our_record_is_left_as_it_is() {
        assert_eq!(decide_uncordon(&node(None, None)), Uncordoned::Before);
        assert_eq!(decide_uncordon(&node(Some(true), None)), Uncordoned::ByOther(None));
        assert_eq!(decide_uncordon(&node(Some(true), Some("x"))), Uncordoned::ByOther(Some("x".into())));
    }
}
