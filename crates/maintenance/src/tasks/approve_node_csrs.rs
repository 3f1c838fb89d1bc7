//! `approve-node-csrs`: approves the pending certificate signing requests of nodes, and leaves all others.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubelink::csr::{CsrPolicy, approve};
use planner::task::builtin::approve_node_csrs::STEPS;
use serde_json::{Map, Value};
use steps::ClusterContext;
use steps::engine::{Step, StepOutcome};

pub(super) fn steps(parameters: &Map<String, Value>) -> Vec<Step<ClusterContext>> {
    let names = |name: &str| -> BTreeSet<String> {
        let items = parameters.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let policy = Arc::new(CsrPolicy {
        expected_nodes: names("expectedNodes"),
        bootstrap_users: names("bootstrapUsers"),
        bootstrap_groups: names("bootstrapGroups"),
    });
    vec![Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
        let policy = policy.clone();
        async move {
            let report = approve(&cx.link, &policy).await?;
            let left: Vec<String> =
                report.left.iter().map(|(name, reason)| format!("{name} left: {reason}\n")).collect();
            let approved = report.approved.iter().map(|name| format!("{name} approved\n"));
            let message = format!("{} requests approved, {} left", report.approved.len(), left.len());
            let log = approved.chain(left).collect();
            Ok(StepOutcome { message: Some(message), log: Some(log), ..StepOutcome::default() })
        }
    })]
}
