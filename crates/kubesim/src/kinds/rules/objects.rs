//! Rules of kinds that are not workloads.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::unchangeable;
use crate::schema::FieldError;

pub(in crate::kinds) fn prepare_namespace(object: &mut Value) {
    let finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    let mut finalizers: Vec<Value> =
        finalizers.into_iter().filter(|finalizer| finalizer != "kubernetes").collect();
    finalizers.push(json!("kubernetes"));
    object["spec"] = json!({"finalizers": finalizers});
    object["status"] = json!({"phase": "Active"});
}

pub(in crate::kinds) fn prepare_node(object: &mut Value) {
    if !object["spec"].is_object() {
        object["spec"] = json!({});
    }
    // A node that has not been looked at by anyone yet takes no pods.
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = &mut object["spec"]["taints"];
    match taints.as_array_mut() {
        Some(taints) => {
            if !taints.iter().any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"]) {
                taints.push(taint);
            }
        }
        None => *taints = json!([taint]),
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    for (field, value) in
        [("daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}})), ("nodeInfo", node_info())]
    {
        if object["status"][field].is_null() {
            object["status"][field] = value;
        }
    }
}

fn node_info() -> Value {
    json!({
        "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
        "kubeletVersion": "", "machineID": "", "operatingSystem": "", "osImage": "", "systemUUID": "",
    })
}

pub(in crate::kinds) fn prepare_persistent_volume_claim(object: &mut Value) {
    object["status"] = json!({"phase": "Pending"});
    let finalizers = &mut object["metadata"]["finalizers"];
    let mut all = finalizers.as_array().cloned().unwrap_or_default();
    if !all.iter().any(|finalizer| finalizer == "kubernetes.io/pvc-protection") {
        all.push(json!("kubernetes.io/pvc-protection"));
    }
    *finalizers = Value::Array(all);
}

/// `stringData` is written, never read.
pub(in crate::kinds) fn prepare_secret(object: &mut Value) {
    let Some(given) = object.as_object_mut().and_then(|fields| fields.remove("stringData")) else { return };
    let Value::Object(given) = given else { return };
    let mut data = object["data"].as_object().cloned().unwrap_or_default();
    for (key, value) in given {
        data.insert(key, STANDARD.encode(value.as_str().unwrap_or_default()).into());
    }
    if !data.is_empty() {
        object["data"] = Value::Object(data);
    }
}

pub(in crate::kinds) fn prepare_service(object: &mut Value) {
    object["status"] = json!({"loadBalancer": {}});
}

pub(in crate::kinds) fn prepare_pod_disruption_budget(object: &mut Value) {
    object["status"] =
        json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0});
}

fn data_keys(causes: &mut Vec<FieldError>, object: &Value, field: &str) {
    for key in object[field].as_object().into_iter().flatten().map(|(key, _)| key) {
        let fits = !key.is_empty()
            && key.len() <= 253
            && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
            && key != "."
            && !key.starts_with("..");
        if !fits {
            let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            causes.push(FieldError::invalid(format!("{field}[{key}]"), &json!(key), why));
        }
    }
}

fn immutable(causes: &mut Vec<FieldError>, new: &Value, old: &Value, fields: &[&str]) {
    if old["immutable"] != true {
        return;
    }
    if new["immutable"] != true {
        causes.push(FieldError::forbidden("immutable", "field is immutable when `immutable` is set"));
    }
    for field in fields {
        if new[field] != old[field] {
            causes.push(FieldError::forbidden(*field, "field is immutable when `immutable` is set"));
        }
    }
}

pub(in crate::kinds) fn config_map(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    if let Some(old) = old {
        immutable(&mut causes, new, old, &["data", "binaryData"]);
    }
    data_keys(&mut causes, new, "data");
    data_keys(&mut causes, new, "binaryData");
    causes
}

pub(in crate::kinds) fn secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    if let Some(old) = old {
        unchangeable(&mut causes, "type", &new["type"], &old["type"]);
        immutable(&mut causes, new, old, &["data"]);
    }
    data_keys(&mut causes, new, "data");
    causes
}

