//! Workloads that run continuously.

use super::row::{Row, SCALE, STATUS, StatusRule};
use super::{columns, defaults, rules};

/// The kinds of the group `apps`.
pub(super) const ROWS: &[Row] = &[
    Row {
        columns: columns::CONTROLLER_REVISION,
        ..Row::namespaced("apps", "ControllerRevision", "controllerrevisions", "controllerrevision")
    },
    Row {
        short: &["ds"],
        categories: &["all"],
        subresources: &[STATUS],
        status: StatusRule::Cleared,
        generation: true,
        columns: columns::DAEMON_SET,
        default: defaults::daemon_set,
        prepare: rules::prepare_daemon_set,
        validate: rules::workload,
        ..Row::namespaced("apps", "DaemonSet", "daemonsets", "daemonset")
    },
    Row {
        short: &["deploy"],
        categories: &["all"],
        subresources: &[SCALE, STATUS],
        status: StatusRule::Cleared,
        generation: true,
        columns: columns::DEPLOYMENT,
        default: defaults::deployment,
        prepare: rules::prepare_empty_status,
        validate: rules::workload,
        ..Row::namespaced("apps", "Deployment", "deployments", "deployment")
    },
    Row {
        short: &["rs"],
        categories: &["all"],
        subresources: &[SCALE, STATUS],
        status: StatusRule::Cleared,
        generation: true,
        columns: columns::REPLICA_SET,
        default: defaults::replica_set,
        prepare: rules::prepare_replica_set,
        validate: rules::workload,
        ..Row::namespaced("apps", "ReplicaSet", "replicasets", "replicaset")
    },
    Row {
        short: &["sts"],
        categories: &["all"],
        subresources: &[SCALE, STATUS],
        status: StatusRule::Cleared,
        generation: true,
        columns: columns::STATEFUL_SET,
        default: defaults::stateful_set,
        prepare: rules::prepare_stateful_set,
        validate: rules::workload,
        ..Row::namespaced("apps", "StatefulSet", "statefulsets", "statefulset")
    },
];
