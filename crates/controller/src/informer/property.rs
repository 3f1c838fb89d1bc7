//! Random histories of an API server, with a watch that lags, listings that take time, and own writes in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;
use tokio::time::Instant;

use super::cache::Cache;
use super::tests::object;
use crate::change::Change;
use crate::key::ObjectKey;

#[derive(Debug, Clone)]
enum Step {
    /// An object of this name is created, or changed.
    Write {
        name: u8,
        own: bool,
    },
    Delete {
        name: u8,
        own: bool,
    },
    /// The watch delivers up to this many events.
    Deliver(usize),
    BeginListing,
    FinishListing,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..3_u8;
    prop_oneof![
        4 => (name.clone(), any::<bool>()).prop_map(|(name, own)| Step::Write { name, own }),
        3 => (name, any::<bool>()).prop_map(|(name, own)| Step::Delete { name, own }),
        4 => (1..4_usize).prop_map(Step::Deliver),
        1 => Just(Step::BeginListing),
        2 => Just(Step::FinishListing),
    ]
}

/// An event of the API server: the object, and whether it exists afterwards.
#[derive(Clone)]
struct Event {
    object: ConfigMap,
    exists: bool,
}

/// The API server, the cache, and what an observer of the cache knows.
#[derive(Default)]
struct World {
    version: u64,
    objects: BTreeMap<String, ConfigMap>,
    log: Vec<Event>,
    /// Events before this position were delivered.
    delivered: usize,
    /// The position of the listing in progress, and its objects.
    listing: Option<(usize, Vec<ConfigMap>)>,
    cache: Cache<ConfigMap>,
    observed: BTreeMap<String, u64>,
    /// The versions of this process's newest writes, by name; a deletion is one too.
    own: BTreeMap<String, u64>,
}

impl World {
    fn step(&mut self, step: Step) {
        match step {
            Step::Write { name, own } => {
                let name = name.to_string();
                self.version += 1;
                let found = self.objects.get(&name).and_then(|it| it.metadata.uid.clone());
                let written =
                    object(&name, &found.unwrap_or_else(|| format!("uid-{}", self.version)), self.version);
                self.objects.insert(name.clone(), written.clone());
                self.log.push(Event { object: written.clone(), exists: true });
                if own {
                    self.own.insert(name, self.version);
                    let change = self.cache.written(Arc::new(written), Instant::now());
                    self.observe(change);
                }
            }
            Step::Delete { name, own } => {
                let Some(found) = self.objects.remove(&name.to_string()) else { return };
                self.version += 1;
                let mut deleted = found.clone();
                deleted.metadata.resource_version = Some(self.version.to_string());
                self.log.push(Event { object: deleted, exists: false });
                // A process deletes the object that its cache has, by its uid.
                let key = ObjectKey::of(&found);
                let is_cached = |cached: &Arc<ConfigMap>| cached.metadata.uid == found.metadata.uid;
                if own && self.cache.get(&key).is_some_and(is_cached) {
                    self.own.insert(name.to_string(), self.version);
                    let cached = self.cache.get(&key).unwrap().clone();
                    let change = self.cache.deleted(&cached.metadata, Instant::now());
                    self.observe(change);
                }
            }
            // While a listing is in progress there is no watch.
            Step::Deliver(count) if self.listing.is_none() => {
                for _ in 0..count {
                    let Some(event) = self.log.get(self.delivered).cloned() else { return };
                    self.delivered += 1;
                    let change = match event.exists {
                        true => self.cache.watched(event.object),
                        false => self.cache.watched_deletion(&event.object),
                    };
                    self.observe(change);
                }
            }
            Step::Deliver(_) => {}
            Step::BeginListing => {
                self.cache.begin_listing();
                self.listing = Some((self.log.len(), self.objects.values().cloned().collect()));
            }
            Step::FinishListing => {
                let Some((position, objects)) = self.listing.take() else { return };
                objects.into_iter().for_each(|object| self.cache.listed(object));
                for change in self.cache.finish_listing() {
                    self.observe(Some(change));
                }
                self.delivered = position;
            }
        }
    }

    /// Every change continues what the one before it left.
    fn observe(&mut self, change: Option<Change<ConfigMap>>) {
        let Some(change) = change else { return };
        let name = change.key().name.to_string();
        let before = change.old.as_deref().map(version);
        assert_eq!(self.observed.get(&name).copied(), before, "the old side of a change of {name}");
        match change.new.as_deref() {
            Some(new) => self.observed.insert(name, version(new)),
            None => self.observed.remove(&name),
        };
    }

    fn cached(&self) -> BTreeMap<String, u64> {
        let entry = |object: &Arc<ConfigMap>| (object.metadata.name.clone().unwrap(), version(object));
        self.cache.iter().map(entry).collect()
    }

    /// No cached object is older than what this process wrote under its name.
    fn check(&self) {
        let cached = self.cached();
        assert_eq!(cached, self.observed);
        for (name, own) in &self.own {
            let newest = self.log.iter().rev().find(|event| version(&event.object) == *own).unwrap();
            match cached.get(name) {
                Some(cached) => assert!(cached >= own, "{name} is cached at {cached}, written at {own}"),
                // It may be absent if its own deletion, or a later one, is known.
                None => {
                    let deleted_later = |event: &Event| {
                        !event.exists
                            && event.object.metadata.name.as_ref() == Some(name)
                            && version(&event.object) >= *own
                    };
                    assert!(!newest.exists || self.log.iter().any(deleted_later), "{name} of {own} is lost");
                }
            }
        }
    }
}

fn version(object: &ConfigMap) -> u64 {
    object.metadata.resource_version.as_deref().unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cache_is_never_older_than_own_writes_and_ends_as_the_api_server(
        steps in proptest::collection::vec(step(), 0..40)
    ) {
        let mut world = World::default();
        for step in steps {
            world.step(step);
            world.check();
        }
        // What the watch cannot confirm is gone after a listing that began later.
        for step in [Step::BeginListing, Step::FinishListing, Step::Deliver(usize::MAX)] {
            world.step(step);
            world.check();
        }
        let expected: BTreeMap<String, u64> =
            world.objects.iter().map(|(name, object)| (name.clone(), version(object))).collect();
        prop_assert_eq!(world.cached(), expected);
        prop_assert!(world.cache.oldest_unconfirmed().is_none());
    }
}
