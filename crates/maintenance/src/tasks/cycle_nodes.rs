//! `cycle-nodes`: cordons, drains and uncordons one node, or each of a pool in turn.
//!
//! A run marks each node that it has drained before it uncordons the node. After a crash it resumes with the node that was being
//! drained, and drains none a second time.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::duration::TimeSpan;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kubelink::Target;
use kubelink::cordon::{UncordonResult, cordoned_by, uncordon};
use kubelink::patch::{Change, patch};
use planner::task::TaskProblem;
use planner::task::builtin::cycle_nodes::{CycleNodesParameters, NodeSelection, STEPS, TIME_LIMIT};
use serde_json::{Map, Value, json};
use steps::ClusterContext;
use steps::engine::{Body, PollStatus, Step, StepContext, StepError, StepOutcome};
use steps::kinds::{DrainResult, drain_node};
use tokio::time::Instant;

/// Annotation of a node: the run that last cycled it.
pub const CYCLED_BY: &str = "shipshape.dev/cycled-by";

/// One run of the task.
#[derive(Debug)]
struct Cycle {
    parameters: CycleNodesParameters,
    /// The node that is being drained, and since when.
    current: Mutex<Option<(String, Instant)>>,
}

pub(super) fn steps(parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let parameters = CycleNodesParameters::read(parameters)?;
    let cycle = Arc::new(Cycle { parameters, current: Mutex::new(None) });
    let (finding, cycling) = (cycle.clone(), cycle.clone());
    let find = Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
        let cycle = finding.clone();
        async move { cycle.find(&cx).await }
    });
    let mut cycle_step =
        Step::wait(STEPS[1], TIME_LIMIT.duration(), move |cx: Arc<ClusterContext>, step: StepContext| {
            let cycle = cycling.clone();
            async move { cycle.poll(&cx, &step).await }
        });
    if let Body::Wait { interval, .. } = &mut cycle_step.body {
        // A poll that finds remaining pods waits for them itself.
        *interval = Duration::from_millis(10);
    }
    let cycle_step = cycle_step
        .undo(|cx: Arc<ClusterContext>, step: StepContext, _| async move { uncordon_all(&cx, &step).await });
    Ok(vec![find, cycle_step])
}

impl Cycle {
    /// Nodes of the selection, ordered by name.
    async fn nodes(&self, cx: &ClusterContext) -> Result<Vec<Node>, StepError> {
        let api: Api<Node> = Api::all(cx.link.client());
        let params = match &self.parameters.nodes {
            NodeSelection::Name(name) => {
                let found = api
                    .get_opt(name)
                    .await
                    .map_err(|error| cx.link.failed("read", format!("node {name}"), error))?;
                let missing = || StepError::terminal("NotFound", format!("node {name} not found"));
                return Ok(vec![found.ok_or_else(missing)?]);
            }
            NodeSelection::Labels(selector) => ListParams::default().labels(selector),
        };
        let mut found =
            api.list(&params).await.map_err(|error| cx.link.failed("list", "nodes", error))?.items;
        found.sort_by_key(ResourceExt::name_any);
        match (&self.parameters.nodes, found.is_empty()) {
            (NodeSelection::Labels(selector), true) => {
                Err(StepError::terminal("NoNodes", format!("no node matches {selector}")))
            }
            _ => Ok(found),
        }
    }

    async fn find(&self, cx: &ClusterContext) -> Result<StepOutcome, StepError> {
        let names: Vec<String> = self.nodes(cx).await?.iter().map(ResourceExt::name_any).collect();
        Ok(StepOutcome::with_message(format!("{} nodes: {}", names.len(), short(&names))))
    }

    /// Continues with the first node that this run has not cycled.
    async fn poll(&self, cx: &ClusterContext, step: &StepContext) -> Result<PollStatus, StepError> {
        let holder = cx.holder(step);
        let nodes = self.nodes(cx).await?;
        let is_done = |node: &&Node| node.annotations().get(CYCLED_BY) == Some(&holder.id);
        // Marked but still cordoned: the worker crashed between the two.
        for node in nodes.iter().filter(is_done) {
            uncordon(&cx.link, &node.name_any(), &holder.id).await?;
        }
        let Some(node) = nodes.iter().find(|node| !is_done(node)).map(ResourceExt::name_any) else {
            // A node that was being drained may have lost its label, and is then not in the selection.
            uncordon_all(cx, step).await?;
            let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
            return Ok(PollStatus::Done(StepOutcome::with_message(format!(
                "{} nodes cycled: {}",
                names.len(),
                short(&names)
            ))));
        };
        let since = self.since(&node);
        match drain_node(cx, step, &node, &self.parameters.drain, self.parameters.node_timeout).await? {
            DrainResult::Blocked(report) if since.elapsed() < self.parameters.node_timeout => {
                return Ok(PollStatus::Blocked(report));
            }
            DrainResult::Blocked(report) => {
                self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
                let limit = TimeSpan::new(self.parameters.node_timeout);
                return Err(StepError::transient(
                    "DrainStalled",
                    format!("after {limit}: {}", report.message),
                ));
            }
            DrainResult::Drained(_) => {}
        }
        let target = Target::typed::<Node>(None, &node);
        let mark = json!({"metadata": {"annotations": {CYCLED_BY: holder.id}}});
        patch(&cx.link, &target, &Change::Merge(mark), None).await?;
        let state = match uncordon(&cx.link, &node, &holder.id).await? {
            UncordonResult::Now | UncordonResult::Before => "is schedulable again",
            UncordonResult::ByOther(_) => "was cordoned by someone else and stays cordoned",
        };
        let done = nodes.iter().filter(is_done).count() + 1;
        Ok(PollStatus::Waiting(format!("{done} of {} nodes cycled; node {node} {state}", nodes.len())))
    }

    /// Time at which the drain of a node started.
    fn since(&self, node: &str) -> Instant {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((name, since)) if name == node => *since,
            _ => current.insert((node.to_owned(), Instant::now())).1,
        }
    }
}

/// Uncordons all nodes that this run has cordoned.
async fn uncordon_all(cx: &ClusterContext, step: &StepContext) -> Result<Option<String>, StepError> {
    let holder = cx.holder(step);
    let nodes = cordoned_by(&cx.link, &holder.id).await?;
    for node in &nodes {
        uncordon(&cx.link, node, &holder.id).await?;
    }
    Ok((!nodes.is_empty()).then(|| format!("uncordoned {}", short(&nodes))))
}

fn short(names: &[String]) -> String {
    match names {
        names if names.len() > 10 => format!("{} and {} more", names[..10].join(", "), names.len() - 10),
        names => names.join(", "),
    }
}
