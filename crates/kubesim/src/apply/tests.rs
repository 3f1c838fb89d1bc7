use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::set::FieldSet;
use super::{ApplyError, apply, track_update};
use crate::schema::tests::{any_json, widget};
use crate::schema::{Schema, Schemas};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).expect("a time in range")
}

fn config_map() -> Schema {
    Schemas::builtin().find("", "v1", "ConfigMap").expect("a built-in kind")
}

fn map(data: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": data })
}

fn owners(object: &Value) -> Vec<(&str, &str, Value)> {
    let entries = object["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let text = |entry: &'_ Value, name: &str| entry[name].as_str().unwrap_or_default().to_owned();
    entries
        .iter()
        .map(|entry| {
            assert_eq!(text(entry, "fieldsType"), "FieldsV1");
            (
                entry["manager"].as_str().unwrap_or_default(),
                entry["operation"].as_str().unwrap_or_default(),
                entry["fieldsV1"].clone(),
            )
        })
        .collect()
}

#[test]
fn applying_a_field_makes_its_manager_the_owner() {
    let object =
        apply(None, &map(json!({ "x": "1" })), "a", false, None, Some(&config_map()), at(0)).unwrap();
    assert_eq!(object["data"], json!({ "x": "1" }));
    assert_eq!(owners(&object), [("a", "Apply", json!({ "f:data": { "f:x": {} } }))]);
    assert_eq!(object["metadata"]["managedFields"][0]["time"], "2027-01-15T08:00:00Z");
}

#[test]
fn an_apply_without_effect_does_not_change_times() {
    let schema = config_map();
    let config = map(json!({ "x": "1" }));
    let first = apply(None, &config, "a", false, None, Some(&schema), at(0)).unwrap();
    let second = apply(Some(&first), &config, "a", false, None, Some(&schema), at(60)).unwrap();
    assert_eq!(first, second);
}

#[test]
fn a_conflict_names_the_owner_and_the_field() {
    let schema = config_map();
    let live = apply(None, &map(json!({ "x": "1" })), "a", false, None, Some(&schema), at(0)).unwrap();
    let error =
        apply(Some(&live), &map(json!({ "x": "2" })), "b", false, None, Some(&schema), at(1)).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"a\": .data.x");
    assert_eq!((error.code(), error.reason()), (409, "Conflict"));
    let forced =
        apply(Some(&live), &map(json!({ "x": "2" })), "b", true, None, Some(&schema), at(1)).unwrap();
    assert_eq!(owners(&forced), [("b", "Apply", json!({ "f:data": { "f:x": {} } }))]);
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let schema = config_map();
    let mut live = map(json!({ "x": "1", "y": "1" }));
    track_update(None, &mut live, "kubectl", None, Some(&schema), at(0));
    let error =
        apply(Some(&live), &map(json!({ "x": "2", "y": "2" })), "b", false, None, Some(&schema), at(1));
    let error = error.unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"kubectl\" using v1:\n- .data.x\n- .data.y"
    );
    let ApplyError::Conflict(conflicts) = error else { panic!("a conflict") };
    assert_eq!(conflicts[0].message, "conflict with \"kubectl\" using v1");
}

#[test]
fn fields_that_are_no_longer_applied_are_removed_unless_another_manager_owns_them() {
    let schema = config_map();
    let steps = [("a", json!({ "x": "1", "y": "1" })), ("b", json!({ "y": "1" })), ("a", json!({}))];
    let mut live = None;
    for (second, (manager, data)) in steps.into_iter().enumerate() {
        let object = apply(live.as_ref(), &map(data), manager, false, None, Some(&schema), at(second as i64));
        live = Some(object.unwrap());
    }
    assert_eq!(live.unwrap()["data"], json!({ "y": "1" }));
}

#[test]
fn an_apply_adds_owners_to_an_object_without_them_and_an_update_does_not() {
    let schema = config_map();
    let before = map(json!({ "x": "1" }));
    let mut after = map(json!({ "x": "2" }));
    track_update(Some(&before), &mut after, "u", None, Some(&schema), at(0));
    assert!(owners(&after).is_empty());
    let applied =
        apply(Some(&after), &map(json!({ "y": "1" })), "a", false, None, Some(&schema), at(1)).unwrap();
    assert_eq!(
        owners(&applied),
        [
            ("a", "Apply", json!({ "f:data": { "f:y": {} } })),
            ("before-first-apply", "Update", json!({ "f:data": { ".": {}, "f:x": {} } })),
        ]
    );
}

