//! `node/drain`: drains a node, or each that matches a selector, one after another.
//!
//! The progress of a drain is recorded on the cluster itself: a node with this run's cordon and no pods is done. A drain that
//! continues after a crash skips those quickly, and needs no memory between two nodes. It is a wait, not an action: the work
//! may be released while pods remain, for a customer's operation or a shutdown.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use api::admin::Owner;
use kubelink::drain::{
    Blocker, DrainError, DrainGoal, DrainOptions, DrainSummary, EmptyDirPolicy, UnmanagedPolicy, drain,
};
use kubelink::{ProgressSink, Target};
use serde_json::Value;

use super::PollLimits;
use super::nodes::{Nodes, NodesMemory};
use super::with::With;
use crate::cluster::ClusterContext;
use crate::engine::{Obstacle, PollStatus, Report, StepContext, StepError, StepOutcome};
use crate::problem::Problem;

/// How long one drain call waits for pods before it reports what blocks them and polls again.
const SLICE: Duration = Duration::from_secs(30);

/// Most names in a sentence; the rest is a number.
const NAMED_MAX: usize = 10;

/// Options of a drain.
#[derive(Debug, Clone, Default)]
pub struct DrainSettings {
    /// Grace period instead of each pod's own.
    pub grace: Option<Duration>,
    /// Whether pods may lose their emptyDir volumes.
    pub delete_empty_dir: bool,
    /// Whether pods without a controller may be deleted.
    pub force: bool,
    /// Whether the drain is done when all evictions are granted.
    pub skip_wait_for_delete: bool,
}

#[derive(Debug)]
pub(super) struct Drain {
    nodes: Nodes,
    settings: DrainSettings,
    /// The nodes that this process has drained in this step.
    empty: Mutex<BTreeSet<String>>,
}

impl Drain {
    pub(super) fn read(with: &mut With<'_>) -> Result<Drain, Problem> {
        let nodes = Nodes::read(with)?;
        let settings = DrainSettings {
            grace: with.duration("gracePeriod")?,
            delete_empty_dir: with.truth("deleteEmptyDir")?.unwrap_or(false),
            force: with.truth("force")?.unwrap_or(false),
            skip_wait_for_delete: with.truth("skipWaitForDelete")?.unwrap_or(false),
        };
        Ok(Drain { nodes, settings, empty: Mutex::default() })
    }

    /// Drains the next node.
    pub(super) async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limits: PollLimits,
    ) -> Result<PollStatus, StepError> {
        let names = self.nodes.names(cx).await?;
        let next = {
            let empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
            names.iter().find(|name| !empty.contains(*name)).cloned()
        };
        if let Some(node) = next {
            match drain_node(cx, step, &node, &self.settings, limits.limit).await? {
                DrainResult::Blocked(report) => return Ok(PollStatus::Blocked(report)),
                DrainResult::Drained(drained) => step.reporter.message(drained_message(&node, &drained)),
            }
            self.empty.lock().unwrap_or_else(PoisonError::into_inner).insert(node);
        }
        let mut empty = self.empty.lock().unwrap_or_else(PoisonError::into_inner);
        let done = names.iter().filter(|name| empty.contains(*name)).count();
        if done < names.len() {
            return Ok(PollStatus::Waiting(format!("{done} of {} nodes are drained", names.len())));
        }
        empty.clear();
        let message = match names.as_slice() {
            [node] => format!("node {node} is drained"),
            nodes => format!("{} nodes are drained: {}", nodes.len(), nodes.join(", ")),
        };
        Ok(PollStatus::Done(StepOutcome::with_message(message).with_memory(&NodesMemory { nodes: names })))
    }

    /// Uncordons the nodes that this run cordoned.
    pub(super) async fn undo(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        memory: &Value,
    ) -> Result<Option<String>, StepError> {
        self.nodes.undo(cx, step, memory).await
    }
}

/// Result of draining a node for a limited time.
#[derive(Debug)]
pub enum DrainResult {
    /// The node is drained.
    Drained(DrainSummary),
    /// Pods remain; the report names them and what blocks them.
    Blocked(Report),
}

