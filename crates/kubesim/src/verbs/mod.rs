//! The verbs on objects. Each is a plain function on the state of a cluster that checks, changes and returns the
//! result; it knows nothing of HTTP.

mod admission;
mod admit;
mod allocate;
mod create;
mod delete;
mod evict;
mod kind_verbs;
mod metadata;
mod patch;
mod renew;
mod review;
mod scale;
mod update;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::access::User;
use crate::kinds::Kind;
use crate::objects::Object;
use crate::rbac::{self, Attributes, ResourceAttributes};
use crate::state::State;
use crate::status::ApiResult;
use crate::webhooks::Gate;

pub(crate) use admission::normalize_patched;
pub(crate) use admit::check_types;
pub use create::create;
pub use delete::{DeleteOptions, Propagation, delete, delete_collection, remove};
pub(crate) use delete::{FOREGROUND, ORPHAN, admit_deletion};
pub use evict::evict;
pub(crate) use kind_verbs::set_condition;
pub use kind_verbs::{approve, bind, finalize};
pub use patch::{PatchType, patch};
pub use renew::renew;
pub(crate) use review::{prepare_review, prepare_token_request};
pub use scale::{read_scale, scale_of, update_scale};
pub use update::update;

/// The collection, object or subresource of a request.
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

/// The user and the time of a request.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The user.
    pub user: User,
    /// The current time.
    pub now: Timestamp,
    /// The answers of admission webhooks; none for writes of the cluster itself.
    pub(crate) gate: Option<Arc<Gate>>,
}

impl Caller {
    /// A caller whose writes no webhook sees.
    pub(crate) fn internal(user: User, now: Timestamp) -> Caller {
        Caller { user, now, gate: None }
    }

    /// The same caller for a part of a write that webhooks do not see.
    pub(crate) fn without_gate(&self) -> Caller {
        Caller { gate: None, ..self.clone() }
    }
}

/// Options of a write.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// Do everything except the write.
    pub dry_run: bool,
    /// The field manager.
    pub manager: String,
    /// How unknown fields are handled.
    pub validation: Validation,
    /// Whether an apply takes fields from other managers.
    pub force: Option<bool>,
}

/// How fields that the schema does not name are handled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Validation {
    /// They are dropped silently.
    Ignore,
    /// They are dropped with a warning.
    #[default]
    Warn,
    /// The request fails.
    Strict,
}

/// The result of a write.
#[derive(Debug)]
pub struct WriteResult {
    /// The object; not stored if it was a dry run.
    pub object: Arc<Object>,
    /// Whether the object was created.
    pub is_new: bool,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// An update or a patch that creates an object needs the permission to create it.
fn expect_create(state: &State, target: &Target, caller: &Caller) -> ApiResult<()> {
    let resource = ResourceAttributes {
        namespace: &target.namespace,
        group: target.kind.group(),
        resource: target.kind.plural(),
        subresource: &target.subresource,
        name: &target.name,
    };
    rbac::expect(state, &caller.user, &Attributes::on("create", resource))
}

/// A value at a path of fields, or null.
fn value_at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |value, field| &value[*field])
}
