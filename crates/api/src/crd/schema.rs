//! Schemas of fields whose types are Kubernetes' own, and of enums.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// A duration as Go writes it, without a sign.
pub(crate) const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$";

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "date-time"})
}

/// An object whose fields are a provider's.
pub(crate) fn provider_value(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({"type": "string", "description": description});
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text("API version of the object."),
            "fieldPath": text("Part of the object, as a path of its fields."),
            "kind": text("Kind of the object."),
            "name": text("Name of the object."),
            "namespace": text("Namespace of the object."),
            "resourceVersion": text("Version of the object to which the reference was made."),
            "uid": text("UID of the object."),
        },
    })
}

pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "Labels that an object must have with these values.",
                "additionalProperties": {"type": "string"},
            },
            "matchExpressions": {
                "type": "array",
                "description": "Requirements that an object must meet, all of them.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "Key of the label."},
                        "operator": {"type": "string", "description": "In, NotIn, Exists or DoesNotExist."},
                        "values": {
                            "type": "array",
                            "description": "Values for In and NotIn; empty for the others.",
                            "x-kubernetes-list-type": "atomic",
                            "items": {"type": "string"},
                        },
                    },
                },
            },
        },
    })
}

pub(crate) fn taints(generator: &mut SchemaGenerator) -> Schema {
    let mut added = time(generator);
    added.insert("description".to_owned(), json!("When the taint was added."));
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "key": {"type": "string", "description": "Key of the taint."},
                "value": {"type": "string", "description": "Value of the taint."},
                "effect": {"type": "string", "description": "NoSchedule, PreferNoSchedule or NoExecute."},
                "timeAdded": added,
            },
        },
    })
}

pub(crate) fn owner_references(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({"type": "string", "description": description});
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["uid"],
        "items": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "required": ["apiVersion", "kind", "name", "uid"],
            "properties": {
                "apiVersion": text("API version of the owner."),
                "kind": text("Kind of the owner."),
                "name": text("Name of the owner."),
                "uid": text("UID of the owner."),
                "controller": {"type": "boolean", "description": "Whether the owner is the managing controller."},
                "blockOwnerDeletion": {
                    "type": "boolean",
                    "description": "Whether the owner waits for this object when it is deleted in the foreground.",
                },
            },
        },
    })
}

pub(crate) fn node_addresses(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["address", "type"],
            "properties": {
                "address": {"type": "string", "description": "The address."},
                "type": {
                    "type": "string",
                    "description": "Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.",
                },
            },
        },
    })
}

/// One of the values of an enum.
pub(crate) fn one_of(values: &[&str]) -> Schema {
    json_schema!({"type": "string", "enum": values})
}
