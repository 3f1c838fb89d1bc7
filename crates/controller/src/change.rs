//! A change of an object, and what can be watched.

use std::fmt::Debug;
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;

use crate::key::ObjectKey;

/// An object as the API server serves it, of a kind that can be watched.
pub trait Object: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

impl<K> Object for K where K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static {}

/// A change of one object. At least one side is present: without `old` it was created (or is seen for the first time), without `new`
/// it was deleted (or left the selection).
#[derive(Debug)]
pub struct Change<K> {
    /// The object before.
    pub old: Option<Arc<K>>,
    /// The object now.
    pub new: Option<Arc<K>>,
}

impl<K> Change<K> {
    pub(crate) fn created(new: Arc<K>) -> Change<K> {
        Change { old: None, new: Some(new) }
    }

    pub(crate) fn updated(old: Arc<K>, new: Arc<K>) -> Change<K> {
        Change { old: Some(old), new: Some(new) }
    }

    pub(crate) fn deleted(old: Arc<K>) -> Change<K> {
        Change { old: Some(old), new: None }
    }

    /// The object: as it is now, or as it last was.
    pub fn object(&self) -> &Arc<K> {
        self.new.as_ref().or(self.old.as_ref()).expect("a change has a side")
    }

    /// Whether the object is gone.
    pub fn is_deleted(&self) -> bool {
        self.new.is_none()
    }

    /// Both sides that are present. What follows from an object, such as its owner, may differ between them, and both concern a
    /// controller.
    pub fn sides(&self) -> impl Iterator<Item = &Arc<K>> {
        self.old.iter().chain(&self.new)
    }
}

impl<K: Resource> Change<K> {
    /// The object's key.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(&**self.object())
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Change<K> {
        Change { old: self.old.clone(), new: self.new.clone() }
    }
}
