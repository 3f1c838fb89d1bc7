//! Create, get and update.

use serde_json::json;

use super::fixtures::{CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS, SERVICES, config_map, deployment, pod};
use crate::script::cases;

cases! { "objects";
    async fn a_created_object_can_be_read(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").await;
    }

    async fn a_name_is_unique(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        s.post(CONFIG_MAPS, config_map("a")).expect(409).await;
    }

    async fn a_new_object_has_no_version(s) {
        let mut object = config_map("a");
        object["metadata"]["resourceVersion"] = "5".into();
        s.post(CONFIG_MAPS, object.clone()).expect(500).await;
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=All", object.clone()).only("/metadata/name").only("/metadata/resourceVersion").await;
        object["metadata"]["labels"] = json!({ "bad key!": "x" });
        s.post(CONFIG_MAPS, object.clone()).expect(422).await;
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=All", object).expect(422).await;
        s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
        let mut again = config_map("a");
        again["metadata"]["resourceVersion"] = "5".into();
        s.post(CONFIG_MAPS, again.clone()).expect(500).await;
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=All", again).expect(409).await;
        let mut zero = config_map("b");
        zero["metadata"]["resourceVersion"] = "0".into();
        s.post(CONFIG_MAPS, zero).only("/metadata/name").await;
    }

    async fn a_name_is_generated_from_generate_name(s) {
        let created = s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "drawn-" } }))
            .without("/metadata/name").await;
        let name = created["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("drawn-") && name.len() == 11, "{name}");
        s.alias(&name, "{drawn}");
        s.get("/api/v1/namespaces/{ns}/configmaps/{drawn}").await;
    }

    async fn an_object_requires_a_name(s) {
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} })).expect(422).await;
    }

    async fn an_invalid_name_is_rejected(s) {
        s.post(CONFIG_MAPS, config_map("Wrong_Name")).expect(422).await;
    }

    async fn a_name_that_is_too_long_is_rejected(s) {
        s.post(CONFIG_MAPS, config_map(&"a".repeat(254))).expect(422).await;
    }

    async fn an_invalid_label_is_rejected(s) {
        let mut object = config_map("a");
        object["metadata"]["labels"] = json!({ "bad key!": "x", "fine": "bad value!" });
        s.post(CONFIG_MAPS, object).expect(422).await;
    }

    async fn an_invalid_annotation_is_rejected(s) {
        let mut object = config_map("a");
        object["metadata"]["annotations"] = json!({ "bad key!": "x" });
        s.post(CONFIG_MAPS, object).expect(422).await;
    }

    async fn a_missing_namespace_accepts_no_objects(s) {
        s.post("/api/v1/namespaces/{id}/configmaps", config_map("a")).expect(404).await;
    }

    async fn the_namespace_of_the_body_must_be_that_of_the_path(s) {
        let mut object = config_map("a");
        object["metadata"]["namespace"] = "default".into();
        s.post(CONFIG_MAPS, object).expect(400).await;
    }

    async fn the_name_of_the_body_must_be_that_of_the_path(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        s.put("/api/v1/namespaces/{ns}/configmaps/a", config_map("b")).expect(400).await;
    }

    async fn the_kind_of_the_body_must_be_that_of_the_path(s) {
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } })).expect(400).await;
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v2", "kind": "ConfigMap", "metadata": { "name": "a" } })).expect(400).await;
    }

    async fn a_missing_object_is_not_found(s) {
        s.get("/api/v1/namespaces/{ns}/configmaps/none").expect(404).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/none").expect(404).await;
        s.get("/apis/apps/v1/namespaces/{ns}/deployments/none").expect(404).await;
    }

    async fn an_update_with_the_current_version_succeeds(s) {
        let created = s.post(CONFIG_MAPS, config_map("a")).await;
        let mut next = config_map("a");
        next["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        next["data"] = json!({ "colour": "blue" });
        let replaced = s.put("/api/v1/namespaces/{ns}/configmaps/a", next).await;
        assert_ne!(created["metadata"]["resourceVersion"], replaced["metadata"]["resourceVersion"]);
        assert_eq!(created["metadata"]["uid"], replaced["metadata"]["uid"]);
    }

    async fn an_update_with_an_old_version_is_a_conflict(s) {
        let created = s.post(CONFIG_MAPS, config_map("a")).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "colour": "green" } })).await;
        let mut next = config_map("a");
        next["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        s.put("/api/v1/namespaces/{ns}/configmaps/a", next).expect(409).await;
    }

    async fn an_update_without_a_version_succeeds(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        let mut next = config_map("a");
        next["data"] = json!({ "colour": "blue" });
        s.put("/api/v1/namespaces/{ns}/configmaps/a", next).await;
    }

    async fn an_update_of_a_missing_object_is_not_found(s) {
        s.put("/api/v1/namespaces/{ns}/configmaps/none", config_map("none")).expect(404).await;
    }

    async fn an_update_with_another_uid_is_a_conflict(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        let mut next = config_map("a");
        next["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
        s.put("/api/v1/namespaces/{ns}/configmaps/a", next).expect(409)
            // The message contains a key of the real server's etcd.
            .without("/message").await;
    }

    async fn an_update_without_changes_keeps_the_version(s) {
        let created = s.post(CONFIG_MAPS, config_map("a")).await;
        let same = s.put("/api/v1/namespaces/{ns}/configmaps/a", created.clone()).await;
        assert_eq!(created["metadata"]["resourceVersion"], same["metadata"]["resourceVersion"]);
    }

    async fn a_new_object_must_not_have_a_version(s) {
        let mut object = config_map("a");
        object["metadata"]["resourceVersion"] = "5".into();
        s.post(CONFIG_MAPS, object).expect(500).await;
    }

    async fn a_dry_run_returns_the_object_and_changes_nothing(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=All", config_map("a")).await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").expect(404).await;
        s.post(CONFIG_MAPS, config_map("b")).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/b?dryRun=All", json!({ "data": { "colour": "blue" } })).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/b?dryRun=All").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/b").await;
    }

    async fn an_unknown_dry_run_value_is_rejected(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=Some", config_map("a")).expect(422).await;
    }

    async fn unknown_fields_are_dropped_warned_about_or_rejected(s) {
        let mut object = config_map("a");
        object["extra"] = json!({ "deep": 1 });
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Strict", object.clone()).expect(400).await;
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Warn", object.clone()).await;
        object["metadata"]["name"] = "b".into();
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Ignore", object).await;
    }

    async fn nested_unknown_fields_are_reported(s) {
        let mut object = pod("a");
        object["spec"]["containers"][0]["imagee"] = "x".into();
        object["spec"]["wrong"] = true.into();
        s.post("/api/v1/namespaces/{ns}/pods?fieldValidation=Strict", object).expect(400).await;
    }

    async fn an_unknown_field_validation_is_rejected(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Perhaps", config_map("a")).expect(422).await;
    }

    async fn a_secret_encodes_string_data(s) {
        s.post(SECRETS, json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" },
            "stringData": { "password": "sesame" }, "data": { "user": "YWRtaW4=" }
        })).await;
        s.get("/api/v1/namespaces/{ns}/secrets/a").await;
    }

    async fn a_secret_with_invalid_base64_is_rejected(s) {
        s.post(SECRETS, json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "user": "not base64!" }
        })).expect(400).without("/message").await;
    }

    async fn an_immutable_config_map_cannot_be_changed(s) {
        let mut object = config_map("a");
        object["immutable"] = true.into();
        s.post(CONFIG_MAPS, object).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "colour": "blue" } })).expect(422).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "metadata": { "labels": { "x": "y" } } })).await;
    }

    async fn a_pod_without_containers_is_rejected(s) {
        s.post(PODS, json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": { "containers": [] } })).expect(422).await;
    }

    async fn a_container_without_an_image_is_rejected(s) {
        let mut object = pod("a");
        object["spec"]["containers"] = json!([{ "name": "main" }]);
        s.post(PODS, object).expect(422).await;
    }

    async fn two_containers_with_one_name_are_rejected(s) {
        let mut object = pod("a");
        object["spec"]["containers"] = json!([{ "name": "main", "image": "x" }, { "name": "main", "image": "y" }]);
        s.post(PODS, object).expect(422).await;
    }

    async fn the_node_of_a_pod_cannot_be_changed(s) {
        s.post(PODS, pod("a")).await;
        s.merge("/api/v1/namespaces/{ns}/pods/a", json!({ "spec": { "nodeName": "elsewhere" } })).expect(422)
            .only("/reason").only("/code").only("/details/causes/0/field").only("/details/causes/0/reason").await;
    }

    async fn the_image_of_a_pod_can_be_changed(s) {
        s.post(PODS, pod("a")).await;
        s.strategic("/api/v1/namespaces/{ns}/pods/a",
            json!({ "spec": { "containers": [{ "name": "main", "image": "example.test/web:2" }] } })).await;
    }

    async fn a_deployment_whose_selector_does_not_match_its_template_is_rejected(s) {
        let mut object = deployment("a", 1);
        object["spec"]["selector"] = json!({ "matchLabels": { "app": "other" } });
        s.post(DEPLOYMENTS, object).expect(422).await;
    }

    async fn a_deployment_without_a_selector_is_rejected(s) {
        let mut object = deployment("a", 1);
        object["spec"].as_object_mut().unwrap().remove("selector");
        s.post(DEPLOYMENTS, object).expect(422).await;
    }

    async fn the_selector_of_a_deployment_cannot_be_changed(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/spec").await;
        let changed = json!({ "spec": {
            "selector": { "matchLabels": { "app": "other" } },
            "template": { "metadata": { "labels": { "app": "other" } } }
        } });
        s.merge("/apis/apps/v1/namespaces/{ns}/deployments/a", changed).expect(422).await;
    }

    async fn a_negative_number_of_replicas_is_rejected(s) {
        s.post(DEPLOYMENTS, deployment("a", -1)).expect(422).await;
    }

    async fn the_generation_counts_changes_of_the_spec_only(s) {
        let path = "/apis/apps/v1/namespaces/{ns}/deployments/a";
        let mut object = deployment("a", 0);
        object["spec"]["paused"] = true.into();
        s.post(DEPLOYMENTS, object).only("/metadata/generation").await;
        s.merge(path, json!({ "metadata": { "labels": { "x": "y" } } })).only("/metadata/generation").await;
        s.merge(path, json!({ "spec": { "minReadySeconds": 3 } })).only("/metadata/generation").await;
    }

    async fn a_service_gets_a_cluster_ip(s) {
        s.post(SERVICES, json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] }
        })).await;
        s.post(SERVICES, json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "b" },
            "spec": { "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "name": "web", "port": 80, "targetPort": "http" }] }
        })).await;
    }

    async fn a_service_without_ports_is_rejected(s) {
        s.post(SERVICES, json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" }, "spec": { "selector": { "app": "web" } }
        })).expect(422).await;
    }
}
