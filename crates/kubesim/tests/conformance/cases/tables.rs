//! Tables as kubectl requests them.

use serde_json::{Value, json};

use super::fixtures::{
    CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, SECRETS, SERVICES, config_map, create_node, deployment, pod,
};
use crate::script::{Request, Script, cases};

/// Tables are compared without managed fields, which contain times.
fn compared(request: Request<'_>) -> Request<'_> {
    request.table().without("/rows/*/object/metadata/managedFields")
}

async fn created(s: &mut Script, path: &str, thing: Value) {
    s.post(path, thing).only("/kind").await;
}

cases! { "tables";
    async fn of_config_maps(s) {
        created(s, CONFIG_MAPS, config_map("a")).await;
        compared(s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name%3Da")).await;
        compared(s.get("/api/v1/namespaces/{ns}/configmaps/a")).await;
    }

    async fn of_secrets(s) {
        created(s, SECRETS, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "x": "eA==", "y": "eQ==" } })).await;
        compared(s.get(SECRETS)).await;
    }

    async fn of_pods(s) {
        created(s, PODS, pod("a")).await;
        compared(s.get(PODS)).await;
    }

    async fn of_a_running_pod(s) {
        create_node(s).await;
        let mut thing = pod("a");
        thing["spec"]["nodeName"] = "somewhere-{id}".into();
        created(s, PODS, thing).await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({ "status": {
            "phase": "Running", "podIP": "192.0.2.1", "podIPs": [{ "ip": "192.0.2.1" }],
            "containerStatuses": [{ "name": "main", "ready": true, "restartCount": 2, "image": "x", "imageID": "", "state": { "running": { "startedAt": "2026-01-01T00:00:00Z" } } }],
            "conditions": [{ "type": "Ready", "status": "True" }]
        } })).only("/kind").await;
        compared(s.get(PODS)).await;
    }

    async fn of_a_failing_pod(s) {
        created(s, PODS, pod("a")).await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({ "status": {
            "phase": "Running",
            "containerStatuses": [{ "name": "main", "ready": false, "restartCount": 7, "image": "x", "imageID": "", "state": { "waiting": { "reason": "CrashLoopBackOff" } } }]
        } })).only("/kind").await;
        compared(s.get(PODS)).await;
    }

    async fn of_nodes(s) {
        created(s, NODES, json!({ "apiVersion": "v1", "kind": "Node", "metadata": {
            "name": "node-{id}", "labels": { "which": "{id}", "node-role.kubernetes.io/control-plane": "", "node-role.kubernetes.io/infra": "" }
        }, "spec": { "unschedulable": true } })).await;
        s.strategic("/api/v1/nodes/node-{id}/status", json!({ "status": {
            "conditions": [{ "type": "Ready", "status": "True" }], "addresses": [{ "type": "InternalIP", "address": "192.0.2.7" }],
            "nodeInfo": { "kubeletVersion": "v1.37.1", "osImage": "Test", "kernelVersion": "6", "containerRuntimeVersion": "test://1", "architecture": "amd64",
                "bootID": "", "kubeProxyVersion": "", "machineID": "", "operatingSystem": "linux", "systemUUID": "" }
        } })).only("/kind").await;
        compared(s.get("/api/v1/nodes?labelSelector=which%3D{id}")).without("/rows/*/object").await;
        s.delete("/api/v1/nodes/node-{id}").only("/kind").await;
    }

    async fn of_services(s) {
        created(s, SERVICES, json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "name": "web", "port": 80 }, { "name": "dns", "port": 53, "protocol": "UDP" }] } })).await;
        compared(s.get(SERVICES)).await;
    }

    async fn of_deployments(s) {
        let mut thing = deployment("a", 0);
        thing["spec"]["paused"] = true.into();
        created(s, DEPLOYMENTS, thing).await;
        compared(s.get(DEPLOYMENTS)).await;
    }

    async fn of_empty_lists(s) {
        for path in [
            "/apis/apps/v1/namespaces/{ns}/replicasets", "/apis/apps/v1/namespaces/{ns}/daemonsets", "/apis/apps/v1/namespaces/{ns}/statefulsets",
            "/apis/batch/v1/namespaces/{ns}/jobs", "/apis/batch/v1/namespaces/{ns}/cronjobs", "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets",
            "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", "/api/v1/namespaces/{ns}/persistentvolumeclaims",
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles", "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings",
        ] {
            compared(s.get(path)).await;
        }
    }

    async fn of_daemon_sets_stateful_sets_jobs_and_budgets(s) {
        let template = super::fixtures::template();
        created(s, "/apis/apps/v1/namespaces/{ns}/replicasets", json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": "a" },
            "spec": { "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template } })).await;
        created(s, "/apis/apps/v1/namespaces/{ns}/statefulsets", json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "a" },
            "spec": { "replicas": 0, "serviceName": "x", "selector": { "matchLabels": { "app": "web" } }, "template": template } })).await;
        let mut never = template.clone();
        never["spec"]["restartPolicy"] = "Never".into();
        created(s, "/apis/batch/v1/namespaces/{ns}/jobs", json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "a" },
            "spec": { "suspend": true, "template": never } })).await;
        created(s, "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", json!({ "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": { "name": "a" },
            "spec": { "minAvailable": "50%", "selector": { "matchLabels": { "app": "none" } } } })).await;
        created(s, "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "a" },
            "spec": { "holderIdentity": "me" } })).await;
        for path in [
            "/apis/apps/v1/namespaces/{ns}/replicasets", "/apis/apps/v1/namespaces/{ns}/statefulsets",
            "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases",
        ] {
            compared(s.get(path)).without("/rows/*/object").await;
        }
    }

    async fn of_namespaces(s) {
        compared(s.get("/api/v1/namespaces?fieldSelector=metadata.name%3D{ns}")).await;
    }

    async fn rows_contain_the_requested_object(s) {
        created(s, CONFIG_MAPS, config_map("a")).await;
        compared(s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name%3Da&includeObject=None")).await;
        compared(s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name%3Da&includeObject=Object"))
            .without("/rows/0/object/metadata/managedFields").await;
    }
}
