//! `approve-node-csrs`: approves the pending certificate signing requests of nodes, and leaves all others.

use std::collections::BTreeSet;
use std::sync::Arc;

use api::duration::TimeSpan;
use kubelink::csr::{CsrPolicy, approve};
use serde_json::{Map, Value, json};
use steps::engine::{Outcome, Step};
use steps::{ClusterContext, ClusterFacts};
use uuid::uuid;

use super::{Told, coded};
use crate::task::{Definition, TaskProblem};

const STEPS: [&str; 1] = ["approve"];

pub(super) fn task() -> Definition {
    let names = |description: &str| json!({"type": "array", "items": {"type": "string"}, "default": [], "description": description});
    let told = Told {
        id: uuid!("44f75b10-b0f6-414e-aecf-b88d89178c6a"),
        version: 1,
        name: "approve-node-csrs",
        title: "Approve pending certificate requests of nodes",
        description: "Approves requests by which a known node asks for its own client or serving certificate, with its own \
            names and addresses. Everything else is left, with the reason. A first client certificate is approved only for \
            the nodes and the bootstrap identities that the parameters name.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(5),
        parameters: json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "expectedNodes": names("Nodes that are about to join"),
                "bootstrapUsers": names("Users that may ask for a node's first certificate"),
                "bootstrapGroups": names("Groups whose members may"),
            },
        }),
    };
    coded(told, &STEPS, make)
}

fn make(parameters: &Map<String, Value>, _: &ClusterFacts) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let names = |name: &str| -> BTreeSet<String> {
        let items = parameters.get(name).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let policy = Arc::new(CsrPolicy {
        expected_nodes: names("expectedNodes"),
        bootstrap_users: names("bootstrapUsers"),
        bootstrap_groups: names("bootstrapGroups"),
    });
    Ok(vec![Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
        let policy = policy.clone();
        async move {
            let report = approve(&cx.link, &policy).await?;
            let left: Vec<String> =
                report.left.iter().map(|(name, why)| format!("{name} left: {why}\n")).collect();
            let approved = report.approved.iter().map(|name| format!("{name} approved\n"));
            let message = format!("{} requests approved, {} left", report.approved.len(), left.len());
            let log = approved.chain(left).collect();
            Ok(Outcome { message: Some(message), log: Some(log), ..Outcome::default() })
        }
    })])
}
