//! Defaults of pods and of pod templates.

use serde_json::{Value, json};

use super::{fill, items, within};

pub(in crate::kinds) fn pod(object: &mut Value) {
    let spec = within(object, "spec");
    requests_from_limits(spec);
    fill(spec, "enableServiceLinks", json!(true));
    pod_spec(spec);
}

/// Defaults of pods and of pod templates.
pub(in crate::kinds) fn pod_spec(spec: &mut Value) {
    fill(spec, "dnsPolicy", json!("ClusterFirst"));
    fill(spec, "restartPolicy", json!("Always"));
    fill(spec, "schedulerName", json!("default-scheduler"));
    fill(spec, "terminationGracePeriodSeconds", json!(30));
    fill(spec, "securityContext", json!({}));
    if let Some(name) = spec["serviceAccountName"].as_str().map(str::to_owned) {
        fill(spec, "serviceAccount", json!(name));
    } else if let Some(name) = spec["serviceAccount"].as_str().map(str::to_owned) {
        fill(spec, "serviceAccountName", json!(name));
    }
    let host_network = spec["hostNetwork"] == true;
    for list in ["initContainers", "containers"] {
        for one in items(spec, list) {
            container(one, host_network);
        }
    }
    for one in items(spec, "volumes") {
        volume(one);
    }
}

fn container(container: &mut Value, host_network: bool) {
    let image = container["image"].as_str().unwrap_or_default();
    fill_pull_policy(image.to_owned().as_str(), container);
    fill(container, "resources", json!({}));
    fill(container, "terminationMessagePath", json!("/dev/termination-log"));
    fill(container, "terminationMessagePolicy", json!("File"));
    for port in items(container, "ports") {
        fill(port, "protocol", json!("TCP"));
        if host_network {
            let number = port["containerPort"].clone();
            fill(port, "hostPort", number);
        }
    }
    for variable in items(container, "env") {
        if variable["valueFrom"]["fieldRef"].is_object() {
            fill(&mut variable["valueFrom"]["fieldRef"], "apiVersion", json!("v1"));
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if container[probe].is_object() {
            let probe = &mut container[probe];
            fill(probe, "timeoutSeconds", json!(1));
            fill(probe, "periodSeconds", json!(10));
            fill(probe, "successThreshold", json!(1));
            fill(probe, "failureThreshold", json!(3));
            http_get(probe);
        }
    }
    if container["lifecycle"].is_object() {
        for hook in ["postStart", "preStop"] {
            if container["lifecycle"][hook].is_object() {
                http_get(&mut container["lifecycle"][hook]);
            }
        }
    }
}

fn fill_pull_policy(image: &str, container: &mut Value) {
    let name = image.rsplit('/').next().unwrap_or_default();
    let newest = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    fill(container, "imagePullPolicy", json!(if newest { "Always" } else { "IfNotPresent" }));
}

fn http_get(handler: &mut Value) {
    if handler["httpGet"].is_object() {
        fill(&mut handler["httpGet"], "path", json!("/"));
        fill(&mut handler["httpGet"], "scheme", json!("HTTP"));
    }
}

fn volume(volume: &mut Value) {
    let has_source = volume.as_object().is_some_and(|fields| fields.keys().any(|field| field != "name"));
    if !has_source {
        fill(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if volume[source].is_object() {
            fill(&mut volume[source], "defaultMode", json!(420));
        }
    }
    if volume["hostPath"].is_object() {
        fill(&mut volume["hostPath"], "type", json!(""));
    }
    if volume["projected"].is_object() {
        for source in items(&mut volume["projected"], "sources") {
            if source["serviceAccountToken"].is_object() {
                fill(&mut source["serviceAccountToken"], "expirationSeconds", json!(3600));
            }
            for item in source.get_mut("downwardAPI").into_iter().flat_map(|api| items(api, "items")) {
                if item["fieldRef"].is_object() {
                    fill(&mut item["fieldRef"], "apiVersion", json!("v1"));
                }
            }
        }
    }
}

/// A container requests its limits unless it states other requests.
fn requests_from_limits(spec: &mut Value) {
    for list in ["initContainers", "containers"] {
        for container in items(spec, list) {
            let Some(limits) = container["resources"]["limits"].as_object().cloned() else { continue };
            let requests = within(within(container, "resources"), "requests");
            for (resource, amount) in limits {
                fill(requests, &resource, amount);
            }
        }
    }
}
