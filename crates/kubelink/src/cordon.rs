//! Cordon and uncordon, with a record on the node of who did it and why.
//!
//! A cordon that someone else set is neither taken over nor removed. The record tells a process that takes over after a crash, or
//! an operator months later, who set the cordon.

use std::fmt;

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};

/// Annotation with the id of the cordon's holder.
pub const CORDONED_BY: &str = "shipshape.dev/cordoned-by";
/// Annotation with the reason.
pub const CORDONED_BECAUSE: &str = "shipshape.dev/cordoned-because";
/// Annotation with the time.
pub const CORDONED_AT: &str = "shipshape.dev/cordoned-at";

/// How often a write is repeated because the node changed meanwhile. A kubelet writes every few seconds, not every few
/// milliseconds.
const CONFLICTS_MAX: u32 = 10;

/// Who cordons, and why. The id outlives the process: it is a manifest's or a machine maintenance's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Stable across retries and takeovers.
    pub id: String,
    /// For people who inspect the node.
    pub reason: String,
}

impl Holder {
    /// A holder with its id and reason.
    pub fn new(id: impl Into<String>, reason: impl Into<String>) -> Holder {
        Holder { id: id.into(), reason: reason.into() }
    }
}

/// Result of a cordon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CordonResult {
    /// It is cordoned now, by this call, and recorded.
    Now,
    /// This holder had cordoned it before.
    Before,
    /// Someone else cordoned it: another holder, or a person without a record.
    ByOther(Option<String>),
}

impl CordonResult {
    /// Whether the holder may remove the cordon.
    pub fn is_ours(&self) -> bool {
        matches!(self, CordonResult::Now | CordonResult::Before)
    }
}

impl fmt::Display for CordonResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CordonResult::Now => f.write_str("cordoned"),
            CordonResult::Before => f.write_str("cordoned already"),
            CordonResult::ByOther(Some(holder)) => write!(f, "cordoned by {holder}"),
            CordonResult::ByOther(None) => f.write_str("cordoned by someone else"),
        }
    }
}

/// Result of an uncordon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UncordonResult {
    /// It is schedulable again.
    Now,
    /// It was schedulable before, without a record of this holder.
    Before,
    /// Someone else cordoned it; it stays cordoned.
    ByOther(Option<String>),
}

/// Ensures that `node` is unschedulable, with a record of the holder.
pub async fn cordon(link: &Link, node: &str, holder: &Holder) -> Result<CordonResult, LinkError> {
    let nodes: Api<Node> = Api::all(link.client());
    let label = format!("node {node}");
    let mut conflicts = 0;
    loop {
        let seen = nodes.get(node).await.map_err(|error| link.failed("cordon", &label, error))?;
        let found = match decide_cordon(&seen, &holder.id) {
            Some(found) => return Ok(found),
            None => CordonResult::Now,
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

/// Makes `node` schedulable again if `holder` cordoned it. One request if the record is as expected.
pub async fn uncordon(link: &Link, node: &str, holder_id: &str) -> Result<UncordonResult, LinkError> {
    let nodes: Api<Node> = Api::all(link.client());
    let path = |annotation: &str| format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
    // The test operation makes check and removal atomic.
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
        Ok(()) => return Ok(UncordonResult::Now),
        Err(error) if matches!(error.failure, Failure::Invalid { code: 422, .. }) => {}
        Err(error) => return Err(error),
    }
    let seen =
        nodes.get(node).await.map_err(|error| link.failed("uncordon", format!("node {node}"), error))?;
    Ok(decide_uncordon(&seen))
}

/// The nodes that `holder_id` cordoned and has not uncordoned, to be undone after a crash.
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

/// The result of a cordon that need not write; `None` if it must. A record on a schedulable node is stale: someone uncordoned it.
fn decide_cordon(node: &Node, holder_id: &str) -> Option<CordonResult> {
    match (is_unschedulable(node), holder_of(node)) {
        (true, Some(holder)) if holder == holder_id => Some(CordonResult::Before),
        (true, other) => Some(CordonResult::ByOther(other.map(str::to_owned))),
        (false, _) => None,
    }
}

/// The result for a node without this holder's record.
fn decide_uncordon(node: &Node) -> UncordonResult {
    match is_unschedulable(node) {
        true => UncordonResult::ByOther(holder_of(node).map(str::to_owned)),
        false => UncordonResult::Before,
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
    fn a_cordon_of_another_holder_is_not_taken_over() {
        let check = |unschedulable, holder, expect: Option<CordonResult>| {
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
        check(Some(true), Some("me"), Some(CordonResult::Before));
        check(Some(true), Some("other"), Some(CordonResult::ByOther(Some("other".into()))));
        check(Some(true), None, Some(CordonResult::ByOther(None)));
    }

    #[test]
    fn a_node_without_the_holders_record_is_left_unchanged() {
        assert_eq!(decide_uncordon(&node(None, None)), UncordonResult::Before);
        assert_eq!(decide_uncordon(&node(Some(true), None)), UncordonResult::ByOther(None));
        assert_eq!(decide_uncordon(&node(Some(true), Some("x"))), UncordonResult::ByOther(Some("x".into())));
    }
}
