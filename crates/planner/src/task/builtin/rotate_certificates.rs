//! `rotate-certificates`: carries the newest certificates of a cluster's API server and ingress from the vault into it.
//!
//! There is no undo: the vault has no older version to go back to, and the certificates that it has are good.

use std::sync::Arc;

use api::duration::TimeSpan;
use serde_json::{Map, Value, json};
use steps::credentials::{Ours, carry_certificates, configure_api_server, configure_ingress};
use steps::engine::{Outcome, Step, StepContext, StepError};
use steps::{ClusterContext, ClusterFacts};
use uuid::uuid;

use super::{Told, coded};
use crate::task::{Definition, TaskProblem};

const STEPS: [&str; 3] = ["rotate-managed-certificates", "configure-api-server", "configure-ingress"];
const UNMANAGED: &str = "the domain is the customer's own, and so are its certificates";

pub(super) fn task() -> Definition {
    let told = Told {
        id: uuid!("9b741734-6505-447f-8510-85eb0ae561a2"),
        version: 1,
        name: "rotate-certificates",
        title: "Rotate the TLS certificates of API server and ingress",
        description: "Copies the certificates of the API server and of the default ingress from the vault into the cluster, and \
            makes the APIServer and the default IngressController use them. Does nothing where the domain is the customer's \
            own. Only for clusters that Shipshape made.",
        disruptive: false,
        time_limit: TimeSpan::minutes(60),
        expected_duration: TimeSpan::seconds(30),
        parameters: json!({"type": "object", "additionalProperties": false, "properties": {}}),
    };
    coded(told, &STEPS, make)
}

fn make(_: &Map<String, Value>, _: &ClusterFacts) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    Ok(vec![
        Step::action(STEPS[0], |cx: Arc<ClusterContext>, step: StepContext| async move {
            match managed(&cx)? {
                Some(ours) => {
                    Ok(Outcome::said(carry_certificates(ours, &cx.link, step.hold, step.clock.now()).await?))
                }
                None => Ok(Outcome::said(UNMANAGED)),
            }
        }),
        Step::action(STEPS[1], |cx: Arc<ClusterContext>, _| async move {
            match managed(&cx)? {
                Some(ours) => Ok(Outcome::said(configure_api_server(ours, &cx.link).await?)),
                None => Ok(Outcome::said(UNMANAGED)),
            }
        }),
        Step::action(STEPS[2], |cx: Arc<ClusterContext>, _| async move {
            match managed(&cx)? {
                Some(ours) => Ok(Outcome::said(configure_ingress(ours, &cx.link).await?)),
                None => Ok(Outcome::said(UNMANAGED)),
            }
        }),
    ])
}

/// What the cluster's certificates are looked after with, if they are ours.
fn managed(cx: &ClusterContext) -> Result<Option<&Ours>, StepError> {
    let ours = cx.ours()?;
    Ok(ours.provisioned.is_domain_managed().then_some(ours))
}
