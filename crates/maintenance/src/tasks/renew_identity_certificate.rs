//! `renew-identity-certificate`: renews the certificate of a cluster's managed identity before it expires.

use std::sync::Arc;

use planner::task::builtin::renew_identity_certificate::STEPS;
use steps::ClusterContext;
use steps::credentials::{Renewal, ensure_identity_certificate};
use steps::engine::{Step, StepContext, StepOutcome};

pub(super) fn steps() -> Vec<Step<ClusterContext>> {
    vec![Step::action(STEPS[0], |cx: Arc<ClusterContext>, step: StepContext| async move {
        let ensured = ensure_identity_certificate(cx.managed()?, step.hold, cx.clock.now()).await?;
        let Some((renewal, until)) = ensured else {
            let message = "the cluster uses a service principal; its identity has no certificate";
            return Ok(StepOutcome::with_message(message));
        };
        let renewal = match renewal {
            Renewal::Created => "created",
            Renewal::Renewed => "renewed",
            Renewal::Verified => "verified",
        };
        Ok(StepOutcome::with_message(format!(
            "the certificate of the cluster's identity was {renewal}; it is valid until {until}"
        )))
    })]
}
