//! Facts of a cluster.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kubelink::facts::{certificates, critical_pods_not_ready, nodes, operators, version};
use serde_json::json;

use crate::support::{pod, world, world_on};

#[tokio::test(flavor = "multi_thread")]
async fn facts_contain_the_version_the_nodes_and_the_expiry_of_certificates() {
    let Some(world) = world("facts") else { return };
    assert!(version(&world.link).await.unwrap().starts_with("v1."));
    let name = world.node("a").await;
    let status =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}});
    Api::<Node>::all(world.client())
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
    let found = nodes(&world.link).await.unwrap();
    let node = found.iter().find(|node| node.name == name).unwrap();
    assert!(node.ready && node.schedulable, "{node:?}");

    let found = certificates(&world.link).await.unwrap();
    let (serving, client) = (found.serving.clone().unwrap(), found.client.clone().unwrap());
    assert!(serving.not_after > serving.not_before && client.not_after > client.not_before);
    assert_eq!(found.earliest_end(), Some(serving.not_after.min(client.not_after)));
}

#[tokio::test(flavor = "multi_thread")]
async fn critical_pods_that_are_not_ready_are_named() {
    let Some(world) = world("facts-pods") else { return };
    let node = world.node("a").await;
    let mut critical = pod(&node, "critical", None);
    critical["spec"]["priorityClassName"] = json!("system-cluster-critical");
    let _: Pod = world.create(world.api(), critical).await;
    world.pod(&node, "plain", None).await;
    let found = critical_pods_not_ready(&world.link).await.unwrap();
    let ours: Vec<_> = found.iter().filter(|(name, _)| name.starts_with(&world.namespace)).collect();
    assert_eq!(ours, [&(format!("{}/critical", world.namespace), "Pending".to_owned())]);
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_operators_are_optional() {
    let Some(cluster) = testkit::kube::private(testkit::kube::TestClusterOptions::default()) else {
        return testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
    };
    let world = world_on(&cluster, "operators");
    assert_eq!(operators(&world.link).await.unwrap(), None);
    let definition = json!({"metadata": {"name": "clusteroperators.config.openshift.io"}, "spec": {
        "group": "config.openshift.io", "scope": "Cluster",
        "names": {"kind": "ClusterOperator", "plural": "clusteroperators", "singular": "clusteroperator"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client());
    let _: CustomResourceDefinition = world.create(definitions, definition).await;
    let found = loop {
        if let Some(found) = operators(&world.link).await.unwrap() {
            break found;
        }
    };
    assert!(found.is_empty());
    let (resource, _) = world.link.resolve("config.openshift.io/v1", "ClusterOperator").await.unwrap();
    let api: Api<DynamicObject> = Api::all_with(world.client(), &resource);
    let operator = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator", "metadata": {"name": "dns"}, "status": {"versions": [{"name": "operator", "version": "4.20.1"}],
        "conditions": [{"type": "Available", "status": "True"}, {"type": "Degraded", "status": "True", "message": "no pods"}]}});
    let object: DynamicObject = serde_json::from_value(operator).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    let found = operators(&world.link).await.unwrap().unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].available && found[0].degraded && !found[0].progressing);
    assert_eq!((found[0].version.as_deref(), found[0].message.as_str()), (Some("4.20.1"), "no pods"));
}
