//! Rollout status and restart of Deployments, DaemonSets and StatefulSets, by kubectl's rules and messages.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use kube::api::{Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::error::{Failure, LinkError};
use crate::link::{FIELD_MANAGER, Link};
use crate::progress::ProgressSink;
use crate::target::Target;
use crate::wait::{ObjectSelection, WaitStatus, wait};

/// Annotation in the pod template by which kubectl restarts.
const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation in the pod template with the run that restarted it, so that a repeated call does not restart again.
pub const RESTARTED_BY: &str = "shipshape.dev/restarted-by";

/// A kind of workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// A Deployment.
    Deployment,
    /// A DaemonSet.
    DaemonSet,
    /// A StatefulSet.
    StatefulSet,
}

impl Workload {
    /// The workload of this kind, if it is one.
    pub fn of_kind(kind: &str) -> Option<Workload> {
        match kind {
            "Deployment" => Some(Workload::Deployment),
            "DaemonSet" => Some(Workload::DaemonSet),
            "StatefulSet" => Some(Workload::StatefulSet),
            _ => None,
        }
    }

    fn target(self, namespace: &str, name: &str) -> Target {
        match self {
            Workload::Deployment => Target::typed::<Deployment>(Some(namespace), name),
            Workload::DaemonSet => Target::typed::<DaemonSet>(Some(namespace), name),
            Workload::StatefulSet => Target::typed::<StatefulSet>(Some(namespace), name),
        }
    }
}

/// Restarts the workload's pods, once per `run`, and does not wait. Returns whether this call did it.
pub async fn restart(
    link: &Link,
    workload: Workload,
    namespace: &str,
    name: &str,
    run: &str,
) -> Result<bool, LinkError> {
    let target = workload.target(namespace, name);
    let api = target.api(link);
    let seen = api.get(name).await.map_err(|error| link.failed("restart", &target, error))?;
    let restarted_by =
        seen.data.pointer("/spec/template/metadata/annotations").and_then(|all| all.get(RESTARTED_BY));
    if restarted_by.and_then(|by| by.as_str()) == Some(run) {
        return Ok(false);
    }
    if seen.data.pointer("/spec/paused").and_then(serde_json::Value::as_bool) == Some(true) {
        let why = "it is paused; resume it first, or its pods would not be restarted".to_owned();
        return Err(link.error("restart", &target, Failure::Precondition { why }));
    }
    let annotations = json!({RESTARTED_AT: link.clock().now().to_string(), RESTARTED_BY: run});
    let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let done = api.patch(name, &params, &Patch::Merge(patch)).await;
    done.map_err(|error| link.failed("restart", &target, error))?;
    Ok(true)
}

/// Waits until the workload's newest version runs everywhere; returns kubectl's last message about it.
pub async fn rollout(
    link: &Link,
    workload: Workload,
    namespace: &str,
    name: &str,
    limit: Duration,
    progress: &ProgressSink,
) -> Result<String, LinkError> {
    let target = workload.target(namespace, name);
    let api: Api<DynamicObject> = target.api(link);
    let which = ObjectSelection::Named(name.to_owned());
    let label = format!("the rollout of {target}");
    wait(link, api, &which, &label, limit, progress, |objects: &[&DynamicObject]| match objects {
        [] => WaitStatus::Waiting(format!("{target} to exist")),
        [object, ..] => status(workload, object),
    })
    .await
}

/// ProgressSink of the rollout of `object`. An object that cannot be parsed is an error and not waited for.
fn status(workload: Workload, object: &DynamicObject) -> WaitStatus<String> {
    let value = serde_json::to_value(object).unwrap_or_default();
    let unreadable = |error: serde_json::Error| WaitStatus::Impossible(format!("it cannot be read: {error}"));
    match workload {
        Workload::Deployment => serde_json::from_value(value).map_or_else(unreadable, |it| deployment(&it)),
        Workload::DaemonSet => serde_json::from_value(value).map_or_else(unreadable, |it| daemon_set(&it)),
        Workload::StatefulSet => {
            serde_json::from_value(value).map_or_else(unreadable, |it| stateful_set(&it))
        }
    }
}

