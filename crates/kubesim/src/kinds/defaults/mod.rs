//! Defaults of each kind that the real server sets in code. The defaults of the published schema are applied before.

mod pod;
mod workload;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

pub(super) use pod::{pod, pod_spec};
pub(super) use workload::{cron_job, daemon_set, deployment, job, replica_set, stateful_set};

/// Sets a field unless it has a value.
fn fill(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        let slot = fields.entry(field).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value;
        }
    }
}

/// The object at `field`, created if it is missing.
fn within<'a>(object: &'a mut Value, field: &str) -> &'a mut Value {
    fill(object, field, json!({}));
    &mut object[field]
}

/// The items of a list; none if it is missing.
fn items<'a>(object: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> {
    object.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

pub(super) fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.is_string()
        && let Some(labels) = within(within(object, "metadata"), "labels").as_object_mut()
    {
        labels.insert("kubernetes.io/metadata.name".into(), name);
    }
}

pub(super) fn secret(object: &mut Value) {
    fill(object, "type", json!("Opaque"));
    fold_string_data(object);
}

/// Moves `stringData`, which is write-only, to `data`.
fn fold_string_data(object: &mut Value) {
    let Some(plain) = object.as_object_mut().and_then(|fields| fields.remove("stringData")) else { return };
    let Value::Object(plain) = plain else { return };
    let mut data = object["data"].as_object().cloned().unwrap_or_default();
    for (key, value) in plain {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
    if !data.is_empty() {
        object["data"] = Value::Object(data);
    }
}

pub(super) fn persistent_volume_claim(object: &mut Value) {
    fill(within(object, "spec"), "volumeMode", json!("Filesystem"));
}

pub(super) fn service(object: &mut Value) {
    let spec = within(object, "spec");
    fill(spec, "sessionAffinity", json!("None"));
    fill(spec, "type", json!("ClusterIP"));
    if spec["sessionAffinity"] == "ClientIP" {
        fill(within(within(spec, "sessionAffinityConfig"), "clientIP"), "timeoutSeconds", json!(10_800));
    }
    for port in items(spec, "ports") {
        fill(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        if port["targetPort"] == 0 || port["targetPort"] == "" {
            port["targetPort"] = Value::Null;
        }
        fill(port, "targetPort", number);
    }
    let kind = spec["type"].as_str().unwrap_or_default().to_owned();
    if kind == "NodePort" || kind == "LoadBalancer" {
        fill(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    if kind != "ExternalName" {
        fill(spec, "internalTrafficPolicy", json!("Cluster"));
    }
}

pub(super) fn role_binding(object: &mut Value) {
    fill(within(object, "roleRef"), "apiGroup", json!("rbac.authorization.k8s.io"));
    for subject in items(object, "subjects") {
        if matches!(subject["kind"].as_str(), Some("User" | "Group")) {
            fill(subject, "apiGroup", json!("rbac.authorization.k8s.io"));
        }
    }
}

pub(super) fn certificate_signing_request(object: &mut Value) {
    fill(within(object, "spec"), "usages", json!(["digital signature", "key encipherment"]));
}

pub(super) fn custom_resource_definition(object: &mut Value) {
    let spec = within(object, "spec");
    let names = within(spec, "names");
    if let Some(kind) = names["kind"].as_str().map(str::to_owned) {
        fill(names, "singular", json!(kind.to_lowercase()));
        fill(names, "listKind", json!(format!("{kind}List")));
    }
    fill(within(spec, "conversion"), "strategy", json!("None"));
    for version in items(spec, "versions") {
        for column in items(version, "additionalPrinterColumns") {
            if column["priority"] == 0 {
                // Zero is the default, which the real server omits.
                column.as_object_mut().map(|fields| fields.remove("priority"));
            }
        }
    }
}
