//! What is no request, or not one that is served.

use serde_json::{Value, json};

use super::things::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};
use crate::script::cases;

cases! { "refusals";
    async fn a_body_that_is_no_json(s) {
        s.post(CONFIG_MAPS, Value::Null).raw("{ not json").expect(400).without("/message").await;
    }

    async fn an_empty_body(s) {
        s.post(CONFIG_MAPS, Value::Null).expect(400).without("/message").await;
    }

    async fn a_body_that_is_no_object(s) {
        s.post(CONFIG_MAPS, json!([])).expect(400).without("/message").await;
        s.post(CONFIG_MAPS, json!("text")).expect(400).without("/message").await;
    }

    async fn a_body_without_a_kind(s) {
        s.post(CONFIG_MAPS, json!({ "metadata": { "name": "a" } })).only("/kind").await;
    }

    async fn a_body_in_a_form_that_nobody_reads(s) {
        s.post(CONFIG_MAPS, config_map("a")).content_type("application/xml").expect(415).without("/message").await;
    }

    async fn a_body_that_is_too_large(s) {
        let mut thing = config_map("a");
        thing["data"]["big"] = "x".repeat(3 * 1024 * 1024 + 10).into();
        s.post(CONFIG_MAPS, thing).expect(413).await;
    }

    async fn a_config_map_that_is_too_large(s) {
        let mut thing = config_map("a");
        thing["data"]["big"] = "x".repeat(1024 * 1024 + 10).into();
        s.post(CONFIG_MAPS, thing).expect(422).await;
    }

    async fn a_field_of_the_wrong_type(s) {
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": 5 } }))
            .expect(400).only("/reason").only("/code").await;
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": 5 } })).expect(400).only("/reason").await;
    }

    async fn an_answer_in_a_form_that_nobody_writes(s) {
        s.get(CONFIG_MAPS).accept("application/xml").expect(406).without("/message").await;
    }

    async fn json_is_chosen_when_it_is_among_others(s) {
        s.get("/api/v1/namespaces/{ns}/pods").accept("application/xml;q=0.5, application/json").await;
        s.get("/api/v1/namespaces/{ns}/pods").accept("*/*").await;
    }

    async fn a_verb_that_the_place_does_not_know(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps/a", config_map("a")).expect(405).await;
        s.put(CONFIG_MAPS, config_map("a")).expect(405).await;
        s.merge(CONFIG_MAPS, json!({})).expect(405).await;
    }

    async fn a_scale_that_is_no_number(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/kind").await;
        let scale = "/apis/apps/v1/namespaces/{ns}/deployments/a/scale";
        for spec in [json!({ "replicas": "many" }), json!(7), json!({ "replicas": 99_999_999_999_i64 })] {
            s.put(scale, json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "a", "namespace": "{ns}" }, "spec": spec }))
                .expect(400).only("/reason").await;
        }
        s.get(scale).only("/spec").await;
    }

    async fn an_eviction_a_binding_and_a_deletion_of_wrong_shape(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.post("/api/v1/namespaces/{ns}/pods/a/eviction", json!({
            "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "a" }, "deleteOptions": "now"
        })).expect(400).only("/reason").await;
        s.post("/api/v1/namespaces/{ns}/pods/a/binding", json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "a" }, "target": ["node"]
        })).expect(400).only("/reason").await;
        s.post("/api/v1/namespaces/{ns}/pods/a/binding", json!([])).expect(400).only("/reason").await;
        s.get("/api/v1/namespaces/{ns}/pods/a").only("/metadata/name").only("/spec/nodeName").await;
    }

    async fn a_question_for_permission_of_wrong_shape(s) {
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        s.post(reviews, json!([])).expect(400).only("/reason").await;
        s.post(reviews, json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": ["text"] }))
            .expect(400).only("/reason").await;
        s.post(reviews, json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": "text" }))
            .expect(400).only("/reason").await;
    }

    async fn a_kind_without_namespaces_inside_one(s) {
        s.get("/api/v1/namespaces/{ns}/nodes").expect(404).await;
    }

    async fn a_namespace_of_wrong_form(s) {
        s.post("/api/v1/namespaces", json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "Wrong.{id}" } })).expect(422).await;
    }

    async fn a_yaml_body_is_read(s) {
        s.post(CONFIG_MAPS, Value::Null).content_type("application/yaml")
            .raw("apiVersion: v1\nkind: ConfigMap\nmetadata: { name: a }\ndata: { x: \"1\" }\n").await;
    }

    async fn a_field_manager_that_is_too_long(s) {
        let path = format!("/api/v1/namespaces/{{ns}}/configmaps?fieldManager={}", "m".repeat(129));
        s.post(&path, config_map("a")).expect(422).await;
    }
}
