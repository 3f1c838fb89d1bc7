//! `check-registry-token`: looks whether a cluster can go on to pull images, and changes nothing.

use std::sync::Arc;

use api::duration::TimeSpan;
use serde_json::{Map, Value, json};
use steps::credentials::check_token;
use steps::engine::{Outcome, Step};
use steps::{ClusterContext, ClusterFacts};
use uuid::uuid;

use super::{Told, coded};
use crate::task::{Definition, TaskProblem};

const STEPS: [&str; 1] = ["token-is-valid"];

pub(super) fn task() -> Definition {
    let told = Told {
        id: uuid!("082978ce-3700-4972-835f-53d48658d291"),
        version: 1,
        name: "check-registry-token",
        title: "Check the registry token",
        description: "Looks at the token by which the cluster pulls images. Fails when its date of issue is not known, when it \
            has expired (after 180 days), and when it should be rotated (after 140 days); changes nothing. Only for clusters \
            that Shipshape made.",
        disruptive: false,
        time_limit: TimeSpan::minutes(10),
        expected_duration: TimeSpan::seconds(5),
        parameters: json!({"type": "object", "additionalProperties": false, "properties": {}}),
    };
    coded(told, &STEPS, make)
}

fn make(_: &Map<String, Value>, _: &ClusterFacts) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    Ok(vec![Step::action(STEPS[0], |cx: Arc<ClusterContext>, _| async move {
        let said = check_token(&cx.ours()?.provisioned.record, cx.clock.now())?;
        Ok(Outcome::said(said))
    })])
}
