//! Cordon and uncordon.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, ResourceExt};
use kubelink::cordon::{
    CORDONED_AT, CORDONED_BECAUSE, CORDONED_BY, CordonResult, Holder, UncordonResult, cordon, cordoned_by,
    uncordon,
};
use serde_json::json;

use crate::support::{World, world};

async fn node(world: &World, name: &str) -> Node {
    Api::<Node>::all(world.client()).get(name).await.unwrap()
}

fn is_schedulable(node: &Node) -> bool {
    !node.spec.as_ref().unwrap().unschedulable.unwrap_or(false)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_is_recorded_repeated_and_undone() {
    let Some(world) = world("cordon") else { return };
    let name = world.node("a").await;
    let holder = Holder::new(format!("{name}-manifest"), "kernel update");
    assert_eq!(cordon(&world.link, &name, &holder).await.unwrap(), CordonResult::Now);
    assert_eq!(cordon(&world.link, &name, &holder).await.unwrap(), CordonResult::Before);
    let seen = node(&world, &name).await;
    assert!(!is_schedulable(&seen));
    assert_eq!(seen.annotations().get(CORDONED_BY), Some(&holder.id));
    assert_eq!(seen.annotations().get(CORDONED_BECAUSE).map(String::as_str), Some("kernel update"));
    assert_eq!(cordoned_by(&world.link, &holder.id).await.unwrap(), [name.as_str()]);

    world.tap.clear();
    assert_eq!(uncordon(&world.link, &name, &holder.id).await.unwrap(), UncordonResult::Now);
    assert_eq!(world.tap.requests().len(), 1, "{:?}", world.tap.requests());
    let seen = node(&world, &name).await;
    assert!(is_schedulable(&seen));
    assert!(
        ![CORDONED_BY, CORDONED_BECAUSE, CORDONED_AT].iter().any(|it| seen.annotations().contains_key(*it))
    );
    assert_eq!(uncordon(&world.link, &name, &holder.id).await.unwrap(), UncordonResult::Before);
    assert!(cordoned_by(&world.link, &holder.id).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cordon_of_another_holder_is_left_alone() {
    let Some(world) = world("cordon-other") else { return };
    let (ours, theirs) = (Holder::new("ours", "r"), Holder::new("theirs", "r"));
    let name = world.node("a").await;
    cordon(&world.link, &name, &theirs).await.unwrap();
    assert_eq!(
        cordon(&world.link, &name, &ours).await.unwrap(),
        CordonResult::ByOther(Some("theirs".into()))
    );
    assert_eq!(
        uncordon(&world.link, &name, "ours").await.unwrap(),
        UncordonResult::ByOther(Some("theirs".into()))
    );
    assert!(!is_schedulable(&node(&world, &name).await));

    let by_hand = world.node("b").await;
    Api::<Node>::all(world.client()).cordon(&by_hand).await.unwrap();
    assert_eq!(cordon(&world.link, &by_hand, &ours).await.unwrap(), CordonResult::ByOther(None));
    assert_eq!(uncordon(&world.link, &by_hand, "ours").await.unwrap(), UncordonResult::ByOther(None));
    assert!(!is_schedulable(&node(&world, &by_hand).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_record_without_a_cordon_is_replaced() {
    let Some(world) = world("cordon-stale") else { return };
    let name = world.node("a").await;
    cordon(&world.link, &name, &Holder::new("old", "r")).await.unwrap();
    let nodes: Api<Node> = Api::all(world.client());
    let patch = json!({"spec": {"unschedulable": null}});
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(cordon(&world.link, &name, &Holder::new("new", "r")).await.unwrap(), CordonResult::Now);
    assert_eq!(
        uncordon(&world.link, &name, "old").await.unwrap(),
        UncordonResult::ByOther(Some("new".into()))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_node_cannot_be_cordoned() {
    let Some(world) = world("cordon-none") else { return };
    let error = cordon(&world.link, "no-such-node", &Holder::new("h", "r")).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(
        error.to_string().starts_with("cluster test: could not cordon node no-such-node: not found"),
        "{error}"
    );
}
