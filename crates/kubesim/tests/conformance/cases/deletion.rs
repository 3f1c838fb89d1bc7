//! Deletion: grace periods, finalizers, preconditions.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, PODS, config_map, create_node, labelled, pod};
use crate::script::cases;

const A: &str = "/api/v1/namespaces/{ns}/configmaps/a";
const POD: &str = "/api/v1/namespaces/{ns}/pods/a";

const CLAIMS: &str = "/api/v1/namespaces/{ns}/persistentvolumeclaims";

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name },
        "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }
    })
}

cases! { "deletion";
    async fn a_deleted_object_is_not_found(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        s.delete(A).await;
        s.get(A).expect(404).await;
    }

    async fn a_finalizer_delays_deletion(s) {
        let mut object = config_map("a");
        object["metadata"]["finalizers"] = json!(["example.test/hold"]);
        s.post(CONFIG_MAPS, object).only("/kind").await;
        s.delete(A).await;
        s.get(A).await;
        s.delete(A).await;
        s.merge(A, json!({ "data": { "colour": "blue" } })).await;
        s.merge(A, json!({ "metadata": { "finalizers": [] } })).await;
        s.get(A).expect(404).await;
    }

    async fn a_terminating_object_accepts_no_new_finalizer(s) {
        let mut object = config_map("a");
        object["metadata"]["finalizers"] = json!(["example.test/hold"]);
        s.post(CONFIG_MAPS, object).only("/kind").await;
        s.delete(A).only("/kind").await;
        s.merge(A, json!({ "metadata": { "finalizers": ["example.test/hold", "example.test/more"] } })).expect(422).await;
        s.merge(A, json!({ "metadata": { "finalizers": [] } })).only("/kind").await;
    }

    async fn an_invalid_finalizer_is_rejected(s) {
        let mut object = config_map("a");
        object["metadata"]["finalizers"] = json!(["plain"]);
        s.post(CONFIG_MAPS, object).expect(422).await;
    }

    async fn a_deletion_may_require_a_uid(s) {
        let created = s.post(CONFIG_MAPS, config_map("a")).await;
        s.delete(A).options(json!({ "preconditions": { "uid": "00000000-0000-4000-8000-000000000000" } })).expect(409).await;
        s.delete(A).options(json!({ "preconditions": { "uid": created["metadata"]["uid"] } })).await;
    }

    async fn a_deletion_may_require_a_version(s) {
        let created = s.post(CONFIG_MAPS, config_map("a")).await;
        s.merge(A, json!({ "data": { "colour": "blue" } })).only("/kind").await;
        s.delete(A).options(json!({ "preconditions": { "resourceVersion": created["metadata"]["resourceVersion"] } }))
            .expect(409).without("/message").await;
        s.get(A).only("/kind").await;
    }

    async fn an_unscheduled_pod_is_deleted_at_once(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.delete(POD).without("/status").await;
        s.get(POD).expect(404).await;
    }

    async fn a_pod_on_a_node_has_a_grace_period(s) {
        create_node(s).await;
        let mut object = pod("a");
        object["spec"]["nodeName"] = "somewhere-{id}".into();
        s.post(PODS, object).without("/status").await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({ "status": { "phase": "Running" } })).only("/status/phase").await;
        s.delete(POD).without("/status").await;
        s.get(POD).only("/metadata/deletionGracePeriodSeconds").only("/status/phase").await;
        // A shorter grace period replaces a longer one, but not the other way round.
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=5").only("/metadata/deletionGracePeriodSeconds").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=60").only("/metadata/deletionGracePeriodSeconds").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=0").only("/kind").await;
        s.get(POD).expect(404).await;
    }

    async fn a_finished_pod_has_no_grace_period(s) {
        create_node(s).await;
        let mut object = pod("a");
        object["spec"]["nodeName"] = "somewhere-{id}".into();
        s.post(PODS, object).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({ "status": { "phase": "Succeeded" } })).only("/status/phase").await;
        s.delete(POD).only("/metadata/name").await;
        s.get(POD).expect(404).await;
    }

    async fn a_negative_grace_period_is_handled_as_by_the_real_server(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=-5").only("/kind").await;
        s.get(POD).expect(404).await;
    }

    async fn a_collection_is_deleted_by_selector(s) {
        for (name, colour) in [("a", "red"), ("b", "blue"), ("c", "red")] {
            s.post(CONFIG_MAPS, labelled(name, json!({ "colour": colour }))).only("/kind").await;
        }
        s.delete("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour%3Dred").without("/metadata/resourceVersion").await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour").await;
    }

    async fn invalid_options_of_a_deletion_are_rejected(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        s.delete(A).options(json!({ "propagationPolicy": "Sideways" })).expect(422).await;
        s.delete(A).options(json!({ "propagationPolicy": "Orphan", "orphanDependents": true })).expect(422).await;
        s.delete(A).raw("not json").expect(400).without("/message").await;
    }

    async fn a_namespace_is_deleted_with_its_contents(s) {
        s.post("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{id}" } })).await;
        s.post("/api/v1/namespaces/{id}/configmaps", config_map("a")).only("/kind").await;
        s.delete("/api/v1/namespaces/{id}").without("/status/conditions").await;
        s.get("/api/v1/namespaces/{id}").expect(404).until("/reason", "NotFound".into()).await;
        s.get("/api/v1/namespaces/{id}/configmaps/a").expect(404).await;
    }

    async fn a_terminating_namespace_accepts_no_new_objects(s) {
        s.post("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{id}" } })).only("/kind").await;
        let mut held = config_map("a");
        held["metadata"]["finalizers"] = json!(["example.test/hold"]);
        s.post("/api/v1/namespaces/{id}/configmaps", held).only("/kind").await;
        s.delete("/api/v1/namespaces/{id}").only("/status/phase").await;
        s.post("/api/v1/namespaces/{id}/configmaps", config_map("b")).expect(403).await;
        s.get("/api/v1/namespaces/{id}/configmaps/a").until("/metadata/deletionGracePeriodSeconds", json!(0)).only("/metadata/finalizers").await;
        s.merge("/api/v1/namespaces/{id}/configmaps/a", json!({ "metadata": { "finalizers": null } })).only("/kind").await;
        s.get("/api/v1/namespaces/{id}").expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn a_claim_that_no_pod_uses_is_released(s) {
        s.post(CLAIMS, claim("a")).only("/metadata/finalizers").await;
        s.delete("/api/v1/namespaces/{ns}/persistentvolumeclaims/a").only("/metadata/finalizers").await;
        s.get("/api/v1/namespaces/{ns}/persistentvolumeclaims/a").expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn a_claim_waits_for_the_pod_that_uses_it(s) {
        create_node(s).await;
        s.post(CLAIMS, claim("a")).only("/kind").await;
        let mut user = pod("a");
        user["spec"]["nodeName"] = "somewhere-{id}".into();
        user["spec"]["volumes"] = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "a" } }]);
        s.post(PODS, user).only("/kind").await;
        s.delete("/api/v1/namespaces/{ns}/persistentvolumeclaims/a").only("/metadata/finalizers").await;
        s.merge("/api/v1/namespaces/{ns}/persistentvolumeclaims/a", json!({ "metadata": { "labels": { "seen": "yes" } } }))
            .only("/metadata/finalizers").only("/status/phase").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=0").only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/persistentvolumeclaims/a").expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn a_namespace_is_deleted_with_its_claims(s) {
        s.post("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{id}" } })).only("/kind").await;
        s.post("/api/v1/namespaces/{id}/persistentvolumeclaims", claim("a")).only("/kind").await;
        s.delete("/api/v1/namespaces/{id}").only("/status/phase").await;
        s.get("/api/v1/namespaces/{id}").expect(404).until("/reason", "NotFound".into()).await;
    }

    async fn the_default_namespace_cannot_be_deleted(s) {
        s.delete("/api/v1/namespaces/default?dryRun=All").expect(403).await;
    }
}
