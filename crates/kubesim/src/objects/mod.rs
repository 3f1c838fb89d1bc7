//! The objects of one cluster in memory, by table and key, with one revision for all of them and a bounded log of
//! changes. This module knows nothing of kinds, defaults or HTTP. An object is stored as its JSON text without `kind`
//! and `apiVersion`, which follow from its table: that takes a third of the memory of a parsed object and is ready to
//! be sent.

mod journal;
mod log;
mod object;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

pub use journal::{Journal, JournalError};
pub use log::{EventType, Log, WatchEvent};
pub use object::{Labels, Object, ObjectSummary, object_key};

/// The name of a table: `group/plural`, `/pods` for the core group.
pub type TableName = Arc<str>;

/// A table and a key in it.
pub type ObjectRef = (TableName, Arc<str>);

/// One change. Several changes are committed together.
#[derive(Debug, Clone)]
pub enum Change {
    /// Creates or replaces an object.
    Put(TableName, Value),
    /// Removes the object at this key.
    Remove(TableName, Arc<str>),
}

/// The objects of one cluster.
#[derive(Debug)]
pub struct Objects {
    revision: u64,
    tables: HashMap<TableName, Table>,
    log: Log,
    journal: Option<Journal>,
    /// Objects by the uid of each of their owners.
    dependents: HashMap<Arc<str>, BTreeSet<ObjectRef>>,
    /// Notifies the controllers about every revision.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Arc<str>, Arc<Object>>,
    changed: watch::Sender<u64>,
}

impl Default for Table {
    fn default() -> Table {
        Table { objects: BTreeMap::new(), changed: watch::Sender::new(0) }
    }
}

impl Objects {
    /// Objects without a journal; they are lost when the process exits.
    pub fn in_memory() -> Objects {
        Objects {
            revision: 1,
            tables: HashMap::new(),
            log: Log::starting_at(1),
            journal: None,
            dependents: HashMap::new(),
            changed: watch::Sender::new(1),
        }
    }

    /// Loads the journal at `path` and continues it.
    pub fn open(path: &Path) -> Result<Objects, JournalError> {
        let mut objects = Objects::in_memory();
        let (journal, records) = Journal::open(path)?;
        for record in records {
            objects.revision = objects.revision.max(record.revision);
            let table: TableName = record.table.as_str().into();
            match record.object {
                Some(value) => objects.insert_object(&table, Arc::new(Object::new(value, record.revision))),
                None => {
                    objects.remove_object(&table, &record.key);
                }
            }
        }
        objects.log = Log::starting_at(objects.revision);
        objects.journal = Some(journal);
        Ok(objects)
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The object at a key.
    pub fn get(&self, table: &str, key: &str) -> Option<&Arc<Object>> {
        self.tables.get(table)?.objects.get(key)
    }

    /// The objects of a table whose key starts with `prefix`, from `start` on, in the order of their keys.
    pub fn range<'a>(
        &'a self,
        table: &str,
        prefix: &'a str,
        start: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Object>)> + 'a {
        let from = if start > prefix { start } else { prefix };
        self.tables
            .get(table)
            .into_iter()
            .flat_map(move |table| table.objects.range::<str, _>((Bound::Included(from), Bound::Unbounded)))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Like [`Objects::range`] at an older `revision`; `None` if the log does not reach back that far.
    pub fn range_at(
        &self,
        table: &str,
        prefix: &str,
        start: &str,
        revision: u64,
    ) -> Option<Vec<Arc<Object>>> {
        if revision == self.revision {
            return Some(self.range(table, prefix, start).map(|(_, object)| object.clone()).collect());
        }
        let mut then: BTreeMap<Arc<str>, Arc<Object>> =
            self.range(table, prefix, start).map(|(key, object)| (key.clone(), object.clone())).collect();
        for event in self.log.since(revision)?.rev() {
            if &*event.table != table || !event.key.starts_with(prefix) || &*event.key < start {
                continue;
            }
            match &event.previous {
                Some(previous) => then.insert(event.key.clone(), previous.clone()),
                None => then.remove(&event.key),
            };
        }
        Some(then.into_values().collect())
    }

    /// The number of objects in a table.
    pub fn count(&self, table: &str) -> usize {
        self.tables.get(table).map_or(0, |table| table.objects.len())
    }

