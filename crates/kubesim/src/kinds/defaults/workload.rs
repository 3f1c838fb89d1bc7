//! Defaults of workloads.

use serde_json::{Value, json};

use crate::fields;

use super::{fill, items, pod_spec, within};

fn template(spec: &mut Value) {
    let template = within(spec, "template");
    fill(template, "metadata", json!({}));
    pod_spec(within(template, "spec"));
}

pub(in crate::kinds) fn deployment(object: &mut Value) {
    let spec = within(object, "spec");
    fill(spec, "replicas", json!(1));
    let strategy = within(spec, "strategy");
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = within(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", json!("25%"));
        fill(rolling, "maxSurge", json!("25%"));
    }
    fill(spec, "revisionHistoryLimit", json!(10));
    fill(spec, "progressDeadlineSeconds", json!(600));
    template(spec);
}

pub(in crate::kinds) fn replica_set(object: &mut Value) {
    let spec = within(object, "spec");
    fill(spec, "replicas", json!(1));
    template(spec);
}

pub(in crate::kinds) fn daemon_set(object: &mut Value) {
    // The real server adds this annotation when it decodes a DaemonSet, so its writer owns the field.
    let annotations = within(within(object, "metadata"), "annotations");
    fill(annotations, "deprecated.daemonset.template.generation", json!("0"));
    let spec = within(object, "spec");
    let strategy = within(spec, "updateStrategy");
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        let rolling = within(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", json!(1));
        fill(rolling, "maxSurge", json!(0));
    }
    fill(spec, "revisionHistoryLimit", json!(10));
    template(spec);
}

pub(in crate::kinds) fn stateful_set(object: &mut Value) {
    let spec = within(object, "spec");
    fill(spec, "podManagementPolicy", json!("OrderedReady"));
    let strategy = within(spec, "updateStrategy");
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        fill(within(strategy, "rollingUpdate"), "partition", json!(0));
    }
    let retention = within(spec, "persistentVolumeClaimRetentionPolicy");
    fill(retention, "whenDeleted", json!("Retain"));
    fill(retention, "whenScaled", json!("Retain"));
    fill(spec, "replicas", json!(1));
    fill(spec, "revisionHistoryLimit", json!(10));
    for claim in items(spec, "volumeClaimTemplates") {
        fill(claim, "kind", json!("PersistentVolumeClaim"));
        fill(claim, "apiVersion", json!("v1"));
        super::persistent_volume_claim(claim);
        fill(within(claim, "status"), "phase", json!("Pending"));
    }
    template(spec);
}

pub(in crate::kinds) fn job(object: &mut Value) {
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    if object["metadata"]["labels"].as_object().is_none_or(serde_json::Map::is_empty) && labels.is_object() {
        fields::set(object, &["metadata", "labels"], labels);
    }
    let spec = within(object, "spec");
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        fill(spec, "completions", json!(1));
    }
    fill(spec, "parallelism", json!(1));
    let retries = if spec["backoffLimitPerIndex"].is_null() { 6 } else { i32::MAX };
    fill(spec, "backoffLimit", json!(retries));
    fill(spec, "completionMode", json!("NonIndexed"));
    fill(spec, "suspend", json!(false));
    let replacement = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
    fill(spec, "podReplacementPolicy", json!(replacement));
    template(spec);
}

pub(in crate::kinds) fn cron_job(object: &mut Value) {
    let spec = within(object, "spec");
    fill(spec, "concurrencyPolicy", json!("Allow"));
    fill(spec, "suspend", json!(false));
    fill(spec, "successfulJobsHistoryLimit", json!(3));
    fill(spec, "failedJobsHistoryLimit", json!(1));
    let job = within(spec, "jobTemplate");
    fill(job, "metadata", json!({}));
    template(within(job, "spec"));
}
