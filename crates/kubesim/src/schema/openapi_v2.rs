//! The OpenAPI v2 document of a server, made from its v3 documents: for clients that read nothing else, and for
//! kubectl where it falls back to this version.

use serde_json::{Map, Value, json};

/// Keywords that version 2 does not have.
const DROPPED: [&str; 5] = ["allOf", "anyOf", "oneOf", "not", "nullable"];

/// One document with the paths and schemas of all v3 documents.
pub fn open_api_v2<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for document in documents {
        for (path, operations) in document["paths"].as_object().into_iter().flatten() {
            paths.insert(path.clone(), operations_of(operations));
        }
        for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
            definitions.entry(name.clone()).or_insert_with(|| schema_of(schema, true));
        }
    }
    json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": "unversioned" },
        "paths": paths,
        "definitions": definitions,
    })
}

fn operations_of(operations: &Value) -> Value {
    let convert = |operation: &Value| {
        let mut converted = operation.clone();
        let mut parameters: Vec<Value> =
            operation["parameters"].as_array().into_iter().flatten().map(parameter_of).collect();
        if let Some(fields) = converted.as_object_mut() {
            fields.insert("consumes".to_owned(), json!(["*/*"]));
            if let Some(body) = fields.remove("requestBody") {
                let schema = body["content"].as_object().and_then(|content| content.values().next());
                let schema = schema.map(|content| schema_of(&content["schema"], false)).unwrap_or_default();
                let schema = if schema.is_object() { schema } else { json!({ "type": "object" }) };
                parameters.push(json!({ "name": "body", "in": "body", "required": true, "schema": schema }));
            }
            fields.insert("parameters".to_owned(), Value::Array(parameters));
        }
        converted
    };
    let all = operations.as_object().into_iter().flatten();
    Value::Object(all.map(|(verb, operation)| (verb.clone(), convert(operation))).collect())
}

/// A parameter, whose schema is beside its name in version 2.
fn parameter_of(parameter: &Value) -> Value {
    let mut converted = parameter.as_object().cloned().unwrap_or_default();
    if let Some(Value::Object(schema)) = converted.remove("schema") {
        converted.extend(schema);
    }
    Value::Object(converted)
}

fn reference_of(schema: &Value) -> Option<Value> {
    let inner = match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([one]) => one,
        _ => schema,
    };
    let name = inner["$ref"].as_str()?.strip_prefix("#/components/schemas/")?;
    let mut reference = json!({ "$ref": format!("#/definitions/{name}") });
    if let Some(description) = schema["description"].as_str() {
        reference["description"] = json!(description);
    }
    Some(reference)
}

fn schema_of(schema: &Value, is_root: bool) -> Value {
    if let Some(reference) = reference_of(schema) {
        return reference;
    }
    let Some(keywords) = schema.as_object() else { return schema.clone() };
    let flag = |name: &str| keywords.get(name) == Some(&Value::Bool(true));
    let mut converted = keywords.clone();
    converted.retain(|name, _| !DROPPED.contains(&name.as_str()));
    let alternatives = keywords.get("oneOf").and_then(Value::as_array).into_iter().flatten();
    if !keywords.contains_key("type") && alternatives.into_iter().any(|one| one["type"] == "string") {
        converted.insert("type".to_owned(), json!("string"));
    }
    // Readers of version 2 take what is listed for all that is allowed.
    if flag("nullable") || flag("x-kubernetes-int-or-string") {
        converted.remove("type");
    }
    if !is_root && (flag("nullable") || flag("x-kubernetes-preserve-unknown-fields")) {
        for name in ["items", "properties"] {
            converted.remove(name);
        }
    }
    if converted.get("type") == Some(&json!("array")) && !converted.contains_key("items") {
        converted.remove("type");
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = converted.get_mut(name).filter(|inner| inner.is_object()) {
            *inner = schema_of(inner, false);
        }
    }
    if let Some(Value::Object(properties)) = converted.get_mut("properties") {
        for property in properties.values_mut() {
            *property = schema_of(property, false);
        }
    }
    Value::Object(converted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_has_only_what_version_2_knows() {
        let schema = json!({
            "type": "object", "properties": {
                "metadata": { "allOf": [{ "$ref": "#/components/schemas/Meta" }], "description": "text" },
                "port": { "anyOf": [{ "type": "integer" }, { "type": "string" }], "x-kubernetes-int-or-string": true },
                "size": { "oneOf": [{ "type": "string" }, { "type": "number" }] },
                "free": { "type": "object", "properties": { "a": {} }, "x-kubernetes-preserve-unknown-fields": true },
                "list": { "type": "array", "items": { "$ref": "#/components/schemas/Item" } },
                "hidden": { "type": "string", "nullable": true },
            },
        });
        let expect = json!({
            "type": "object", "properties": {
                "metadata": { "$ref": "#/definitions/Meta", "description": "text" },
                "port": { "x-kubernetes-int-or-string": true },
                "size": { "type": "string" },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
                "list": { "type": "array", "items": { "$ref": "#/definitions/Item" } },
                "hidden": {},
            },
        });
        assert_eq!(schema_of(&schema, true), expect);
    }
}