pub(in crate::kinds) fn service(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let (spec, headless) = (&new["spec"], new["spec"]["clusterIP"] == "None");
    let no_ports = spec["ports"].as_array().is_none_or(Vec::is_empty);
    if no_ports && !headless && spec["type"] != "ExternalName" {
        causes.push(FieldError::required("spec.ports", ""));
    }
    if let Some(old) = old
        && old["spec"]["type"] != "ExternalName"
        && spec["type"] != "ExternalName"
        && old["spec"]["clusterIP"] != spec["clusterIP"]
    {
        let change = json!([spec["clusterIP"]]);
        causes.push(FieldError::invalid("spec.clusterIPs[0]", &change, "may not change once set"));
    }
    causes
}

pub(in crate::kinds) fn pod_disruption_budget(new: &Value, _: Option<&Value>) -> Vec<FieldError> {
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let shown = json!({"minAvailable": spec["minAvailable"], "maxUnavailable": spec["maxUnavailable"]});
        return vec![FieldError::invalid(
            "spec",
            &shown,
            "minAvailable and maxUnavailable cannot be both set",
        )];
    }
    let mut causes = Vec::new();
    for field in ["minAvailable", "maxUnavailable"] {
        if spec[field].as_i64().is_some_and(|number| number < 0) {
            let path = format!("spec.{field}");
            causes.push(FieldError::invalid(path, &spec[field], "must be greater than or equal to 0"));
        }
    }
    causes
}

pub(in crate::kinds) fn certificate_signing_request(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    let request = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
    let text = request.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    if !text.contains("-----BEGIN CERTIFICATE REQUEST-----")
        && !text.contains("-----BEGIN NEW CERTIFICATE REQUEST-----")
    {
        causes.push(FieldError::invalid(
            "spec.request",
            &spec["request"],
            "PEM block type must be CERTIFICATE REQUEST",
        ));
    }
    if spec["usages"].as_array().is_none_or(Vec::is_empty) {
        causes.push(FieldError::required("spec.usages", ""));
    }
    match spec["signerName"].as_str() {
        None | Some("") => causes.push(FieldError::required("spec.signerName", "")),
        Some(name) if !name.contains('/') => {
            let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            causes.push(FieldError::invalid("spec.signerName", &spec["signerName"], why));
        }
        Some(_) => {}
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64()
        && seconds < 600
    {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(FieldError::invalid("spec.expirationSeconds", &json!(seconds), why));
    }
    if old.is_some_and(|old| old["spec"] != *spec) {
        causes.push(FieldError::invalid("spec", spec, "field is immutable"));
    }
    causes
}

pub(in crate::kinds) fn custom_resource_definition(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let expected = format!("{plural}.{group}");
    if new["metadata"]["name"] != expected.as_str() {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(FieldError::invalid("metadata.name", &new["metadata"]["name"], why));
    }
    if group.is_empty() {
        causes.push(FieldError::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(FieldError::invalid(
            "spec.group",
            &spec["group"],
            "should be a domain with at least one dot",
        ));
    }
    if !matches!(spec["scope"].as_str(), Some("Cluster" | "Namespaced")) {
        causes.push(match &spec["scope"] {
            Value::Null => FieldError::required("spec.scope", ""),
            scope => FieldError::not_supported(
                "spec.scope",
                scope,
                ["Cluster", "Namespaced"].map(Value::from).iter(),
            ),
        });
    }
    for field in ["plural", "kind"] {
        if text(&spec["names"][field]).is_empty() {
            causes.push(FieldError::required(format!("spec.names.{field}"), ""));
        }
    }
    if spec["conversion"]["strategy"] != "None" {
        let why = "conversion webhooks are not served by this simulated API server";
        causes.push(FieldError::forbidden("spec.conversion.strategy", why));
    }
    versions(&mut causes, spec);
    if let Some(old) = old {
        let fixed = |causes: &mut Vec<FieldError>, path: &str, new: &Value, old: &Value| {
            unchangeable(causes, path, new, old);
        };
        fixed(&mut causes, "spec.scope", &spec["scope"], &old["spec"]["scope"]);
        fixed(&mut causes, "spec.names.kind", &spec["names"]["kind"], &old["spec"]["names"]["kind"]);
    }
    causes
}

fn versions(causes: &mut Vec<FieldError>, spec: &Value) {
    let empty = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&empty);
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(FieldError::invalid("spec.versions", &spec["versions"], why));
    }
    for (index, version) in versions.iter().enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.as_object().is_none_or(Map::is_empty) {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(FieldError::required(path, "schemas are required"));
        }
    }
}
