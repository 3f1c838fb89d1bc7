//! Preserves fields that this release does not know across a read and a write.
//!
//! A typed reader sees only the fields it knows. When it writes, its *change* is applied to the stored body: the
//! difference between what it read and what it wants, both as this release serialises them. So a field that a newer
//! release added stays, while a known field that the caller left out is removed.

use serde_json::Value;

/// Applies the changes from `read` to `wanted` to `stored`.
pub(crate) fn overlay(stored: &Value, read: &Value, wanted: &Value) -> Value {
    if read == wanted {
        return stored.clone();
    }
    match (stored, read, wanted) {
        (Value::Object(stored), Value::Object(read), Value::Object(wanted)) => {
            let mut result = stored.clone();
            for key in read.keys().filter(|key| !wanted.contains_key(*key)) {
                result.remove(key);
            }
            for (key, value) in wanted {
                let merged = match (stored.get(key), read.get(key)) {
                    (Some(stored), Some(read)) => overlay(stored, read, value),
                    // This release serialises it differently than it was stored (a default, say), or it is new.
                    _ => value.clone(),
                };
                result.insert(key.clone(), merged);
            }
            Value::Object(result)
        }
        // Elements have no names: they can only be matched when none was added or removed.
        (Value::Array(stored), Value::Array(read), Value::Array(wanted))
            if stored.len() == read.len() && read.len() == wanted.len() =>
        {
            let elements = stored.iter().zip(read).zip(wanted);
            Value::Array(elements.map(|((stored, read), wanted)| overlay(stored, read, wanted)).collect())
        }
        _ => wanted.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn an_unknown_field_stays_at_any_depth() {
        let stored =
            json!({"a": 1, "new": {"x": 1}, "deep": {"b": 1, "newer": 2}, "list": [{"c": 1, "newest": 3}]});
        let read = json!({"a": 1, "deep": {"b": 1}, "list": [{"c": 1}]});
        let wanted = json!({"a": 2, "deep": {"b": 2}, "list": [{"c": 2}]});
        let expect =
            json!({"a": 2, "new": {"x": 1}, "deep": {"b": 2, "newer": 2}, "list": [{"c": 2, "newest": 3}]});
        assert_eq!(overlay(&stored, &read, &wanted), expect);
    }

    #[test]
    fn a_known_field_that_was_left_out_is_removed() {
        let stored = json!({"error": "x", "new": 1});
        assert_eq!(overlay(&stored, &json!({"error": "x"}), &json!({})), json!({"new": 1}));
    }

    #[test]
    fn a_default_that_was_not_stored_is_written_once_we_change_something() {
        let stored = json!({"new": 1});
        let (read, wanted) = (json!({"priority": 0}), json!({"priority": 5}));
        assert_eq!(overlay(&stored, &read, &wanted), json!({"new": 1, "priority": 5}));
        assert_eq!(overlay(&stored, &read, &read), stored);
    }

    fn json_tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3i64).prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn without_unknown_fields_the_result_is_the_wanted_value(stored in json_tree(), wanted in json_tree()) {
            prop_assert_eq!(overlay(&stored, &stored, &wanted), wanted);
        }

        #[test]
        fn no_change_changes_nothing(stored in json_tree(), read in json_tree()) {
            prop_assert_eq!(overlay(&stored, &read, &read), stored);
        }
    }
}
