//! Whether a roll-out is complete, as Deployment, DaemonSet and pods say.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, DeploymentCondition, DeploymentStatus};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

/// Longest time without availability, after which a roll-out has failed.
const UNAVAILABLE_MAX: Duration = Duration::from_secs(300);
/// Share of the nodes, in percent, on which a DaemonSet may be unavailable.
const DAEMONS_UNAVAILABLE_MAX_PERCENT: i32 = 10;

/// The state of a roll-out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rollout {
    /// It is complete.
    Complete,
    /// It is not complete yet; with the time until it may be, if that is known.
    Waiting(Option<Duration>),
    /// It does not proceed; with the reason.
    Failed(String),
}

/// The roll-out of the Deployment `name`, whose pods are `pods`. It is complete once it was available for `available_min`.
pub(crate) fn of_deployment(
    name: &str,
    deployment: Option<&Deployment>,
    pods: &[&Pod],
    available_min: Duration,
    now: Timestamp,
) -> Rollout {
    let Some(deployment) = deployment else {
        return Rollout::Failed(format!("deployment {name} is not found"));
    };
    if deployment.metadata.deletion_timestamp.is_some() {
        return Rollout::Failed(format!("deployment {name} is being deleted"));
    }
    let none = DeploymentStatus::default();
    let status = deployment.status.as_ref().unwrap_or(&none);
    let is_observed = status.observed_generation >= deployment.metadata.generation;
    let all = status.replicas.unwrap_or_default();
    let is_rolled_out = is_observed
        && status.updated_replicas.unwrap_or_default() == all
        && status.unavailable_replicas.unwrap_or_default() == 0;
    let condition =
        |type_: &str| status.conditions.iter().flatten().find(|it| it.type_.as_deref() == Some(type_));
    let available = condition("Available");
    if is_rolled_out && let Some(available) = available.filter(|it| it.status.as_deref() != Some("False")) {
        let rest = remaining(available, available_min, now);
        return if rest.is_zero() { Rollout::Complete } else { Rollout::Waiting(Some(rest)) };
    }
    let is_past_deadline =
        is_observed && condition("Progressing").is_some_and(|it| it.status.as_deref() == Some("False"));
    let unavailable = available.filter(|it| it.status.as_deref() == Some("False"));
    let is_unavailable = unavailable.is_some_and(|it| remaining(it, UNAVAILABLE_MAX, now).is_zero());
    if is_past_deadline || is_unavailable {
        let why = pods.iter().find_map(|pod| obstacle(pod)).unwrap_or_else(|| {
            format!("{} of {all} replicas are unavailable", status.unavailable_replicas.unwrap_or_default())
        });
        return Rollout::Failed(format!("deployment {name} is not available: {why}"));
    }
    Rollout::Waiting(None)
}

/// The time until a condition has had its status for `duration`.
fn remaining(condition: &DeploymentCondition, duration: Duration, now: Timestamp) -> Duration {
    let since = condition.last_transition_time.as_ref().map_or(now, |time| time.0);
    let elapsed = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    duration.saturating_sub(elapsed)
}

/// The roll-out of the DaemonSet `name`.
pub(crate) fn of_daemon_set(name: &str, daemon_set: Option<&DaemonSet>) -> Rollout {
    let Some(daemon_set) = daemon_set else {
        return Rollout::Failed(format!("daemonset {name} is not found"));
    };
    if daemon_set.metadata.deletion_timestamp.is_some() {
        return Rollout::Failed(format!("daemonset {name} is being deleted"));
    }
    let Some(status) = daemon_set.status.as_ref() else { return Rollout::Waiting(None) };
    let desired = status.desired_number_scheduled;
    // As Kubernetes computes a percentage of pods that may be unavailable: rounded up.
    let unavailable_max = desired.saturating_mul(DAEMONS_UNAVAILABLE_MAX_PERCENT).saturating_add(99) / 100;
    let is_complete = status.observed_generation >= daemon_set.metadata.generation
        && status.updated_number_scheduled.unwrap_or_default() == desired
        && status.number_unavailable.unwrap_or_default() <= unavailable_max;
    if is_complete { Rollout::Complete } else { Rollout::Waiting(None) }
}

/// Why a pod does not run, in words that stay the same while nothing changes.
fn obstacle(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let statuses = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    if let Some(why) = statuses.filter_map(container_obstacle).next() {
        return Some(format!("pod {}: {why}", prefix(pod)));
    }
    let unscheduled =
        |it: &&k8s_openapi::api::core::v1::PodCondition| it.type_ == "PodScheduled" && it.status == "False";
    let condition = status.conditions.iter().flatten().find(unscheduled)?;
    let message = condition.message.as_deref().unwrap_or("no node accepts it");
    Some(format!("pod {} is not scheduled: {message}", prefix(pod)))
}

/// The name of the pod's ReplicaSet: the pod's own changes while the cause remains.
fn prefix(pod: &Pod) -> String {
    let owner = pod.owner_references().iter().find(|it| it.controller == Some(true));
    owner.map_or_else(|| pod.name_any(), |owner| format!("of {}", owner.name))
}

