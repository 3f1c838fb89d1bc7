//! `rotate-certificates`: copies the newest certificates of a cluster's API server and ingress from the vault into it.
//!
//! There is no undo: the vault holds no older version, and the certificates in it are valid.

use std::sync::Arc;

use planner::task::builtin::rotate_certificates::STEPS;
use steps::ClusterContext;
use steps::credentials::{ManagedCluster, carry_certificates, configure_api_server, configure_ingress};
use steps::engine::{Step, StepContext, StepError, StepOutcome};

const UNMANAGED: &str = "the customer manages the domain and its certificates";

pub(super) fn steps() -> Vec<Step<ClusterContext>> {
    vec![
        Step::action(STEPS[0], |cx: Arc<ClusterContext>, step: StepContext| async move {
            match managed(&cx)? {
                Some(cluster) => Ok(StepOutcome::with_message(
                    carry_certificates(cluster, &cx.link, step.hold, step.clock.now()).await?,
                )),
                None => Ok(StepOutcome::with_message(UNMANAGED)),
            }
        }),
        Step::action(STEPS[1], |cx: Arc<ClusterContext>, _| async move {
            match managed(&cx)? {
                Some(cluster) => {
                    Ok(StepOutcome::with_message(configure_api_server(cluster, &cx.link).await?))
                }
                None => Ok(StepOutcome::with_message(UNMANAGED)),
            }
        }),
        Step::action(STEPS[2], |cx: Arc<ClusterContext>, _| async move {
            match managed(&cx)? {
                Some(cluster) => Ok(StepOutcome::with_message(configure_ingress(cluster, &cx.link).await?)),
                None => Ok(StepOutcome::with_message(UNMANAGED)),
            }
        }),
    ]
}

/// The cluster, if Shipshape manages its domain and certificates.
fn managed(cx: &ClusterContext) -> Result<Option<&ManagedCluster>, StepError> {
    let cluster = cx.managed()?;
    Ok(cluster.provisioned.is_domain_managed().then_some(cluster))
}
