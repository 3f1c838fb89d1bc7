//! Server-side apply: ownership of fields.

use serde_json::{Value, json};

use super::fixtures::{CONFIG_MAPS, config_map, template};
use crate::script::cases;

fn config(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

const ONE: &str = "/api/v1/namespaces/{ns}/configmaps/a?fieldManager=one";
const TWO: &str = "/api/v1/namespaces/{ns}/configmaps/a?fieldManager=two";
const TWO_FORCED: &str = "/api/v1/namespaces/{ns}/configmaps/a?fieldManager=two&force=true";
const A: &str = "/api/v1/namespaces/{ns}/configmaps/a";
const DEPLOYMENT_ONE: &str = "/apis/apps/v1/namespaces/{ns}/deployments/a?fieldManager=one";
const DEPLOYMENT_TWO: &str = "/apis/apps/v1/namespaces/{ns}/deployments/a?fieldManager=two";

fn workload(containers: Value) -> Value {
    let mut template = template();
    template["spec"]["containers"] = containers;
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
        "spec": { "paused": true, "replicas": 0, "selector": { "matchLabels": { "app": "web" } }, "template": template }
    })
}

cases! { "apply";
    async fn an_apply_creates_a_missing_object(s) {
        s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.get(A).await;
    }

    async fn an_apply_requires_a_field_manager(s) {
        s.apply(A, config(json!({ "x": "1" }))).expect(422).await;
    }

    async fn an_apply_that_changes_nothing_keeps_the_version(s) {
        let first = s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        let again = s.apply(ONE, config(json!({ "x": "1" }))).await;
        assert_eq!(first["metadata"]["resourceVersion"], again["metadata"]["resourceVersion"]);
    }

    async fn fields_that_are_no_longer_applied_are_removed(s) {
        s.apply(ONE, config(json!({ "x": "1", "y": "2" }))).expect(201).await;
        s.apply(ONE, config(json!({ "x": "1" }))).await;
        s.apply(ONE, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" } })).await;
    }

    async fn two_managers_share_an_object(s) {
        s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.apply(TWO, config(json!({ "y": "2" }))).await;
        s.apply(ONE, config(json!({ "x": "3" }))).await;
    }

    async fn another_managers_field_is_a_conflict(s) {
        s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.apply(TWO, config(json!({ "x": "2" }))).expect(409).await;
        s.get(A).await;
    }

    async fn several_conflicts_are_all_named(s) {
        s.apply(ONE, config(json!({ "x": "1", "y": "1" }))).expect(201).await;
        s.apply(TWO, config(json!({ "x": "2", "y": "2", "z": "2" }))).expect(409).await;
    }

    async fn a_forced_apply_takes_over_a_field(s) {
        s.apply(ONE, config(json!({ "x": "1", "y": "1" }))).expect(201).await;
        s.apply(TWO_FORCED, config(json!({ "x": "2" }))).await;
        s.apply(ONE, config(json!({ "y": "1" }))).await;
    }

    async fn equal_values_are_owned_together(s) {
        s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.apply(TWO, config(json!({ "x": "1" }))).await;
        // One manager releases the field, the other still owns it.
        s.apply(ONE, config(json!({ "y": "1" }))).await;
    }

    async fn an_update_takes_ownership(s) {
        s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a?fieldManager=editor", json!({ "data": { "x": "2" } })).await;
        s.apply(ONE, config(json!({ "x": "1" }))).expect(409).await;
    }

    async fn an_apply_to_a_created_object_shares_its_fields(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldManager=maker", config_map("a")).await;
        s.apply(ONE, config(json!({ "colour": "red", "x": "1" }))).await;
        s.apply(ONE, config(json!({ "colour": "blue" }))).expect(409).await;
    }

    async fn the_default_field_manager_is_the_user_agent(s) {
        s.post(CONFIG_MAPS, config_map("a")).header("user-agent", "shipwright/1.0 (linux) x").await;
        s.put(A, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "y": "1" } }))
            .header("user-agent", "carpenter/2.0").await;
    }

    async fn lists_with_keys_have_owners_per_item(s) {
        s.apply(DEPLOYMENT_ONE, workload(json!([{ "name": "main", "image": "example.test/web:1", "ports": [{ "containerPort": 80 }] }])))
            .expect(201).without("/status").await;
        s.apply(DEPLOYMENT_TWO, json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
            "spec": { "template": { "spec": { "containers": [{ "name": "side", "image": "example.test/side:1" }] } } }
        })).only("/spec/template/spec/containers").await;
        s.apply(DEPLOYMENT_ONE, workload(json!([{ "name": "main", "image": "example.test/web:2", "env": [{ "name": "A", "value": "1" }] }])))
            .only("/spec/template/spec/containers").await;
    }

    async fn another_managers_image_is_a_conflict(s) {
        s.apply(DEPLOYMENT_ONE, workload(json!([{ "name": "main", "image": "example.test/web:1" }]))).expect(201).only("/kind").await;
        s.apply(DEPLOYMENT_TWO, json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "a" },
            "spec": { "replicas": 3, "template": { "spec": { "containers": [{ "name": "main", "image": "example.test/web:9" }] } } }
        })).expect(409).await;
    }

    async fn labels_and_finalizers_have_separate_owners(s) {
        let with = |labels: Value, finalizers: Value| json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a", "labels": labels, "finalizers": finalizers }
        });
        s.apply(ONE, with(json!({ "x": "1" }), json!(["example.test/one"]))).expect(201).await;
        s.apply(TWO, with(json!({ "y": "1" }), json!(["example.test/two"]))).await;
        s.apply(ONE, with(json!({}), json!([]))).await;
        s.merge(A, json!({ "metadata": { "finalizers": null } })).only("/metadata/finalizers").await;
    }

    async fn an_apply_accepts_yaml(s) {
        s.apply(ONE, Value::Null).raw("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: \"1\"\n").expect(201).await;
    }

    async fn an_invalid_apply_is_rejected(s) {
        s.apply(ONE, Value::Null).raw("{ not: [ yaml").expect(400).without("/message").await;
        s.apply(ONE, json!({ "kind": "ConfigMap", "metadata": { "name": "a" } })).expect(400).without("/message").await;
        s.apply(ONE, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "b" } })).expect(400).without("/message").await;
    }

    async fn an_apply_with_managed_fields_is_rejected(s) {
        let mut object = config(json!({ "x": "1" }));
        object["metadata"]["managedFields"] = json!([{ "manager": "x", "operation": "Apply" }]);
        s.apply(ONE, object).expect(400).await;
    }

    async fn an_apply_with_an_old_version_is_a_conflict(s) {
        let first = s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.merge(A, json!({ "data": { "y": "1" } })).only("/kind").await;
        let mut object = config(json!({ "x": "2" }));
        object["metadata"]["resourceVersion"] = first["metadata"]["resourceVersion"].clone();
        s.apply(ONE, object).expect(409).await;
    }

    async fn unknown_fields_of_an_apply_are_rejected(s) {
        let mut object = config(json!({ "x": "1" }));
        object["extra"] = "x".into();
        s.apply(ONE, object).expect(500).without("/message").await;
    }

    async fn managed_fields_can_be_cleared(s) {
        s.apply(ONE, config(json!({ "x": "1" }))).expect(201).await;
        s.merge(A, json!({ "metadata": { "managedFields": [{}] } })).await;
    }

    async fn a_dry_run_of_an_apply_changes_nothing(s) {
        s.apply("/api/v1/namespaces/{ns}/configmaps/a?fieldManager=one&dryRun=All", config(json!({ "x": "1" }))).expect(201).await;
        s.get(A).expect(404).await;
    }

    async fn fields_of_a_client_side_apply_can_be_taken_over(s) {
        let mut object = config(json!({ "x": "1", "y": "1" }));
        object["metadata"]["annotations"] = json!({
            "kubectl.kubernetes.io/last-applied-configuration":
                "{\"apiVersion\":\"v1\",\"data\":{\"x\":\"1\",\"y\":\"1\"},\"kind\":\"ConfigMap\",\"metadata\":{\"annotations\":{},\"name\":\"a\",\"namespace\":\"{ns}\"}}\n"
        });
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldManager=kubectl-client-side-apply", object).await;
        s.apply("/api/v1/namespaces/{ns}/configmaps/a?fieldManager=kubectl", config(json!({ "x": "2" }))).await;
        s.apply("/api/v1/namespaces/{ns}/configmaps/a?fieldManager=other", config(json!({ "y": "2" }))).expect(409).await;
    }
}
