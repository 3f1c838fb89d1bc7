//! Lists: selectors, pages, versions.

use serde_json::json;

use super::fixtures::{CONFIG_MAPS, PODS, create_node, labelled, pod};
use crate::script::{Script, cases};

/// Creates five config maps: two are red and three have a size.
async fn five(s: &mut Script) {
    for (name, labels) in [
        ("a", json!({ "colour": "red", "size": "s" })),
        ("b", json!({ "colour": "blue", "size": "m" })),
        ("c", json!({ "colour": "red" })),
        ("d", json!({ "size": "l" })),
        ("e", json!({})),
    ] {
        s.post(CONFIG_MAPS, labelled(name, labels)).only("/kind").await;
    }
}

/// Excludes the config map that a controller creates.
const OURS: &str = "/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name!%3Dkube-root-ca.crt";

cases! { "lists";
    async fn a_list_is_ordered_by_name(s) {
        five(s).await;
        s.get(OURS).await;
    }

    async fn an_empty_list_has_no_items(s) {
        s.get("/api/v1/namespaces/{ns}/pods").await;
        s.get("/apis/apps/v1/namespaces/{ns}/deployments").await;
    }

    async fn a_missing_namespace_has_an_empty_list(s) {
        s.get("/api/v1/namespaces/{id}/pods").await;
    }

    async fn labels_select_by_equality(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour%3Dred").await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour%3D%3Dred,size%3Ds").await;
    }

    async fn labels_select_by_difference(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour!%3Dred&fieldSelector=metadata.name!%3Dkube-root-ca.crt").await;
    }

    async fn labels_select_by_sets(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour+in+(red,+blue)").await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=size+notin+(s,m),size").await;
    }

    async fn labels_select_by_presence(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=size").await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=!size,colour").await;
    }

    async fn an_invalid_label_selector_is_rejected(s) {
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=a%3Db%3Dc").expect(400).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=a+in+b").expect(400).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=!!").expect(400).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=bad%20key!").expect(400).await;
    }

    async fn fields_select_by_name(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=metadata.name%3Db").await;
    }

    async fn fields_of_pods_select(s) {
        s.post(PODS, pod("a")).only("/kind").await;
        create_node(s).await;
        let mut placed = pod("b");
        placed["spec"]["nodeName"] = "somewhere-{id}".into();
        s.post(PODS, placed).only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/pods?fieldSelector=spec.nodeName%3Dsomewhere-{id}").without("/items/*/status").await;
        s.get("/api/v1/namespaces/{ns}/pods?fieldSelector=status.phase%3DPending,spec.nodeName%3D").without("/items/*/status").await;
        s.get("/api/v1/namespaces/{ns}/pods?fieldSelector=status.phase!%3DPending").await;
    }

    async fn an_unsupported_field_selector_is_rejected(s) {
        s.get("/api/v1/namespaces/{ns}/pods?fieldSelector=spec.colour%3Dred").expect(400).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=data.colour%3Dred").expect(400).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?fieldSelector=nonsense").expect(400).await;
    }

    async fn a_list_comes_in_pages(s) {
        five(s).await;
        let first = s.get("/api/v1/namespaces/{ns}/configmaps?limit=2&fieldSelector=metadata.name!%3Dkube-root-ca.crt").await;
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        s.alias(&token, "{token}");
        let second = s.get("/api/v1/namespaces/{ns}/configmaps?limit=2&fieldSelector=metadata.name!%3Dkube-root-ca.crt&continue={token}").await;
        let token = second["metadata"]["continue"].as_str().unwrap().to_owned();
        s.alias(&token, "{next}");
        let third = s.get("/api/v1/namespaces/{ns}/configmaps?limit=2&fieldSelector=metadata.name!%3Dkube-root-ca.crt&continue={next}").await;
        assert_eq!(third["metadata"]["continue"].as_str().unwrap_or_default(), "");
        assert_eq!(first["metadata"]["resourceVersion"], third["metadata"]["resourceVersion"]);
    }

    async fn a_page_without_selector_has_the_remaining_count(s) {
        for name in ["a", "b", "c"] {
            s.post(PODS, pod(name)).only("/kind").await;
        }
        s.get("/api/v1/namespaces/{ns}/pods?limit=1").only("/metadata/remainingItemCount").only("/items/0/metadata/name").await;
    }

    async fn pages_are_a_snapshot(s) {
        for name in ["a", "b", "c"] {
            s.post(PODS, pod(name)).only("/kind").await;
        }
        let first = s.get("/api/v1/namespaces/{ns}/pods?limit=2").without("/items/*/status").await;
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        s.alias(&token, "{token}");
        s.delete("/api/v1/namespaces/{ns}/pods/c?gracePeriodSeconds=0").only("/kind").await;
        s.post(PODS, pod("d")).only("/kind").await;
        s.get("/api/v1/namespaces/{ns}/pods?limit=2&continue={token}").without("/items/*/status").await;
    }

    async fn an_invalid_continue_token_is_rejected(s) {
        s.get("/api/v1/namespaces/{ns}/pods?limit=1&continue=nonsense").expect(400).await;
        s.get("/api/v1/namespaces/{ns}/pods?limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi9cdTAwMDAifQ").expect(400).await;
    }

    async fn a_page_and_a_version_exclude_each_other(s) {
        for name in ["a", "b"] {
            s.post(PODS, pod(name)).only("/kind").await;
        }
        let first = s.get("/api/v1/namespaces/{ns}/pods?limit=1").without("/items/*/status").await;
        let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
        s.alias(&token, "{token}");
        s.get("/api/v1/namespaces/{ns}/pods?limit=1&continue={token}&resourceVersion=1").expect(400).await;
    }

    async fn an_invalid_limit_is_rejected(s) {
        s.get("/api/v1/namespaces/{ns}/pods?limit=many").expect(400).await;
    }

    async fn an_invalid_version_is_rejected(s) {
        s.get("/api/v1/namespaces/{ns}/pods?resourceVersion=yesterday").expect(400).await;
    }

    async fn a_version_match_requires_a_version(s) {
        s.get("/api/v1/namespaces/{ns}/pods?resourceVersionMatch=Exact").expect(422).await;
        s.get("/api/v1/namespaces/{ns}/pods?resourceVersionMatch=Roughly&resourceVersion=1").expect(422).await;
    }

    async fn version_zero_means_any_version(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a?resourceVersion=0").only("/metadata/name").await;
    }

    async fn all_namespaces_are_listed_together(s) {
        s.post(CONFIG_MAPS, labelled("a", json!({ "mine": "{id}" }))).only("/kind").await;
        s.get("/api/v1/configmaps?labelSelector=mine%3D{id}").await;
    }

    async fn metadata_can_be_requested_alone(s) {
        five(s).await;
        s.get("/api/v1/namespaces/{ns}/configmaps?labelSelector=colour")
            .accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").await;
        s.get("/api/v1/namespaces/{ns}/configmaps/a").accept("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await;
    }
}
