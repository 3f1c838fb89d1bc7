//! Merge patch (RFC 7386).

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::json_type;

/// Merges the patch into the object: null removes a field, objects are merged, all other values are replaced.
pub fn merge(object: &Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::BadRequest(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            json_type(patch)
        )));
    };
    let mut result = object.as_object().cloned().unwrap_or_default();
    lay_over(&mut result, patch);
    Ok(Value::Object(result))
}

fn lay_over(object: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, change) in patch {
        match (change, object.get_mut(name)) {
            (Value::Null, _) => {
                object.remove(name);
            }
            (Value::Object(change), Some(Value::Object(inner))) => lay_over(inner, change),
            (Value::Object(change), _) => {
                let mut inner = Map::new();
                lay_over(&mut inner, change);
                object.insert(name.clone(), Value::Object(inner));
            }
            (change, _) => {
                object.insert(name.clone(), change.clone());
            }
        }
    }
}
