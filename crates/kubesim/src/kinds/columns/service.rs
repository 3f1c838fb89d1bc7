//! Cells of services and volume claims.

use jiff::Timestamp;
use serde_json::{Value, json};

fn texts(value: &Value) -> Vec<&str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(super) fn external_ip(object: &Value, _: Timestamp) -> Value {
    let external = texts(&object["spec"]["externalIPs"]);
    match object["spec"]["type"].as_str().unwrap_or_default() {
        "ClusterIP" | "NodePort" if external.is_empty() => json!("<none>"),
        "ClusterIP" | "NodePort" => json!(external.join(",")),
        "LoadBalancer" => {
            let ingress = object["status"]["loadBalancer"]["ingress"].as_array();
            let mut addresses: Vec<&str> = ingress
                .into_iter()
                .flatten()
                .filter_map(|ingress| ingress["ip"].as_str().or(ingress["hostname"].as_str()))
                .collect();
            addresses.extend(external);
            if addresses.is_empty() { json!("<pending>") } else { json!(addresses.join(",")) }
        }
        "ExternalName" => json!(object["spec"]["externalName"].as_str().unwrap_or_default()),
        _ => json!("<unknown>"),
    }
}

pub(super) fn ports(object: &Value, _: Timestamp) -> Value {
    let ports: Vec<String> = object["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|port| {
            let (number, protocol) = (&port["port"], port["protocol"].as_str().unwrap_or_default());
            match port["nodePort"].as_i64() {
                Some(node) if node > 0 => format!("{number}:{node}/{protocol}"),
                _ => format!("{number}/{protocol}"),
            }
        })
        .collect();
    if ports.is_empty() { json!("<none>") } else { json!(ports.join(",")) }
}

pub(super) fn claim_phase(object: &Value, _: Timestamp) -> Value {
    if object["metadata"]["deletionTimestamp"].is_null() {
        json!(object["status"]["phase"].as_str().unwrap_or_default())
    } else {
        json!("Terminating")
    }
}

pub(super) fn claim_capacity(object: &Value, _: Timestamp) -> Value {
    if object["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() {
        return json!("");
    }
    json!(object["status"]["capacity"]["storage"].as_str().unwrap_or("0"))
}

pub(super) fn claim_access_modes(object: &Value, _: Timestamp) -> Value {
    if object["spec"]["volumeName"].as_str().unwrap_or_default().is_empty() {
        return json!("");
    }
    let access_modes = texts(&object["status"]["accessModes"]);
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let modes: Vec<&str> =
        known.iter().filter(|(mode, _)| access_modes.contains(mode)).map(|(_, short)| *short).collect();
    json!(modes.join(","))
}
