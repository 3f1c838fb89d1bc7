//! Deleting: grace, finalizers, conditions.

use serde_json::json;

use super::things::{CONFIG_MAPS, PODS, config_map, labelled, make_node, pod};
use crate::script::cases;

const A: &str = "/api/v1/namespaces/{ns}/configmaps/a";
const POD: &str = "/api/v1/namespaces/{ns}/pods/a";

cases! { "deletion";
    async fn what_is_deleted_is_gone(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        s.delete(A).await;
        s.get(A).expect(404).await;
    }

    async fn a_finalizer_holds_what_is_deleted(s) {
        let mut thing = config_map("a");
        thing["metadata"]["finalizers"] = json!(["example.test/hold"]);
        s.post(CONFIG_MAPS, thing).only("/kind").await;
        s.delete(A).await;
        s.get(A).await;
        s.delete(A).await;
        s.merge(A, json!({ "data": { "colour": "blue" } })).await;
        s.merge(A, json!({ "metadata": { "finalizers": [] } })).await;
        s.get(A).expect(404).await;
    }

    async fn what_is_being_deleted_takes_no_new_finalizer(s) {
        let mut thing = config_map("a");
        thing["metadata"]["finalizers"] = json!(["example.test/hold"]);
        s.post(CONFIG_MAPS, thing).only("/kind").await;
        s.delete(A).only("/kind").await;
        s.merge(A, json!({ "metadata": { "finalizers": ["example.test/hold", "example.test/more"] } })).expect(422).await;
        s.merge(A, json!({ "metadata": { "finalizers": [] } })).only("/kind").await;
    }

    async fn a_finalizer_of_wrong_form_is_refused(s) {
        let mut thing = config_map("a");
        thing["metadata"]["finalizers"] = json!(["plain"]);
        s.post(CONFIG_MAPS, thing).expect(422).await;
    }

    async fn a_deletion_may_ask_for_a_uid(s) {
        let made = s.post(CONFIG_MAPS, config_map("a")).await;
        s.delete(A).options(json!({ "preconditions": { "uid": "00000000-0000-4000-8000-000000000000" } })).expect(409).await;
        s.delete(A).options(json!({ "preconditions": { "uid": made["metadata"]["uid"] } })).await;
    }

    async fn a_deletion_may_ask_for_a_version(s) {
        let made = s.post(CONFIG_MAPS, config_map("a")).await;
        s.merge(A, json!({ "data": { "colour": "blue" } })).only("/kind").await;
        s.delete(A).options(json!({ "preconditions": { "resourceVersion": made["metadata"]["resourceVersion"] } }))
            .expect(409).without("/message").await;
        s.get(A).only("/kind").await;
    }

    async fn a_pod_that_runs_nowhere_is_gone_at_once(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.delete(POD).without("/status").await;
        s.get(POD).expect(404).await;
    }

    async fn a_pod_on_a_node_is_given_its_grace(s) {
        make_node(s).await;
        let mut thing = pod("a");
        thing["spec"]["nodeName"] = "somewhere-{id}".into();
        s.post(PODS, thing).without("/status").await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({ "status": { "phase": "Running" } })).only("/status/phase").await;
        s.delete(POD).without("/status").await;
        s.get(POD).only("/metadata/deletionGracePeriodSeconds").only("/status/phase").await;
        // A shorter grace replaces a longer one, never the other way round.
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=5").only("/metadata/deletionGracePeriodSeconds").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=60").only("/metadata/deletionGracePeriodSeconds").await;
        s.delete("/api/v1/namespaces/{ns}/pods/a?gracePeriodSeconds=0").only("/kind").await;
        s.get(POD).expect(404).await;
    }

    async fn a_finished_pod_needs_no_grace(s) {
        make_node(s).await;
        let mut thing = pod("a");
        thing["spec"]["nodeName"] = "somewhere-{id}".into();
        s.post(PODS, thing).only("/kind").await;
        s.merge("/api/v1/namespaces/{ns}/pods/a/status", json!({ "status": { "phase": "Succeeded" } })).only("/status/phase").await;
        s.delete(POD).only("/metadata/name").await;
        s.get(POD).expect(404).await;
    }

    async fn a_negative_grace_is_refused_or_taken_as_the_server_does(s) {
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

    async fn options_of_a_deletion_come_once(s) {
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        s.delete(A).options(json!({ "propagationPolicy": "Sideways" })).expect(422).await;
        s.delete(A).options(json!({ "propagationPolicy": "Orphan", "orphanDependents": true })).expect(422).await;
        s.delete(A).raw("not json").expect(400).without("/message").await;
    }

    async fn a_namespace_goes_with_all_that_is_in_it(s) {
        s.post("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "{id}" } })).await;
        s.post("/api/v1/namespaces/{id}/configmaps", config_map("a")).only("/kind").await;
        s.delete("/api/v1/namespaces/{id}").without("/status/conditions").await;
        s.get("/api/v1/namespaces/{id}").expect(404).until("/reason", "NotFound".into()).await;
        s.get("/api/v1/namespaces/{id}/configmaps/a").expect(404).await;
    }

    async fn a_namespace_that_is_going_takes_nothing_new(s) {
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

    async fn the_default_namespace_stays(s) {
        s.delete("/api/v1/namespaces/default?dryRun=All").expect(403).await;
    }
}
