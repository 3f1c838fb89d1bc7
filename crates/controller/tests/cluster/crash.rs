//! A process that ends at every single write.

use controller::Selection;
use controller::testing::{Crash, crash_after_each_write, crash_at_every_write};
use futures_util::FutureExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::panic::AssertUnwindSafe;

use crate::sample::{self, children_of, number};
use crate::support::{World, informers, world};

const CHILDREN: usize = 3;

/// A parent of its own for each run, in the namespace of the test.
pub(crate) async fn parent(
    client: &Client,
    namespace: &str,
    name: &str,
    children: usize,
) -> (Client, String, String) {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let object = json!({"metadata": {"name": name, "labels": {"role": "parent"}}, "data": {"children": children.to_string()}});
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    (client.clone(), namespace.to_owned(), name.to_owned())
}

/// Returns when the parent reports all its children; panics as soon as it has too many.
pub(crate) async fn settled((client, namespace, name): (Client, String, String)) {
    let running = informers(&client);
    let all = Api::<ConfigMap>::namespaced(client, &namespace);
    let parents = running.informers.select(all.clone(), Selection::named(&name));
    let children = running.informers.select(all, Selection::all().labels("role=child"));
    let (parent_changes, child_changes) = (parents.subscribe(), children.subscribe());
    parents.synced().await;
    children.synced().await;
    loop {
        if let Some(parent) = parents.list().first() {
            let (found, wanted) = (children_of(&children.list(), parent).len(), number(parent, "children"));
            assert!(found <= wanted, "{name} has {found} children");
            if found == wanted && number(parent, "ready") == wanted {
                return;
            }
        }
        tokio::select! {
            _ = parent_changes.next() => {}
            _ = child_changes.next() => {}
        }
    }
}

async fn crash_at_every_write_of<P>(world: &World, process: impl Fn(Client, String) -> P) -> usize
where
    P: Future<Output = ()> + Send + 'static,
{
    let prepare = async |crash: Crash| {
        let name = format!("parent-{}-{:?}", crash.at_write, crash.effect).to_lowercase();
        parent(&world.client, &world.namespace, &name, CHILDREN).await
    };
    let process = |client: Client, (_, namespace, _): (Client, String, String)| process(client, namespace);
    crash_at_every_write(&world.client, prepare, process, settled).await
}

#[tokio::test]
async fn the_sample_survives_its_end_at_every_write() {
    let Some(world) = world("crash").await else { return };
    let writes = crash_at_every_write_of(&world, sample::run).await;
    // The children and the report.
    assert_eq!(writes, CHILDREN + 1);
}

#[tokio::test]
async fn the_sample_makes_progress_with_one_write_per_process() {
    let Some(world) = world("crash-each").await else { return };
    let parent = parent(&world.client, &world.namespace, "parent", CHILDREN).await;
    let process =
        |client: Client, (_, namespace, _): (Client, String, String)| sample::run(client, namespace);
    let writes = crash_after_each_write(&world.client, parent, process, settled, CHILDREN + 1).await;
    assert_eq!(writes, CHILDREN + 1);
}

/// Creates children without looking for those that an earlier process created.
async fn forgetful(client: Client, namespace: String) {
    let api: Api<ConfigMap> = Api::namespaced(client, &namespace);
    let parents = api.list(&kube::api::ListParams::default().labels("role=parent")).await.unwrap();
    for parent in parents.items.iter().filter(|parent| number(parent, "ready") < CHILDREN) {
        for _ in 0..CHILDREN {
            let child = json!({"metadata": {"generateName": "child-", "labels": {"role": "child"},
                "ownerReferences": [kube::Resource::controller_owner_ref(parent, &())]}});
            api.create(&PostParams::default(), &serde_json::from_value(child).unwrap()).await.unwrap();
        }
        let ready = Patch::Merge(json!({"data": {"ready": CHILDREN.to_string()}}));
        api.patch(parent.metadata.name.as_ref().unwrap(), &PatchParams::default(), &ready).await.unwrap();
    }
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_process_that_forgets_what_it_did_is_found_out() {
    let Some(world) = world("forgetful").await else { return };
    let run = AssertUnwindSafe(crash_at_every_write_of(&world, forgetful)).catch_unwind().await;
    let message = run.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("has 4 children"), "{message}");
}