fn container_obstacle(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let (name, image) = (&status.name, &status.image);
    match waiting.reason.as_deref()? {
        // Kubelets alternate between the first two.
        "ErrImagePull" | "ImagePullBackOff" => {
            Some(format!("container {name} cannot pull image {image} (ImagePullBackOff)"))
        }
        reason @ ("InvalidImageName" | "ErrImageNeverPull" | "RegistryUnavailable") => {
            Some(format!("container {name} cannot pull image {image} ({reason})"))
        }
        "CrashLoopBackOff" => {
            let last = status.last_state.as_ref().and_then(|it| it.terminated.as_ref());
            let code = last.map(|it| format!(", exit code {}", it.exit_code)).unwrap_or_default();
            Some(format!("container {name} ends again and again (CrashLoopBackOff{code})"))
        }
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
            Some(format!("container {name} cannot start ({reason})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const MIN: Duration = Duration::from_secs(180);

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    fn deployment(status: Value) -> Deployment {
        serde_json::from_value(json!({"metadata": {"name": "d", "generation": 2}, "status": status})).unwrap()
    }

    fn check(status: Value, expect: Rollout) {
        let shown = status.to_string();
        assert_eq!(of_deployment("d", Some(&deployment(status)), &[], MIN, now()), expect, "{shown}");
    }

    fn available(status: &str, since: &str) -> Value {
        json!([{"type": "Available", "status": status, "lastTransitionTime": since}])
    }

    #[test]
    fn a_deployment_is_complete_when_it_was_available_for_three_minutes() {
        let complete = |since: &str| json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "conditions": available("True", since)});
        check(complete("2026-01-01T00:57:00Z"), Rollout::Complete);
        check(complete("2026-01-01T00:58:00Z"), Rollout::Waiting(Some(Duration::from_secs(60))));
        for (field, value) in
            [("observedGeneration", 1), ("updatedReplicas", 0), ("unavailableReplicas", 1), ("replicas", 2)]
        {
            let mut status = complete("2026-01-01T00:00:00Z");
            status[field] = json!(value);
            check(status, Rollout::Waiting(None));
        }
        let mut silent = complete("2026-01-01T00:00:00Z");
        silent["conditions"] = json!([]);
        check(silent, Rollout::Waiting(None));
        check(json!({}), Rollout::Waiting(None));
    }

    #[test]
    fn a_deployment_that_is_absent_or_being_deleted_has_failed() {
        let failed = |why: &str| Rollout::Failed(why.to_owned());
        assert_eq!(of_deployment("d", None, &[], MIN, now()), failed("deployment d is not found"));
        let mut deleted = deployment(json!({}));
        deleted.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
        let found = of_deployment("d", Some(&deleted), &[], MIN, now());
        assert_eq!(found, failed("deployment d is being deleted"));
        assert_eq!(of_daemon_set("s", None), failed("daemonset s is not found"));
    }

    #[test]
    fn a_roll_out_that_does_not_proceed_has_failed_with_the_reason_of_its_pod() {
        let pod = |reason: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {"name": "d-1-x", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "d-1", "uid": "u", "controller": true}]},
                "status": {"containerStatuses": [{
                    "name": "main", "image": "i:2", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": reason, "message": "back-off 5m0s"}}
                }]}
            }))
            .unwrap()
        };
        let status = json!({"observedGeneration": 2, "replicas": 2, "updatedReplicas": 1, "unavailableReplicas": 1, "conditions": [
            {"type": "Available", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
        ]});
        let found = |status: &Value, pods: &[&Pod]| {
            of_deployment("d", Some(&deployment(status.clone())), pods, MIN, now())
        };
        let failed = |why: &str| Rollout::Failed(format!("deployment d is not available: {why}"));
        let pulls = failed("pod of d-1: container main cannot pull image i:2 (ImagePullBackOff)");
        assert_eq!(found(&status, &[&pod("ErrImagePull")]), pulls);
        assert_eq!(found(&status, &[&pod("ImagePullBackOff")]), pulls);
        assert_eq!(found(&status, &[]), failed("1 of 2 replicas are unavailable"));
        let crashes = failed("pod of d-1: container main ends again and again (CrashLoopBackOff)");
        assert_eq!(found(&status, &[&pod("CrashLoopBackOff")]), crashes);
        // Unavailable for five minutes.
        let since = |since: &str| json!({"observedGeneration": 2, "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1, "conditions": available("False", since)});
        assert_eq!(found(&since("2026-01-01T00:56:00Z"), &[]), Rollout::Waiting(None));
        assert_eq!(found(&since("2026-01-01T00:55:00Z"), &[]), failed("1 of 1 replicas are unavailable"));
    }

    #[test]
    fn a_daemon_set_may_be_unavailable_on_a_tenth_of_the_nodes() {
        let check = |desired: i32, updated: i32, unavailable: i32, expect: Rollout| {
            let set: DaemonSet = serde_json::from_value(json!({"metadata": {"generation": 1}, "status": {
                "observedGeneration": 1, "desiredNumberScheduled": desired, "updatedNumberScheduled": updated,
                "numberUnavailable": unavailable, "currentNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0
            }}))
            .unwrap();
            assert_eq!(of_daemon_set("s", Some(&set)), expect, "{desired} {updated} {unavailable}");
        };
        check(0, 0, 0, Rollout::Complete);
        check(10, 10, 1, Rollout::Complete);
        check(10, 10, 2, Rollout::Waiting(None));
        check(10, 9, 0, Rollout::Waiting(None));
    }
}
