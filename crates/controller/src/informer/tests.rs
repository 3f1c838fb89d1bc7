//! The cache against sequences of listings, watch events and own writes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use tokio::time::Instant;

use super::cache::Cache;
use super::{Informer, Observability};
use crate::change::Change;
use crate::key::ObjectKey;

pub(crate) fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    let metadata = ObjectMeta {
        namespace: Some("ns".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(uid.to_owned()),
        resource_version: Some(version.to_string()),
        ..ObjectMeta::default()
    };
    ConfigMap { metadata, ..ConfigMap::default() }
}

fn list(cache: &mut Cache<ConfigMap>, objects: &[ConfigMap]) -> Vec<String> {
    cache.begin_listing();
    objects.iter().for_each(|object| cache.listed(object.clone()));
    cache.finish_listing().iter().map(describe).collect()
}

/// A change as `name old→new` with the versions.
fn describe(change: &Change<ConfigMap>) -> String {
    let version = |object: &Option<Arc<ConfigMap>>| {
        object.as_ref().and_then(|object| object.metadata.resource_version.clone()).unwrap_or_default()
    };
    format!("{} {}→{}", change.key().name, version(&change.old), version(&change.new))
}

fn described(change: Option<Change<ConfigMap>>) -> String {
    change.as_ref().map(describe).unwrap_or_default()
}

fn cached(cache: &Cache<ConfigMap>) -> Vec<String> {
    cache
        .iter()
        .map(|object| {
            let meta = &object.metadata;
            format!("{}@{}", meta.name.as_deref().unwrap(), meta.resource_version.as_deref().unwrap())
        })
        .collect()
}

#[test]
fn a_listing_reports_what_changed_and_what_was_deleted_since() {
    let mut cache = Cache::default();
    assert_eq!(list(&mut cache, &[object("a", "1", 1), object("b", "2", 2)]), ["a →1", "b →2"]);
    assert_eq!(list(&mut cache, &[object("a", "1", 1), object("b", "2", 2)]), [""; 0]);
    assert_eq!(list(&mut cache, &[object("b", "2", 5), object("c", "3", 6)]), ["a 1→", "b 2→5", "c →6"]);
    assert_eq!(cached(&cache), ["b@5", "c@6"]);
}

#[test]
fn a_listing_that_was_interrupted_changes_nothing() {
    let mut cache = Cache::default();
    list(&mut cache, &[object("a", "1", 1), object("b", "2", 2)]);
    cache.begin_listing();
    cache.listed(object("a", "1", 1));
    assert_eq!(list(&mut cache, &[object("a", "1", 1), object("b", "2", 2)]), [""; 0]);
}

#[test]
fn an_own_write_is_visible_at_once_and_older_watch_events_do_not_undo_it() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    list(&mut cache, &[object("a", "1", 1)]);
    assert_eq!(described(cache.written(Arc::new(object("a", "1", 5)), now)), "a 1→5");
    assert_eq!(described(cache.watched(object("a", "1", 3))), "");
    assert_eq!(cached(&cache), ["a@5"]);
    assert_eq!(cache.oldest_unconfirmed(), Some(now));
    assert_eq!(described(cache.watched(object("a", "1", 5))), "", "the same object is no change");
    assert_eq!(cache.oldest_unconfirmed(), None);
    assert_eq!(described(cache.written(Arc::new(object("a", "1", 4)), now)), "", "a late response");
    assert_eq!(described(cache.watched(object("a", "1", 8))), "a 5→8");
}

#[test]
fn an_own_create_survives_a_listing_that_began_before_it_but_not_one_that_began_after_it() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    cache.begin_listing();
    cache.written(Arc::new(object("a", "1", 5)), now);
    assert!(cache.finish_listing().is_empty());
    assert_eq!(cached(&cache), ["a@5"]);
    assert_eq!(list(&mut cache, &[]), ["a 5→"], "it was deleted before the watch began");
}

#[test]
fn an_own_delete_hides_the_object_until_the_watch_reports_it() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    list(&mut cache, &[object("a", "1", 1)]);
    assert_eq!(described(cache.deleted(&object("a", "1", 1).metadata, now)), "a 1→");
    assert_eq!(described(cache.watched(object("a", "1", 2))), "", "an earlier change, late");
    assert_eq!(described(cache.written(Arc::new(object("a", "1", 2)), now)), "", "an earlier response, late");
    assert_eq!(described(cache.watched_deletion(&object("a", "1", 3))), "", "it is known already");
    assert_eq!(cache.oldest_unconfirmed(), None);
    assert_eq!(described(cache.watched(object("a", "2", 4))), "a →4", "another object of that name");
}

