//! `rotate-certificates`: copies the newest certificates of a cluster's API server and ingress from the vault into it.
//!
//! There is no undo: the vault holds no older version, and the certificates in it are valid.

use std::sync::Arc;

use planner::task::builtin::rotate_certificates::STEPS;
use steps::ClusterContext;
use steps::credentials::{ManagedCluster, carry_certificates, configure_api_server, configure_ingress};
use steps::engine::{Step, StepContext, StepError, StepOutcome};

const UNMANAGED: &str = "the domain is the customer's own, and so are its certificates";

pub(super) fn steps() -> Vec<Step<ClusterContext>> {
    vec![
        Step::action(STEPS[0], |cx: Arc<ClusterContext>, step: StepContext| async move {
            match managed(&cx)? {
                Some(ours) => Ok(StepOutcome::with_message(
                    carry_certificates(ours, &cx.link, step.hold, step.clock.now()).await?,
                )),
                None => Ok(StepOutcome::with_message(UNMANAGED)),
            }
        }),
        Step::action(STEPS[1], |cx: Arc<ClusterContext>, _| async move {
            match managed(&cx)? {
                Some(ours) => Ok(StepOutcome::with_message(configure_api_server(ours, &cx.link).await?)),
                None => Ok(StepOutcome::with_message(UNMANAGED)),
            }
        }),
        Step::action(STEPS[2], |cx: Arc<ClusterContext>, _| async move {
            match managed(&cx)? {
                Some(ours) => Ok(StepOutcome::with_message(configure_ingress(ours, &cx.link).await?)),
                None => Ok(StepOutcome::with_message(UNMANAGED)),
            }
        }),
    ]
}

/// The cluster, if its domain and so its certificates are managed by us.
fn managed(cx: &ClusterContext) -> Result<Option<&ManagedCluster>, StepError> {
    let ours = cx.managed()?;
    Ok(ours.provisioned.is_domain_managed().then_some(ours))
}
