//! Nodes that a step names, one or all that match a selector; and the cordons of a run.

use api::doc::ResultCode;
use kubelink::Failure;
use kubelink::cordon::{UncordonResult, cordon, uncordon};
use kubelink::facts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::with::{ObjectSelector, With};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::problem::Problem;

/// What a step leaves for its undo.
#[derive(Serialize, Deserialize)]
pub(super) struct NodesMemory {
    /// The nodes to uncordon.
    pub(super) nodes: Vec<String>,
}

/// One node, or all that match a selector.
#[derive(Debug, Clone)]
pub(crate) struct Nodes(ObjectSelector);

impl Nodes {
    pub(super) fn read(with: &mut With<'_>) -> Result<Nodes, Problem> {
        with.which("node").map(Nodes)
    }

    /// Their names, in order. A selector that matches nothing is an error of its author, and terminal.
    pub(super) async fn names(&self, cx: &ClusterContext) -> Result<Vec<String>, StepError> {
        match &self.0 {
            ObjectSelector::Named(name) => Ok(vec![name.clone()]),
            ObjectSelector::Labelled(selector) => {
                let found = facts::nodes_matching(&cx.link, selector).await?;
                if found.is_empty() {
                    return Err(StepError::terminal("NoNodes", format!("no node matches {selector}")));
                }
                Ok(found.into_iter().map(|node| node.name).collect())
            }
        }
    }

    /// `node/cordon`: the nodes accept no new pods.
    pub(super) async fn cordon(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
    ) -> Result<PollStatus, StepError> {
        let holder = cx.holder(step);
        let (mut ours, mut messages) = (Vec::new(), Vec::new());
        for node in self.names(cx).await? {
            let found = cordon(&cx.link, &node, &holder).await?;
            messages.push(format!("node {node} {found}"));
            if found.is_ours() {
                ours.push(node);
            }
        }
        let outcome = StepOutcome::with_message(messages.join(", "));
        Ok(PollStatus::Done(outcome.with_memory(&NodesMemory { nodes: ours })))
    }

    /// `node/uncordon`: the nodes accept pods again, if a manifest cordoned them. Cordons set by people remain.
    pub(super) async fn uncordon(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
    ) -> Result<PollStatus, StepError> {
        let holder = cx.holder(step);
        let mut messages = Vec::new();
        for node in self.names(cx).await? {
            let mut found = uncordon(&cx.link, &node, &holder.id).await?;
            if let UncordonResult::ByOther(Some(other)) = &found
                && ClusterContext::is_manifest(other)
            {
                found = uncordon(&cx.link, &node, other).await?;
            }
            messages.push(match found {
                UncordonResult::Now => format!("node {node} takes pods again"),
                UncordonResult::Before => format!("node {node} takes pods"),
                UncordonResult::ByOther(Some(other)) => format!("node {node} stays cordoned by {other}"),
                UncordonResult::ByOther(None) => format!("node {node} stays cordoned by someone else"),
            });
        }
        Ok(PollStatus::Done(StepOutcome::with_message(messages.join(", "))))
    }

    /// Removes the cordons that this run set. The record on the node tells whose cordon it is.
    pub(super) async fn undo(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        memory: &Value,
    ) -> Result<Option<String>, StepError> {
        let nodes = match NodesMemory::deserialize(memory) {
            Ok(memory) => memory.nodes,
            // The step did not complete.
            Err(_) => match self.names(cx).await {
                Err(error) if *error.code() == ResultCode::NO_NODES => Vec::new(),
                names => names?,
            },
        };
        uncordon_ours(cx, step, &nodes).await
    }
}

/// Uncordons those of `nodes` that this run cordoned, and returns which.
pub(crate) async fn uncordon_ours(
    cx: &ClusterContext,
    step: &StepContext,
    nodes: &[String],
) -> Result<Option<String>, StepError> {
    let holder = cx.holder(step);
    let mut undone = Vec::new();
    for node in nodes {
        match uncordon(&cx.link, node, &holder.id).await {
            Ok(UncordonResult::Now) => undone.push(node.as_str()),
            Ok(UncordonResult::Before | UncordonResult::ByOther(_)) => {}
            // A node that is gone needs no uncordon.
            Err(error) if matches!(error.failure, Failure::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(match undone.as_slice() {
        [] => None,
        [node] => Some(format!("node {node} uncordoned")),
        nodes => Some(format!("nodes {} uncordoned", nodes.join(", "))),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_memory_is_read_and_that_of_an_incomplete_step_is_not() {
        let stored = json!({"nodes": ["node-1", "node-2"]});
        let memory = NodesMemory::deserialize(&stored).unwrap();
        assert_eq!(memory.nodes, ["node-1", "node-2"]);
        assert_eq!(json!(memory), stored);
        assert!(NodesMemory::deserialize(Value::Null).is_err());
    }
}