#[test]
fn an_own_delete_survives_a_listing_that_began_before_it() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    list(&mut cache, &[object("a", "1", 1)]);
    cache.begin_listing();
    cache.listed(object("a", "1", 1));
    cache.deleted(&object("a", "1", 1).metadata, now);
    assert!(cache.finish_listing().is_empty());
    assert!(cached(&cache).is_empty());
    assert_eq!(list(&mut cache, &[]), [""; 0]);
    assert_eq!(cache.oldest_unconfirmed(), None);
}

#[test]
fn an_object_that_was_replaced_under_its_name_by_this_process_outlives_the_deletion_of_the_first() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    list(&mut cache, &[object("a", "1", 1)]);
    cache.deleted(&object("a", "1", 1).metadata, now);
    assert_eq!(described(cache.written(Arc::new(object("a", "2", 9)), now)), "a →9");
    assert_eq!(described(cache.watched_deletion(&object("a", "1", 7))), "");
    assert_eq!(described(cache.watched(object("a", "2", 9))), "");
    assert_eq!(cached(&cache), ["a@9"]);
}

#[test]
fn a_version_that_is_no_number_leaves_the_decision_to_the_watch() {
    let (mut cache, now) = (Cache::default(), Instant::now());
    let mut odd = object("a", "1", 1);
    odd.metadata.resource_version = Some("abc".to_owned());
    cache.written(Arc::new(odd), now);
    assert_eq!(described(cache.watched(object("a", "1", 1))), "a abc→1");
}

/// An informer without an API server: its cache has what it is made to remember.
pub(crate) fn informer() -> Informer<ConfigMap> {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("no API server"))
    });
    let api = Api::all(kube::Client::new(service, "default"));
    let resource = kube::core::ApiResource::erase::<ConfigMap>(&());
    let informer = Informer::new(api, resource, Observability::default()).0;
    informer.shared.listed.send_replace(1);
    informer
}

#[tokio::test]
async fn a_late_subscriber_gets_what_is_there_and_changes_are_merged_until_they_are_read() {
    let informer = informer();
    informer.remember(object("a", "1", 1));
    let subscription = informer.subscribe();
    informer.remember(object("a", "1", 2));
    informer.remember(object("b", "2", 3));
    informer.forget(&object("b", "2", 3));
    assert_eq!(describe(&subscription.next().await), "a →2");
    assert_eq!(describe(&subscription.next().await), "b 3→", "created and deleted");
    assert!(subscription.try_next().is_none());
    informer.remember(object("a", "1", 4));
    informer.remember(object("a", "1", 5));
    assert_eq!(describe(&subscription.next().await), "a 2→5");
}

#[tokio::test]
async fn an_index_follows_the_cache_and_an_observer_may_read_it() {
    let informer = Arc::new(informer());
    informer.remember(object("a", "1", 1));
    let by_version = Arc::new(
        informer.index(|object: &ConfigMap| object.metadata.resource_version.iter().cloned().collect()),
    );
    let (index, reader) = (by_version.clone(), Arc::downgrade(&informer));
    let _observation = informer.observe(move |change| {
        let version = change.object().metadata.resource_version.clone().unwrap_or_default();
        let is_indexed = !index.get(&version).is_empty();
        assert_eq!(is_indexed, !change.is_deleted());
        assert_eq!(reader.upgrade().unwrap().get(&change.key()).is_some(), !change.is_deleted());
    });
    informer.remember(object("a", "1", 2));
    assert!(by_version.get("1").is_empty());
    assert_eq!(by_version.keys("2"), [ObjectKey::namespaced("ns", "a")]);
    informer.forget(&object("a", "1", 2));
    assert!(by_version.get("2").is_empty());
    assert!(!*informer.shared.observer_panicked.borrow());
}

#[tokio::test]
async fn a_list_is_limited_to_its_namespace() {
    let informer = informer();
    for (namespace, name) in [("a", "x"), ("b", "x"), ("b", "y"), ("b-c", "x")] {
        let mut one = object(name, &format!("{namespace}-{name}"), 1);
        one.metadata.namespace = Some(namespace.to_owned());
        informer.remember(one);
    }
    let names =
        informer.in_namespace("b").iter().map(|it| ObjectKey::of(&**it).to_string()).collect::<Vec<_>>();
    assert_eq!(names, ["b/x", "b/y"]);
    assert_eq!(informer.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_time_of_an_unconfirmed_write_is_that_of_the_oldest() {
    let mut cache = Cache::default();
    let first = Instant::now();
    cache.written(Arc::new(object("a", "1", 1)), first);
    tokio::time::advance(Duration::from_secs(1)).await;
    cache.written(Arc::new(object("b", "2", 2)), Instant::now());
    assert_eq!(cache.oldest_unconfirmed(), Some(first));
    cache.watched(object("a", "1", 1));
    assert_eq!(cache.oldest_unconfirmed(), Some(first + Duration::from_secs(1)));
}