fn deployment(it: &Deployment) -> WaitStatus<String> {
    let name = it.name_any();
    let status = it.status.clone().unwrap_or_default();
    if it.metadata.generation.unwrap_or(0) > status.observed_generation.unwrap_or(0) {
        return WaitStatus::Waiting("deployment spec update to be observed".to_owned());
    }
    let progressing = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_.as_deref() == Some("Progressing"));
    if progressing.is_some_and(|it| it.reason.as_deref() == Some("ProgressDeadlineExceeded")) {
        return WaitStatus::Impossible(format!("deployment {name:?} exceeded its progress deadline"));
    }
    let wanted = it.spec.replicas.unwrap_or(1);
    let (all, updated) = (status.replicas.unwrap_or(0), status.updated_replicas.unwrap_or(0));
    let available = status.available_replicas.unwrap_or(0);
    if updated < wanted {
        return WaitStatus::Waiting(format!(
            "deployment {name:?} rollout to finish: {updated} out of {wanted} new replicas have been updated"
        ));
    }
    if all > updated {
        let old = all - updated;
        return WaitStatus::Waiting(format!(
            "deployment {name:?} rollout to finish: {old} old replicas are pending termination"
        ));
    }
    if available < updated {
        return WaitStatus::Waiting(format!(
            "deployment {name:?} rollout to finish: {available} of {updated} updated replicas are available"
        ));
    }
    WaitStatus::Done(format!("deployment {name:?} successfully rolled out"))
}

fn daemon_set(it: &DaemonSet) -> WaitStatus<String> {
    let name = it.name_any();
    let strategy = it.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.clone());
    if strategy.is_some_and(|strategy| strategy != "RollingUpdate") {
        return WaitStatus::Impossible(
            "rollout status is only available for RollingUpdate strategy type".to_owned(),
        );
    }
    let status = it.status.clone().unwrap_or_default();
    if it.metadata.generation.unwrap_or(0) > status.observed_generation.unwrap_or(0) {
        return WaitStatus::Waiting("daemon set spec update to be observed".to_owned());
    }
    let wanted = status.desired_number_scheduled;
    let updated = status.updated_number_scheduled.unwrap_or(0);
    let available = status.number_available.unwrap_or(0);
    if updated < wanted {
        return WaitStatus::Waiting(format!(
            "daemon set {name:?} rollout to finish: {updated} out of {wanted} new pods have been updated"
        ));
    }
    if available < wanted {
        return WaitStatus::Waiting(format!(
            "daemon set {name:?} rollout to finish: {available} of {wanted} updated pods are available"
        ));
    }
    WaitStatus::Done(format!("daemon set {name:?} successfully rolled out"))
}

