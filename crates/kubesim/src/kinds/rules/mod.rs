//! Fields that the server sets on creation, and the validation of built-in kinds as far as users meet it.

mod events;
mod objects;
mod rbac;
mod webhooks;
mod workload;

use serde_json::Value;

pub(super) use events::{core_event, event};
pub(super) use objects::{
    certificate_signing_request, config_map, custom_resource_definition, pod_disruption_budget,
    prepare_namespace, prepare_node, prepare_persistent_volume_claim, prepare_pod_disruption_budget,
    prepare_service, secret, service,
};
pub(super) use rbac::{cluster_role, cluster_role_binding, role, role_binding};
pub(super) use webhooks::webhook_configuration;
pub(super) use workload::{
    cron_job, job, pod, prepare_daemon_set, prepare_empty_status, prepare_job, prepare_pod,
    prepare_replica_set, prepare_stateful_set, workload,
};

use crate::schema::FieldError;

/// Sets nothing.
pub(super) fn no_change(_: &mut Value) {}

/// Accepts everything.
pub(super) fn no_errors(_: &Value, _: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

/// Rejects a change of an immutable field.
fn check_immutable(causes: &mut Vec<FieldError>, path: &str, new: &Value, old: &Value) {
    if new != old {
        causes.push(FieldError::invalid(path, new, "field is immutable"));
    }
}
