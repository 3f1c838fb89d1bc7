//! `cycle-nodes`: cordons, drains and uncordons one node, or each of a pool in turn.
//!
//! Which nodes this run is done with is written on the nodes themselves, before they are uncordoned: whoever goes on after a
//! crash drains none of them a second time, and finishes the one that was in hand.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::duration::TimeSpan;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use kubelink::Target;
use kubelink::cordon::{Uncordoned, cordoned_by, uncordon};
use kubelink::patch::{Change, patch};
use serde_json::{Map, Value, json};
use steps::engine::{Body, Look, Outcome, Step, StepContext, StepError};
use steps::kinds::{DrainWays, Emptied, check_selector, empty_node};
use steps::{ClusterContext, ClusterFacts};
use tokio::time::Instant;
use uuid::uuid;

use super::{Told, coded};
use crate::task::{Definition, TaskProblem};

/// On a node: the run that last cycled it.
pub const CYCLED_BY: &str = "shipshape.dev/cycled-by";

const STEPS: [&str; 2] = ["find-nodes", "cycle"];
const TIME_LIMIT: TimeSpan = TimeSpan::hours(12);

pub(super) fn task() -> Definition {
    let told = Told {
        id: uuid!("5af7d78f-0f81-4e40-8ee3-8c0c0e65b837"),
        version: 1,
        name: "cycle-nodes",
        title: "Cordon, drain and uncordon nodes, one after another",
        description: "Cordons a node, evicts its pods within their disruption budgets, and lets it take pods again; then \
            the next one. A node that somebody else has cordoned is drained and stays cordoned. Cancelled, it uncordons what \
            it cordoned.",
        disruptive: true,
        time_limit: TIME_LIMIT,
        expected_duration: TimeSpan::minutes(30),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "node": {"type": "string", "minLength": 1, "description": "The name of one node"},
                "selector": {"type": "string", "minLength": 1, "description": "A label selector, for a pool"},
                "nodeTimeout": {"type": "string", "default": "30m", "description": "How long one node may take"},
                "gracePeriod": {"type": "string", "description": "Instead of each pod's own"},
                "deleteEmptyDir": {"type": "boolean", "default": false},
                "force": {"type": "boolean", "default": false, "description": "Evict pods that nothing starts again"},
                "skipWaitForDelete": {"type": "boolean", "default": false},
            },
        }),
    };
    coded(told, &STEPS, make)
}

/// What is cycled, and how.
#[derive(Debug)]
struct Cycle {
    pool: Pool,
    ways: DrainWays,
    node_timeout: Duration,
    /// The node in hand, and since when.
    in_hand: Mutex<Option<(String, Instant)>>,
}

#[derive(Debug)]
enum Pool {
    Node(String),
    Selector(String),
}

fn make(parameters: &Map<String, Value>, _: &ClusterFacts) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let cycle = Arc::new(Cycle::read(parameters)?);
    let (finding, cycling) = (cycle.clone(), cycle.clone());
    let find = Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
        let cycle = finding.clone();
        async move { cycle.find(&cx).await }
    });
    let mut turn =
        Step::wait(STEPS[1], TIME_LIMIT.duration(), move |cx: Arc<ClusterContext>, step: StepContext| {
            let cycle = cycling.clone();
            async move { cycle.look(&cx, &step).await }
        });
    if let Body::Wait { every, .. } = &mut turn.body {
        // A look that found pods left has waited for them by itself.
        *every = Duration::from_millis(10);
    }
    let turn =
        turn.undo(|cx: Arc<ClusterContext>, step: StepContext, _| async move { take_back(&cx, &step).await });
    Ok(vec![find, turn])
}

impl Cycle {
    fn read(parameters: &Map<String, Value>) -> Result<Cycle, TaskProblem> {
        let text = |name: &str| parameters.get(name).and_then(Value::as_str);
        let truth = |name: &str| parameters.get(name).and_then(Value::as_bool).unwrap_or(false);
        let duration = |name: &str| {
            let span = text(name).map(str::parse::<TimeSpan>).transpose();
            span.map_err(|error| TaskProblem::at(format!("parameters.{name}"), error.to_string()))
        };
        let pool = match (text("node"), text("selector")) {
            (Some(node), None) => Pool::Node(
                steps::kinds::check_name(node).map_err(|why| TaskProblem::at("parameters.node", why))?,
            ),
            (None, Some(selector)) => {
                check_selector(selector).map_err(|why| TaskProblem::at("parameters.selector", why))?;
                Pool::Selector(selector.to_owned())
            }
            (Some(_), Some(_)) => {
                return Err(TaskProblem::at("parameters.selector", "node and selector exclude each other"));
            }
            (None, None) => return Err(TaskProblem::at("parameters.node", "node or selector is required")),
        };
        let ways = DrainWays {
            grace: duration("gracePeriod")?.map(TimeSpan::duration),
            delete_empty_dir: truth("deleteEmptyDir"),
            force: truth("force"),
            skip_wait_for_delete: truth("skipWaitForDelete"),
        };
        let node_timeout = duration("nodeTimeout")?.map_or(Duration::from_secs(1800), TimeSpan::duration);
        if node_timeout.is_zero() {
            return Err(TaskProblem::at("parameters.nodeTimeout", "a node takes some time"));
        }
        Ok(Cycle { pool, ways, node_timeout, in_hand: Mutex::new(None) })
    }