fn stateful_set(it: &StatefulSet) -> WaitStatus<String> {
    let strategy = it.spec.update_strategy.clone().unwrap_or_default();
    if strategy.type_.is_some_and(|strategy| strategy != "RollingUpdate") {
        return WaitStatus::Impossible(
            "rollout status is only available for RollingUpdate strategy type".to_owned(),
        );
    }
    let status = it.status.clone().unwrap_or_default();
    let observed = status.observed_generation.unwrap_or(0);
    if observed == 0 || it.metadata.generation.unwrap_or(0) > observed {
        return WaitStatus::Waiting("statefulset spec update to be observed".to_owned());
    }
    let wanted = it.spec.replicas.unwrap_or(1);
    let ready = status.ready_replicas.unwrap_or(0);
    if ready < wanted {
        return WaitStatus::Waiting(format!("{} pods to be ready", wanted - ready));
    }
    let updated = status.updated_replicas.unwrap_or(0);
    if let Some(partition) =
        strategy.rolling_update.and_then(|rolling| rolling.partition).filter(|partition| *partition > 0)
    {
        let expected = wanted - partition;
        if updated < expected {
            return WaitStatus::Waiting(format!(
                "partitioned roll out to finish: {updated} out of {expected} new pods have been updated"
            ));
        }
        return WaitStatus::Done(format!(
            "partitioned roll out complete: {updated} new pods have been updated"
        ));
    }
    if status.update_revision != status.current_revision {
        let revision = status.update_revision.unwrap_or_default();
        return WaitStatus::Waiting(format!(
            "statefulset rolling update to complete {updated} pods at revision {revision}"
        ));
    }
    let (current, revision) =
        (status.current_replicas.unwrap_or(0), status.current_revision.unwrap_or_default());
    WaitStatus::Done(format!("statefulset rolling update complete {current} pods at revision {revision}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(workload: Workload, given: serde_json::Value, expect: &str) {
        let object: DynamicObject = serde_json::from_value(given).unwrap();
        let said = match status(workload, &object) {
            WaitStatus::Done(words) => words,
            WaitStatus::Waiting(what) => format!("Waiting for {what}"),
            WaitStatus::Impossible(why) => format!("error: {why}"),
        };
        assert_eq!(said, expect);
    }

    #[test]
    fn a_deployment_has_the_rollout_messages_of_kubectl() {
        let given = |observed: i64, replicas: i32, updated: i32, available: i32| {
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "generation": 2},
                "spec": {"replicas": 3, "selector": {}, "template": {}},
                "status": {"observedGeneration": observed, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available}})
        };
        let it = Workload::Deployment;
        check(it, given(1, 3, 3, 3), "Waiting for deployment spec update to be observed");
        check(
            it,
            given(2, 3, 1, 3),
            "Waiting for deployment \"web\" rollout to finish: 1 out of 3 new replicas have been updated",
        );
        check(
            it,
            given(2, 4, 3, 3),
            "Waiting for deployment \"web\" rollout to finish: 1 old replicas are pending termination",
        );
        check(
            it,
            given(2, 3, 3, 2),
            "Waiting for deployment \"web\" rollout to finish: 2 of 3 updated replicas are available",
        );
        check(it, given(2, 3, 3, 3), "deployment \"web\" successfully rolled out");
        let mut late = given(2, 3, 1, 3);
        late["status"]["conditions"] =
            json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]);
        check(it, late, "error: deployment \"web\" exceeded its progress deadline");
    }

    #[test]
    fn a_daemon_set_has_the_rollout_messages_of_kubectl() {
        let given = |strategy: &str, observed: i64, updated: i32, available: i32| {
            json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "log", "generation": 2},
                "spec": {"selector": {}, "template": {}, "updateStrategy": {"type": strategy}},
                "status": {"observedGeneration": observed, "desiredNumberScheduled": 2, "updatedNumberScheduled": updated,
                    "numberAvailable": available, "currentNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2}})
        };
        let it = Workload::DaemonSet;
        check(
            it,
            given("OnDelete", 2, 2, 2),
            "error: rollout status is only available for RollingUpdate strategy type",
        );
        check(it, given("RollingUpdate", 1, 2, 2), "Waiting for daemon set spec update to be observed");
        check(
            it,
            given("RollingUpdate", 2, 1, 2),
            "Waiting for daemon set \"log\" rollout to finish: 1 out of 2 new pods have been updated",
        );
        check(
            it,
            given("RollingUpdate", 2, 2, 1),
            "Waiting for daemon set \"log\" rollout to finish: 1 of 2 updated pods are available",
        );
        check(it, given("RollingUpdate", 2, 2, 2), "daemon set \"log\" successfully rolled out");
    }

    #[test]
    fn a_stateful_set_has_the_rollout_messages_of_kubectl() {
        let given = |partition: i32, ready: i32, updated: i32, current: &str| {
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "generation": 2},
                "spec": {"replicas": 3, "selector": {}, "template": {}, "serviceName": "db",
                    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}},
                "status": {"observedGeneration": 2, "replicas": 3, "readyReplicas": ready, "updatedReplicas": updated,
                    "currentReplicas": 3, "currentRevision": current, "updateRevision": "b"}})
        };
        let it = Workload::StatefulSet;
        check(it, given(0, 2, 3, "b"), "Waiting for 1 pods to be ready");
        check(
            it,
            given(0, 3, 2, "a"),
            "Waiting for statefulset rolling update to complete 2 pods at revision b",
        );
        check(it, given(0, 3, 3, "b"), "statefulset rolling update complete 3 pods at revision b");
        check(
            it,
            given(2, 3, 0, "a"),
            "Waiting for partitioned roll out to finish: 0 out of 1 new pods have been updated",
        );
        check(it, given(2, 3, 1, "a"), "partitioned roll out complete: 1 new pods have been updated");
    }
}
