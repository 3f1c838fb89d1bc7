//! The rules of structural schemas: every value has one type, and alternatives only restrict what is specified
//! elsewhere.

use serde_json::{Map, Value};

use super::{is_set, nested, objects, text};
use crate::schema::FieldError;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    Root,
    Item,
    Field,
}

/// Checks that each value has a type outside of alternatives, and that alternatives only restrict.
pub(super) fn check_structure(
    keywords: &Map<String, Value>,
    level: Level,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| format!("{path}.{name}");
    let kind = text(keywords, "type");
    match keywords.get("items") {
        Some(Value::Object(items)) => check_structure(items, Level::Item, &at("items"), errors),
        None if kind == "array" => errors.push(FieldError::required(at("items"), "must be specified")),
        _ => {}
    }
    for (name, schema) in objects(keywords, "properties") {
        check_structure(schema, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(additional) = keywords.get("additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if let Value::Object(schema) = additional {
            check_structure(schema, Level::Field, &at("additionalProperties"), errors);
        }
    }
    let int_or_string = is_set(keywords, "x-kubernetes-int-or-string");
    let preserves = is_set(keywords, "x-kubernetes-preserve-unknown-fields");
    let embedded = is_set(keywords, "x-kubernetes-embedded-resource");
    for (name, is_wrong) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && is_wrong {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(at(name), &Value::Bool(true), detail));
        }
    }
    check_alternatives(keywords, path, int_or_string_exception(keywords), errors);
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(at("type"), detail),
            kind => FieldError::invalid(at("type"), &Value::from(kind), detail),
        });
    } else if kind.is_empty() && !int_or_string && !preserves {
        let detail = match level {
            Level::Root => "must not be empty at the root",
            Level::Item => "must not be empty for specified array items",
            Level::Field => "must not be empty for specified object fields",
        };
        errors.push(FieldError::required(at("type"), detail));
    }
    if embedded && keywords.contains_key("additionalProperties") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(at("additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at("type"), &Value::from(kind), "must be object at the root"));
    }
    if embedded && !preserves && objects(keywords, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at("properties"), detail));
    }
    if level == Level::Root || embedded {
        check_meta_fields(keywords, level, path, errors);
    }
}

fn check_meta_fields(keywords: &Map<String, Value>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    for (name, schema) in objects(keywords, "properties") {
        let kind = Value::from(text(schema, "type"));
        let at = format!("{path}.properties[{name}]");
        match name {
            "kind" | "apiVersion" if kind != "string" => {
                errors.push(FieldError::invalid(format!("{at}.type"), &kind, "must be string"));
            }
            "metadata" => {
                if kind != "object" {
                    errors.push(FieldError::invalid(format!("{at}.type"), &kind, "must be object"));
                }
                let names_only =
                    objects(schema, "properties").all(|(name, _)| matches!(name, "name" | "generateName"));
                let words_only = schema.keys().all(|word| {
                    matches!(word.as_str(), "type" | "properties" | "default" | "description" | "required")
                });
                let is_described = schema.contains_key("description");
                if level == Level::Root && (!names_only || !words_only || is_described) {
                    let detail = "must not specify anything other than name and generateName, but metadata is \
                                  implicitly specified";
                    errors.push(FieldError::forbidden(at, detail));
                }
            }
            _ => {}
        }
    }
}

/// Whether the types of an int-or-string are in one of the two forms that alternatives allow.
fn int_or_string_exception(keywords: &Map<String, Value>) -> bool {
    if !is_set(keywords, "x-kubernetes-int-or-string") {
        return false;
    }
    let is_pair = |any_of: Option<&Value>| {
        let types =
            any_of.and_then(Value::as_array).map(|list| list.iter().map(|one| one.get("type")).collect());
        types == Some(vec![Some(&Value::from("integer")), Some(&Value::from("string"))])
    };
    is_pair(keywords.get("anyOf"))
        || is_pair(keywords.get("allOf").and_then(|all_of| all_of.get(0)?.get("anyOf")))
}

fn check_alternatives(
    keywords: &Map<String, Value>,
    path: &str,
    exception: bool,
    errors: &mut Vec<FieldError>,
) {
    for (schema, at) in nested(keywords, path) {
        if exception && at.starts_with(&format!("{path}.anyOf[")) {
            continue;
        }
        check_alternative(schema, &at, exception, errors);
    }
    if let Some(pattern) = keywords.get("pattern").and_then(Value::as_str)
        && let Err(error) = regex::Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &Value::from(pattern), &detail));
    }
}

fn check_alternative(
    keywords: &Map<String, Value>,
    path: &str,
    exception: bool,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| format!("{path}.{name}");
    if !(exception && path.ends_with(".allOf[0]")) {
        check_alternatives(keywords, path, false, errors);
    }
    if let Some(Value::Object(items)) = keywords.get("items") {
        check_alternative(items, &at("items"), false, errors);
    }
    for (name, schema) in objects(keywords, "properties") {
        check_alternative(schema, &format!("{path}.properties[{name}]"), false, errors);
        if name == "metadata" {
            let detail = "must not be specified in a nested context";
            errors.push(FieldError::forbidden(at("properties[metadata]"), detail));
        }
    }
    let rules: [(&str, &str); 13] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    for (name, detail) in rules {
        let is_set =
            keywords.get(name).is_some_and(|value| !matches!(value, Value::Bool(false) | Value::Null));
        if is_set {
            errors.push(FieldError::forbidden(at(name), detail));
        }
    }
}

/// Checks that everything in an alternative is also specified outside of it.
pub(super) fn check_complete(
    keywords: &Map<String, Value>,
    structure: Option<&Map<String, Value>>,
    at: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for (schema, path) in nested(keywords, path) {
        check_alternative_complete(schema, structure, at, &path, errors);
    }
}

fn check_alternative_complete(
    keywords: &Map<String, Value>,
    structure: Option<&Map<String, Value>>,
    at: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(structure) = structure else {
        return errors.push(FieldError::required(at, &format!("because it is defined in {path}")));
    };
    check_complete(keywords, Some(structure), at, path, errors);
    if let Some(Value::Object(items)) = keywords.get("items") {
        let inner = structure.get("items").and_then(Value::as_object);
        check_alternative_complete(items, inner, &format!("{at}.items"), &format!("{path}.items"), errors);
    }
    for (name, schema) in objects(keywords, "properties") {
        let inner =
            objects(structure, "properties").find(|(other, _)| *other == name).map(|(_, schema)| schema);
        let (at, path) = (format!("{at}.properties[{name}]"), format!("{path}.properties[{name}]"));
        check_alternative_complete(schema, inner, &at, &path, errors);
    }
}
