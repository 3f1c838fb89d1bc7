use serde_json::json;

use super::{PatchError, json, merge};

#[test]
fn a_merge_patch_removes_what_is_null_and_merges_objects() {
    let object = json!({ "a": { "b": 1, "c": 2 }, "d": [1] });
    let patched = merge(&object, &json!({ "a": { "b": null, "e": { "f": null, "g": 1 } }, "d": [2, 3] }));
    assert_eq!(patched, Ok(json!({ "a": { "c": 2, "e": { "g": 1 } }, "d": [2, 3] })));
}

#[test]
fn a_failed_test_leaves_the_object_and_says_what_the_real_server_says() {
    let object = json!({ "a": 1 });
    let error = json(&object, &json!([{ "op": "test", "path": "/a", "value": 2 }])).unwrap_err();
    assert_eq!((error.code(), error.reason()), (422, "Invalid"));
    assert_eq!(error.to_string(), "the server rejected our request due to an error in our request");
}

#[test]
fn ten_thousand_operations_are_taken_and_one_more_is_not() {
    let operation = json!({ "op": "test", "path": "/a", "value": 1 });
    let many = vec![operation.clone(); 10_000];
    assert!(json(&json!({ "a": 1 }), &many.clone().into()).is_ok());
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
