use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::{PatchError, json, merge, strategic};
use crate::schema::tests::any_json;
use crate::schema::{Schema, Schemas};

fn pod() -> Schema {
    Schemas::builtin().find("", "v1", "Pod").expect("a built-in kind")
}

fn containers(list: Value) -> Value {
    json!({ "spec": { "containers": list } })
}

#[test]
fn a_merge_patch_removes_nulls_and_merges_objects() {
    let object = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
    let patched = merge(&object, &json!({ "a": { "b": null, "e": { "f": null, "g": 1 } }, "d": [2, 3] }));
    assert_eq!(patched, Ok(json!({ "a": { "c": 2, "e": { "g": 1 } }, "d": [2, 3] })));
}

#[test]
fn a_failed_test_operation_returns_the_error_of_the_real_server() {
    let object = json!({ "a": 1 });
    let error = json(&object, &json!([{ "op": "test", "path": "/a", "value": 2 }])).unwrap_err();
    assert_eq!((error.code(), error.reason()), (422, "Invalid"));
    assert_eq!(error.to_string(), "the server rejected our request due to an error in our request");
}

#[test]
fn ten_thousand_operations_are_accepted_and_one_more_is_rejected() {
    let operation = json!({ "op": "test", "path": "/a", "value": 1 });
    let many = vec![operation.clone(); 10_000];
    assert!(json(&json!({ "a": 1 }), &many.into()).is_ok());
    let more = vec![operation; 10_001];
    assert!(matches!(json(&json!({ "a": 1 }), &more.into()), Err(PatchError::TooLarge(_))));
}

#[test]
fn copies_cannot_grow_an_object_without_bound() {
    let mut operations = vec![json!({ "op": "add", "path": "/a", "value": ["0123456789"] })];
    for _ in 0..64 {
        operations.push(json!({ "op": "copy", "from": "/a", "path": "/a/-" }));
    }
    assert!(matches!(json(&json!({}), &operations.into()), Err(PatchError::Unprocessable(_))));
}

#[test]
fn operations_cannot_nest_an_object_without_bound() {
    let mut operations = vec![json!({ "op": "add", "path": "/a", "value": { "a": {} } })];
    for step in 1..200 {
        operations.push(json!({ "op": "add", "path": "/a".repeat(step + 2), "value": {} }));
    }
    assert!(matches!(json(&json!({}), &operations.into()), Err(PatchError::Unprocessable(_))));
}

#[test]
fn a_strategic_patch_merges_lists_by_key_and_puts_new_items_first() {
    let object = containers(json!([{ "name": "a", "image": "1" }, { "name": "b", "image": "1" }]));
    let patch = containers(json!([{ "name": "b", "image": "2" }, { "name": "c", "image": "3" }]));
    assert_eq!(
        strategic(&object, &patch, &pod()),
        Ok(containers(json!([
            { "name": "a", "image": "1" }, { "name": "b", "image": "2" }, { "name": "c", "image": "3" }])))
    );
    let patch = containers(json!([{ "name": "c", "image": "3" }]));
    assert_eq!(
        strategic(&object, &patch, &pod()),
        Ok(containers(json!([
            { "name": "c", "image": "3" }, { "name": "a", "image": "1" }, { "name": "b", "image": "1" }])))
    );
}

#[test]
fn a_strategic_patch_deletes_replaces_and_orders() {
    let object = containers(json!([{ "name": "a" }, { "name": "b" }, { "name": "c" }]));
    let patched = |patch: Value| {
        strategic(&object, &json!({ "spec": patch }), &pod())
            .map(|object| object["spec"]["containers"].clone())
    };
    assert_eq!(
        patched(json!({ "containers": [{ "name": "b", "$patch": "delete" }] })),
        Ok(json!([{ "name": "a" }, { "name": "c" }]))
    );
    assert_eq!(
        patched(json!({ "containers": [{ "$patch": "replace" }, { "name": "z" }] })),
        Ok(json!([{ "name": "z" }]))
    );
    assert_eq!(
        patched(json!({ "$setElementOrder/containers": [{ "name": "c" }, { "name": "a" }] })),
        Ok(json!([{ "name": "b" }, { "name": "c" }, { "name": "a" }]))
    );
}

#[test]
fn a_strategic_patch_of_a_custom_kind_is_rejected() {
    let schema = crate::schema::tests::widget();
    assert!(matches!(strategic(&json!({}), &json!({}), &schema), Err(PatchError::BadRequest(_))));
}

#[test]
fn long_lists_are_patched_in_reasonable_time() {
    let list = |image: &str| {
        (0..10_000).map(|number| json!({ "name": format!("c{number}"), "image": image })).collect::<Vec<_>>()
    };
    let order: Vec<Value> =
        (0..10_000).map(|number| json!({ "name": format!("c{}", 9_999 - number) })).collect();
    let mut changes = list("2");
    changes.reverse();
    let patch = json!({ "spec": { "$setElementOrder/containers": order, "containers": changes } });
    let patched = strategic(&containers(list("1").into()), &patch, &pod()).unwrap();
    assert_eq!(patched["spec"]["containers"][0], json!({ "name": "c9999", "image": "2" }));
}

/// A merge patch that turns one value into another; neither contains nulls.
fn difference(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let mut patch: Map<String, Value> =
        from.keys().filter(|name| !to.contains_key(*name)).map(|name| (name.clone(), Value::Null)).collect();
    for (name, value) in to {
        match (from.get(name), value) {
            (Some(old), value) if old == value => {}
            (Some(Value::Object(old)), Value::Object(new)) => {
                patch.insert(name.clone(), Value::Object(difference(old, new)));
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    patch
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(fields.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn the_merge_patch_of_a_difference_gives_the_other_object(from in any_json(), to in any_json()) {
        if let (Value::Object(from), Value::Object(to)) = (without_nulls(from), without_nulls(to)) {
            let patch = Value::Object(difference(&from, &to));
            prop_assert_eq!(merge(&Value::Object(from), &patch), Ok(Value::Object(to)));
        }
    }

    #[test]
    fn no_patch_causes_a_panic(object in any_json(), patch in any_json(), path in "(/[a-z0-9~-]{0,3}){0,4}") {
        let _ = merge(&object, &patch);
        let _ = strategic(&object, &patch, &pod());
        let _ = strategic(&object, &json!({ "spec": patch, "metadata": patch }), &pod());
        let _ = json(&object, &patch);
        for op in ["add", "remove", "replace", "move", "copy", "test"] {
            let operation = json!([{ "op": op, "path": path, "from": "/spec", "value": patch }]);
            let _ = json(&object, &operation);
        }
    }
}