    /// The events after `revision`, or `None` if the log does not reach back that far.
    pub fn events_since(&self, revision: u64) -> Option<impl DoubleEndedIterator<Item = &Arc<WatchEvent>>> {
        self.log.since(revision)
    }

    /// The oldest revision after which the log is complete.
    pub fn oldest(&self) -> u64 {
        self.log.start()
    }

    /// Drops events beyond the limits of the log.
    pub fn trim_log(&mut self) {
        self.log.trim();
    }

    /// Objects that name `uid` as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<ObjectRef> {
        self.dependents.get(uid).map(|places| places.iter().cloned().collect()).unwrap_or_default()
    }

    /// Notifies about changes in one table.
    pub fn watch_table(&mut self, table: &TableName) -> watch::Receiver<u64> {
        self.tables.entry(table.clone()).or_default().changed.subscribe()
    }

    /// Notifies about every change.
    pub fn watch_all(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Commits changes to different objects, each under a revision of its own, first to the journal. Returns the
    /// objects after the change; a removed object in its last state, with the revision of its removal.
    pub fn commit(&mut self, changes: Vec<Change>) -> Result<Vec<Arc<Object>>, JournalError> {
        let mut events = Vec::with_capacity(changes.len());
        let mut revision = self.revision;
        for change in changes {
            match change {
                Change::Put(table, value) => {
                    revision += 1;
                    let object = Arc::new(Object::new(value, revision));
                    let key = object.key();
                    let previous = self.get(&table, &key).cloned();
                    let kind = if previous.is_some() { EventType::Modified } else { EventType::Added };
                    events.push(WatchEvent { revision, kind, table, key, object, previous });
                }
                Change::Remove(table, key) => {
                    let Some(previous) = self.get(&table, &key).cloned() else { continue };
                    revision += 1;
                    let object = Arc::new(previous.at_revision(revision));
                    events.push(WatchEvent {
                        revision,
                        kind: EventType::Deleted,
                        table,
                        key,
                        object,
                        previous: Some(previous),
                    });
                }
            }
        }
        if let Some(journal) = &mut self.journal {
            journal.append(&events)?;
        }
        self.revision = revision;
        let objects = events.iter().map(|event| event.object.clone()).collect();
        for event in events {
            match event.kind {
                EventType::Deleted => {
                    self.remove_object(&event.table, &event.key);
                }
                EventType::Added | EventType::Modified => {
                    self.insert_object(&event.table, event.object.clone());
                }
            }
            if let Some(table) = self.tables.get(&event.table) {
                table.changed.send_replace(event.revision);
            }
            self.log.push(event);
        }
        self.changed.send_replace(self.revision);
        self.compact_when_due();
        Ok(objects)
    }

    fn insert_object(&mut self, table: &TableName, object: Arc<Object>) {
        let key = object.key();
        let place = (table.clone(), key.clone());
        let replaced = self.tables.entry(table.clone()).or_default().objects.insert(key, object.clone());
        if let Some(replaced) = replaced {
            self.remove_from_owners(&replaced, &place);
        }
        for owner in object.owners() {
            self.dependents.entry(owner.clone()).or_default().insert(place.clone());
        }
    }

    fn remove_object(&mut self, table: &TableName, key: &str) -> Option<Arc<Object>> {
        let removed = self.tables.get_mut(table)?.objects.remove(key)?;
        self.remove_from_owners(&removed, &(table.clone(), removed.key()));
        Some(removed)
    }

    fn remove_from_owners(&mut self, object: &Object, place: &ObjectRef) {
        for owner in object.owners() {
            if let Some(places) = self.dependents.get_mut(owner) {
                places.remove(place);
                if places.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }

    /// Rewrites a journal that is mostly obsolete. On failure the old journal is still complete.
    fn compact_when_due(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if !journal.needs_compaction() {
            return;
        }
        let live = self
            .tables
            .iter()
            .flat_map(|(name, table)| table.objects.values().map(move |object| (name, object)));
        if let Err(error) = journal.rewrite(self.revision, live) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "Failed to compact the journal; it keeps growing"
            );
        }
    }
}

#[cfg(test)]
mod tests;
