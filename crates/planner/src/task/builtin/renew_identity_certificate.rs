//! `renew-identity-certificate`: sees to it that the certificate of a cluster's own identity lasts.

use std::sync::Arc;

use api::duration::TimeSpan;
use serde_json::{Map, Value, json};
use steps::credentials::{Renewal, ensure_identity_certificate};
use steps::engine::{Outcome, Step, StepContext};
use steps::{ClusterContext, ClusterFacts};
use uuid::uuid;

use super::{Told, coded};
use crate::task::{Definition, TaskProblem};

const STEPS: [&str; 1] = ["ensure-identity-certificate"];

pub(super) fn task() -> Definition {
    let told = Told {
        id: uuid!("7c3f8e2d-9a4b-4f1e-8c5d-2b6a9e7f3d1c"),
        version: 1,
        name: "renew-identity-certificate",
        title: "Renew the certificate of the cluster's identity",
        description: "Makes sure that the vault holds a certificate of the cluster's managed identity: makes it where there is \
            none, replaces it when it is of another identity or from day 46 of its life on. Does nothing on clusters that work \
            as a service principal. Only for clusters that Shipshape made.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(30),
        parameters: json!({"type": "object", "additionalProperties": false, "properties": {}}),
    };
    coded(told, &STEPS, make)
}

fn make(_: &Map<String, Value>, _: &ClusterFacts) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    Ok(vec![Step::action(STEPS[0], |cx: Arc<ClusterContext>, step: StepContext| async move {
        let ensured = ensure_identity_certificate(cx.ours()?, step.hold, cx.clock.now()).await?;
        let Some((done, until)) = ensured else {
            let message = "the cluster works as a service principal; its identity has no certificate";
            return Ok(Outcome::said(message));
        };
        let done = match done {
            Renewal::Created => "created",
            Renewal::Renewed => "renewed",
            Renewal::Verified => "verified",
        };
        Ok(Outcome::said(format!(
            "the certificate of the cluster's identity was {done}; it is good until {until}"
        )))
    })])
}
