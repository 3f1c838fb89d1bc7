//! Cordon and uncordon.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, ResourceExt};
use kubelink::cordon::{
    CORDONED_AT, CORDONED_BECAUSE, CORDONED_BY, Cordoned, Holder, Uncordoned, cordon, cordoned_by, uncordon,
};
use serde_json::json;

use crate::support::{World, world};

async fn node(world: &World, name: &str) -> Node {
    Api::<Node>::all(world.client()).get(name).await.unwrap()
}

fn takes_pods(node: &Node) -> bool {
    !node.spec.as_ref().unwrap().unschedulable.unwrap_or(false)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordon_is_recorded_repeated_and_undone() {
    let Some(world) = world("cordon") else { return };
    let name = world.node("a").await;
    let holder = Holder::new(format!("{name}-manifest"), "kernel update");
    assert_eq!(cordon(&world.link, &name, &holder).await.unwrap(), Cordoned::Now);
    assert_eq!(cordon(&world.link, &name, &holder).await.unwrap(), Cordoned::Before);
    let seen = node(&world, &name).await;
    assert!(!takes_pods(&seen));
    assert_eq!(seen.annotations().get(CORDONED_BY), Some(&holder.id));
    assert_eq!(seen.annotations().get(CORDONED_BECAUSE).map(String::as_str), Some("kernel update"));
    assert_eq!(cordoned_by(&world.link, &holder.id).await.unwrap(), [name.as_str()]);

    world.tap.clear();
    assert_eq!(uncordon(&world.link, &name, &holder.id).await.unwrap(), Uncordoned::Now);
    assert_eq!(world.tap.requests().len(), 1, "{:?}", world.tap.requests());
    let seen = node(&world, &name).await;
    assert!(takes_pods(&seen));
    assert!(
        ![CORDONED_BY, CORDONED_BECAUSE, CORDONED_AT].iter().any(|it| seen.annotations().contains_key(*it))
    );
    assert_eq!(uncordon(&world.link, &name, &holder.id).await.unwrap(), Uncordoned::Before);
    assert!(cordoned_by(&world.link, &holder.id).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cordon_of_another_is_left_alone() {
    let Some(world) = world("cordon-other") else { return };
    let (ours, theirs) = (Holder::new("ours", "r"), Holder::new("theirs", "r"));
    let name = world.node("a").await;
    cordon(&world.link, &name, &theirs).await.unwrap();
    assert_eq!(cordon(&world.link, &name, &ours).await.unwrap(), Cordoned::ByOther(Some("theirs".into())));
    assert_eq!(
        uncordon(&world.link, &name, "ours").await.unwrap(),
        Uncordoned::ByOther(Some("theirs".into()))
    );
    assert!(!takes_pods(&node(&world, &name).await));

    let by_hand = world.node("b").await;
    Api::<Node>::all(world.client()).cordon(&by_hand).await.unwrap();
    assert_eq!(cordon(&world.link, &by_hand, &ours).await.unwrap(), Cordoned::ByOther(None));
    assert_eq!(uncordon(&world.link, &by_hand, "ours").await.unwrap(), Uncordoned::ByOther(None));
    assert!(!takes_pods(&node(&world, &by_hand).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_whose_cordon_someone_undid_by_hand_is_taken_over() {
    let Some(world) = world("cordon-stale") else { return };
    let name = world.node("a").await;
    cordon(&world.link, &name, &Holder::new("old", "r")).await.unwrap();
    let nodes: Api<Node> = Api::all(world.client());
    let patch = json!({"spec": {"unschedulable": null}});
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert_eq!(cordon(&world.link, &name, &Holder::new("new", "r")).await.unwrap(), Cordoned::Now);
    assert_eq!(uncordon(&world.link, &name, "old").await.unwrap(), Uncordoned::ByOther(Some("new".into())));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_not_there_cannot_be_cordoned() {
    let Some(world) = world("cordon-none") else { return };
    let error = cordon(&world.link, "no-such-node", &Holder::new("h", "r")).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
    assert!(
        error.to_string().starts_with("cluster test: could not cordon node no-such-node: it is not there"),
        "{error}"
    );
}
