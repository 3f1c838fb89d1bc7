//! The operators of a cluster, and what they say of themselves.

use jiff::Timestamp;
use serde_json::{Value, json};

/// Every operator, in the request in which they come up.
pub(crate) const OPERATORS: [&str; 27] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cloud-controller-manager",
    "cloud-credential",
    "cluster-autoscaler",
    "config-operator",
    "dns",
    "network",
    "machine-config",
    "machine-approver",
    "machine-api",
    "openshift-apiserver",
    "openshift-controller-manager",
    "openshift-samples",
    "operator-lifecycle-manager",
    "operator-lifecycle-manager-catalog",
    "marketplace",
    "node-tuning",
    "service-ca",
    "storage",
    "image-registry",
    "ingress",
    "authentication",
    "monitoring",
    "console",
];

/// How an operator is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is not up yet.
    Coming,
    /// It is up and rolls something out.
    Rolling,
    /// It is up and has settled.
    Settled,
}

/// What an operator of a phase says.
pub(crate) fn status(name: &str, phase: Phase, version: &str, why: &str, now: Timestamp) -> Value {
    let now = format!("{now:.0}");
    let condition = |kind: &str, status: bool, reason: &str, message: &str| {
        json!({
            "type": kind, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
            "lastTransitionTime": now
        })
    };
    let conditions = match phase {
        Phase::Coming => vec![
            condition("Available", false, "Initializing", "the operator is not up yet"),
            condition("Progressing", true, "Initializing", "the operator comes up"),
            condition("Degraded", false, "AsExpected", ""),
            condition("Upgradeable", true, "AsExpected", ""),
        ],
        Phase::Rolling => vec![
            condition("Available", true, "AsExpected", ""),
            condition("Progressing", true, "NodeInstaller", why),
            condition("Degraded", false, "AsExpected", ""),
            condition("Upgradeable", true, "AsExpected", ""),
        ],
        Phase::Settled => vec![
            condition("Available", true, "AsExpected", ""),
            condition("Progressing", false, "AsExpected", ""),
            condition("Degraded", false, "AsExpected", ""),
            condition("Upgradeable", true, "AsExpected", ""),
        ],
    };
    let versions = match phase {
        Phase::Coming => json!([]),
        Phase::Rolling | Phase::Settled => json!([{ "name": "operator", "version": version }]),
    };
    let related = json!([{ "group": "", "resource": "namespaces", "name": format!("openshift-{name}") }]);
    json!({ "status": { "conditions": conditions, "versions": versions, "relatedObjects": related } })
}
