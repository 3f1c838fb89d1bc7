//! `approve-node-csrs`: approves the pending certificate signing requests of nodes, and leaves all others.

use std::sync::Arc;

use kubelink::csr::{CsrPolicy, approve};
use planner::task::TaskProblem;
use planner::task::builtin::approve_node_csrs::{ApproveNodeCsrsParameters, STEPS};
use serde_json::{Map, Value};
use steps::ClusterContext;
use steps::engine::{Step, StepOutcome};

pub(super) fn steps(parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let ApproveNodeCsrsParameters { expected_nodes, bootstrap_users, bootstrap_groups } =
        ApproveNodeCsrsParameters::read(parameters)?;
    let policy = Arc::new(CsrPolicy { expected_nodes, bootstrap_users, bootstrap_groups });
    Ok(vec![Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
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
    })])
}
