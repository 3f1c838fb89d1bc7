//! Resource groups and their locks.

use cloud::{CloudError, LockLevel, Properties, ResourceId};
use serde_json::{Value, json};

use crate::json::{optional_text, set, text};

/// A group keeps its manager for life; another one is a conflict.
pub(super) fn apply(
    body: &mut Value,
    id: &ResourceId,
    managed_by: Option<&str>,
    is_new: bool,
) -> Result<(), CloudError> {
    if is_new {
        set(body, &["managedBy"], managed_by.map_or(Value::Null, |it| json!(it)));
        return Ok(());
    }
    let present = optional_text(body, "/managedBy");
    let is_same = match (present.as_deref(), managed_by) {
        (Some(one), Some(other)) => one.eq_ignore_ascii_case(other),
        (one, other) => one == other,
    };
    if is_same {
        return Ok(());
    }
    let why =
        format!("it is managed by {}, and that does not change", present.as_deref().unwrap_or("nobody"));
    Err(CloudError::Conflict { what: id.to_string(), why })
}

pub(super) fn apply_lock(body: &mut Value, level: LockLevel, notes: Option<&str>) {
    let name = match level {
        LockLevel::CanNotDelete => "CanNotDelete",
        LockLevel::ReadOnly => "ReadOnly",
    };
    set(body, &["properties", "level"], json!(name));
    set(body, &["properties", "notes"], notes.map_or(Value::Null, |it| json!(it)));
}

pub(super) fn lock(body: &Value) -> Properties {
    let level = match text(body, "/properties/level") {
        "ReadOnly" => LockLevel::ReadOnly,
        _ => LockLevel::CanNotDelete,
    };
    Properties::Lock { level, notes: optional_text(body, "/properties/notes") }
}
