//! A kind of a CRD: its schema, and what is done with its objects.

use serde_json::{Value, json};

use super::super::Kind;
use super::{Add, apply, create, merge, on_status};

/// The schema of a kind made for these cases.
pub(in super::super) fn widget_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["color"],
                "properties": {
                    "color": { "type": "string", "enum": ["red", "blue"] },
                    "size": { "type": "integer", "default": 3, "minimum": 1, "maximum": 10 },
                    "ratio": { "type": "number", "exclusiveMinimum": true, "minimum": 0, "multipleOf": 0.5 },
                    "name": { "type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5 },
                    "at": { "type": "string", "format": "date-time" },
                    "address": { "type": "string", "format": "ipv4" },
                    "port": { "x-kubernetes-int-or-string": true },
                    "gone": { "type": "string", "nullable": true },
                    "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set", "maxItems": 3 },
                    "steps": { "type": "array", "items": { "type": "string" }, "minItems": 1 },
                    "labels": { "type": "object", "additionalProperties": { "type": "string" }, "maxProperties": 2 },
                    "whole": { "type": "object", "x-kubernetes-map-type": "atomic", "properties": { "a": { "type": "string" }, "b": { "type": "string" } } },
                    "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "known": { "type": "integer", "default": 1 } } },
                    "choice": {
                        "type": "object",
                        "properties": { "a": { "type": "string" }, "b": { "type": "string" } },
                        "oneOf": [{ "required": ["a"] }, { "required": ["b"] }],
                    },
                    "parts": {
                        "type": "array",
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name", "kind"],
                        "items": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {
                                "name": { "type": "string" },
                                "kind": { "type": "string", "default": "plain" },
                                "weight": { "type": "integer" },
                            },
                        },
                    },
                },
            },
            "status": { "type": "object", "properties": { "phase": { "type": "string" }, "count": { "type": "integer" } } },
        },
    })
}

pub(in super::super) fn widget_definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "widgets.agreement.shipshape.dev" },
        "spec": {
            "group": "agreement.shipshape.dev",
            "scope": "Namespaced",
            "names": { "plural": "widgets", "kind": "Widget" },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": widget_schema() },
            }],
        },
    })
}

pub(super) fn widget(spec: Value) -> Value {
    let mut spec = spec;
    if let Value::Object(map) = &mut spec {
        map.entry("color").or_insert(json!("red"));
    }
    json!({ "spec": spec })
}

pub(super) fn custom(case: &mut Add<'_>) {
    let w = Kind::Widget;
    case(
        "a custom object is defaulted and pruned",
        w,
        vec![create(
            json!({ "spec": { "color": "red", "unknown": 1, "gone": null, "free": { "any": { "x": null } }, "parts": [{ "name": "a" }] }, "extra": true }),
        )],
    );
    case(
        "custom values are checked",
        w,
        vec![
            create(widget(json!({ "size": 0 }))),
            create(widget(json!({ "size": 11 }))),
            create(widget(json!({ "size": "x" }))),
            create(widget(json!({ "color": "green" }))),
            create(json!({ "spec": {} })),
            create(widget(json!({ "ratio": 0 }))),
            create(widget(json!({ "ratio": 0.7 }))),
            create(widget(json!({ "name": "a" }))),
            create(widget(json!({ "name": "UPPER" }))),
            create(widget(json!({ "name": "abcdefg" }))),
            create(widget(json!({ "at": "yesterday" }))),
            create(widget(json!({ "address": "1.2.3.4.5" }))),
            create(widget(json!({ "port": true }))),
            create(widget(json!({ "tags": ["a", "b", "a"] }))),
            create(widget(json!({ "tags": ["a", "b", "c", "d"] }))),
            create(widget(json!({ "steps": [] }))),
            create(widget(json!({ "labels": { "a": 1 } }))),
            create(widget(json!({ "labels": { "a": "1", "b": "2", "c": "3" } }))),
            create(widget(json!({ "choice": {} }))),
            create(widget(json!({ "choice": { "a": "1", "b": "2" } }))),
            create(widget(json!({ "parts": [{ "name": "a" }, { "name": "a", "kind": "plain" }] }))),
            create(widget(json!({ "parts": [{ "weight": 1 }] }))),
            create(widget(json!({ "steps": "x", "size": null, "tags": [1] }))),
            create(json!({ "spec": "x" })),
        ],
    );
    case(
        "custom lists merge by keys",
        w,
        vec![
            apply(
                "a",
                widget(json!({ "parts": [{ "name": "a" }, { "name": "b", "weight": 1 }], "tags": ["x"] })),
            ),
            apply(
                "b",
                widget(
                    json!({ "parts": [{ "name": "a", "kind": "plain", "weight": 2 }, { "name": "a", "kind": "other" }], "tags": ["y"] }),
                ),
            ),
            apply("a", widget(json!({ "parts": [{ "name": "b" }] }))),
            apply("b", widget(json!({}))),
        ],
    );
    case(
        "free fields are owned one by one",
        w,
        vec![
            apply("a", widget(json!({ "free": { "x": { "y": 1, "list": [1, 2] } } }))),
            apply("b", widget(json!({ "free": { "x": { "z": 1 } } }))),
            apply("a", widget(json!({ "free": { "x": { "list": [3] } } }))),
        ],
    );
    case(
        "custom status",
        w,
        vec![
            create(json!({ "spec": { "color": "red" }, "status": { "phase": "ignored" } })),
            on_status(merge(json!({ "status": { "phase": "Ready" }, "spec": { "color": "blue" } }))),
            on_status(apply("st", json!({ "status": { "count": 1 } }))),
            merge(json!({ "status": { "phase": "x" } })),
        ],
    );
    case(
        "custom create is owned",
        w,
        vec![
            create(widget(
                json!({ "labels": { "a": "b" }, "parts": [{ "name": "a" }], "tags": ["t"], "whole": { "a": "1" }, "free": { "q": {} } }),
            )),
            merge(json!({ "spec": { "labels": { "c": "d" }, "size": 5 } })),
        ],
    );
}
