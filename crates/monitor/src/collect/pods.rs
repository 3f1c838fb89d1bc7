//! Pods of the platform's namespaces: conditions that are not as expected, containers that wait, restarts.

use serde::Deserialize;

use super::{Collector, Findings, Profile};
use crate::series::{Metric, Series};
use crate::visit::{Condition, Listed, Metadata};

const CONDITIONS: Metric = Metric {
    name: "pod_conditions",
    help: "1 for each condition of a pod of the platform that is not as it should be",
};
const CONTAINERS: Metric = Metric {
    name: "pod_containerstatuses",
    help: "1 for each container of a pod of the platform that waits",
};
const RESTARTS: Metric = Metric {
    name: "pod_restartcounter",
    help: "Restarts of the containers of a pod of the platform that has had 10 or more",
};

/// Fewer restarts are not worth a series.
const RESTARTS_MIN: i64 = 10;

pub(super) const COLLECTOR: Collector = Collector {
    name: "pods",
    profile: Profile::Any,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            // All pods of a fleet's customers are many times those of the platform, so a cluster without operators is asked for one
            // namespace only.
            let path = match visit.cluster_version {
                Some(_) => "/api/v1/pods",
                None => "/api/v1/namespaces/kube-system/pods",
            };
            let listed = visit.fetcher.list(path).await?;
            Ok(listed.as_ref().map_or_else(Findings::default, decide))
        })
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: String,
    reason: String,
    conditions: Vec<Condition>,
    container_statuses: Vec<Container>,
    init_container_statuses: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    name: String,
    restart_count: i64,
    state: State,
    last_state: State,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Reason>,
    terminated: Option<Reason>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Reason {
    reason: String,
}

/// Whether a namespace belongs to the platform.
pub(crate) fn is_platform_namespace(namespace: &str) -> bool {
    matches!(namespace, "" | "default" | "openshift")
        || namespace.starts_with("kube-")
        || namespace.starts_with("openshift-")
}

fn is_expected(condition: &Condition) -> bool {
    match condition.kind.as_str() {
        "ContainersReady" | "Initialized" | "PodScheduled" | "Ready" => condition.status == "True",
        _ => true,
    }
}

/// Reasons are words; what is none is not a label.
fn word(reason: &str) -> String {
    let is_word =
        !reason.is_empty() && reason.len() <= 64 && reason.chars().all(|it| it.is_ascii_alphanumeric());
    if is_word { reason.to_owned() } else { String::new() }
}

fn decide(listed: &Listed<Pod>) -> Findings {
    let mut findings = Findings { unreadable: listed.unreadable, ..Findings::default() };
    for pod in &listed.items {
        let Metadata { name, namespace, .. } = &pod.metadata;
        let is_over = pod.status.phase == "Succeeded" || pod.status.reason == "Preempting";
        if is_over || !is_platform_namespace(namespace) {
            continue;
        }
        let placed = |metric, value| {
            Series::new(metric, value).label("name", name.clone()).label("namespace", namespace.clone())
        };
        for condition in pod.status.conditions.iter().filter(|it| !is_expected(it)) {
            findings.add(
                placed(CONDITIONS, 1.0)
                    .label("nodeName", pod.spec.node_name.clone())
                    .label("status", condition.status_label())
                    .label("type", condition.kind.clone()),
            );
        }
        let containers = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
        let mut restarts = 0_i64;
        for container in containers {
            restarts = restarts.saturating_add(container.restart_count);
            let Some(waiting) = &container.state.waiting else { continue };
            let last = container.last_state.terminated.as_ref().map_or("", |it| &it.reason);
            findings.add(
                placed(CONTAINERS, 1.0)
                    .label("nodeName", pod.spec.node_name.clone())
                    .label("containername", container.name.clone())
                    .label("reason", word(&waiting.reason))
                    .label("lastTerminationState", word(last)),
            );
        }
        if restarts >= RESTARTS_MIN {
            findings.add(placed(RESTARTS, restarts as f64));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::collect::testing::{lines, listed};

    #[test]
    fn pods_of_the_platform_are_watched_and_no_others() {
        let unready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": [
                {"name": "a", "restartCount": 7, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"reason": "OOMKilled"}}},
                {"name": "b", "restartCount": 3, "state": {"running": {}}}]});
        let pods = listed(json!([
            {"metadata": {"name": "dns", "namespace": "openshift-dns"}, "spec": {"nodeName": "n"}, "status": unready},
            {"metadata": {"name": "shop", "namespace": "shop"}, "spec": {"nodeName": "n"}, "status": unready},
            {"metadata": {"name": "job", "namespace": "kube-system"}, "status": {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "False"}]}},
            {"metadata": {"name": "odd", "namespace": "kube-system"}, "status": {"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "a sentence, not a word"}}}]}},
        ]));
        assert_eq!(
            lines(&decide(&pods)),
            [
                "pod_conditions{name=dns,namespace=openshift-dns,nodeName=n,status=False,type=Ready} 1",
                "pod_containerstatuses{name=dns,namespace=openshift-dns,nodeName=n,containername=a,reason=CrashLoopBackOff,lastTerminationState=OOMKilled} 1",
                "pod_containerstatuses{name=odd,namespace=kube-system,nodeName=,containername=c,reason=,lastTerminationState=} 1",
                "pod_restartcounter{name=dns,namespace=openshift-dns} 10",
            ]
        );
    }
}