/// Drains one node for at most `limit` or one slice of time, whichever is shorter. The node stays cordoned by this run.
pub async fn drain_node(
    cx: &ClusterContext,
    step: &StepContext,
    node: &str,
    settings: &DrainSettings,
    limit: Duration,
) -> Result<DrainResult, StepError> {
    // A read first, and not only a watch, shows at once that a cluster is unreachable.
    let target = Target::typed::<k8s_openapi::api::core::v1::Node>(None, node);
    if cx.link.get(&target).await?.is_none() {
        return Err(StepError::terminal("NotFound", format!("there is no node {node}")));
    }
    let options = DrainOptions {
        empty_dir: if settings.delete_empty_dir { EmptyDirPolicy::Delete } else { EmptyDirPolicy::Refuse },
        unmanaged: if settings.force { UnmanagedPolicy::Delete } else { UnmanagedPolicy::Refuse },
        grace: settings.grace,
        until: if settings.skip_wait_for_delete { DrainGoal::Granted } else { DrainGoal::Gone },
        ..DrainOptions::new(cx.holder(step), limit.min(SLICE))
    };
    match drain(&cx.link, node, &options, &notes(cx, step), &step.stop).await {
        Ok(drained) => Ok(DrainResult::Drained(drained)),
        Err(DrainError::Stalled { blockers, .. }) => Ok(DrainResult::Blocked(held(node, &blockers))),
        Err(error) => Err(error.into()),
    }
}

/// Reports progress about the node as a whole; progress of single pods is left out.
fn notes(cx: &ClusterContext, step: &StepContext) -> ProgressSink {
    let reporter = step.reporter.clone();
    ProgressSink::new(cx.clock.clone(), move |note| {
        let Some(node) = note.about.strip_prefix("node ") else { return };
        match note.blockers.as_slice() {
            [] => reporter.message(format!("{}: {}", note.about, note.sentence)),
            blockers => reporter.report(held(node, blockers)),
        }
    })
}

/// The report of a blocked drain. The pods and their budgets are the customer's.
fn held(node: &str, blockers: &[Blocker]) -> Report {
    let count: usize = blockers.iter().map(|it| it.pods.len()).sum();
    let mut message = match count {
        1 => format!("Waiting for 1 pod on node {node}"),
        count => format!("Waiting for {count} pods on node {node}"),
    };
    let mut obstacles = Vec::new();
    for blocker in blockers {
        let pods = names(&blocker.pods);
        let (what, missing) = match blocker.budgets.as_slice() {
            [] => (format!("Pod {pods}"), blocker.because.clone()),
            [budget] => {
                let what = format!("PodDisruptionBudget {budget}");
                message += &format!("; {what} allows no disruption");
                (what, format!("allows no disruption of {pods} ({})", blocker.because))
            }
            budgets => {
                let what = format!("PodDisruptionBudgets {}", names(budgets));
                message += &format!("; {what} select the same pods");
                (what, format!("hold {pods} ({})", blocker.because))
            }
        };
        obstacles.push(Obstacle { what, message: missing, owner: Owner::Customer });
    }
    Report { message, obstacles }
}

/// TemplateNames in a sentence, at most `NAMED_MAX`.
fn names(all: &[String]) -> String {
    match all.len() {
        count if count <= NAMED_MAX => all.join(", "),
        count => format!("{} and {} more", all[..NAMED_MAX].join(", "), count - NAMED_MAX),
    }
}

fn drained_message(node: &str, drained: &DrainSummary) -> String {
    let (evicted, left) = (drained.evicted.len(), drained.left.len());
    format!("node {node} is drained: {evicted} pods evicted, {left} of DaemonSets and the kubelet stay")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocker(budgets: &[&str], pods: &[&str], because: &str) -> Blocker {
        let owned = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        Blocker { budgets: owned(budgets), pods: owned(pods), because: because.to_owned() }
    }

    #[test]
    fn a_blocked_drain_names_the_budget_and_its_pods() {
        let found = held(
            "worker-1",
            &[blocker(&["shop/web"], &["shop/web-1", "shop/web-2"], "needs 2 healthy pods")],
        );
        assert_eq!(
            found.message,
            "Waiting for 2 pods on node worker-1; PodDisruptionBudget shop/web allows no disruption"
        );
        let expect = Obstacle {
            what: "PodDisruptionBudget shop/web".to_owned(),
            message: "allows no disruption of shop/web-1, shop/web-2 (needs 2 healthy pods)".to_owned(),
            owner: Owner::Customer,
        };
        assert_eq!(found.obstacles, [expect]);
    }

    #[test]
    fn terminating_pods_are_named_without_a_budget() {
        let found = held("a", &[blocker(&[], &["shop/web-1"], "its grace period has not ended")]);
        assert_eq!(found.message, "Waiting for 1 pod on node a");
        assert_eq!(found.obstacles[0].what, "Pod shop/web-1");
        let many: Vec<String> = (0..30).map(|number| format!("p{number}")).collect();
        assert!(names(&many).ends_with("p9 and 20 more"));
    }
}
