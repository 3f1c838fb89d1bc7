//! Writing into JSON that a client sent. `value["a"]["b"] = …` panics where `a` is a string or a list; this does not.

use serde_json::{Map, Value};

/// Sets the field at `path` and creates objects where values are missing. A value in the path that is not an object
/// stays unchanged; validation reports it.
pub(crate) fn set(value: &mut Value, path: &[&str], new: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut place = value;
    for field in parents {
        let Some(fields) = object(place) else { return };
        place = fields.entry(*field).or_insert(Value::Null);
    }
    if let Some(fields) = object(place) {
        fields.insert((*last).to_owned(), new);
    }
}

/// The fields of an object. A null value becomes an empty object.
fn object(value: &mut Value) -> Option<&mut Map<String, Value>> {
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_set_at_any_depth_and_other_types_stay_unchanged() {
        let check = |mut input: Value, expect: Value| {
            set(&mut input, &["a", "b"], json!(1));
            assert_eq!(input, expect);
        };
        check(json!({}), json!({"a": {"b": 1}}));
        check(json!(null), json!({"a": {"b": 1}}));
        check(json!({"a": null, "c": 2}), json!({"a": {"b": 1}, "c": 2}));
        check(json!({"a": {"b": 0, "c": 2}}), json!({"a": {"b": 1, "c": 2}}));
        for other in [json!({"a": "text"}), json!({"a": [1]}), json!([]), json!("text"), json!(7)] {
            check(other.clone(), other);
        }
    }
}
