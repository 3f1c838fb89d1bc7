//! JSON patch, merge patch and strategic merge patch.

use serde_json::json;

use super::fixtures::{CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, pod};
use crate::script::{Script, cases};

const A: &str = "/api/v1/namespaces/{ns}/configmaps/a";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/{ns}/deployments/a";

async fn one(s: &mut Script) {
    s.post(CONFIG_MAPS, config_map("a")).only("/kind").await;
}

/// Creates a deployment with two containers, paused and without replicas, so that no controller changes it.
async fn two_containers(s: &mut Script) {
    let mut object = deployment("a", 0);
    object["spec"]["paused"] = true.into();
    object["spec"]["template"]["spec"]["containers"] = json!([
        { "name": "main", "image": "example.test/web:1", "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" }],
          "ports": [{ "containerPort": 80 }, { "containerPort": 443 }], "args": ["x", "y"] },
        { "name": "side", "image": "example.test/side:1" }
    ]);
    s.post(DEPLOYMENTS, object).only("/kind").await;
}

cases! { "patches";
    async fn a_merge_patch_sets_and_removes(s) {
        one(s).await;
        s.merge(A, json!({ "data": { "shape": "round" } })).await;
        s.merge(A, json!({ "data": { "colour": null } })).await;
        s.merge(A, json!({ "data": null })).await;
    }

    async fn a_merge_patch_replaces_lists(s) {
        two_containers(s).await;
        s.merge(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "name": "only", "image": "example.test/o:1" }] } } } }))
            .only("/spec/template/spec/containers").await;
    }

    async fn a_merge_patch_with_an_old_version_is_a_conflict(s) {
        one(s).await;
        let before = s.get(A).only("/kind").await["metadata"]["resourceVersion"].clone();
        s.merge(A, json!({ "data": { "colour": "blue" } })).await;
        s.merge(A, json!({ "metadata": { "resourceVersion": before }, "data": { "colour": "green" } })).expect(409).await;
    }

    async fn a_merge_patch_of_a_missing_object_is_not_found(s) {
        s.merge("/api/v1/namespaces/{ns}/configmaps/none", json!({ "data": {} })).expect(404).await;
    }

    async fn a_merge_patch_must_be_an_object(s) {
        one(s).await;
        s.merge(A, json!([1, 2])).expect(400).without("/message").await;
        s.merge(A, json!("text")).expect(400).without("/message").await;
    }

    async fn a_merge_patch_with_an_invalid_result_is_rejected(s) {
        one(s).await;
        s.merge(A, json!({ "data": "no map" })).expect(422).only("/reason").only("/details/causes/0/field").await;
    }

    async fn a_patch_cannot_rename_an_object(s) {
        one(s).await;
        s.merge(A, json!({ "metadata": { "name": "b" } })).expect(400).await;
        s.merge(A, json!({ "metadata": { "namespace": "b" } })).expect(400).await;
        s.merge(A, json!({ "metadata": { "uid": "00000000-0000-4000-8000-000000000000" } })).expect(422).await;
    }

    async fn a_json_patch_adds_replaces_and_removes(s) {
        one(s).await;
        s.json_patch(A, json!([
            { "op": "add", "path": "/data/shape", "value": "round" },
            { "op": "replace", "path": "/data/colour", "value": "blue" }
        ])).await;
        s.json_patch(A, json!([{ "op": "remove", "path": "/data/shape" }])).await;
        s.json_patch(A, json!([
            { "op": "copy", "from": "/data/colour", "path": "/data/paint" }, { "op": "move", "from": "/data/colour", "path": "/data/hue" }
        ])).await;
        s.json_patch(A, json!([{ "op": "add", "path": "/metadata/annotations", "value": { "example.test/c": "x" } }])).await;
        s.json_patch(A, json!([{ "op": "replace", "path": "/metadata/annotations/example.test~1c", "value": "y" }])).await;
    }

    async fn a_json_patch_whose_test_fails_changes_nothing(s) {
        one(s).await;
        s.json_patch(A, json!([
            { "op": "replace", "path": "/data/colour", "value": "blue" }, { "op": "test", "path": "/data/colour", "value": "red" }
        ])).expect(422).await;
        s.get(A).await;
    }

    async fn a_json_patch_of_a_missing_path_is_rejected(s) {
        one(s).await;
        s.json_patch(A, json!([{ "op": "remove", "path": "/data/none" }])).expect(422).await;
        s.json_patch(A, json!([{ "op": "replace", "path": "/nowhere/none", "value": 1 }])).expect(422).await;
    }

    async fn an_invalid_json_patch_is_rejected(s) {
        one(s).await;
        s.json_patch(A, json!({ "op": "add" })).expect(400).without("/message").await;
        s.json_patch(A, json!([{ "op": "explode", "path": "/data" }])).expect(422).without("/message").without("/details").await;
    }

    async fn a_strategic_patch_merges_containers_by_name(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "example.test/web:2" }] } } } }))
            .only("/spec/template/spec/containers").await;
    }

    async fn a_strategic_patch_adds_a_container_in_front(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "name": "new", "image": "example.test/n:1" }] } } } }))
            .only("/spec/template/spec/containers").await;
    }

    async fn a_strategic_patch_deletes_by_key(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "$patch": "delete", "name": "side" }] } } } }))
            .only("/spec/template/spec/containers").await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "env": [{ "$patch": "delete", "name": "A" }] }] } } } }))
            .only("/spec/template/spec/containers").await;
    }

    async fn a_strategic_patch_replaces_a_list_by_directive(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [
            { "$patch": "replace" }, { "name": "only", "image": "example.test/o:1" }
        ] } } } })).only("/spec/template/spec/containers").await;
    }

    async fn a_strategic_patch_orders_lists_by_directive(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": {
            "$setElementOrder/containers": [{ "name": "side" }, { "name": "main" }],
            "containers": [{ "name": "side", "image": "example.test/side:2" }]
        } } } })).only("/spec/template/spec/containers").await;
    }

    async fn a_strategic_patch_replaces_lists_of_strings(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "args": ["z"] }] } } } }))
            .only("/spec/template/spec/containers/0/args").await;
    }

    async fn a_strategic_patch_retains_only_listed_keys(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "strategy": { "$retainKeys": ["type"], "type": "Recreate" } } }))
            .only("/spec/strategy").await;
    }

    async fn a_strategic_patch_merges_finalizers(s) {
        one(s).await;
        s.strategic(A, json!({ "metadata": { "finalizers": ["example.test/one"] } })).only("/metadata/finalizers").await;
        s.strategic(A, json!({ "metadata": { "finalizers": ["example.test/two"] } })).only("/metadata/finalizers").await;
        s.strategic(A, json!({ "metadata": { "$deleteFromPrimitiveList/finalizers": ["example.test/one"] } })).only("/metadata/finalizers").await;
        s.merge(A, json!({ "metadata": { "finalizers": null } })).only("/metadata/finalizers").await;
    }

    async fn a_strategic_patch_without_a_merge_key_is_rejected(s) {
        two_containers(s).await;
        s.strategic(DEPLOYMENT, json!({ "spec": { "template": { "spec": { "containers": [{ "image": "example.test/web:2" }] } } } }))
            .expect(500).await;
    }

    async fn tolerations_are_merged_as_their_type_declares(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        s.strategic("/api/v1/namespaces/{ns}/pods/a", json!({ "spec": { "tolerations": [
            { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 },
            { "key": "more", "operator": "Exists" }
        ] } })).only("/spec/tolerations").await;
    }

    async fn a_patch_with_an_unknown_media_type_is_rejected(s) {
        one(s).await;
        s.merge(A, json!({ "data": {} })).content_type("text/plain").expect(415).await;
    }

    async fn a_patch_requires_a_media_type(s) {
        one(s).await;
        s.merge(A, json!({ "kind": "Secret", "data": { "colour": "blue" } })).expect(422).only("/reason").only("/details/causes/0/field").await;
    }
}
