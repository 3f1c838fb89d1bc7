//! Invalid and unsupported requests.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};
use crate::script::cases;

cases! { "errors";
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

    async fn a_body_with_an_unsupported_media_type(s) {
        s.post(CONFIG_MAPS, config_map("a")).content_type("application/xml").expect(415).without("/message").await;
    }

    async fn a_body_that_is_too_large(s) {
        let mut object = config_map("a");
        object["data"]["big"] = "x".repeat(3 * 1024 * 1024 + 10).into();
        s.post(CONFIG_MAPS, object).expect(413).await;
    }

    async fn a_config_map_that_is_too_large(s) {
        let mut object = config_map("a");
        object["data"]["big"] = "x".repeat(1024 * 1024 + 10).into();
        s.post(CONFIG_MAPS, object).expect(422).await;
    }

    async fn a_field_of_the_wrong_type(s) {
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "x": 5 } }))
            .expect(400).only("/reason").only("/code").await;
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": 5 } })).expect(400).only("/reason").await;
    }

    async fn a_response_in_an_unsupported_media_type(s) {
        s.get(CONFIG_MAPS).accept("application/xml").expect(406).without("/message").await;
    }

    async fn json_is_chosen_among_several_media_types(s) {
        s.get("/api/v1/namespaces/{ns}/pods").accept("application/xml;q=0.5, application/json").await;
        s.get("/api/v1/namespaces/{ns}/pods").accept("*/*").await;
    }

    async fn a_verb_that_the_resource_does_not_support(s) {
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

    async fn an_eviction_a_binding_and_a_deletion_of_wrong_type(s) {
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

    async fn a_cron_job_without_a_valid_schedule(s) {
        let cron_job = |schedule: &str| json!({
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": { "name": "a" },
            "spec": { "schedule": schedule, "jobTemplate": { "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.test/job:1" }] } } } } }
        });
        let path = "/apis/batch/v1/namespaces/{ns}/cronjobs";
        for schedule in ["* * * *", "61 * * * *", "* * 0 * *", "*/0 * * * *", "a * * * *", "1-2-3 * * * *", "@never", "@every soon", "5-1 * * * *"] {
            s.post(path, cron_job(schedule)).expect(422).await;
        }
        s.post(path, cron_job("TZ=UTC * * * * *")).expect(422).await;
        let mut elsewhere = cron_job("0 0 1 1 *");
        elsewhere["spec"]["timeZone"] = "Europe/Nowhere".into();
        s.post(path, elsewhere).expect(422).await;
        s.post(path, cron_job("0 0 1 jan ?")).only("/spec/schedule").await;
        s.merge("/apis/batch/v1/namespaces/{ns}/cronjobs/a", json!({ "spec": { "schedule": "@hourly?" } })).expect(422).await;
    }

    async fn an_access_review_of_wrong_type(s) {
        let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        s.post(reviews, json!([])).expect(400).only("/reason").await;
        s.post(reviews, json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": ["text"] }))
            .expect(400).only("/reason").await;
        s.post(reviews, json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": "text" }))
            .expect(400).only("/reason").await;
    }

    async fn a_cluster_scoped_kind_in_a_namespace(s) {
        s.get("/api/v1/namespaces/{ns}/nodes").expect(404).await;
    }

    async fn an_invalid_namespace(s) {
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
