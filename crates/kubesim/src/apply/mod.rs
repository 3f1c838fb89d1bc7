//! Server-side apply: who owns which field, and what becomes of an object that several managers write.
//!
//! The rules are those of the real server (structured-merge-diff): each manager has a set of fields per API version in
//! `metadata.managedFields`; an apply takes the fields of its configuration, gives up those it no longer names, and
//! conflicts with others over values that it would change.

mod error;

use jiff::Timestamp;
use serde_json::Value;

pub use error::{ApplyError, Conflict};

use crate::schema::Schema;

/// The object after `manager` has applied `config` to it, with `managedFields` brought up to date.
///
/// `live` is none when the object is to be created. The result is not yet defaulted or validated.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    manager: &str,
    force: bool,
    subresource: Option<&str>,
    schema: Option<&Schema>,
    now: Timestamp,
) -> Result<Value, ApplyError> {
    let _ = (live, config, manager, force, subresource, schema, now);
    Err(ApplyError::Internal("server-side apply is not there yet".to_owned()))
}

/// Brings `managedFields` up to date in an object that `manager` created, replaced or patched.
///
/// `after` is the object as it will be stored, defaulted; `before` as it was, none when it is being created.
pub fn track_update(
    before: Option<&Value>,
    after: &mut Value,
    manager: &str,
    subresource: Option<&str>,
    schema: Option<&Schema>,
    now: Timestamp,
) {
    let _ = (before, after, manager, subresource, schema, now);
}
