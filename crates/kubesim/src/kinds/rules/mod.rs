//! What the server itself sets on creation, and what it refuses, as far as people meet it.

mod objects;
mod workload;

use serde_json::Value;

pub(super) use objects::{
    certificate_signing_request, config_map, custom_resource_definition, pod_disruption_budget,
    prepare_namespace, prepare_node, prepare_persistent_volume_claim, prepare_pod_disruption_budget,
    prepare_service, secret, service,
};
pub(super) use workload::{
    job, pod, prepare_daemon_set, prepare_empty_status, prepare_job, prepare_pod, prepare_replica_set,
    prepare_stateful_set, workload,
};

use crate::schema::FieldError;

/// Nothing is set.
pub(super) fn no_change(_: &mut Value) {}

/// Nothing is refused.
pub(super) fn no_errors(_: &Value, _: Option<&Value>) -> Vec<FieldError> {
    Vec::new()
}

/// A field that may not change once it is set.
fn check_immutable(causes: &mut Vec<FieldError>, path: &str, new: &Value, old: &Value) {
    if new != old {
        causes.push(FieldError::invalid(path, new, "field is immutable"));
    }
}
