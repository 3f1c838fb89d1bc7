//! Defaults of built-in kinds that depend on other fields, so that the schema cannot state them as constants.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

type Object = Map<String, Value>;

/// Sets the computed defaults of the Go type `go_type`; the constants of the schema follow.
pub(super) fn before_constants(go_type: &str, object: &mut Object) {
    match go_type {
        "v1.Container" | "v1.EphemeralContainer" => container(object),
        "v1.CustomResourceDefinition" => custom_resource_definition(object),
        "v1.DaemonSetUpdateStrategy" | "v1.DeploymentStrategy" | "v1.StatefulSetUpdateStrategy" => {
            rolling_update(object);
        }
        "v1.Job" => job(object),
        "v1.Namespace" => namespace(object),
        "v1.NodeStatus" => node_status(object),
        "v1.Pod" => pod(object),
        "v1.PodSpec" => host_network_ports(object),
        "v1.Secret" => secret(object),
        "v1.ServicePort" => service_port(object),
        "v1.ServiceSpec" => service_spec(object),
        "v1.StatefulSetSpec" => claim_templates(object),
        "v1.Subject" => subject(object),
        "v1.Volume" => volume(object),
        _ => {}
    }
}

fn text<'a>(object: &'a Object, name: &str) -> &'a str {
    object.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn set_if_missing(object: &mut Object, name: &str, value: Value) {
    if object.get(name).is_none_or(|value| value.is_null() || value.as_str() == Some("")) {
        object.insert(name.to_owned(), value);
    }
}

fn inner<'a>(object: &'a mut Object, name: &str) -> Option<&'a mut Object> {
    object.get_mut(name).and_then(Value::as_object_mut)
}

fn items<'a>(object: &'a mut Object, name: &str) -> impl Iterator<Item = &'a mut Object> {
    object.get_mut(name).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

/// The pull policy is Always for images without a tag or with `latest`.
fn container(container: &mut Object) {
    let image = text(container, "image");
    let last = image.rsplit('/').next().unwrap_or_default();
    let is_latest = !last.contains('@') && last.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    let policy = if is_latest { "Always" } else { "IfNotPresent" };
    set_if_missing(container, "imagePullPolicy", Value::from(policy));
}

fn custom_resource_definition(definition: &mut Object) {
    let Some(names) = inner(definition, "spec").and_then(|spec| inner(spec, "names")) else { return };
    let kind = text(names, "kind").to_owned();
    if !kind.is_empty() {
        set_if_missing(names, "singular", Value::from(kind.to_lowercase()));
        set_if_missing(names, "listKind", Value::from(format!("{kind}List")));
    }
}

fn rolling_update(strategy: &mut Object) {
    set_if_missing(strategy, "type", Value::from("RollingUpdate"));
    if text(strategy, "type") == "RollingUpdate" {
        // The schema has constants for its fields.
        set_if_missing(strategy, "rollingUpdate", json!({}));
    }
}

fn job(job: &mut Object) {
    let Some(spec) = inner(job, "spec") else { return };
    let is_unset = |spec: &Object, name: &str| spec.get(name).is_none_or(Value::is_null);
    if is_unset(spec, "completions") && is_unset(spec, "parallelism") {
        spec.insert("completions".to_owned(), Value::from(1));
    }
    set_if_missing(spec, "parallelism", Value::from(1));
    let retries = if is_unset(spec, "backoffLimitPerIndex") { 6 } else { i32::MAX };
    set_if_missing(spec, "backoffLimit", Value::from(retries));
    set_if_missing(spec, "completionMode", Value::from("NonIndexed"));
    set_if_missing(spec, "suspend", Value::Bool(false));
    set_if_missing(spec, "manualSelector", Value::Bool(false));
    let replaces = if is_unset(spec, "podFailurePolicy") { "TerminatingOrFailed" } else { "Failed" };
    set_if_missing(spec, "podReplacementPolicy", Value::from(replaces));
}

