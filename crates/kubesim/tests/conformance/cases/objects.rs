//! Creating, reading and replacing.

use serde_json::json;

use super::things::{CONFIG_MAPS, DEPLOYMENTS, PODS, SECRETS, SERVICES, config_map, deployment, pod};
use crate::script::cases;

cases! { "objects";
    async fn what_is_created_can_be_read(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").await;
    }

    async fn a_name_is_taken_once(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        s.post(CONFIG_MAPS, config_map("a")).expect(409).await;
    }

    async fn a_name_is_drawn_from_generate_name(s) {
        let made = s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "generateName": "drawn-" } }))
            .without("/metadata/name").await;
        let name = made["metadata"]["name"].as_str().unwrap().to_owned();
        assert!(name.starts_with("drawn-") && name.len() == 11, "{name}");
        s.call(&name, "{drawn}");
        s.get("/api/v1/namespaces/{ns}/configmaps/{drawn}").await;
    }

    async fn an_object_needs_a_name(s) {
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": {} })).expect(422).await;
    }

    async fn a_name_of_wrong_form_is_refused(s) {
        s.post(CONFIG_MAPS, config_map("Wrong_Name")).expect(422).await;
    }

    async fn a_name_that_is_too_long_is_refused(s) {
        s.post(CONFIG_MAPS, config_map(&"a".repeat(254))).expect(422).await;
    }

    async fn a_label_of_wrong_form_is_refused(s) {
        let mut thing = config_map("a");
        thing["metadata"]["labels"] = json!({ "bad key!": "x", "fine": "bad value!" });
        s.post(CONFIG_MAPS, thing).expect(422).await;
    }

    async fn an_annotation_of_wrong_form_is_refused(s) {
        let mut thing = config_map("a");
        thing["metadata"]["annotations"] = json!({ "bad key!": "x" });
        s.post(CONFIG_MAPS, thing).expect(422).await;
    }

    async fn a_namespace_that_is_not_there_takes_nothing(s) {
        s.post("/api/v1/namespaces/{id}/configmaps", config_map("a")).expect(404).await;
    }

    async fn the_namespace_of_the_body_must_be_that_of_the_path(s) {
        let mut thing = config_map("a");
        thing["metadata"]["namespace"] = "default".into();
        s.post(CONFIG_MAPS, thing).expect(400).await;
    }

    async fn the_name_of_the_body_must_be_that_of_the_path(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        s.put("/api/v1/namespaces/{ns}/configmaps/a", config_map("b")).expect(400).await;
    }

    async fn the_kind_of_the_body_must_fit_the_path(s) {
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" } })).expect(400).await;
        s.post(CONFIG_MAPS, json!({ "apiVersion": "v2", "kind": "ConfigMap", "metadata": { "name": "a" } })).expect(400).await;
    }

    async fn what_is_not_there_is_not_found(s) {
        s.get("/api/v1/namespaces/{ns}/configmaps/none").expect(404).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/none").expect(404).await;
        s.get("/apis/apps/v1/namespaces/{ns}/deployments/none").expect(404).await;
    }

    async fn a_replacement_with_the_right_version_wins(s) {
        let made = s.post(CONFIG_MAPS, config_map("a")).await;
        let mut next = config_map("a");
        next["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
        next["data"] = json!({ "colour": "blue" });
        let replaced = s.put("/api/v1/namespaces/{ns}/configmaps/a", next).await;
        assert_ne!(made["metadata"]["resourceVersion"], replaced["metadata"]["resourceVersion"]);
        assert_eq!(made["metadata"]["uid"], replaced["metadata"]["uid"]);
    }

    async fn a_replacement_with_an_old_version_is_a_conflict(s) {
        let made = s.post(CONFIG_MAPS, config_map("a")).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "colour": "green" } })).await;
        let mut next = config_map("a");
        next["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
        s.put("/api/v1/namespaces/{ns}/configmaps/a", next).expect(409).await;
    }

    async fn a_replacement_without_a_version_wins(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        let mut next = config_map("a");
        next["data"] = json!({ "colour": "blue" });
        s.put("/api/v1/namespaces/{ns}/configmaps/a", next).await;
    }

    async fn a_replacement_of_what_is_not_there_is_not_found(s) {
        s.put("/api/v1/namespaces/{ns}/configmaps/none", config_map("none")).expect(404).await;
    }

    async fn a_replacement_with_another_uid_is_a_conflict(s) {
        s.post(CONFIG_MAPS, config_map("a")).await;
        let mut next = config_map("a");
        next["metadata"]["uid"] = "00000000-0000-4000-8000-000000000000".into();
        s.put("/api/v1/namespaces/{ns}/configmaps/a", next).expect(409)
            // The message names a key of the real server's database.
            .without("/message").await;
    }

    async fn a_replacement_that_changes_nothing_keeps_the_version(s) {
        let made = s.post(CONFIG_MAPS, config_map("a")).await;
        let same = s.put("/api/v1/namespaces/{ns}/configmaps/a", made.clone()).await;
        assert_eq!(made["metadata"]["resourceVersion"], same["metadata"]["resourceVersion"]);
    }

    async fn a_new_object_brings_no_version(s) {
        let mut thing = config_map("a");
        thing["metadata"]["resourceVersion"] = "5".into();
        s.post(CONFIG_MAPS, thing).expect(500).await;
    }

    async fn a_dry_run_answers_and_changes_nothing(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=All", config_map("a")).await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").expect(404).await;
        s.post(CONFIG_MAPS, config_map("b")).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/b?dryRun=All", json!({ "data": { "colour": "blue" } })).await;
        s.delete("/api/v1/namespaces/{ns}/configmaps/b?dryRun=All").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/b").await;
    }

    async fn a_dry_run_of_another_word_is_refused(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?dryRun=Some", config_map("a")).expect(422).await;
    }

    async fn unknown_fields_are_dropped_warned_of_or_refused(s) {
        let mut thing = config_map("a");
        thing["extra"] = json!({ "deep": 1 });
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Strict", thing.clone()).expect(400).await;
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Warn", thing.clone()).await;
        thing["metadata"]["name"] = "b".into();
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Ignore", thing).await;
    }

    async fn unknown_fields_deep_inside_are_named(s) {
        let mut thing = pod("a");
        thing["spec"]["containers"][0]["imagee"] = "x".into();
        thing["spec"]["wrong"] = true.into();
        s.post("/api/v1/namespaces/{ns}/pods?fieldValidation=Strict", thing).expect(400).await;
    }

    async fn a_field_validation_of_another_word_is_refused(s) {
        s.post("/api/v1/namespaces/{ns}/configmaps?fieldValidation=Perhaps", config_map("a")).expect(422).await;
    }

    async fn a_secret_takes_text_and_keeps_bytes(s) {
        s.post(SECRETS, json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" },
            "stringData": { "password": "sesame" }, "data": { "user": "YWRtaW4=" }
        })).await;
        s.get("/api/v1/namespaces/{ns}/secrets/a").await;
    }

    async fn a_secret_with_wrong_bytes_is_refused(s) {
        s.post(SECRETS, json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "a" }, "data": { "user": "not base64!" }
        })).expect(400).without("/message").await;
    }

    async fn an_immutable_config_map_stays_as_it_is(s) {
        let mut thing = config_map("a");
        thing["immutable"] = true.into();
        s.post(CONFIG_MAPS, thing).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "data": { "colour": "blue" } })).expect(422).await;
        s.merge("/api/v1/namespaces/{ns}/configmaps/a", json!({ "metadata": { "labels": { "x": "y" } } })).await;
    }

    async fn a_pod_without_containers_is_refused(s) {
        s.post(PODS, json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "a" }, "spec": { "containers": [] } })).expect(422).await;
    }

    async fn a_pod_with_a_container_without_image_is_refused(s) {
        let mut thing = pod("a");
        thing["spec"]["containers"] = json!([{ "name": "main" }]);
        s.post(PODS, thing).expect(422).await;
    }

    async fn two_containers_of_one_name_are_refused(s) {
        let mut thing = pod("a");
        thing["spec"]["containers"] = json!([{ "name": "main", "image": "x" }, { "name": "main", "image": "y" }]);
        s.post(PODS, thing).expect(422).await;
    }

    async fn the_node_of_a_pod_is_not_changed(s) {
        s.post(PODS, pod("a")).await;
        s.merge("/api/v1/namespaces/{ns}/pods/a", json!({ "spec": { "nodeName": "elsewhere" } })).expect(422)
            .only("/reason").only("/code").only("/details/causes/0/field").only("/details/causes/0/reason").await;
    }

    async fn the_image_of_a_pod_may_be_changed(s) {
        s.post(PODS, pod("a")).await;
        s.strategic("/api/v1/namespaces/{ns}/pods/a",
            json!({ "spec": { "containers": [{ "name": "main", "image": "example.test/web:2" }] } })).await;
    }

    async fn a_deployment_whose_selector_misses_its_template_is_refused(s) {
        let mut thing = deployment("a", 1);
        thing["spec"]["selector"] = json!({ "matchLabels": { "app": "other" } });
        s.post(DEPLOYMENTS, thing).expect(422).await;
    }

    async fn a_deployment_without_a_selector_is_refused(s) {
        let mut thing = deployment("a", 1);
        thing["spec"].as_object_mut().unwrap().remove("selector");
        s.post(DEPLOYMENTS, thing).expect(422).await;
    }

    async fn the_selector_of_a_deployment_is_not_changed(s) {
        s.post(DEPLOYMENTS, deployment("a", 0)).only("/spec").await;
        let changed = json!({ "spec": {
            "selector": { "matchLabels": { "app": "other" } },
            "template": { "metadata": { "labels": { "app": "other" } } }
        } });
        s.merge("/apis/apps/v1/namespaces/{ns}/deployments/a", changed).expect(422).await;
    }

    async fn a_negative_number_of_replicas_is_refused(s) {
        s.post(DEPLOYMENTS, deployment("a", -1)).expect(422).await;
    }

    async fn the_generation_counts_changes_of_the_wish_only(s) {
        let path = "/apis/apps/v1/namespaces/{ns}/deployments/a";
        let mut thing = deployment("a", 0);
        thing["spec"]["paused"] = true.into();
        s.post(DEPLOYMENTS, thing).only("/metadata/generation").await;
        s.merge(path, json!({ "metadata": { "labels": { "x": "y" } } })).only("/metadata/generation").await;
        s.merge(path, json!({ "spec": { "minReadySeconds": 3 } })).only("/metadata/generation").await;
    }

    async fn a_service_gets_an_address_of_its_own(s) {
        s.post(SERVICES, json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" },
            "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] }
        })).await;
        s.post(SERVICES, json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "b" },
            "spec": { "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "name": "web", "port": 80, "targetPort": "http" }] }
        })).await;
    }

    async fn a_service_without_ports_is_refused(s) {
        s.post(SERVICES, json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "a" }, "spec": { "selector": { "app": "web" } }
        })).expect(422).await;
    }
}
