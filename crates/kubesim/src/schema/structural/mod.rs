//! The rules for schemas in CRDs: each must be *structural*, so that every field has one type.

mod keywords;
mod structure;

use std::sync::Arc;

use serde_json::{Map, Value};

use super::builtin::{OBJECT_META, components};
use super::error::FieldError;
use super::node::Origin;
use super::read::Reader;
use super::{Schema, is_too_deep};
use keywords::{Context, UNREADABLE, check_keywords};
use structure::{Level, check_complete, check_structure};

/// Reads the schema of a CRD version from its `openAPIV3Schema`, or returns all errors.
///
/// The paths of errors start with `openAPIV3Schema`; the caller adds a prefix.
pub fn parse_crd(open_api_v3_schema: &Value) -> Result<Schema, Vec<FieldError>> {
    const ROOT: &str = "openAPIV3Schema";
    if is_too_deep(open_api_v3_schema) {
        return Err(vec![FieldError::invalid(ROOT, &Value::from(""), "nested too deep")]);
    }
    let Some(keywords) = open_api_v3_schema.as_object() else {
        return Err(vec![FieldError::required(ROOT, "schemas are required")]);
    };
    let mut errors = Vec::new();
    check_keywords(keywords, ROOT, Context::root(), &mut errors);
    // The real server does not check the structure of a schema with unsupported keywords.
    let is_readable = !errors.iter().any(|error| UNREADABLE.iter().any(|word| error.field.ends_with(word)));
    if is_readable {
        let mut structure = Vec::new();
        check_structure(keywords, Level::Root, ROOT, &mut structure);
        check_complete(keywords, Some(keywords), ROOT, ROOT, &mut structure);
        structure.sort_by_cached_key(ToString::to_string);
        errors.append(&mut structure);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let schema = read(open_api_v3_schema);
    let mut errors = Vec::new();
    check_defaults(keywords, ROOT, &mut errors);
    match errors.is_empty() {
        true => Ok(schema),
        false => Err(errors),
    }
}

fn read(open_api_v3_schema: &Value) -> Schema {
    let mut reader = Reader::new(components(), Origin::Crd);
    let root = reader.schema(open_api_v3_schema);
    let metadata = open_api_v3_schema.pointer("/properties/metadata").map(|metadata| reader.schema(metadata));
    reader.add_object_meta(root, OBJECT_META);
    Schema { arena: Arc::new(reader.finish()), root, origin: Origin::Crd, metadata, has_status: false }
}

/// A default must satisfy the schema of its field.
fn check_defaults(keywords: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = keywords.get("default").filter(|default| !default.is_null()) {
        let place = Value::Object(keywords.clone());
        let own = read(&place);
        let mut pruned = default.clone();
        own.prune(&mut pruned);
        let at = format!("{path}.default");
        if pruned != *default && !default.is_object() {
            errors.push(FieldError::invalid(&at, default, "must be a valid value"));
        }
        for error in own.validate(&pruned) {
            let field = match error.field.as_str() {
                "<nil>" => at.clone(),
                inner => format!("{at}.{inner}"),
            };
            errors.push(FieldError { field, ..error });
        }
    }
    for (name, inner) in objects(keywords, "properties") {
        check_defaults(inner, &format!("{path}.properties[{name}]"), errors);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = keywords.get(name) {
            check_defaults(inner, &format!("{path}.{name}"), errors);
        }
    }
}

fn text<'a>(keywords: &'a Map<String, Value>, name: &str) -> &'a str {
    keywords.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(keywords: &Map<String, Value>, name: &str) -> bool {
    keywords.get(name) == Some(&Value::Bool(true))
}

fn objects<'a>(
    keywords: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a Map<String, Value>)> {
    let map = keywords.get(name).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, schema)| Some((name.as_str(), schema.as_object()?)))
}

/// The schemas under `allOf`, `anyOf`, `oneOf` and `not`, with their paths.
fn nested<'a>(keywords: &'a Map<String, Value>, path: &str) -> Vec<(&'a Map<String, Value>, String)> {
    let mut found = Vec::new();
    for name in ["anyOf", "allOf", "oneOf"] {
        let schemas = keywords.get(name).and_then(Value::as_array).into_iter().flatten();
        for (index, schema) in schemas.enumerate() {
            found.extend(schema.as_object().map(|schema| (schema, format!("{path}.{name}[{index}]"))));
        }
    }
    found
        .extend(keywords.get("not").and_then(Value::as_object).map(|schema| (schema, format!("{path}.not"))));
    found
}
