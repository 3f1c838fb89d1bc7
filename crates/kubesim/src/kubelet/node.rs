//! What a kubelet reports about its node.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::views::{NodeState, NodeView};
use super::{NodeTemplate, annotations};

/// Number of lease renewals per write of the status: every five minutes, as kubelets do when nothing changes.
const STATUS_EVERY: u32 = 30;

/// The next action for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeStep {
    /// Report the node ready or not ready.
    Report { ready: bool },
    /// Renew the lease.
    Renew,
    /// Remove the object.
    Remove,
}

/// The times of the last writes for a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct LastWrites {
    pub(super) reported: Option<Timestamp>,
    pub(super) renewed: Option<Timestamp>,
}

/// The next action for a node, and its time.
pub(super) fn next(
    node: &NodeView,
    done: LastWrites,
    heartbeat: Duration,
    now: Timestamp,
) -> Option<(Timestamp, NodeStep)> {
    let later = |from: Option<Timestamp>, span: Duration| {
        from.map_or(now, |from| from.saturating_add(span).unwrap_or(Timestamp::MAX))
    };
    match node.state {
        NodeState::Gone => Some((now, NodeStep::Remove)),
        // The node reports NotReady once and then stops.
        NodeState::NotReady => {
            (node.ready != Some(false)).then_some((now, NodeStep::Report { ready: false }))
        }
        NodeState::Ready if node.ready != Some(true) => Some((now, NodeStep::Report { ready: true })),
        NodeState::Ready => {
            let report = later(done.reported, heartbeat * STATUS_EVERY);
            let renew = later(done.renewed, heartbeat);
            Some(if report < renew {
                (report, NodeStep::Report { ready: true })
            } else {
                (renew, NodeStep::Renew)
            })
        }
    }
}

/// The Node object of a template.
pub(super) fn object(plan: &NodeTemplate) -> Value {
    let mut labels = serde_json::Map::new();
    for (name, value) in [
        (annotations::SIMULATED_LABEL, "true"),
        ("kubernetes.io/hostname", plan.name.as_str()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
    ] {
        labels.insert(name.to_owned(), value.into());
    }
    for (name, value) in &plan.labels {
        labels.insert(name.clone(), value.as_str().into());
    }
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": plan.name, "labels": labels } })
}

/// The status of a node.
pub(super) fn status(
    name: &str,
    number: usize,
    address: Option<&str>,
    pods: u32,
    ready: bool,
    version: &str,
    now: Timestamp,
) -> Value {
    let now = seconds(now);
    let address = address.map_or_else(|| format!("192.0.2.{}", number % 254 + 1), str::to_owned);
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        json!({
            "type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
            "lastHeartbeatTime": now
        })
    };
    let ready = match ready {
        true => condition("Ready", true, "KubeletReady", "kubelet is posting ready status"),
        false => condition("Ready", false, "KubeletNotReady", "the node is set to NotReady by an annotation"),
    };
    let resources =
        json!({ "cpu": "4", "memory": "16Gi", "ephemeral-storage": "100Gi", "pods": pods.to_string() });
    json!({ "status": {
        "capacity": resources, "allocatable": resources,
        "conditions": [
            condition("MemoryPressure", false, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
            condition("DiskPressure", false, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
            condition("PIDPressure", false, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
            ready,
        ],
        "addresses": [
            { "type": "InternalIP", "address": address },
            { "type": "Hostname", "address": name },
        ],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Simulated Linux", "kernelVersion": "6.12.0",
            "containerRuntimeVersion": "simulated://1.0", "kubeletVersion": version, "kubeProxyVersion": "",
            "bootID": "", "machineID": "", "systemUUID": ""
        }
    } })
}

/// The lease that a node renews as its heartbeat.
pub(super) fn lease(name: &str, uid: &str, heartbeat: Duration, now: Timestamp) -> Value {
    json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {
            "name": name, "namespace": "kube-node-lease",
            "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": name, "uid": uid }]
        },
        "spec": {
            "holderIdentity": name, "leaseDurationSeconds": heartbeat.as_secs().saturating_mul(4).max(1),
            "renewTime": format!("{:.6}", now)
        }
    })
}

/// Formats a time as Kubernetes does: whole seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEAT: Duration = Duration::from_secs(10);

    fn node(state: NodeState, ready: Option<bool>) -> NodeView {
        NodeView {
            name: "n".to_owned(),
            uid: "u".to_owned(),
            state,
            refuses_drain: false,
            address: None,
            ready,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_new_node_reports_before_it_renews() {
        let step = next(&node(NodeState::Ready, None), LastWrites::default(), BEAT, at(0));
        assert_eq!(step, Some((at(0), NodeStep::Report { ready: true })));
    }

    #[test]
    fn a_ready_node_renews_each_heartbeat_and_reports_each_thirtieth() {
        let done =
            |reported, renewed| LastWrites { reported: Some(at(reported)), renewed: Some(at(renewed)) };
        let ready = node(NodeState::Ready, Some(true));
        assert_eq!(next(&ready, done(0, 0), BEAT, at(1)), Some((at(10), NodeStep::Renew)));
        assert_eq!(
            next(&ready, done(0, 295), BEAT, at(296)),
            Some((at(300), NodeStep::Report { ready: true }))
        );
    }

    #[test]
    fn a_node_that_is_not_ready_reports_it_once_and_stops() {
        let view = node(NodeState::NotReady, Some(true));
        assert_eq!(
            next(&view, LastWrites::default(), BEAT, at(5)),
            Some((at(5), NodeStep::Report { ready: false }))
        );
        assert_eq!(next(&node(NodeState::NotReady, Some(false)), LastWrites::default(), BEAT, at(5)), None);
    }

    #[test]
    fn a_node_that_is_ready_again_reports_it() {
        let step = next(&node(NodeState::Ready, Some(false)), LastWrites::default(), BEAT, at(5));
        assert_eq!(step, Some((at(5), NodeStep::Report { ready: true })));
    }

    #[test]
    fn times_are_written_as_kubernetes_does() {
        let time: Timestamp = "2026-01-02T03:04:05.678901Z".parse().unwrap();
        assert_eq!(seconds(time), "2026-01-02T03:04:05Z");
        assert_eq!(lease("n", "u", BEAT, time)["spec"]["renewTime"], "2026-01-02T03:04:05.678901Z");
    }
}
