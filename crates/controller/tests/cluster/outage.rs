//! A controller while its API server dies and comes back.

use controller::{Selection, connect};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::DeleteParams;
use testkit::kube::TestClusterOptions;
use tokio::task::{JoinSet, block_in_place};

use crate::crash::{parent, settled};
use crate::sample;
use crate::support::{informers, soon};

const CHILDREN: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_killed_in_the_middle_of_creations_costs_no_child_and_adds_none() {
    let Some(cluster) = block_in_place(|| testkit::kube::private(TestClusterOptions::default())) else {
        return testkit::prerequisites::skip(testkit::prerequisites::KUBERNETES, testkit::kube::MISSING);
    };
    let namespace = block_in_place(|| cluster.namespace("outage")).unwrap();
    let client = connect(Some(&cluster.kubeconfig_path()), Some(&namespace)).await.unwrap().client;
    let world = parent(&client, &namespace, "parent", CHILDREN).await;

    let running = informers(&client);
    let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let children = running.informers.select(api.clone(), Selection::all().labels("role=child"));
    let changes = children.subscribe();
    let mut tasks = JoinSet::new();
    tasks.spawn(sample::run(client, namespace));
    while children.len() < CHILDREN / 3 {
        soon("a child", changes.next()).await;
    }
    block_in_place(|| cluster.kill()).unwrap();
    block_in_place(|| cluster.restart()).unwrap();
    soon("the rest of the children", settled(world.clone())).await;

    // The watches work again: a deletion is noticed.
    let name = children.list()[0].metadata.name.clone().unwrap();
    api.delete(&name, &DeleteParams::default()).await.unwrap();
    soon("the deletion", async { while !changes.next().await.is_deleted() {} }).await;
    soon("another child", settled(world)).await;
    assert!(tasks.try_join_next().is_none(), "the process is the same");
}
