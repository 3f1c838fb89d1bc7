//! What can be done to objects. Each verb is a plain function on the state of a cluster: it checks, changes and answers,
//! and knows nothing of HTTP.

mod admit;
mod allocate;
mod create;
mod delete;
mod evict;
mod kind_verbs;
mod metadata;
mod patch;
mod renew;
mod scale;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::kinds::Kind;
use crate::objects::Object;

pub(crate) use admit::check_types;
pub use create::create;
pub use delete::{DeleteOptions, Propagation, delete, delete_collection, remove};
pub(crate) use delete::{FOREGROUND, ORPHAN};
pub use evict::evict;
pub(crate) use kind_verbs::set_condition;
pub use kind_verbs::{approve, bind, finalize, review};
pub use patch::{PatchType, patch};
pub use renew::renew;
pub use scale::{read_scale, update_scale};
pub use update::update;

/// What a request is about.
#[derive(Debug, Clone)]
pub struct Target {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The namespace, empty for none or all.
    pub namespace: String,
    /// The name, empty for a collection.
    pub name: String,
    /// The subresource, empty for the object itself.
    pub subresource: String,
}

/// Who asks, when.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The user's name.
    pub user: Arc<str>,
    /// The user's groups.
    pub groups: Arc<[String]>,
    /// The present.
    pub now: Timestamp,
}

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Everything but the write itself.
    pub dry_run: bool,
    /// Who the change is ascribed to.
    pub manager: String,
    /// What becomes of unknown fields.
    pub validation: Validation,
    /// Whether an apply takes fields from others.
    pub force: Option<bool>,
}

/// What becomes of fields that the schema does not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Validation {
    /// They are dropped in silence.
    Ignore,
    /// They are dropped, and the answer says so.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

/// What became of a write.
#[derive(Debug)]
pub struct WriteResult {
    /// The object; without a place in the cluster if it was a dry run.
    pub object: Arc<Object>,
    /// Whether it is new.
    pub is_new: bool,
    /// What the caller should be told.
    pub warnings: Vec<String>,
}

/// A value at a path of fields, or null.
fn value_at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, field| &value[*field])
}
