//! Merging of a request's body into the stored resource.

use serde_json::{Map, Value};

/// Merge the body of a PUT into the members that it may omit: present members replace them. Null counts as absent, and so does an
/// empty text for such a member, as it does when a cluster is created.
pub fn replaced(base: Value, body: &Value) -> Value {
    lay(base, body, Empty::Absent, 0)
}

/// Merge the body of a PATCH into the whole resource: objects are merged, arrays and `tags` are replaced, null removes.
pub fn patched(base: Value, body: &Value) -> Value {
    lay(base, body, Empty::Counts, 0)
}

/// Meaning of null and of an empty text for an existing member.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// Both count as absent.
    Absent,
    /// Null removes the member, and an empty text replaces it.
    Counts,
}

/// Maps that a body replaces as a whole, by their names.
fn is_whole(name: &str, depth: usize) -> bool {
    (depth == 0 && name == "tags") || (depth == 1 && name == "userAssignedIdentities")
}

fn lay(base: Value, body: &Value, empty: Empty, depth: usize) -> Value {
    let Value::Object(members) = body else { return body.clone() };
    let mut merged = match base {
        Value::Object(base) => base,
        _ => Map::new(),
    };
    for (name, value) in members {
        match value {
            Value::Null if empty == Empty::Counts => drop(merged.remove(name)),
            Value::Null => {}
            Value::String(text) if text.is_empty() && empty == Empty::Absent && merged.contains_key(name) => {
            }
            Value::Object(_) if !is_whole(name, depth) => {
                let under = merged.remove(name).unwrap_or_default();
                merged.insert(name.clone(), lay(under, value, empty, depth + 1));
            }
            value => drop(merged.insert(name.clone(), value.clone())),
        }
    }
    Value::Object(merged)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_merges_objects_and_replaces_the_rest() {
        let base = || json!({"tags": {"a": "1"}, "x": {"y": 1, "z": [1, 2]}, "n": 1});
        let check = |body: Value, expect: Value| assert_eq!(patched(base(), &body), expect);
        check(json!({}), base());
        check(json!({"tags": {"b": "2"}}), json!({"tags": {"b": "2"}, "x": {"y": 1, "z": [1, 2]}, "n": 1}));
        check(json!({"tags": {}}), json!({"tags": {}, "x": {"y": 1, "z": [1, 2]}, "n": 1}));
        check(json!({"tags": null}), json!({"x": {"y": 1, "z": [1, 2]}, "n": 1}));
        check(json!({"x": {"z": [3]}}), json!({"tags": {"a": "1"}, "x": {"y": 1, "z": [3]}, "n": 1}));
        check(json!({"x": {"y": null}, "n": null}), json!({"tags": {"a": "1"}, "x": {"z": [1, 2]}}));
        check(json!({"n": {"m": 1}}), json!({"tags": {"a": "1"}, "x": {"y": 1, "z": [1, 2]}, "n": {"m": 1}}));
    }

    #[test]
    fn a_put_keeps_what_it_leaves_out_or_gives_as_nothing() {
        let base = || json!({"x": {"version": "1"}});
        let blank = json!({"x": {"version": "", "domain": ""}});
        assert_eq!(replaced(base(), &blank), json!({"x": {"version": "1", "domain": ""}}));
        assert_eq!(patched(base(), &json!({"x": {"version": ""}})), json!({"x": {"version": ""}}));
        assert_eq!(
            replaced(base(), &json!({"x": {"version": null, "y": 2}})),
            json!({"x": {"version": "1", "y": 2}})
        );
        assert_eq!(replaced(base(), &json!({"x": null})), base());
    }
}
