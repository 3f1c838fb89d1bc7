//! JSON patch (RFC 6902).

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::PatchError;
use crate::schema::{DEPTH_MAX, is_too_deep, json_type};

/// Limit on the operations in one patch, as in the real server.
const OPERATIONS_MAX: usize = 10_000;

/// Limit on the bytes that `copy` operations add in one patch, so that a few of them cannot grow an object without
/// bound. It equals the real server's limit on a request body.
const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

const OPERATIONS: [&str; 6] = ["add", "remove", "replace", "move", "copy", "test"];

/// Applies all operations; fails without a change if one of them fails.
pub fn json(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let patch = parse(patch)?;
    let mut result = object.clone();
    let mut copied = 0;
    for operation in patch.0 {
        guard(&result, &operation, &mut copied)?;
        let shown = operation.to_string();
        json_patch::patch(&mut result, &[operation])
            .map_err(|error| PatchError::Unprocessable(format!("{}: {shown}", error.kind)))?;
    }
    Ok(result)
}

fn parse(patch: &Value) -> Result<Patch, PatchError> {
    let Value::Array(operations) = patch else {
        if patch.is_null() {
            return Ok(Patch(Vec::new()));
        }
        let found = json_type(patch);
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
        )));
    };
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    if let Some(other) = operations.iter().find(|operation| !operation.is_object()) {
        let found = json_type(other);
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"
        )));
    }
    if let Some(unknown) = operations
        .iter()
        .filter_map(|operation| operation.get("op")?.as_str())
        .find(|name| !OPERATIONS.contains(name))
    {
        return Err(PatchError::Unprocessable(format!("Unexpected kind: {unknown}")));
    }
    serde_json::from_value(patch.clone()).map_err(|error| PatchError::Unprocessable(error.to_string()))
}

/// Rejects an operation that would make the object too deep or too large.
fn guard(object: &Value, operation: &PatchOperation, copied: &mut usize) -> Result<(), PatchError> {
    let added = match operation {
        PatchOperation::Add(add) => Some((&add.path, &add.value)),
        PatchOperation::Replace(replace) => Some((&replace.path, &replace.value)),
        PatchOperation::Copy(copy) => match copy.from.resolve(object) {
            Ok(value) => {
                *copied = copied.saturating_add(value.to_string().len());
                if *copied > COPIED_BYTES_MAX {
                    return Err(PatchError::Unprocessable(format!(
                        "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the \
                         limit {COPIED_BYTES_MAX}"
                    )));
                }
                Some((&copy.path, value))
            }
            Err(_) => None,
        },
        PatchOperation::Move(action) => action.from.resolve(object).ok().map(|value| (&action.path, value)),
        PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
    };
    let Some((path, value)) = added else { return Ok(()) };
    if depth(value) + path.count() > DEPTH_MAX || is_too_deep(value) {
        return Err(PatchError::Unprocessable("the result is nested too deep".to_owned()));
    }
    Ok(())
}

/// The nesting depth of a value; values here are at most [`DEPTH_MAX`] deep.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
