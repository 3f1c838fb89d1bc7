//! `scale-machineset`: sets the replicas of a MachineSet and waits for its machines.
//!
//! The check records the earlier number before anything changes, so that an undo after a crash restores the right one.

use std::sync::Arc;

use api::crd::machine::{MachineSet, names};
use kube::ResourceExt;
use kubelink::Target;
use kubelink::patch::{Change, patch};
use planner::task::TaskProblem;
use planner::task::builtin::scale_machineset::{STEPS, ScaleMachinesetParameters, TIME_LIMIT};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use steps::ClusterContext;
use steps::engine::{PollStatus, Step, StepContext, StepError, StepOutcome};

use super::machines::{all_ready, find_set, missing, observe_set, waiting_for_machines};

/// What the check records for the later steps.
#[derive(Serialize, Deserialize)]
struct CheckedSet {
    uid: String,
    /// The number of machines before the run.
    replicas: i32,
}

/// One run of the task.
#[derive(Debug)]
struct Scaling {
    parameters: ScaleMachinesetParameters,
}

pub(super) fn steps(parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let run = Arc::new(Scaling { parameters: ScaleMachinesetParameters::read(parameters)? });
    let (checking, scaling, restoring, waiting) = (run.clone(), run.clone(), run.clone(), run);
    let scale = Step::action(STEPS[1], move |cx: Arc<ClusterContext>, step: StepContext| {
        let run = scaling.clone();
        async move { run.scale(&cx, &step).await }
    });
    let scale = scale.undo(move |cx: Arc<ClusterContext>, step: StepContext, _| {
        let run = restoring.clone();
        async move { run.restore(&cx, &step).await }
    });
    Ok(vec![
        Step::action(STEPS[0], move |cx: Arc<ClusterContext>, _| {
            let run = checking.clone();
            async move { run.check(&cx).await }
        }),
        scale,
        waiting_for_machines(STEPS[2], TIME_LIMIT, move |cx, step| {
            let run = waiting.clone();
            async move { run.poll(&cx, &step).await }
        }),
    ])
}

/// Rejects a number outside the limits that the cluster autoscaler keeps: it would undo the change.
fn check_limits(set: &MachineSet, replicas: i32) -> Result<(), StepError> {
    let limit = |name: &str| set.annotations().get(name).and_then(|it| it.parse::<i32>().ok());
    let (least, most) = (limit(names::AUTOSCALER_MIN_SIZE), limit(names::AUTOSCALER_MAX_SIZE));
    let within = least.is_none_or(|it| replicas >= it) && most.is_none_or(|it| replicas <= it);
    if within {
        return Ok(());
    }
    let text = |limit: Option<i32>| limit.map_or_else(|| "any".to_owned(), |it| it.to_string());
    let message = format!(
        "{replicas} machines are outside the limits of the cluster autoscaler for MachineSet {}, which are {} to {}",
        set.name_any(),
        text(least),
        text(most)
    );
    Err(StepError::terminal("OutsideAutoscalerLimits", message))
}

/// What an undo does.
#[derive(Debug, PartialEq, Eq)]
enum Restoration {
    /// Set this number.
    Set(i32),
    /// Leave it, for this reason.
    Leave(String),
}

fn decide_restoration(set: Option<&MachineSet>, checked: &CheckedSet, written: i32) -> Restoration {
    let Some(set) = set.filter(|it| it.uid().as_ref() == Some(&checked.uid)) else {
        return Restoration::Leave("the MachineSet was deleted meanwhile".to_owned());
    };
    match set.spec.replicas.unwrap_or(1) {
        now if now == checked.replicas => Restoration::Leave(format!("it has {now} replicas as before")),
        now if now == written => Restoration::Set(checked.replicas),
        now => Restoration::Leave(format!("somebody else has set {now} replicas meanwhile")),
    }
}

impl Scaling {
    fn target(&self) -> Target {
        Target::typed::<MachineSet>(Some(&self.parameters.namespace), &self.parameters.machine_set)
    }

    async fn find(&self, cx: &ClusterContext) -> Result<Option<MachineSet>, StepError> {
        find_set(cx, &self.parameters.namespace, &self.parameters.machine_set).await
    }