#[test]
fn an_applier_is_the_same_in_all_versions_and_an_updater_is_not() {
    let schema = widget();
    let object = |version: &str, spec: Value| json!({ "apiVersion": format!("x/{version}"), "kind": "Widget", "metadata": { "name": "a" }, "spec": spec });
    let first = object("v1beta1", json!({ "name": "a", "replicas": 1 }));
    let live = apply(None, &first, "a", false, None, Some(&schema), at(0)).unwrap();
    let second = object("v1", json!({ "name": "a" }));
    let mut live = apply(Some(&live), &second, "a", false, None, Some(&schema), at(1)).unwrap();
    assert_eq!(live["spec"], json!({ "name": "a" }));
    assert_eq!(owners(&live), [("a", "Apply", json!({ "f:spec": { "f:name": {} } }))]);
    assert_eq!(live["metadata"]["managedFields"][0]["apiVersion"], "x/v1");
    for (second, version) in ["v1", "v1beta1"].into_iter().enumerate() {
        let mut after = live.clone();
        after["apiVersion"] = json!(format!("x/{version}"));
        after["spec"]["tags"] = json!([version]);
        track_update(Some(&live), &mut after, "u", None, Some(&schema), at(2 + second as i64));
        live = after;
    }
    let versions = live["metadata"]["managedFields"].as_array().expect("owners").iter();
    let updates: Vec<&Value> = versions.filter(|entry| entry["operation"] == "Update").collect();
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[0]["fieldsV1"], json!({ "f:spec": { "f:tags": {} } }));
    assert_eq!(updates[1]["fieldsV1"], json!({ "f:spec": { "f:tags": { "v:\"v1beta1\"": {} } } }));
}

#[test]
fn invalid_managed_fields_are_an_error_for_an_apply_only() {
    let schema = config_map();
    let mut live = map(json!({ "x": "1" }));
    live["metadata"]["managedFields"] = json!([{ "manager": "a", "operation": "Paint" }]);
    let refused = apply(Some(&live), &map(json!({})), "a", false, None, Some(&schema), at(0)).unwrap_err();
    assert_eq!(refused.to_string(), "failed to decode managed fields: operation must be `Apply` or `Update`");
    let mut after = live.clone();
    track_update(Some(&live), &mut after, "u", None, Some(&schema), at(0));
    assert!(owners(&after).is_empty());
}

#[test]
fn unknown_path_elements_are_skipped_and_numbers_are_canonical() {
    let set =
        FieldSet::from_fields(&json!({ "z:1": {}, "f:a": { "k:{\"port\":80.0}": { ".": {} }, "i:3": {} } }))
            .unwrap();
    assert_eq!(set.to_fields(), json!({ "f:a": { "k:{\"port\":80}": {}, "i:3": {} } }));
    for wrong in [json!({ "f": {} }), json!({ "k:x": {} }), json!({ "i:x": {} }), json!([])] {
        assert!(FieldSet::from_fields(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn long_lists_with_keys_are_merged_in_reasonable_time() {
    let schema = widget();
    let parts = |skip: usize, kind: &str| -> Vec<Value> {
        (skip..skip + 10_000).map(|number| json!({ "name": format!("p{number}"), "kind": kind })).collect()
    };
    let object = |parts: Vec<Value>| json!({ "apiVersion": "x/v1", "kind": "Widget", "spec": { "name": "a", "parts": parts } });
    let live = apply(None, &object(parts(0, "a")), "a", false, None, Some(&schema), at(0)).unwrap();
    let live = apply(Some(&live), &object(parts(5_000, "b")), "b", true, None, Some(&schema), at(1)).unwrap();
    assert_eq!(live["spec"]["parts"].as_array().map(Vec::len), Some(15_000));
    let live =
        apply(Some(&live), &object(parts(0, "a")[..1].to_vec()), "a", false, None, Some(&schema), at(2))
            .unwrap();
    assert_eq!(live["spec"]["parts"].as_array().map(Vec::len), Some(10_001));
}

fn dressed(mut object: Value) -> Value {
    if let Value::Object(map) = &mut object {
        map.insert("apiVersion".to_owned(), json!("x/v1"));
        map.insert("kind".to_owned(), json!("Widget"));
        map.remove("metadata");
    }
    object
}

proptest! {
    #[test]
    fn applying_twice_is_the_same_as_once(live in any_json(), config in any_json(), force in any::<bool>()) {
        let (live, config) = (dressed(live), dressed(config));
        for schema in [None, Some(&widget())] {
            let Ok(first) = apply(Some(&live), &config, "a", force, None, schema, at(0)) else { continue };
            let again = apply(Some(&first), &config, "a", force, None, schema, at(60));
            prop_assert_eq!(again.as_ref(), Ok(&first));
        }
    }

    #[test]
    fn no_configuration_causes_a_panic(live in any_json(), config in any_json(), fields in any_json()) {
        let mut live = live;
        if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("managedFields".to_owned(), json!([
                { "manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields }]));
        }
        let deployment = Schemas::builtin().find("apps", "v1", "Deployment");
        for schema in [None, Some(&widget()), deployment.as_ref()] {
            for live in [None, Some(&live)] {
                let _ = apply(live, &config, "kubectl", true, None, schema, at(0));
                let _ = apply(live, &config, "b", false, Some("status"), schema, at(0));
                let mut after = config.clone();
                track_update(live, &mut after, "u", None, schema, at(0));
            }
        }
    }

    #[test]
    fn a_set_survives_serialization(object in any_json()) {
        let typed = super::typed::SchemaTypes { schema: None };
        let set = typed.fields(&object);
        prop_assert_eq!(FieldSet::from_fields(&set.to_fields()), Ok(set));
    }
}
