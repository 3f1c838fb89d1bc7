//! Rules of pods and workloads.

use api::calendar::Zone;
use serde_json::{Value, json};

use super::check_immutable;
use crate::cron::CronSchedule;
use crate::fields;
use crate::names;
use crate::schema::FieldError;
use crate::selector::LabelSelector;

pub(in crate::kinds) fn prepare_daemon_set(object: &mut Value) {
    object["status"] = json!({
        "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
    });
    fields::set(object, &["metadata", "annotations", "deprecated.daemonset.template.generation"], json!("1"));
}

/// A new object has an empty status.
pub(in crate::kinds) fn prepare_empty_status(object: &mut Value) {
    object["status"] = json!({});
}

pub(in crate::kinds) fn prepare_replica_set(object: &mut Value) {
    object["status"] = json!({"replicas": 0});
}

pub(in crate::kinds) fn prepare_stateful_set(object: &mut Value) {
    object["status"] = json!({"replicas": 0, "availableReplicas": 0});
}

/// The pods of a job are identified by labels with its uid.
pub(in crate::kinds) fn prepare_job(object: &mut Value) {
    object["status"] = json!({});
    if object["spec"]["manualSelector"] == true {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    // A job without labels gets those of its template, including these.
    let shares_labels = object["metadata"]["labels"].is_object()
        && object["metadata"]["labels"] == object["spec"]["template"]["metadata"]["labels"];
    if object["spec"]["selector"].is_null() {
        let selector = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
        fields::set(object, &["spec", "selector"], selector);
    }
    for (key, value) in [
        ("controller-uid", &uid),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("job-name", &name),
        ("batch.kubernetes.io/job-name", &name),
    ] {
        fields::set(object, &["spec", "template", "metadata", "labels", key], value.clone());
    }
    if shares_labels {
        let labels = object["spec"]["template"]["metadata"]["labels"].clone();
        fields::set(object, &["metadata", "labels"], labels);
    }
}

pub(in crate::kinds) fn prepare_pod(object: &mut Value) {
    let quality = quality_of_service(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": quality});
    let gates = object["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    if gates {
        fields::set(
            object,
            &["status", "conditions"],
            json!([{
                "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates", "lastProbeTime": null,
                "lastTransitionTime": null,
            }]),
        );
    }
    admit_pod(object);
}

/// Adds what the real server's admission adds to every pod: service account, tolerations and priority.
fn admit_pod(object: &mut Value) {
    let mirror = !object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
    let spec = &mut object["spec"];
    if !mirror {
        let account = spec["serviceAccountName"]
            .as_str()
            .filter(|name| !name.is_empty())
            .unwrap_or("default")
            .to_owned();
        spec["serviceAccountName"] = json!(account);
        spec["serviceAccount"] = json!(account);
        if spec["automountServiceAccountToken"] != false {
            mount_token(spec);
        }
    }
    if spec["priority"].is_null() {
        let priority = match spec["priorityClassName"].as_str() {
            Some("system-node-critical") => 2_000_001_000,
            Some("system-cluster-critical") => 2_000_000_000,
            _ => 0,
        };
        spec["priority"] = json!(priority);
    }
    if spec["preemptionPolicy"].is_null() {
        spec["preemptionPolicy"] = json!("PreemptLowerPriority");
    }
    let mut tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|toleration| {
            let same_key =
                toleration["key"] == key || toleration["key"].as_str().unwrap_or_default().is_empty();
            same_key && matches!(toleration["effect"].as_str().unwrap_or_default(), "" | "NoExecute")
        });
        if !tolerated {
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
        }
    }
    spec["tolerations"] = Value::Array(tolerations);
}

fn mount_token(spec: &mut Value) {
    const WHERE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let name = format!("kube-api-access-{}", crate::random::suffix());
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == WHERE) {
                continue;
            }
            let mut mounts = mounts;
            mounts.push(json!({"name": name, "readOnly": true, "mountPath": WHERE}));
            container["volumeMounts"] = Value::Array(mounts);
            mounted = true;
        }
        if spec[list].is_null() {
            spec.as_object_mut().map(|fields| fields.remove(list));
        }
    }
    if !mounted {
        return;
    }
    let mut volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}));
    spec["volumes"] = Value::Array(volumes);
}