    async fn check(&self, cx: &ClusterContext) -> Result<StepOutcome, StepError> {
        let missing = || StepError::terminal("NotFound", format!("{} not found", self.target()));
        let set =
            self.find(cx).await?.filter(|it| it.metadata.deletion_timestamp.is_none()).ok_or_else(missing)?;
        check_limits(&set, self.parameters.replicas)?;
        let replicas = set.spec.replicas.unwrap_or(1);
        let message = format!("MachineSet {} is scaled to {replicas}", set.name_any());
        let checked = CheckedSet { uid: set.uid().unwrap_or_default(), replicas };
        Ok(StepOutcome::with_message(message).with_memory(&checked))
    }

    async fn scale(&self, cx: &ClusterContext, step: &StepContext) -> Result<StepOutcome, StepError> {
        let CheckedSet { uid, replicas: before } = checked(step)?;
        let replicas = self.parameters.replicas;
        // With the uid, a later MachineSet of the same name is not changed.
        let change = json!({ "metadata": { "uid": uid }, "spec": { "replicas": replicas } });
        patch(&cx.link, &self.target(), &Change::Merge(change), None).await?;
        Ok(StepOutcome::with_message(format!("scaled from {before} to {replicas}")))
    }

    async fn restore(&self, cx: &ClusterContext, step: &StepContext) -> Result<Option<String>, StepError> {
        let checked = checked(step)?;
        let set = self.find(cx).await?;
        match decide_restoration(set.as_ref(), &checked, self.parameters.replicas) {
            Restoration::Leave(why) => Ok(Some(why)),
            Restoration::Set(replicas) => {
                let version = set.and_then(|it| it.resource_version());
                let metadata = json!({ "uid": checked.uid, "resourceVersion": version });
                let change = json!({ "metadata": metadata, "spec": { "replicas": replicas } });
                patch(&cx.link, &self.target(), &Change::Merge(change), None).await?;
                Ok(Some(format!("scaled back to {replicas}")))
            }
        }
    }

    async fn poll(&self, cx: &ClusterContext, _: &StepContext) -> Result<PollStatus, StepError> {
        let ScaleMachinesetParameters { namespace, machine_set, replicas } = &self.parameters;
        let Some(observed) = observe_set(cx, namespace, machine_set).await? else {
            return Err(StepError::terminal("NotFound", format!("{} was deleted meanwhile", self.target())));
        };
        let now = observed.set.spec.replicas.unwrap_or(1);
        if now != *replicas {
            let message = format!("somebody else has set {now} replicas meanwhile");
            return Err(StepError::terminal("ReplicasChanged", message));
        }
        Ok(match missing(&observed, *replicas) {
            Some(waiting) => PollStatus::Waiting(waiting),
            None => PollStatus::Done(StepOutcome::with_message(all_ready(*replicas, machine_set))),
        })
    }
}

fn checked(step: &StepContext) -> Result<CheckedSet, StepError> {
    step.memory_of(STEPS[0])
        .ok_or_else(|| StepError::terminal("NotChecked", "the record of the checked MachineSet is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(uid: &str, replicas: i32, limits: &[(&str, &str)]) -> MachineSet {
        let annotations: serde_json::Map<String, Value> =
            limits.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
        serde_json::from_value(json!({
            "metadata": { "name": "workers", "uid": uid, "annotations": annotations }, "spec": { "replicas": replicas }
        }))
        .unwrap()
    }

    #[test]
    fn the_limits_of_the_autoscaler_are_kept() {
        let limited = set("u", 2, &[(names::AUTOSCALER_MIN_SIZE, "1"), (names::AUTOSCALER_MAX_SIZE, "5")]);
        assert!(check_limits(&limited, 1).is_ok() && check_limits(&limited, 5).is_ok());
        let error = check_limits(&limited, 6).unwrap_err().to_string();
        assert!(error.contains("6 machines are outside the limits of the cluster autoscaler"), "{error}");
        assert!(error.contains("which are 1 to 5"), "{error}");
        assert!(check_limits(&set("u", 2, &[]), 100).is_ok());
    }

    #[test]
    fn an_undo_restores_only_what_the_run_changed() {
        let checked = CheckedSet { uid: "u".to_owned(), replicas: 2 };
        let decide = |set: Option<&MachineSet>| decide_restoration(set, &checked, 5);
        assert_eq!(decide(Some(&set("u", 5, &[]))), Restoration::Set(2));
        let left = |set: Option<&MachineSet>, why: &str| {
            assert!(matches!(decide(set), Restoration::Leave(found) if found.contains(why)), "{why}");
        };
        left(Some(&set("u", 2, &[])), "as before");
        left(Some(&set("u", 7, &[])), "somebody else has set 7");
        left(Some(&set("other", 5, &[])), "was deleted");
        left(None, "was deleted");
    }
}
