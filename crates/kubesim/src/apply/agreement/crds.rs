//! Schemas in CRDs: which of them the real server rejects, and with which errors.

use serde_json::{Value, json};
use testkit::{kube as cluster, prerequisites};

use super::{client, request};
use crate::schema;

/// A schema of objects whose only property is `spec`.
fn with_spec(spec: Value) -> Value {
    json!({ "type": "object", "properties": { "spec": spec } })
}

fn schemas() -> Vec<(&'static str, Value)> {
    let object = |properties: Value| with_spec(json!({ "type": "object", "properties": properties }));
    vec![
        ("a good one", object(json!({ "a": { "type": "string" } }))),
        ("no type at the root", json!({ "properties": {} })),
        ("another type at the root", json!({ "type": "string" })),
        ("no type of a field", object(json!({ "a": {} }))),
        ("no type of items", object(json!({ "a": { "type": "array", "items": {} } }))),
        ("no items", object(json!({ "a": { "type": "array" } }))),
        ("items as a list", object(json!({ "a": { "type": "array", "items": [{ "type": "string" }] } }))),
        ("an unknown type", object(json!({ "a": { "type": "text" } }))),
        ("type null", object(json!({ "a": { "type": "null" } }))),
        (
            "additional properties at the root",
            json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        ),
        (
            "properties and additional ones",
            object(json!({ "a": {
            "type": "object", "properties": { "b": { "type": "string" } }, "additionalProperties": { "type": "string" } } })),
        ),
        ("a reference", object(json!({ "a": { "$ref": "#/x" } }))),
        (
            "unique items",
            object(json!({ "a": { "type": "array", "uniqueItems": true, "items": { "type": "string" } } })),
        ),
        (
            "a type in an alternative",
            object(json!({ "a": { "type": "string", "anyOf": [{ "type": "string" }] } })),
        ),
        (
            "a description in an alternative",
            object(json!({ "a": { "type": "string", "oneOf": [{ "description": "x" }] } })),
        ),
        (
            "a default in an alternative",
            object(json!({ "a": { "type": "string", "allOf": [{ "default": "x" }] } })),
        ),
        (
            "a property only in an alternative",
            with_spec(json!({
            "type": "object", "anyOf": [{ "properties": { "b": { "minimum": 1 } } }] })),
        ),
        (
            "int or string as it may be",
            object(json!({ "a": {
            "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] } })),
        ),
        (
            "int or string in the other way",
            object(json!({ "a": { "x-kubernetes-int-or-string": true, "allOf": [
            { "anyOf": [{ "type": "integer" }, { "type": "string" }] }, { "minimum": 1 }] } })),
        ),
        (
            "int or string that is preserved",
            object(json!({ "a": {
            "x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true } })),
        ),
        (
            "preserve said to be false",
            object(json!({ "a": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": false } })),
        ),
        (
            "an embedded string",
            object(json!({ "a": { "type": "string", "x-kubernetes-embedded-resource": true } })),
        ),
        (
            "an embedded nothing",
            object(json!({ "a": { "type": "object", "x-kubernetes-embedded-resource": true } })),
        ),
        (
            "an embedded object",
            object(json!({ "a": {
            "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true } })),
        ),
        (
            "metadata with labels",
            json!({ "type": "object", "properties": { "metadata": {
            "type": "object", "properties": { "labels": { "type": "object" } } } } }),
        ),
        (
            "metadata with a name",
            json!({ "type": "object", "properties": { "metadata": {
            "type": "object", "properties": { "name": { "type": "string", "pattern": "^a" } } } } }),
        ),
        (
            "metadata as a string",
            json!({ "type": "object", "properties": { "metadata": { "type": "string" } } }),
        ),
        ("kind as a number", json!({ "type": "object", "properties": { "kind": { "type": "integer" } } })),
        ("a default of the wrong type", object(json!({ "a": { "type": "integer", "default": "x" } }))),
        (
            "a default out of bounds",
            object(json!({ "a": { "type": "integer", "default": 0, "minimum": 1 } })),
        ),
        (
            "a default in metadata",
            json!({ "type": "object", "properties": { "metadata": {
            "type": "object", "default": {} } } }),
        ),
        (
            "a list map without keys",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "map", "items": { "type": "object" } } })),
        ),
        (
            "keys without a list map",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-map-keys": ["b"], "items": { "type": "object", "required": ["b"], "properties": { "b": { "type": "string" } } } } })),
        ),
        (
            "a list map of strings",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": { "type": "string" } } })),
        ),
        (
            "a key that is no property",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": { "type": "object", "properties": {} } } })),
        ),
        (
            "a key that may be missing",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": {
                "type": "object", "properties": { "b": { "type": "string" } } } } })),
        ),
        (
            "a key that is an object",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["b"], "items": {
                "type": "object", "required": ["b"], "properties": { "b": { "type": "object" } } } } })),
        ),
        (
            "a set of objects",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "object" } } })),
        ),
        (
            "an unknown list type",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "bag", "items": { "type": "string" } } })),
        ),
        (
            "a list type of a string",
            object(json!({ "a": { "type": "string", "x-kubernetes-list-type": "set" } })),
        ),
        (
            "a map type of a string",
            object(json!({ "a": { "type": "string", "x-kubernetes-map-type": "atomic" } })),
        ),
        (
            "an unknown map type",
            object(json!({ "a": { "type": "object", "x-kubernetes-map-type": "loose" } })),
        ),
        (
            "nullable items of a set",
            object(json!({ "a": {
            "type": "array", "x-kubernetes-list-type": "set", "items": { "type": "string", "nullable": true } } })),
        ),
        (
            "an empty rule",
            object(json!({ "a": { "type": "string", "x-kubernetes-validations": [{ "rule": " " }] } })),
        ),
    ]
}

#[tokio::test]
async fn schemas_of_crds_have_the_errors_of_the_real_server() {
    let Some(cluster) = cluster::shared() else {
        return prerequisites::skip(prerequisites::KUBERNETES, cluster::MISSING);
    };
    let client = client(cluster).await;
    let mut differences = Vec::new();
    let schemas = schemas();
    let count = schemas.len();
    for (name, open_api_v3_schema) in schemas {
        let mut definition = super::cases::widget_definition();
        definition["metadata"]["name"] = json!("gadgets.agreement.shipshape.dev");
        definition["spec"]["names"] = json!({ "plural": "gadgets", "kind": "Gadget" });
        // With subresources the real server applies further rules to the root, which are not part of the schema.
        definition["spec"]["versions"][0]["subresources"] = json!({});
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = open_api_v3_schema.clone();
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All";
        let real = match request(&client, "POST", path, "application/json", &definition).await {
            Ok(_) => Vec::new(),
            Err(status) => {
                let cause = |cause: &Value| format!("{}: {}", text(cause, "field"), text(cause, "message"));
                status["details"]["causes"].as_array().unwrap_or(&Vec::new()).iter().map(cause).collect()
            }
        };
        let simulated = match schema::parse_crd(&open_api_v3_schema) {
            Ok(_) => Vec::new(),
            Err(errors) => errors.iter().map(|error| format!("spec.validation.{error}")).collect(),
        };
        let (real, simulated) = (sorted(real), sorted(simulated));
        if real != simulated {
            differences.push(format!("schema '{name}':\n  real {real:#?}\n  simulated {simulated:#?}"));
        }
    }
    println!("{count} schemas of CRDs compared with the real API server, {} differ", differences.len());
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn sorted(mut errors: Vec<String>) -> Vec<String> {
    errors.sort();
    errors.dedup();
    errors
}
