//! Defaults of each kind; the whole object is compared.

use serde_json::{Value, json};

use super::fixtures::{DEPLOYMENTS, PODS, deployment, pod, template};
use crate::script::cases;

fn named(version: &str, kind: &str, rest: Value) -> Value {
    let mut thing = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "a" } });
    for (key, value) in rest.as_object().into_iter().flatten() {
        thing[key] = value.clone();
    }
    thing
}

cases! { "defaults";
    async fn of_a_pod(s) {
        s.post(PODS, pod("a")).await;
    }

    async fn of_a_pod_with_many_fields(s) {
        let mut thing = pod("a");
        thing["spec"] = json!({
            "schedulerName": "nobody",
            "initContainers": [{ "name": "first", "image": "example.test/init" }],
            "containers": [{
                "name": "main", "image": "example.test/web:latest", "ports": [{ "containerPort": 80 }],
                "env": [{ "name": "NODE", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } }],
                "livenessProbe": { "httpGet": { "path": "/", "port": 80 } },
                "readinessProbe": { "tcpSocket": { "port": 80 }, "periodSeconds": 3 },
                "resources": { "requests": { "cpu": "100m" }, "limits": { "memory": "64Mi", "cpu": "0.5" } },
                "volumeMounts": [{ "name": "scratch", "mountPath": "/scratch" }]
            }],
            "volumes": [
                { "name": "scratch", "emptyDir": {} }, { "name": "settings", "configMap": { "name": "x" } },
                { "name": "keys", "secret": { "secretName": "y" } }
            ]
        });
        s.post(PODS, thing).await;
    }

    async fn of_a_pod_with_guaranteed_resources(s) {
        let mut thing = pod("a");
        thing["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Gi" } });
        s.post(PODS, thing).only("/spec/containers/0/resources").only("/status/qosClass").await;
    }

    async fn of_a_deployment(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).await;
    }

    async fn of_a_daemon_set(s) {
        s.post("/apis/apps/v1/namespaces/{ns}/daemonsets", named("apps/v1", "DaemonSet", json!({
            "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": template() }
        }))).await;
    }

    async fn of_a_stateful_set(s) {
        s.post("/apis/apps/v1/namespaces/{ns}/statefulsets", named("apps/v1", "StatefulSet", json!({
            "spec": { "replicas": 0, "serviceName": "web", "selector": { "matchLabels": { "app": "web" } }, "template": template() }
        }))).await;
    }

    async fn of_a_replica_set(s) {
        s.post("/apis/apps/v1/namespaces/{ns}/replicasets", named("apps/v1", "ReplicaSet", json!({
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template() }
        }))).await;
    }

    async fn of_a_job(s) {
        let mut template = template();
        template["spec"]["restartPolicy"] = "Never".into();
        s.post("/apis/batch/v1/namespaces/{ns}/jobs", named("batch/v1", "Job", json!({ "spec": { "suspend": true, "template": template } }))).await;
    }

    async fn of_a_cron_job(s) {
        let mut template = template();
        template["spec"]["restartPolicy"] = "OnFailure".into();
        s.post("/apis/batch/v1/namespaces/{ns}/cronjobs", named("batch/v1", "CronJob", json!({
            "spec": { "suspend": true, "schedule": "0 3 * * *", "jobTemplate": { "spec": { "template": template } } }
        }))).await;
    }

    async fn a_job_requires_a_restart_policy(s) {
        s.post("/apis/batch/v1/namespaces/{ns}/jobs", named("batch/v1", "Job", json!({ "spec": { "template": template() } }))).expect(422).await;
    }

    async fn of_a_service_account(s) {
        s.post("/api/v1/namespaces/{ns}/serviceaccounts", named("v1", "ServiceAccount", json!({}))).await;
    }

    async fn of_a_claim(s) {
        s.post("/api/v1/namespaces/{ns}/persistentvolumeclaims", named("v1", "PersistentVolumeClaim", json!({
            "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } }, "storageClassName": "none" }
        }))).await;
    }

    async fn of_a_budget(s) {
        s.post("/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", named("policy/v1", "PodDisruptionBudget", json!({
            "spec": { "selector": { "matchLabels": { "app": "web" } } }
        }))).await;
    }

    async fn of_a_lease(s) {
        s.post("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", named("coordination.k8s.io/v1", "Lease", json!({
            "spec": { "holderIdentity": "me", "leaseDurationSeconds": 40, "renewTime": "2026-01-01T00:00:00.000000Z" }
        }))).await;
    }

    async fn of_a_role_and_its_binding(s) {
        s.post("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", named("rbac.authorization.k8s.io/v1", "Role", json!({
            "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]
        }))).await;
        s.post("/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings", named("rbac.authorization.k8s.io/v1", "RoleBinding", json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "a" },
            "subjects": [{ "kind": "User", "name": "ann" }, { "kind": "ServiceAccount", "name": "default", "namespace": "{ns}" }]
        }))).await;
    }

    async fn of_an_event(s) {
        s.post("/api/v1/namespaces/{ns}/events", named("v1", "Event", json!({
            "involvedObject": { "kind": "Pod", "name": "x", "namespace": "{ns}" }, "reason": "Started", "message": "it began", "type": "Normal"
        }))).await;
    }

    async fn of_a_namespace(s) {
        s.post("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{id}" } })).await;
    }

    async fn a_tls_secret_requires_its_keys(s) {
        s.post("/api/v1/namespaces/{ns}/secrets", named("v1", "Secret", json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "eA==" } }))).expect(422).await;
    }
}