fn quality_of_service(spec: &Value) -> &'static str {
    let containers =
        || spec["containers"].as_array().into_iter().chain(spec["initContainers"].as_array()).flatten();
    let given = |container: &Value, part: &str| {
        ["cpu", "memory"].iter().any(|resource| !container["resources"][part][resource].is_null())
    };
    if !containers().any(|container| given(container, "limits") || given(container, "requests")) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let resources = &container["resources"];
        ["cpu", "memory"].iter().all(|resource| {
            let limit = &resources["limits"][resource];
            !limit.is_null()
                && (resources["requests"][resource].is_null() || resources["requests"][resource] == *limit)
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

fn pod_spec(causes: &mut Vec<FieldError>, spec: &Value, path: &str) {
    let empty = Vec::new();
    let containers = spec["containers"].as_array().unwrap_or(&empty);
    if containers.is_empty() {
        causes.push(FieldError::required(format!("{path}.containers"), ""));
    }
    for (list, containers) in
        [("containers", containers), ("initContainers", spec["initContainers"].as_array().unwrap_or(&empty))]
    {
        let mut seen = Vec::new();
        for (index, container) in containers.iter().enumerate() {
            let at = format!("{path}.{list}[{index}]");
            match container["name"].as_str() {
                None | Some("") => causes.push(FieldError::required(format!("{at}.name"), "")),
                Some(name) if seen.contains(&name) => {
                    causes.push(FieldError::duplicate(format!("{at}.name"), &json!(name)));
                }
                Some(name) => {
                    for error in names::label(name) {
                        causes.push(FieldError::invalid(format!("{at}.name"), &json!(name), &error));
                    }
                    seen.push(name);
                }
            }
            if container["image"].as_str().unwrap_or_default().is_empty() {
                causes.push(FieldError::required(format!("{at}.image"), ""));
            }
        }
    }
    if !matches!(spec["restartPolicy"].as_str(), Some("Always" | "OnFailure" | "Never") | None) {
        let supported = ["Always", "OnFailure", "Never"].map(Value::from);
        causes.push(FieldError::not_supported(
            format!("{path}.restartPolicy"),
            &spec["restartPolicy"],
            supported.iter(),
        ));
    }
}

pub(in crate::kinds) fn pod(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let Some(old) = old else {
        pod_spec(&mut causes, &new["spec"], "spec");
        return causes;
    };
    if without_mutable_fields(&new["spec"], old) != without_mutable_fields(&old["spec"], old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        causes.push(FieldError::forbidden("spec", why));
    }
    causes
}

/// A pod's spec without the fields that may change later and those that are set when the pod is bound.
fn without_mutable_fields(spec: &Value, old: &Value) -> Value {
    let mut rest = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in rest[list].as_array_mut().into_iter().flatten() {
            container["image"] = Value::Null;
        }
        if rest[list].is_null() {
            rest.as_object_mut().map(|fields| fields.remove(list));
        }
    }
    if let Some(fields) = rest.as_object_mut() {
        for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
            fields.remove(field);
        }
        if old["spec"]["nodeName"].is_null() && !old["spec"]["schedulingGates"].is_null() {
            fields.remove("nodeSelector");
            fields.remove("affinity");
        }
    }
    rest
}

pub(in crate::kinds) fn workload(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    if let Some(replicas) = spec["replicas"].as_i64()
        && replicas < 0
    {
        causes.push(FieldError::invalid(
            "spec.replicas",
            &json!(replicas),
            "must be greater than or equal to 0",
        ));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let unmatched = || {
        let why = "`selector` does not match template `labels`";
        FieldError::invalid("spec.template.metadata.labels", labels, why)
    };
    match LabelSelector::from_object(spec.get("selector").filter(|selector| !selector.is_null())) {
        // A missing selector selects nothing, so it does not select these labels either.
        None => causes.extend([FieldError::required("spec.selector", ""), unmatched()]),
        Some(selector) if selector.is_empty() => {
            let why = match new["kind"].as_str() {
                Some("DaemonSet") => "empty selector is invalid for daemonset",
                Some("StatefulSet") => "empty selector is invalid for statefulset",
                _ => "empty selector is invalid for deployment",
            };
            causes.push(FieldError::invalid("spec.selector", &spec["selector"], why));
        }
        Some(selector) if !selector.matches_object(&spec["template"]) => causes.push(unmatched()),
        Some(_) => {}
    }
    pod_spec(&mut causes, &spec["template"]["spec"], "spec.template.spec");
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if !matches!(policy.as_str(), None | Some("Always")) {
        causes.push(FieldError::not_supported(
            "spec.template.spec.restartPolicy",
            policy,
            [json!("Always")].iter(),
        ));
    }
    if let Some(old) = old {
        check_immutable(&mut causes, "spec.selector", &spec["selector"], &old["spec"]["selector"]);
    }
    causes
}

/// The schedule and its time zone, without which a cron job could never run.
pub(in crate::kinds) fn cron_job(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    match spec["schedule"].as_str() {
        None | Some("") => causes.push(FieldError::required("spec.schedule", "")),
        Some(schedule) => {
            if let Err(error) = CronSchedule::parse(schedule) {
                causes.push(FieldError::invalid("spec.schedule", &spec["schedule"], &error));
            }
            if schedule.contains("TZ") {
                let why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                causes.push(FieldError::invalid("spec.schedule", &spec["schedule"], why));
            }
        }
    }
    let zone = &spec["timeZone"];
    if let Some(name) = zone.as_str().filter(|_| old.is_none_or(|old| old["spec"]["timeZone"] != *zone))
        && Zone::named(name).is_none()
    {
        let why = match name {
            "" => "timeZone must be nil or non-empty string".to_owned(),
            name => format!("unknown time zone {name}"),
        };
        causes.push(FieldError::invalid("spec.timeZone", zone, &why));
    }
    causes
}

pub(in crate::kinds) fn job(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut causes = Vec::new();
    let spec = &new["spec"];
    pod_spec(&mut causes, &spec["template"]["spec"], "spec.template.spec");
    let policy = &spec["template"]["spec"]["restartPolicy"];
    let path = "spec.template.spec.restartPolicy";
    match policy.as_str() {
        Some("OnFailure" | "Never") => {}
        None | Some("" | "Always") => {
            causes.push(FieldError::required(path, "valid values: \"OnFailure\", \"Never\""));
        }
        Some(_) => {
            causes.push(FieldError::not_supported(path, policy, [json!("OnFailure"), json!("Never")].iter()));
        }
    }
    if let Some(old) = old {
        check_immutable(&mut causes, "spec.selector", &spec["selector"], &old["spec"]["selector"]);
        check_immutable(&mut causes, "spec.completions", &spec["completions"], &old["spec"]["completions"]);
        check_immutable(&mut causes, "spec.template", &spec["template"], &old["spec"]["template"]);
    }
    causes
}
