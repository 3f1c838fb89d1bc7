//! The core group.

use super::row::{Row, STATUS, StatusRule, Subresource};
use super::{columns, defaults, rules};
use crate::names::NameRule;

const POD: &[Subresource] = &[
    Subresource { name: "binding", sends: Some(("", "v1", "Binding")), verbs: &["create"] },
    Subresource { name: "eviction", sends: Some(("policy", "v1", "Eviction")), verbs: &["create"] },
    Subresource { name: "log", sends: None, verbs: &["get"] },
    STATUS,
];
const NAMESPACE: &[Subresource] =
    &[Subresource { name: "finalize", sends: None, verbs: &["update"] }, STATUS];
const SERVICE_ACCOUNT: &[Subresource] = &[Subresource {
    name: "token",
    sends: Some(("authentication.k8s.io", "v1", "TokenRequest")),
    verbs: &["create"],
}];
/// Namespaces have no `deletecollection`.
const NAMESPACE_VERBS: &[&str] = &["create", "delete", "get", "list", "patch", "update", "watch"];

/// The kinds of the core group.
pub(super) const ROWS: &[Row] = &[
    Row {
        short: &["cm"],
        columns: columns::CONFIG_MAP,
        validate: rules::config_map,
        ..Row::namespaced("", "ConfigMap", "configmaps", "configmap")
    },
    Row {
        short: &["ev"],
        columns: columns::EVENT,
        fields: &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        validate: rules::core_event,
        ..Row::namespaced("", "Event", "events", "event")
    },
    Row {
        short: &["ns"],
        verbs: NAMESPACE_VERBS,
        subresources: NAMESPACE,
        names: NameRule::Label,
        status: StatusRule::Cleared,
        fields: &["status.phase"],
        columns: columns::NAMESPACE,
        default: defaults::namespace,
        prepare: rules::prepare_namespace,
        ..Row::cluster_scoped("", "Namespace", "namespaces", "namespace")
    },
    Row {
        short: &["no"],
        subresources: &[STATUS],
        status: StatusRule::KeptOnCreate,
        fields: &["spec.unschedulable"],
        columns: columns::NODE,
        prepare: rules::prepare_node,
        ..Row::cluster_scoped("", "Node", "nodes", "node")
    },
    Row {
        short: &["pvc"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        returns_deleted: true,
        columns: columns::PERSISTENT_VOLUME_CLAIM,
        default: defaults::persistent_volume_claim,
        prepare: rules::prepare_persistent_volume_claim,
        ..Row::namespaced("", "PersistentVolumeClaim", "persistentvolumeclaims", "persistentvolumeclaim")
    },
    Row {
        short: &["po"],
        categories: &["all"],
        subresources: POD,
        status: StatusRule::Cleared,
        generation: true,
        returns_deleted: true,
        fields: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        columns: columns::POD,
        default: defaults::pod,
        prepare: rules::prepare_pod,
        validate: rules::pod,
        ..Row::namespaced("", "Pod", "pods", "pod")
    },
    Row {
        fields: &["type"],
        columns: columns::SECRET,
        default: defaults::secret,
        validate: rules::secret,
        ..Row::namespaced("", "Secret", "secrets", "secret")
    },
    Row {
        short: &["sa"],
        subresources: SERVICE_ACCOUNT,
        returns_deleted: true,
        columns: columns::NAME_AND_AGE,
        ..Row::namespaced("", "ServiceAccount", "serviceaccounts", "serviceaccount")
    },
    Row {
        short: &["svc"],
        categories: &["all"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        names: NameRule::Label1035,
        returns_deleted: true,
        fields: &["spec.clusterIP", "spec.type"],
        columns: columns::SERVICE,
        default: defaults::service,
        prepare: rules::prepare_service,
        validate: rules::service,
        ..Row::namespaced("", "Service", "services", "service")
    },
];
