//! Times in `managedFields`. A request without effect does not change them.

use serde_json::{Map, Value};

/// Restores the old times if nothing but times in `managedFields` differs: a request without effect changes nothing.
pub(super) fn keep_times(before: &Value, after: &mut Value) {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return };
    let is_same = |name: &str, old: &Value, new: &Value| match name {
        "metadata" => is_same_but(&["resourceVersion"], old, new, |name, old, new| match name {
            "managedFields" => have_same_owners(old, new),
            _ => old == new,
        }),
        _ => old == new,
    };
    if !same_fields(&[], old, new, is_same) {
        return;
    }
    let fields = before.get("metadata").and_then(|metadata| metadata.get("managedFields")).cloned();
    if let (Some(fields), Some(Value::Object(metadata))) = (fields, after.get_mut("metadata")) {
        metadata.insert("managedFields".to_owned(), fields);
    }
}

fn have_same_owners(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_array(), new.as_array()) else { return old == new };
    let pairs = || old.iter().zip(new);
    old.len() == new.len()
        && pairs().all(|(old, new)| is_same_but(&["time"], old, new, |_, old, new| old == new))
}

fn is_same_but(
    ignored: &[&str],
    old: &Value,
    new: &Value,
    is_same: impl Fn(&str, &Value, &Value) -> bool,
) -> bool {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => same_fields(ignored, old, new, is_same),
        _ => old == new,
    }
}

fn same_fields(
    ignored: &[&str],
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    is_same: impl Fn(&str, &Value, &Value) -> bool,
) -> bool {
    let is_compared = |name: &&String| !ignored.contains(&name.as_str());
    old.keys().filter(is_compared).count() == new.keys().filter(is_compared).count()
        && old
            .iter()
            .filter(|(name, _)| is_compared(name))
            .all(|(name, old)| new.get(name).is_some_and(|new| is_same(name, old, new)))
}
