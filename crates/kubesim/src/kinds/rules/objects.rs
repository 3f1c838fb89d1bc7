//! Rules of kinds that are not workloads.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::check_immutable;
use crate::fields;
use crate::schema::FieldError;

/// Limit on all data of a config map or a secret.
const DATA_BYTES_MAX: usize = 1 << 20;

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
    // A new node accepts no pods until a controller has checked it.
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
            fields::set(object, &["status", field], value);
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

pub(in crate::kinds) fn prepare_service(object: &mut Value) {
    object["status"] = json!({"loadBalancer": {}});
    if object["spec"]["type"] == "ExternalName" {
        return;
    }
    for (field, value) in [("ipFamilies", json!(["IPv4"])), ("ipFamilyPolicy", json!("SingleStack"))] {
        if object["spec"][field].is_null() {
            fields::set(object, &["spec", field], value);
        }
    }
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
    let text = |value: &Value| value.as_str().map_or(0, str::len);
    if bytes_of(&new["data"], text) + bytes_of(&new["binaryData"], decoded_length) > DATA_BYTES_MAX {
        // The real server names the object as a whole in this way.
        causes.push(FieldError::too_long("[]", DATA_BYTES_MAX as u64));
    }
    causes
}

fn bytes_of(map: &Value, length: impl Fn(&Value) -> usize) -> usize {
    map.as_object().into_iter().flatten().map(|(_, value)| length(value)).sum()
}

fn decoded_length(value: &Value) -> usize {
    value.as_str().and_then(|text| STANDARD.decode(text).ok()).map_or(0, |bytes| bytes.len())
}

pub(in crate::kinds) fn secret(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    if let Some(old) = old {
        check_immutable(&mut causes, "type", &new["type"], &old["type"]);
        immutable(&mut causes, new, old, &["data"]);
    }
    data_keys(&mut causes, new, "data");
    if bytes_of(&new["data"], decoded_length) > DATA_BYTES_MAX {
        causes.push(FieldError::too_long("data", DATA_BYTES_MAX as u64));
    }
    secret_parts(&mut causes, new);
    causes
}

/// Checks the keys that a secret of a well-known type requires.
fn secret_parts(causes: &mut Vec<FieldError>, new: &Value) {
    let has = |key: &str| new["data"].get(key).is_some();
    let missing = |key: &str| FieldError::required(format!("data[{key}]"), "");
    match new["type"].as_str().unwrap_or_default() {
        "kubernetes.io/tls" => {
            causes.extend(["tls.crt", "tls.key"].into_iter().filter(|key| !has(key)).map(missing));
        }
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            causes.extend([missing("username"), missing("password")]);
        }
        "kubernetes.io/ssh-auth" if decoded_length(&new["data"]["ssh-privatekey"]) == 0 => {
            causes.push(missing("ssh-privatekey"));
        }
        "kubernetes.io/dockercfg" => docker_part(causes, new, ".dockercfg"),
        "kubernetes.io/dockerconfigjson" => docker_part(causes, new, ".dockerconfigjson"),
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if new["metadata"]["annotations"][key].as_str().unwrap_or_default().is_empty() {
                causes.push(FieldError::required(format!("metadata.annotations[{key}]"), ""));
            }
        }
        _ => {}
    }
}

fn docker_part(causes: &mut Vec<FieldError>, new: &Value, key: &str) {
    let Some(text) = new["data"][key].as_str() else {
        causes.push(FieldError::required(format!("data[{key}]"), ""));
        return;
    };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    if let Err(error) = serde_json::from_slice::<Map<String, Value>>(&bytes) {
        let shown = json!("<secret contents redacted>");
        causes.push(FieldError::invalid(format!("data[{key}]"), &shown, &error.to_string()));
    }
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
    let mut causes = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        let cause = FieldError::invalid("spec", &Value::Null, why);
        // The real server prints its internal type instead of the one that was sent.
        let shown = format!(
            "Invalid value: {{\"MinAvailable\":{},\"Selector\":{},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}: {why}",
            spec["minAvailable"],
            spec["selector"],
            spec["maxUnavailable"],
            spec["unhealthyPodEvictionPolicy"],
        );
        causes.push(FieldError { message: shown, ..cause });
    }
    for field in ["minAvailable", "maxUnavailable"] {
        number_or_percent(&mut causes, &format!("spec.{field}"), &spec[field]);
    }
    causes
}

fn number_or_percent(causes: &mut Vec<FieldError>, path: &str, value: &Value) {
    if let Some(text) = value.as_str() {
        let digits = text.strip_suffix('%').unwrap_or_default();
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
            causes.push(FieldError::invalid(path, value, why));
        } else if digits.parse::<u64>().is_ok_and(|percent| percent > 100) {
            causes.push(FieldError::invalid(path, value, "must not be greater than 100%"));
        }
    } else if value.as_i64().is_some_and(|number| number < 0) {
        causes.push(FieldError::invalid(path, value, "must be greater than or equal to 0"));
    }
}

pub(in crate::kinds) fn certificate_signing_request(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    let request = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
    if !request.is_some_and(|bytes| is_request(&String::from_utf8_lossy(&bytes))) {
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

/// Whether a text contains a complete certificate signing request.
fn is_request(text: &str) -> bool {
    let body = text
        .split_once("-----BEGIN CERTIFICATE REQUEST-----")
        .and_then(|(_, rest)| rest.split_once("-----END CERTIFICATE REQUEST-----"))
        .map(|(body, _)| body.split_whitespace().collect::<String>());
    body.and_then(|body| STANDARD.decode(body).ok()).is_some_and(|der| der.first() == Some(&0x30))
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
            check_immutable(causes, path, new, old);
        };
        fixed(&mut causes, "spec.scope", &spec["scope"], &old["spec"]["scope"]);
        fixed(&mut causes, "spec.names.kind", &spec["names"]["kind"], &old["spec"]["names"]["kind"]);
    }
    causes
}

fn versions(causes: &mut Vec<FieldError>, spec: &Value) {
    let empty = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&empty);
    for (index, version) in versions.iter().enumerate() {
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.as_object().is_none_or(Map::is_empty) {
            let path = format!("spec.versions[{index}].schema.openAPIV3Schema");
            causes.push(FieldError::required(path, ""));
        }
    }
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        let cause = FieldError::invalid("spec.versions", &Value::Null, why);
        let shown: Vec<String> = versions.iter().map(internal_version).collect();
        causes.push(FieldError { message: format!("Invalid value: [{}]: {why}", shown.join(",")), ..cause });
    }
    if stored == 0 {
        let why = "must have at least one stored version";
        causes.push(FieldError::invalid("status.storedVersions", &Value::Null, why));
    }
}

/// A version as the real server prints it: in its internal type, without what all versions share.
fn internal_version(version: &Value) -> String {
    format!(
        "{{\"Name\":{},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
        version["name"],
        version["served"] == true,
        version["storage"] == true,
        version["deprecated"] == true,
        version["deprecationWarning"],
    )
}
