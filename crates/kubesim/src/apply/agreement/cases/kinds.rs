//! An object of each kind, created, applied to and patched.

use serde_json::json;

use super::super::Kind;
use super::{Add, apply, create, merge, strategic};

pub(super) fn kinds(case: &mut Add<'_>) {
    workloads(case);
    let selector = json!({ "matchLabels": { "a": "b" } });
    case(
        "a disruption budget",
        Kind::DisruptionBudget,
        vec![
            create(json!({ "spec": { "minAvailable": 1, "selector": selector } })),
            strategic(json!({ "spec": { "minAvailable": null, "maxUnavailable": "50%" } })),
            apply("a", json!({ "spec": { "maxUnavailable": "50%" } })),
        ],
    );
    let pods = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    case(
        "a role",
        Kind::Role,
        vec![create(json!({})), merge(json!({ "rules": pods })), merge(json!({ "rules": [] }))],
    );
    case(
        "a role binding",
        Kind::RoleBinding,
        vec![
            create(json!({
                "roleRef": { "kind": "Role", "name": "x" },
                "subjects": [{ "kind": "User", "name": "a" }, { "kind": "ServiceAccount", "name": "b", "namespace": "c" }],
            })),
            merge(json!({ "subjects": null })),
        ],
    );
    case(
        "a lease",
        Kind::Lease,
        vec![
            create(json!({ "spec": { "renewTime": "2024-01-01T00:00:00Z" } })),
            create(json!({ "spec": { "holderIdentity": "x", "renewTime": "2024-01-01T00:00:00.000001Z" } })),
            merge(
                json!({ "spec": { "renewTime": "2024-01-01T00:00:00.000000+01:00", "leaseDurationSeconds": 40 } }),
            ),
            merge(json!({ "spec": { "renewTime": "2024-01-01T00:00:00.5+01:00" } })),
            merge(json!({ "spec": { "renewTime": "soon" } })),
        ],
    );
    case(
        "an event",
        Kind::Event,
        vec![
            create(json!({
                "involvedObject": { "kind": "Pod", "name": "p", "namespace": "NAMESPACE" },
                "reason": "x", "type": "Normal", "count": 1, "firstTimestamp": "2024-01-01T00:00:00Z" })),
            merge(json!({ "count": 2, "lastTimestamp": "2024-01-01T00:00:01+01:00" })),
        ],
    );
    case(
        "a claim",
        Kind::VolumeClaim,
        vec![create(json!({ "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1024Mi" } } } }))],
    );
    case(
        "a service account",
        Kind::ServiceAccount,
        vec![
            create(json!({ "imagePullSecrets": [{ "name": "a" }], "automountServiceAccountToken": false })),
            strategic(json!({ "imagePullSecrets": [{ "name": "b" }], "secrets": [{ "name": "s" }] })),
            strategic(json!({ "imagePullSecrets": [{ "name": "a", "$patch": "delete" }] })),
        ],
    );
    case(
        "an endpoint slice",
        Kind::EndpointSlice,
        vec![create(json!({
            "addressType": "IPv4", "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": {} }], "ports": [{ "port": 80 }] }))],
    );
    case(
        "immutable data in base64",
        Kind::Secret,
        vec![
            create(json!({ "type": "Opaque", "data": { "a": "YQ==" }, "immutable": false })),
            apply("a", json!({ "stringData": { "b": "c" } })),
            merge(json!({ "data": { "a": null } })),
        ],
    );
}

fn workloads(case: &mut Add<'_>) {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": {
        "containers": [{ "name": "a", "image": "x:latest", "lifecycle": { "preStop": { "httpGet": { "port": "p" } } } }],
        "initContainers": [{ "name": "i", "image": "host:5000/x", "restartPolicy": "Always" }],
        "hostNetwork": false,
        "affinity": {},
        "topologySpreadConstraints": [
            { "maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": { "matchLabels": { "a": "b" } } }],
        "volumes": [
            { "name": "p", "projected": { "sources": [{ "serviceAccountToken": { "path": "t" } }, { "downwardAPI": { "items": [
                { "path": "l", "fieldRef": { "fieldPath": "metadata.labels" } }] } }] } },
            { "name": "d", "downwardAPI": {} },
            { "name": "e", "ephemeral": { "volumeClaimTemplate": { "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } } } },
        ],
    } });
    case(
        "a replica set",
        Kind::ReplicaSet,
        vec![
            create(json!({ "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": template } })),
            merge(json!({ "spec": { "replicas": 0 } })),
            apply(
                "a",
                json!({ "spec": { "template": { "spec": { "tolerations": [{ "key": "k", "operator": "Exists" }] } } } }),
            ),
        ],
    );
    let mut pod = template.clone();
    pod["spec"]["restartPolicy"] = json!("Never");
    case(
        "a cron job",
        Kind::CronJob,
        vec![
            create(
                json!({ "spec": { "schedule": "* * * * *", "jobTemplate": { "spec": { "template": pod } } } }),
            ),
            merge(json!({ "spec": { "suspend": true, "timeZone": "Etc/UTC" } })),
        ],
    );
}
