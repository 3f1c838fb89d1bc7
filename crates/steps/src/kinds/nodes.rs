//! Nodes that a step names, one or all that match a selector; and the cordons of a run.

use api::doc::ResultCode;
use kubelink::Failure;
use kubelink::cordon::{UncordonResult, cordon, uncordon};
use kubelink::facts;
use serde_json::{Value, json};

use super::with::{ObjectSelector, With};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::problem::Problem;

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
        let memory = json!({"nodes": ours});
        Ok(PollStatus::Done(StepOutcome { message: Some(messages.join(", ")), memory, log: None }))
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
        let remembered = memory.get("nodes").and_then(Value::as_array);
        let nodes: Vec<String> = match remembered {
            Some(nodes) => nodes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            None => match self.names(cx).await {
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
