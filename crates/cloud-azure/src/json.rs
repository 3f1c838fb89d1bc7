//! Bodies of resources as JSON: members that this client does not know survive every change.

use cloud::ResourceId;
use serde_json::{Map, Value, json};

/// The text at a pointer; empty when there is none.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a pointer.
pub(crate) fn optional_text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).filter(|it| !it.is_empty()).map(str::to_owned)
}

/// The items of the list at a pointer.
pub(crate) fn items<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of the list at a pointer.
pub(crate) fn texts(value: &Value, pointer: &str) -> Vec<String> {
    items(value, pointer).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The resource id at a pointer.
pub(crate) fn id_at(value: &Value, pointer: &str) -> Option<ResourceId> {
    value.pointer(pointer).and_then(Value::as_str).and_then(|it| it.parse().ok())
}

/// Sets a member, creating the objects on the way. `Null` removes it.
pub(crate) fn set(body: &mut Value, path: &[&str], value: Value) {
    let [parents @ .., last] = path else { return };
    let mut at = body;
    for name in parents {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Some(object) = at.as_object_mut() else { return };
        at = object.entry((*name).to_owned()).or_insert_with(|| Value::Object(Map::new()));
    }
    if !at.is_object() {
        *at = Value::Object(Map::new());
    }
    let Some(object) = at.as_object_mut() else { return };
    if value.is_null() {
        object.remove(*last);
    } else {
        object.insert((*last).to_owned(), value);
    }
}

/// Sets a reference to a resource, unless it refers to that one already in another spelling.
pub(crate) fn set_reference(body: &mut Value, path: &[&str], id: Option<&str>) {
    let pointer: String = path.iter().map(|it| format!("/{it}")).collect();
    match id {
        Some(id) if text(body, &format!("{pointer}/id")).eq_ignore_ascii_case(id) => {}
        Some(id) => set(body, path, json!({ "id": id })),
        None => set(body, path, Value::Null),
    }
}

/// Inserts or changes the element of that name in a list of named elements; the others stay.
pub(crate) fn upsert(body: &mut Value, path: &[&str], name: &str, change: impl FnOnce(&mut Value)) {
    let pointer: String = path.iter().map(|it| format!("/{it}")).collect();
    if !body.pointer(&pointer).is_some_and(Value::is_array) {
        set(body, path, Value::Array(Vec::new()));
    }
    let Some(list) = body.pointer_mut(&pointer).and_then(Value::as_array_mut) else { return };
    let is_it = |it: &Value| text(it, "/name").eq_ignore_ascii_case(name);
    if let Some(element) = list.iter_mut().find(|it| is_it(it)) {
        return change(element);
    }
    let mut element = json!({ "name": name });
    change(&mut element);
    list.push(element);
}

/// Keeps the elements of a list that satisfy a condition.
pub(crate) fn retain(body: &mut Value, pointer: &str, keep: impl FnMut(&Value) -> bool) {
    if let Some(list) = body.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.retain(keep);
    }
}

/// Whether two bodies mean the same: ids without regard to case, absent members as null, empty lists as absent.
pub(crate) fn same(left: &Value, right: &Value) -> bool {
    let is_empty = |it: &Value| match it {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(object) => object.is_empty(),
        _ => false,
    };
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => one
            .keys()
            .chain(other.keys())
            .all(|name| same(one.get(name).unwrap_or(&Value::Null), other.get(name).unwrap_or(&Value::Null))),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::String(one), Value::String(other)) => {
            one == other || (one.starts_with("/subscriptions/") && one.eq_ignore_ascii_case(other))
        }
        (one, other) => one == other || (is_empty(one) && is_empty(other)),
    }
}

/// Whether two names of a location are one: `East US` is `eastus`.
pub(crate) fn is_same_location(one: &str, other: &str) -> bool {
    let normal = |it: &str| it.replace(' ', "").to_lowercase();
    normal(one) == normal(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_keep_what_is_unknown() {
        let mut body = json!({"properties": {"list": [{"name": "A", "x": 1}, {"name": "b"}], "odd": true}});
        let before = body.clone();
        upsert(&mut body, &["properties", "list"], "a", |it| set(it, &["x"], json!(1)));
        assert!(same(&before, &body));
        upsert(&mut body, &["properties", "list"], "c", |it| set(it, &["properties", "y"], json!(2)));
        set_reference(&mut body, &["properties", "group"], Some("/subscriptions/S"));
        set(&mut body, &["properties", "missing"], Value::Null);
        let expect = json!({"properties": {"list": [{"name": "A", "x": 1}, {"name": "b"}, {"name": "c", "properties": {"y": 2}}],
            "odd": true, "group": {"id": "/subscriptions/s"}}});
        assert!(same(&body, &expect), "{body}");
        assert!(!same(&body, &before));
    }
}
