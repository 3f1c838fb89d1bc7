//! `kubernetes/restart`: restarts a workload's pods once, and waits for the rollout.

use std::time::Duration;

use kubelink::rollout::{Workload, restart, rollout};

use super::failure::still_waiting;
use super::with::{With, text};
use crate::cluster::ClusterContext;
use crate::engine::{PollStatus, StepContext, StepError, StepOutcome};
use crate::problem::Problem;

#[derive(Debug)]
pub(super) struct Restart {
    workload: Workload,
    namespace: String,
    name: String,
}

impl Restart {
    pub(super) fn read(with: &mut With<'_>) -> Result<Restart, Problem> {
        let workload = with.member("kind", Workload::Deployment, |value| {
            let kind = text(value)?;
            Workload::of_kind(&kind).ok_or_else(|| {
                format!("{kind:?} cannot be restarted; there are Deployment, DaemonSet and StatefulSet")
            })
        })?;
        let workload = with.required("kind", workload)?;
        let namespace = with.namespace()?;
        let namespace = with.required("namespace", namespace)?;
        let name = with.name("name")?;
        let name = with.required("name", name)?;
        Ok(Restart { workload, namespace, name })
    }

    pub(super) async fn poll(
        &self,
        cx: &ClusterContext,
        step: &StepContext,
        limit: Duration,
    ) -> Result<PollStatus, StepError> {
        let Restart { workload, namespace, name } = self;
        restart(&cx.link, *workload, namespace, name, &cx.run(step)).await?;
        match rollout(&cx.link, *workload, namespace, name, limit, &cx.progress(step)).await {
            Ok(words) => Ok(PollStatus::Done(StepOutcome::with_message(words))),
            Err(error) => still_waiting(error),
        }
    }
}
