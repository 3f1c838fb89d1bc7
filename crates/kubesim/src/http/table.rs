//! Tables, and objects reduced to their metadata.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::Query;
use crate::kinds::Kind;
use crate::objects::Object;

/// Description of the first column.
const NAME_DOC: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a client to request the generation of an appropriate name automatically. Name is primarily intended for creation idempotence and configuration definition. Cannot be updated. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names";

/// Objects as a table.
pub(super) fn table(
    kind: &Kind,
    objects: &[&Object],
    now: Timestamp,
    query: &Query,
    metadata: Value,
) -> Value {
    let include = query.get("includeObject").unwrap_or("Metadata");
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let value = object.value();
            let shown = match include {
                "None" => Value::Null,
                "Object" => {
                    let mut whole = kind.served(value.clone());
                    kind.set_type_meta(&mut whole);
                    whole
                }
                _ => metadata_of(object),
            };
            json!({"cells": cells(kind, &value, now), "object": shown})
        })
        .collect();
    let metadata = match objects {
        [one] if metadata.as_object().is_some_and(serde_json::Map::is_empty) => {
            json!({"resourceVersion": one.revision().to_string()})
        }
        _ => metadata,
    };
    // Tables of kinds without columns of their own have null instead of an empty list of rows in the real server.
    let is_plain = kind.custom().is_none() && kind.row().columns.iter().any(|one| one.name == "Created At");
    let rows = if is_plain && rows.is_empty() { Value::Null } else { Value::Array(rows) };
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": columns(kind), "rows": rows,
    })
}

/// The definitions of the columns.
pub(super) fn columns(kind: &Kind) -> Vec<Value> {
    let define = |name: &str, kind: &str, format: &str, description: &str, priority: i64| json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority});
    match kind.custom() {
        None => kind
            .row()
            .columns
            .iter()
            .map(|column| {
                let description = if column.format == "name" { NAME_DOC } else { "" };
                define(column.name, column.kind, column.format, description, i64::from(column.priority))
            })
            .collect(),
        Some(custom) => std::iter::once(define("Name", "string", "name", NAME_DOC, 0))
            .chain(custom.columns.iter().map(|column| {
                define(&column.name, &column.kind, &column.format, &column.description, column.priority)
            }))
            .collect(),
    }
}

fn cells(kind: &Kind, value: &Value, now: Timestamp) -> Vec<Value> {
    match kind.custom() {
        None => kind.row().columns.iter().map(|column| (column.cell)(value, now)).collect(),
        Some(custom) => std::iter::once(value["metadata"]["name"].clone())
            .chain(custom.columns.iter().map(|column| column.cell(value, now)))
            .collect(),
    }
}

/// The metadata of an object as PartialObjectMetadata.
pub(super) fn metadata_of(object: &Object) -> Value {
    let value = object.value();
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}
