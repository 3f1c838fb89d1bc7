//! The parts of nodes and pods that decisions need. They are small, because one process holds hundreds of clusters.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::core::Object;
use serde::{Deserialize, Serialize};

use super::annotations;
use super::containers::Container;

/// A pod as the server returns it, without the fields that are not read.
pub(super) type RawPod = Object<RawPodSpec, RawPodStatus>;
/// A node as the server returns it, without the fields that are not read.
pub(super) type RawNode = Object<RawNodeSpec, RawNodeStatus>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPodSpec {
    node_name: String,
    restart_policy: String,
    service_account_name: String,
    containers: Vec<RawContainer>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RawContainer {
    name: String,
    image: String,
    command: Vec<String>,
    args: Vec<String>,
    env: Vec<RawVariable>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawVariable {
    name: String,
    value: String,
    value_from: Option<RawVariableSource>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawVariableSource {
    field_ref: Option<RawFieldRef>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawFieldRef {
    field_path: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawPodStatus {
    phase: String,
    container_statuses: Vec<RawContainerStatus>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawContainerStatus {
    ready: bool,
    restart_count: u32,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RawNodeSpec {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RawNodeStatus {
    conditions: Vec<RawCondition>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RawCondition {
    r#type: String,
    status: String,
}

/// The outcome that a pod is meant to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PodOutcome {
    Run,
    Complete,
    Fail,
    Stuck,
}

/// A pod on a simulated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodView {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) node: String,
    pub(super) phase: String,
    pub(super) ready: bool,
    pub(super) restarts: u32,
    pub(super) restarts_forever: bool,
    pub(super) containers: Vec<(String, String)>,
    /// The containers that really run, if there are any.
    pub(super) runnable: Vec<Container>,
    pub(super) outcome: PodOutcome,
    /// Seconds of running until the outcome, if set.
    pub(super) after: Option<u32>,
    /// Seconds until the pod has stopped, if set.
    pub(super) stop: Option<u32>,
    pub(super) log: Option<String>,
    /// The deletion timestamp and the grace period in seconds.
    pub(super) deletion: Option<(Timestamp, u32)>,
}

impl PodView {
    /// `None` for a pod that is not bound to a node. `runs` tells which images really run.
    pub(super) fn from_object(pod: &RawPod, runs: impl Fn(&str) -> bool) -> Option<PodView> {
        let spec = &pod.spec;
        if spec.node_name.is_empty() {
            return None;
        }
        let metadata = &pod.metadata;
        let empty = BTreeMap::new();
        let values = metadata.annotations.as_ref().unwrap_or(&empty);
        let seconds = |name: &str| values.get(name).and_then(|text| text.parse().ok());
        let is_owned_by_job = metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job");
        let outcome = match values.get(annotations::OUTCOME).map(String::as_str) {
            Some("complete") => PodOutcome::Complete,
            Some("fail") => PodOutcome::Fail,
            Some("stuck") => PodOutcome::Stuck,
            Some("run") => PodOutcome::Run,
            _ if is_owned_by_job => PodOutcome::Complete,
            _ => PodOutcome::Run,
        };
        let grace = metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = u32::try_from(grace).unwrap_or(0);
        let containers = pod.status.as_ref().map(|it| it.container_statuses.as_slice()).unwrap_or_default();
        Some(PodView {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            node: spec.node_name.clone(),
            phase: pod.status.as_ref().map(|it| it.phase.clone()).unwrap_or_default(),
            ready: !containers.is_empty() && containers.iter().all(|it| it.ready),
            restarts: containers.iter().map(|it| it.restart_count).max().unwrap_or(0),
            restarts_forever: spec.restart_policy != "Never",
            containers: spec.containers.iter().map(|it| (it.name.clone(), it.image.clone())).collect(),
            runnable: spec
                .containers
                .iter()
                .filter(|it| runs(&it.image))
                .map(|it| runnable(pod, it))
                .collect(),
            outcome,
            after: seconds(annotations::OUTCOME_AFTER_SECONDS),
            stop: seconds(annotations::STOP_SECONDS),
            log: values.get(annotations::LOG).cloned(),
            deletion: metadata.deletion_timestamp.as_ref().map(|time| (time.0, grace)),
        })
    }
}

fn runnable(pod: &RawPod, container: &RawContainer) -> Container {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let field = |path: &str| match path {
        "metadata.name" => Some(text(&pod.metadata.name)),
        "metadata.namespace" => Some(text(&pod.metadata.namespace)),
        "metadata.uid" => Some(text(&pod.metadata.uid)),
        "spec.nodeName" => Some(pod.spec.node_name.clone()),
        "spec.serviceAccountName" => Some(pod.spec.service_account_name.clone()),
        _ => None,
    };
    let variable = |it: &RawVariable| {
        let value = match &it.value_from {
            None => it.value.clone(),
            Some(source) => field(&source.field_ref.as_ref()?.field_path)?,
        };
        Some((it.name.clone(), value))
    };
    Container {
        namespace: text(&pod.metadata.namespace),
        pod: text(&pod.metadata.name),
        pod_uid: text(&pod.metadata.uid),
        name: container.name.clone(),
        image: container.image.clone(),
        command: container.command.iter().chain(&container.args).cloned().collect(),
        env: container.env.iter().filter_map(variable).collect(),
        node: pod.spec.node_name.clone(),
        service_account: pod.spec.service_account_name.clone(),
    }
}

/// The requested state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeState {
    Ready,
    NotReady,
    Gone,
}

/// A simulated node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeView {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) state: NodeState,
    pub(super) refuses_drain: bool,
    /// The address that it has, if it was given one.
    pub(super) address: Option<String>,
    /// The Ready condition: true, false, or not reported yet.
    pub(super) ready: Option<bool>,
}

impl NodeView {
    /// `None` for a node that is not simulated.
    pub(super) fn from_object(node: &RawNode) -> Option<NodeView> {
        let metadata = &node.metadata;
        metadata.labels.as_ref()?.get(annotations::SIMULATED_LABEL)?;
        let annotation =
            |name: &str| metadata.annotations.as_ref().and_then(|it| it.get(name)).map(String::as_str);
        let conditions = node.status.as_ref().map(|it| it.conditions.as_slice()).unwrap_or_default();
        Some(NodeView {
            name: metadata.name.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            address: annotation(annotations::NODE_IP).map(str::to_owned),
            state: match annotation(annotations::STATE) {
                Some("NotReady") => NodeState::NotReady,
                Some("Gone") => NodeState::Gone,
                _ => NodeState::Ready,
            },
            refuses_drain: annotation(annotations::DRAIN) == Some("refuse"),
            ready: conditions.iter().find(|it| it.r#type == "Ready").map(|it| it.status == "True"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    impl PodView {
        /// A pod that waits for its start.
        pub(in crate::kubelet) fn example() -> PodView {
            let pod = json!({
                "metadata": { "namespace": "ns", "name": "web-1", "uid": "u" },
                "spec": { "nodeName": "n", "containers": [{ "name": "main", "image": "image" }] },
                "status": { "phase": "Pending" }
            });
            PodView::from_object(&serde_json::from_value(pod).unwrap(), |_| false).unwrap()
        }
    }

    #[test]
    fn a_container_that_runs_has_its_command_and_variables() {
        let pod: RawPod = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "roles-1", "uid": "u" },
            "spec": {
                "nodeName": "worker-1", "serviceAccountName": "roles",
                "containers": [
                    { "name": "other", "image": "other" },
                    {
                        "name": "main", "image": "ours", "command": ["shipshape"], "args": ["machines", "controllers"],
                        "env": [
                            { "name": "PLAIN", "value": "1" },
                            { "name": "NODE_NAME", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } },
                            { "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } },
                            { "name": "SECRET", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }
                        ]
                    }
                ]
            }
        }))
        .unwrap();
        let view = PodView::from_object(&pod, |image| image == "ours").unwrap();
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(view.runnable.len(), 1);
        let found = &view.runnable[0];
        assert_eq!(found.command, ["shipshape", "machines", "controllers"]);
        assert_eq!(found.env, [pair("PLAIN", "1"), pair("NODE_NAME", "worker-1"), pair("POD", "roles-1")]);
        assert_eq!((found.service_account.as_str(), found.node.as_str()), ("roles", "worker-1"));
        assert_eq!(PodView::from_object(&pod, |_| false).unwrap().runnable, []);
    }
}
