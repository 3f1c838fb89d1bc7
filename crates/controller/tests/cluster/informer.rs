//! Watches, caches and their readers.

use std::sync::Arc;

use controller::{Action, Change, Controller, FieldManager, Informer, ObjectKey, Selection, Subscription};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{Line, Mode, RunningInformers, World, informers, soon, world};

const MANAGER: FieldManager = FieldManager::new("controller-tests");

fn parents(world: &World, running: &RunningInformers) -> Arc<Informer<ConfigMap>> {
    running.informers.select(world.config_maps(), Selection::all().labels("role=parent"))
}

fn children(world: &World, running: &RunningInformers) -> Arc<Informer<ConfigMap>> {
    running.informers.select(world.config_maps(), Selection::all().labels("role=child"))
}

async fn parent_with_child(world: &World) -> (ConfigMap, ConfigMap) {
    let parent = world.create(json!({"name": "parent", "labels": {"role": "parent"}})).await;
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "parent", "uid": parent.uid(), "controller": true}]);
    let child =
        world.create(json!({"name": "child", "labels": {"role": "child"}, "ownerReferences": owner})).await;
    (parent, child)
}

async fn next(changes: &Subscription<ConfigMap>) -> Change<ConfigMap> {
    soon("a change", changes.next()).await
}

#[tokio::test]
async fn deleting_an_owned_object_wakes_a_controller_that_subscribed_late() {
    let Some(world) = world("owned").await else { return };
    let (_, child) = parent_with_child(&world).await;
    let running = informers(&world.client);
    let (parents, children) = (parents(&world, &running), children(&world, &running));
    soon("the listing", async { tokio::join!(parents.synced(), children.synced()) }).await;

    // The informers have everything, and no further event comes for it.
    let (woken, mut reconciled) = mpsc::unbounded_channel();
    let mut tasks = JoinSet::new();
    let (cache, shutdown) = (children.clone(), CancellationToken::new());
    let controller = Controller::new("late", parents).owns(children);
    tasks.spawn(controller.run(
        move |key| {
            let (woken, children) = (woken.clone(), cache.len());
            async move {
                woken.send((key, children)).unwrap();
                Ok::<_, std::io::Error>(Action::Done)
            }
        },
        shutdown,
    ));
    let key = ObjectKey::namespaced(&world.namespace, "parent");
    assert_eq!(soon("the first reconcile", reconciled.recv()).await, Some((key.clone(), 1)));

    world.config_maps().delete(&child.name_any(), &DeleteParams::default()).await.unwrap();
    assert_eq!(soon("the reconcile after the deletion", reconciled.recv()).await, Some((key, 0)));
}

#[tokio::test]
async fn an_informer_is_shared_and_ends_with_its_last_handle() {
    let Some(world) = world("shared").await else { return };
    let running = informers(&world.client);
    let (one, other) = (parents(&world, &running), parents(&world, &running));
    assert!(Arc::ptr_eq(&one, &other));
    soon("the listing", one.synced()).await;
    let gone = Arc::downgrade(&one);
    drop((one, other));
    assert!(gone.upgrade().is_none());
    let again = parents(&world, &running);
    soon("the listing of a new informer", again.synced()).await;
}

#[tokio::test]
async fn deletions_that_the_watch_missed_are_delivered_after_the_next_listing() {
    let Some(world) = world("missed").await else { return };
    parent_with_child(&world).await;
    let line = Line::new();
    let running = informers(&line.client(&world.client));
    let children = running.informers.namespaced::<ConfigMap>(&world.namespace);
    soon("the listing", children.synced()).await;
    let changes = children.subscribe();
    while changes.try_next().is_some() {}

    line.set(Mode::WatchesExpired);
    world.config_maps().delete("child", &DeleteParams::default()).await.unwrap();
    line.set(Mode::Healthy);
    let change = next(&changes).await;
    assert!(change.is_deleted());
    assert_eq!(&*change.key().name, "child");
}

#[tokio::test]
async fn the_watch_continues_after_the_connection_was_lost() {
    let Some(world) = world("lost").await else { return };
    parent_with_child(&world).await;
    let line = Line::new();
    let running = informers(&line.client(&world.client));
    let all = running.informers.namespaced::<ConfigMap>(&world.namespace);
    soon("the listing", all.synced()).await;
    let changes = all.subscribe();
    while changes.try_next().is_some() {}

    line.set(Mode::NoWatches);
    let patch = Patch::Merge(json!({"data": {"a": "1"}}));
    world.config_maps().patch("child", &PatchParams::default(), &patch).await.unwrap();
    line.set(Mode::Healthy);
    let change = next(&changes).await;
    let data = |object: &Option<Arc<ConfigMap>>| object.as_ref().unwrap().data.clone().unwrap_or_default();
    assert_eq!((data(&change.old).len(), data(&change.new)["a"].as_str()), (0, "1"));
}

#[tokio::test]
async fn own_writes_are_visible_at_once_while_the_watch_is_silent() {
    let Some(world) = world("own").await else { return };
    let line = Line::new();
    let running = informers(&line.client(&world.client));
    let all = running.informers.namespaced::<ConfigMap>(&world.namespace);
    soon("the listing", all.synced()).await;
    line.set(Mode::NoWatches);

    let object: ConfigMap =
        serde_json::from_value(json!({"metadata": {"generateName": "own-", "namespace": world.namespace}}))
            .unwrap();
    let created = MANAGER.create(&all, &object).await.unwrap();
    let key = ObjectKey::of(&*created);
    assert_eq!(all.get(&key).unwrap().uid(), created.uid());

    let mut wanted = created.as_ref().clone();
    wanted.data = Some([("a".to_owned(), "1".to_owned())].into());
    let patched = MANAGER.patch(&all, &created, &wanted, controller::Precondition::Unchanged).await.unwrap();
    assert_eq!(all.get(&key).unwrap().resource_version(), patched.unwrap().resource_version());

    MANAGER.delete(&all, &created).await.unwrap();
    assert!(all.get(&key).is_none());

    // The watch replays all of it; the cache never goes back.
    let changes = all.subscribe();
    while changes.try_next().is_some() {}
    line.set(Mode::Healthy);
    let last = world.create(json!({"name": "last"})).await;
    assert_eq!(next(&changes).await.key(), ObjectKey::of(&last), "nothing of what was deleted comes back");
}

#[tokio::test]
async fn a_cache_that_caught_up_has_what_was_written_before() {
    let Some(world) = world("catch-up").await else { return };
    let line = Line::new();
    let running = informers(&line.client(&world.client));
    let all = running.informers.namespaced::<ConfigMap>(&world.namespace);
    soon("the listing", all.synced()).await;
    line.set(Mode::NoWatches);
    let written = world.create(json!({"name": "written"})).await;
    assert!(all.get(&ObjectKey::of(&written)).is_none());
    line.set(Mode::Healthy);
    soon("catching up", running.informers.catch_up()).await;
    assert!(all.get(&ObjectKey::of(&written)).is_some());
}

#[tokio::test]
async fn a_selection_by_name_has_that_object_alone() {
    let Some(world) = world("named").await else { return };
    parent_with_child(&world).await;
    let running = informers(&world.client);
    let named = running.informers.select(world.config_maps(), Selection::named("child"));
    soon("the listing", named.synced()).await;
    assert_eq!(named.list().iter().map(|it| it.name_any()).collect::<Vec<_>>(), ["child"]);
    assert!(named.list()[0].metadata.managed_fields.is_none());
}