    /// The nodes, by name.
    async fn nodes(&self, cx: &ClusterContext) -> Result<Vec<Node>, StepError> {
        let api: Api<Node> = Api::all(cx.link.client());
        let params = match &self.pool {
            Pool::Node(name) => {
                let found = api
                    .get_opt(name)
                    .await
                    .map_err(|error| cx.link.failed("read", format!("node {name}"), error))?;
                let none = || StepError::terminal("NotFound", format!("there is no node {name}"));
                return Ok(vec![found.ok_or_else(none)?]);
            }
            Pool::Selector(selector) => ListParams::default().labels(selector),
        };
        let mut found =
            api.list(&params).await.map_err(|error| cx.link.failed("list", "nodes", error))?.items;
        found.sort_by_key(ResourceExt::name_any);
        match (&self.pool, found.is_empty()) {
            (Pool::Selector(selector), true) => {
                Err(StepError::terminal("NoNodes", format!("no node matches {selector}")))
            }
            _ => Ok(found),
        }
    }

    async fn find(&self, cx: &ClusterContext) -> Result<Outcome, StepError> {
        let names: Vec<String> = self.nodes(cx).await?.iter().map(ResourceExt::name_any).collect();
        Ok(Outcome::said(format!("{} nodes: {}", names.len(), short(&names))))
    }

    /// Goes on with the first node that this run is not done with.
    async fn look(&self, cx: &ClusterContext, step: &StepContext) -> Result<Look, StepError> {
        let holder = cx.holder(step);
        let nodes = self.nodes(cx).await?;
        let is_done = |node: &&Node| node.annotations().get(CYCLED_BY) == Some(&holder.id);
        // One that was marked and not uncordoned, because whoever did it was lost in between.
        for node in nodes.iter().filter(is_done) {
            uncordon(&cx.link, &node.name_any(), &holder.id).await?;
        }
        let Some(node) = nodes.iter().find(|node| !is_done(node)).map(ResourceExt::name_any) else {
            // One that was in hand may have lost its label, and is then no longer among them.
            take_back(cx, step).await?;
            let names: Vec<String> = nodes.iter().map(ResourceExt::name_any).collect();
            return Ok(Look::Done(Outcome::said(format!(
                "{} nodes were cycled: {}",
                names.len(),
                short(&names)
            ))));
        };
        let since = self.since(&node);
        match empty_node(cx, step, &node, &self.ways, self.node_timeout).await? {
            Emptied::Not(report) if since.elapsed() < self.node_timeout => return Ok(Look::Held(report)),
            Emptied::Not(report) => {
                self.in_hand.lock().unwrap_or_else(PoisonError::into_inner).take();
                let limit = TimeSpan::new(self.node_timeout);
                return Err(StepError::transient(
                    "DrainStalled",
                    format!("after {limit}: {}", report.message),
                ));
            }
            Emptied::Yes(_) => {}
        }
        let target = Target::of::<Node>(None, &node);
        let mark = json!({"metadata": {"annotations": {CYCLED_BY: holder.id}}});
        patch(&cx.link, &target, &Change::Merge(mark), None).await?;
        let end = match uncordon(&cx.link, &node, &holder.id).await? {
            Uncordoned::Now | Uncordoned::Before => "takes pods again",
            Uncordoned::ByOther(_) => "was cordoned by someone else and stays so",
        };
        let done = nodes.iter().filter(is_done).count() + 1;
        Ok(Look::Waiting(format!("{done} of {} nodes are done; node {node} {end}", nodes.len())))
    }

    /// Since when a node is in hand.
    fn since(&self, node: &str) -> Instant {
        let mut in_hand = self.in_hand.lock().unwrap_or_else(PoisonError::into_inner);
        match &*in_hand {
            Some((name, since)) if name == node => *since,
            _ => in_hand.insert((node.to_owned(), Instant::now())).1,
        }
    }
}

/// Uncordons whatever this run has cordoned.
async fn take_back(cx: &ClusterContext, step: &StepContext) -> Result<Option<String>, StepError> {
    let holder = cx.holder(step);
    let ours = cordoned_by(&cx.link, &holder.id).await?;
    for node in &ours {
        uncordon(&cx.link, node, &holder.id).await?;
    }
    Ok((!ours.is_empty()).then(|| format!("uncordoned {}", short(&ours))))
}

fn short(names: &[String]) -> String {
    match names {
        names if names.len() > 10 => format!("{} and {} more", names[..10].join(", "), names.len() - 10),
        names => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_or_one_pool_is_named() {
        let check = |parameters: Value, expect: &str| {
            let error = Cycle::read(parameters.as_object().unwrap()).unwrap_err().to_string();
            assert!(error.starts_with(expect), "{parameters}: {error}");
        };
        check(json!({}), "parameters.node: node or selector is required");
        check(
            json!({"node": "a", "selector": "b"}),
            "parameters.selector: node and selector exclude each other",
        );
        check(json!({"selector": "b in"}), "parameters.selector: \"b in\" is not a label selector");
        check(json!({"node": "../a"}), "parameters.node: \"../a\" is not the name");
        check(
            json!({"node": "a", "nodeTimeout": "soon"}),
            "parameters.nodeTimeout: \"soon\" is not a duration",
        );
        check(json!({"node": "a", "gracePeriod": "5"}), "parameters.gracePeriod: \"5\" is not a duration");
        assert!(Cycle::read(json!({"selector": "pool=a", "nodeTimeout": "5m"}).as_object().unwrap()).is_ok());
    }
}
