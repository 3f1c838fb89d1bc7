//! The state of one cluster: its objects and the kinds it serves. A writer holds the lock from its first read to its
//! last write, and never waits in between.

use std::sync::{Arc, OnceLock};

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::Kind;
use crate::objects::{Change, Object, Objects, object_key};
use crate::rbac::{self, Policy};
use crate::registry::{DEFINITIONS, Registry};
use crate::status::{ApiResult, StatusError};
use crate::webhooks::{self, Webhooks};

/// The state of one cluster.
#[derive(Debug)]
pub struct State {
    /// The objects.
    pub objects: Objects,
    /// The kinds.
    pub kinds: Arc<Registry>,
    /// The roles and bindings, read when they are first needed after a change.
    policy: OnceLock<Policy>,
    /// The admission webhooks, read in the same way.
    webhooks: OnceLock<Webhooks>,
}

impl State {
    /// The state with these objects.
    pub fn new(objects: Objects) -> State {
        let kinds = Arc::new(Registry::from_objects(&objects));
        State { objects, kinds, policy: OnceLock::new(), webhooks: OnceLock::new() }
    }

    /// The object of this kind and name.
    pub fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Arc<Object>> {
        self.objects.get(kind.table(), &object_key(namespace, name))
    }

    /// The object, parsed, with `kind` and `apiVersion`.
    pub fn read(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Value> {
        let mut value = kind.served(self.get(kind, namespace, name)?.value());
        kind.set_type_meta(&mut value);
        Some(value)
    }

    /// The roles and bindings.
    pub(crate) fn policy(&self) -> &Policy {
        self.policy.get_or_init(|| Policy::new(&self.objects))
    }

    /// The admission webhooks.
    pub(crate) fn webhooks(&self) -> &Webhooks {
        self.webhooks.get_or_init(|| Webhooks::new(&self.objects))
    }

    /// Commits changes and updates what follows from them.
    pub fn commit(&mut self, changes: Vec<Change>) -> ApiResult<Vec<Arc<Object>>> {
        let touches = |is_meant: fn(&str) -> bool| {
            changes.iter().any(|change| match change {
                Change::Put(table, _) | Change::Remove(table, _) => is_meant(table),
            })
        };
        let defines = touches(|table| table == DEFINITIONS);
        let changes_webhooks = touches(|table| table.starts_with(webhooks::TABLES));
        let changes_policy = touches(|table| table.starts_with(rbac::TABLES));
        let objects = self.objects.commit(changes).map_err(|error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "Failed to write a change to the journal"
            );
            StatusError::internal(&error)
        })?;
        if changes_webhooks {
            self.webhooks = OnceLock::new();
        }
        if changes_policy {
            self.policy = OnceLock::new();
        }
        if defines {
            self.kinds = Arc::new(Registry::from_objects(&self.objects));
        }
        Ok(objects)
    }

    /// Writes one object.
    pub fn put(&mut self, kind: &Kind, value: Value) -> ApiResult<Arc<Object>> {
        let mut objects = self.commit(vec![Change::Put(kind.table().clone(), kind.stored(value))])?;
        objects.pop().ok_or_else(|| StatusError::internal("nothing was written"))
    }
}

/// Formats a time as objects contain it: whole seconds.
pub fn time(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
