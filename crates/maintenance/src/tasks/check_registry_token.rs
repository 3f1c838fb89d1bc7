//! `check-registry-token`: checks that a cluster can go on pulling images; changes nothing.

use std::sync::Arc;

use planner::task::builtin::check_registry_token::STEPS;
use steps::ClusterContext;
use steps::credentials::check_token;
use steps::engine::{Step, StepOutcome};

pub(super) fn steps() -> Vec<Step<ClusterContext>> {
    vec![Step::action(STEPS[0], |cx: Arc<ClusterContext>, _| async move {
        let message = check_token(&cx.managed()?.provisioned.record, cx.clock.now())?;
        Ok(StepOutcome::with_message(message))
    })]
}
