//! `rotate-certificates`: copies the newest certificates of a cluster's API server and ingress from the vault into it.
//!
//! There is no undo: the vault holds no older version, and the certificates in it are valid.

use std::sync::Arc;

use planner::task::builtin::rotate_certificates::STEPS;
use steps::ClusterContext;
use steps::credentials::{Ours, carry_certificates, configure_api_server, configure_ingress};
use steps::engine::{Outcome, Step, StepContext, StepError};

const UNMANAGED: &str = "the domain is the customer's own, and so are its certificates";

pub(super) fn steps() -> Vec<Step<ClusterContext>> {
    vec![
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
    ]
}

/// The cluster, if its domain and so its certificates are managed by us.
fn managed(cx: &ClusterContext) -> Result<Option<&Ours>, StepError> {
    let ours = cx.ours()?;
    Ok(ours.provisioned.is_domain_managed().then_some(ours))
}
