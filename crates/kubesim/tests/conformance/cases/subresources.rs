//! Subresources: status, scale, binding, approval.

use serde_json::json;

use super::fixtures::{CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, config_map, deployment, pod};
use crate::script::cases;

const SCALE: &str = "/apis/apps/v1/namespaces/{ns}/deployments/a/scale";

/// A valid signing request: an empty one would be rejected for another reason than that of the case.
const REQUEST: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIME1JR2JBZ0VBTURreEZUQVRCZ05WQkFvVERITjVjM1JsYlRwdWIyUmxjekVnTUI0R0ExVUVBeE1YYzNsegpkR1Z0T201dlpHVTZibTlrWlMweExXTnZibVl3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVRFCmV4YW1wbGU=";

cases! { "subresources";
    async fn the_status_is_written_separately_from_the_spec(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({
            "metadata": { "labels": { "not": "taken" } }, "spec": { "nodeName": "not-taken" }, "status": { "phase": "Running", "podIP": "192.0.2.1", "podIPs": [{ "ip": "192.0.2.1" }] }
        })).await;
        s.merge("/api/v1/namespaces/{ns}/pods/a", json!({ "status": { "phase": "Failed" } })).only("/status/phase").await;
    }

    async fn a_kind_without_status_has_no_status_path(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a/status").expect(404).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a/status", json!({})).expect(404).await;
    }

    async fn the_scale_of_a_deployment_is_read_and_written(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/kind").await;
        s.get(SCALE).without("/status").await;
        s.merge(SCALE, json!({ "spec": { "replicas": 2 } })).without("/status").await;
        s.get("/apis/apps/v1/namespaces/{ns}/deployments/a").only("/spec/replicas").only("/metadata/generation").await;
    }

    async fn a_dry_run_of_a_scale_returns_the_new_replicas(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/kind").await;
        let dry_run = "/apis/apps/v1/namespaces/{ns}/deployments/a/scale?dryRun=All";
        s.merge(dry_run, json!({ "spec": { "replicas": 2 } })).without("/status").await;
        s.put(dry_run, json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a", "namespace": "{ns}" }, "spec": { "replicas": 3 }
        })).without("/status").await;
        s.get("/apis/apps/v1/namespaces/{ns}/deployments/a").only("/spec/replicas").only("/metadata/generation").await;
    }

    async fn the_scale_is_replaced(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/kind").await;
        s.put(SCALE, json!({
            "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a", "namespace": "{ns}" }, "spec": { "replicas": 1 }
        })).without("/status").await;
    }

    async fn a_negative_scale_is_rejected(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/kind").await;
        s.merge(SCALE, json!({ "spec": { "replicas": -2 } })).expect(422).await;
    }

    async fn a_binding_assigns_a_pod_to_a_node(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.post("/api/v1/namespaces/{ns}/pods/a/binding", json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a" }, "target": { "apiVersion": "v1", "kind": "Node", "name": "node-{id}" }
        })).await;
        s.get("/api/v1/namespaces/{ns}/pods/a").only("/spec/nodeName").only("/status/conditions/0/type").only("/status/conditions/0/status").await;
        s.post("/api/v1/namespaces/{ns}/pods/a/binding", json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a" }, "target": { "apiVersion": "v1", "kind": "Node", "name": "other-{id}" }
        })).expect(409).await;
    }

    async fn a_node_is_cordoned_and_its_status_written(s) {
        s.post(NODES, json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "node-{id}" } }))
            .without("/spec/taints").without("/metadata/managedFields").await;
        s.strategic("/api/v1/nodes/node-{id}", json!({ "spec": { "unschedulable": true } })).only("/spec/unschedulable").await;
        s.strategic("/api/v1/nodes/node-{id}/status", json!({ "status": {
            "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" },
            "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady" }],
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.7" }]
        } })).only("/status/capacity").only("/status/conditions").await;
        s.strategic("/api/v1/nodes/node-{id}/status", json!({ "status": {
            "conditions": [{ "type": "MemoryPressure", "status": "False" }]
        } })).only("/status/conditions").await;
        s.delete("/api/v1/nodes/node-{id}").only("/kind").await;
    }

    async fn the_spec_of_a_signing_request_is_validated(s) {
        let created = |usages: serde_json::Value| json!({
            "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": { "name": "request-{id}" },
            "spec": { "request": REQUEST, "signerName": "kubernetes.io/kube-apiserver-client", "usages": usages }
        });
        s.post("/apis/certificates.k8s.io/v1/certificatesigningrequests", created(json!(["client auth"]))).expect(422)
            .only("/reason").only("/code").await;
    }

    async fn the_administrator_may_do_everything(s) {
        s.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": { "namespace": "{ns}", "verb": "delete", "resource": "pods" } }
        })).only("/status/allowed").await;
    }

    async fn an_unknown_subresource_is_not_found(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/pods/a/colour").expect(404).await;
    }
}