fn namespace(namespace: &mut Object) {
    let Some(metadata) = inner(namespace, "metadata") else { return };
    let name = text(metadata, "name").to_owned();
    if name.is_empty() {
        return;
    }
    let labels = metadata.entry("labels").or_insert_with(|| json!({}));
    if labels.is_null() {
        *labels = json!({});
    }
    if let Value::Object(labels) = labels {
        labels.insert("kubernetes.io/metadata.name".to_owned(), Value::from(name));
    }
}

fn node_status(status: &mut Object) {
    if let Some(capacity) = status.get("capacity").filter(|capacity| capacity.is_object()).cloned() {
        set_if_missing(status, "allocatable", capacity);
    }
}

/// Defaults of pods that do not apply to pod templates.
fn pod(pod: &mut Object) {
    let Some(spec) = inner(pod, "spec") else { return };
    set_if_missing(spec, "enableServiceLinks", Value::Bool(true));
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            requests_from_limits(container);
        }
    }
}

/// Requests default to limits.
fn requests_from_limits(container: &mut Object) {
    let Some(resources) = inner(container, "resources") else { return };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    let requests = resources.entry("requests").or_insert_with(|| json!({}));
    if requests.is_null() {
        *requests = json!({});
    }
    if let Value::Object(requests) = requests {
        for (name, amount) in limits {
            requests.entry(name).or_insert(amount);
        }
    }
}

fn host_network_ports(spec: &mut Object) {
    if spec.get("hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    for list in ["containers", "initContainers"] {
        for container in items(spec, list) {
            for port in items(container, "ports") {
                let number = port.get("containerPort").cloned();
                if let Some(number) = number.filter(|_| port.get("hostPort").is_none_or(|port| *port == 0)) {
                    port.insert("hostPort".to_owned(), number);
                }
            }
        }
    }
}

/// Moves `stringData`, which is write-only, to `data`.
fn secret(secret: &mut Object) {
    let Some(Value::Object(plain)) = secret.remove("stringData") else { return };
    let encoded = plain.into_iter().filter_map(|(name, text)| Some((name, STANDARD.encode(text.as_str()?))));
    let encoded: Vec<(String, String)> = encoded.collect();
    if encoded.is_empty() {
        return;
    }
    let data = secret.entry("data").or_insert_with(|| json!({}));
    if data.is_null() {
        *data = json!({});
    }
    if let Value::Object(data) = data {
        data.extend(encoded.into_iter().map(|(name, text)| (name, Value::from(text))));
    }
}

fn service_port(port: &mut Object) {
    let is_unset = |target: &Value| target.is_null() || *target == 0 || target.as_str() == Some("");
    if port.get("targetPort").is_none_or(is_unset)
        && let Some(number) = port.get("port").cloned()
    {
        port.insert("targetPort".to_owned(), number);
    }
}

fn service_spec(spec: &mut Object) {
    set_if_missing(spec, "type", Value::from("ClusterIP"));
    let kind = text(spec, "type").to_owned();
    if text(spec, "sessionAffinity") == "ClientIP" {
        set_if_missing(spec, "sessionAffinityConfig", json!({ "clientIP": { "timeoutSeconds": 10800 } }));
    }
    if matches!(kind.as_str(), "ClusterIP" | "NodePort" | "LoadBalancer") {
        set_if_missing(spec, "internalTrafficPolicy", Value::from("Cluster"));
    }
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") {
        set_if_missing(spec, "externalTrafficPolicy", Value::from("Cluster"));
    }
    if kind == "LoadBalancer" {
        set_if_missing(spec, "allocateLoadBalancerNodePorts", Value::Bool(true));
    }
}

fn claim_templates(spec: &mut Object) {
    for claim in items(spec, "volumeClaimTemplates") {
        set_if_missing(claim, "apiVersion", Value::from("v1"));
        set_if_missing(claim, "kind", Value::from("PersistentVolumeClaim"));
    }
}

fn subject(subject: &mut Object) {
    if matches!(text(subject, "kind"), "User" | "Group") {
        set_if_missing(subject, "apiGroup", Value::from("rbac.authorization.k8s.io"));
    }
}

/// A volume without a source is an empty directory.
fn volume(volume: &mut Object) {
    if volume.iter().all(|(name, source)| name == "name" || source.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
}
