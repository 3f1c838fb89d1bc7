//! Keywords that a schema may not use, or not together.

use serde_json::{Map, Value};

use super::{is_set, nested, objects, text};
use crate::schema::FieldError;

#[derive(Clone, Copy, Default)]
pub(super) struct Context {
    is_root: bool,
    /// Why no default is allowed here.
    forbids_default: Option<DefaultRule>,
    is_in_meta: bool,
}

#[derive(Clone, Copy)]
enum DefaultRule {
    TopLevel(&'static str),
    InsideMetadataMap,
}

impl Context {
    pub(super) fn root() -> Context {
        Context { is_root: true, ..Context::default() }
    }
}

impl DefaultRule {
    fn detail(self) -> String {
        match self {
            DefaultRule::TopLevel(name) => format!("must not be set in top-level {name}"),
            DefaultRule::InsideMetadataMap => {
                "must not be set inside additionalProperties applying to object metadata".to_owned()
            }
        }
    }
}

/// Keywords that a structural schema never contains.
pub(super) const UNREADABLE: [&str; 6] =
    [".id", ".additionalItems", ".patternProperties", ".definitions", ".dependencies", ".$ref"];

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Checks the keywords of a schema.
pub(super) fn check_keywords(
    keywords: &Map<String, Value>,
    path: &str,
    place: Context,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| format!("{path}.{name}");
    let kind = text(keywords, "type");
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(at("type"), detail));
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let types = TYPES.map(Value::from);
        errors.push(FieldError::not_supported(at("type"), &Value::from(kind), types.iter()));
    }
    if let Some(forbids) =
        place.forbids_default.filter(|_| keywords.get("default").is_some_and(|value| !value.is_null()))
    {
        errors.push(FieldError::forbidden(at("default"), &forbids.detail()));
    }
    for name in UNREADABLE.map(|name| name.trim_start_matches('.')) {
        if keywords.contains_key(name) {
            errors.push(FieldError::forbidden(at(name), &format!("{name} is not supported")));
        }
    }
    if keywords.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(at("items"), "items must be a schema object and not an array"));
    }
    if place.is_in_meta && is_set(keywords, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(at("x-kubernetes-embedded-resource"), detail));
    }
    if is_set(keywords, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at("uniqueItems"), detail));
    }
    if keywords.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(
            at("x-kubernetes-preserve-unknown-fields"),
            &Value::Bool(false),
            detail,
        ));
    }
    check_additional(keywords, path, place, errors);
    check_list_keywords(keywords, path, errors);
    check_rules(keywords, path, errors);
    for (name, schema) in objects(keywords, "properties") {
        let inner = match name {
            "metadata" | "apiVersion" | "kind"
                if place.is_root || is_set(keywords, "x-kubernetes-embedded-resource") =>
            {
                let name = ["metadata", "apiVersion", "kind"].into_iter().find(|meta| *meta == name);
                let forbids = name.filter(|_| place.is_root).map(DefaultRule::TopLevel);
                Context {
                    is_root: false,
                    is_in_meta: true,
                    forbids_default: forbids.or(place.forbids_default),
                }
            }
            _ => Context { is_root: false, ..place },
        };
        check_keywords(schema, &format!("{path}.properties[{name}]"), inner, errors);
    }
    let inner = Context { is_root: false, ..place };
    for (schema, at) in nested(keywords, path) {
        check_keywords(schema, &at, inner, errors);
    }
    if let Some(Value::Object(items)) = keywords.get("items") {
        check_keywords(items, &at("items"), inner, errors);
    }
}

fn check_additional(keywords: &Map<String, Value>, path: &str, place: Context, errors: &mut Vec<FieldError>) {
    let Some(additional) = keywords.get("additionalProperties") else { return };
    let at = format!("{path}.additionalProperties");
    let has_properties = objects(keywords, "properties").next().is_some();
    if has_properties && *additional != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&at, detail));
    }
    if let Value::Object(schema) = additional {
        let forbids_default = match place.is_in_meta {
            true => Some(DefaultRule::InsideMetadataMap),
            false => place.forbids_default,
        };
        check_keywords(schema, &at, Context { is_root: false, forbids_default, ..place }, errors);
    }
}

fn check_list_keywords(keywords: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let kind = text(keywords, "type");
    let mut expect_type = |word: &str, wanted: &str| {
        let detail = format!("must be {wanted} if {word} is specified");
        match kind {
            "" => errors.push(FieldError::required(at("type"), &detail)),
            kind if kind != wanted => {
                errors.push(FieldError::invalid(at("type"), &Value::from(kind), &detail));
            }
            _ => {}
        }
    };
    let map_type = keywords.get("x-kubernetes-map-type").and_then(Value::as_str);
    let list_type = keywords.get("x-kubernetes-list-type").and_then(Value::as_str);
    if map_type.is_some() {
        expect_type("x-kubernetes-map-type", "object");
    }
    if list_type.is_some() {
        expect_type("x-kubernetes-list-type", "array");
    }
    let mut expect_one_of = |word: &str, found: Option<&str>, supported: &[&str]| {
        if let Some(found) = found.filter(|found| !supported.contains(found)) {
            let supported: Vec<Value> = supported.iter().map(|word| Value::from(*word)).collect();
            errors.push(FieldError::not_supported(at(word), &Value::from(found), supported.iter()));
        }
    };
    expect_one_of("x-kubernetes-map-type", map_type, &["atomic", "granular"]);
    expect_one_of("x-kubernetes-list-type", list_type, &["atomic", "set", "map"]);
    let items = keywords.get("items").and_then(Value::as_object);
    if list_type == Some("set")
        && let Some(items) = items
    {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let inner = items.get("x-kubernetes-list-type").and_then(Value::as_str);
        if text(items, "type") == "array" && inner.is_some_and(|inner| inner != "atomic") {
            let value = Value::from(inner.unwrap_or_default());
            errors.push(FieldError::invalid(at("items.x-kubernetes-list-type"), &value, detail));
        }
        if text(items, "type") == "object" && text(items, "x-kubernetes-map-type") != "atomic" {
            // The real server prints the item's list type here, which an object does not have.
            errors.push(FieldError::invalid(at("items.x-kubernetes-map-type"), &Value::Null, detail));
        }
    }
    check_map_keys(keywords, list_type, items, path, errors);
}

fn check_map_keys(
    keywords: &Map<String, Value>,
    list_type: Option<&str>,
    items: Option<&Map<String, Value>>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| format!("{path}.{name}");
    let keys_value = keywords.get("x-kubernetes-list-map-keys").cloned().unwrap_or(Value::Null);
    let keys: Vec<&str> = keys_value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        errors.push(match list_type {
            None => FieldError::required(at("x-kubernetes-list-type"), detail),
            Some(found) => FieldError::invalid(at("x-kubernetes-list-type"), &Value::from(found), detail),
        });
    }
    let Some(list_type @ ("map" | "set")) = list_type else { return };
    if list_type == "map" {
        if keys.is_empty() {
            let detail = "must not be empty if x-kubernetes-list-type is map";
            errors.push(FieldError::required(at("x-kubernetes-list-map-keys"), detail));
        }
        let Some(items) = items else {
            let detail = "must have a schema if x-kubernetes-list-type is map";
            return errors.push(FieldError::required(at("items"), detail));
        };
        if text(items, "type") != "object" {
            let detail = "must be object if parent array's x-kubernetes-list-type is map";
            return errors.push(FieldError::invalid(
                at("items.type"),
                &Value::from(text(items, "type")),
                detail,
            ));
        }
        for (index, key) in keys.iter().enumerate() {
            let property = objects(items, "properties").find(|(name, _)| name == key);
            match property {
                Some((_, schema)) if matches!(text(schema, "type"), "array" | "object") => {
                    let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                    let at = at(&format!("items.properties[{key}].type"));
                    errors.push(FieldError::invalid(at, &Value::from("object"), detail));
                }
                Some(_) => {}
                None => {
                    let detail = "entries must all be names of item properties";
                    errors.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), &keys_value, detail));
                }
            }
            if keys[..index].contains(key) {
                let detail = "must not contain duplicate entries";
                errors.push(FieldError::invalid(at("x-kubernetes-list-map-keys"), &keys_value, detail));
            }
        }
    }
    let Some(items) = items else { return };
    if is_set(items, "nullable") {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        errors.push(FieldError::forbidden(at("items.nullable"), &detail));
    }
    let required = items.get("required").and_then(Value::as_array);
    for key in keys.iter().filter(|_| list_type == "map") {
        let Some((_, schema)) = objects(items, "properties").find(|(name, _)| name == key) else { continue };
        let is_required = required.is_some_and(|required| required.iter().any(|name| name == key));
        if !is_required && !schema.contains_key("default") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                          property";
            errors.push(FieldError::required(at(&format!("items.properties[{key}].default")), detail));
        }
        if is_set(schema, "nullable") {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            errors.push(FieldError::forbidden(at(&format!("items.properties[{key}].nullable")), detail));
        }
    }
}

fn check_rules(keywords: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let rules = keywords.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
    for (index, rule) in rules.enumerate() {
        let at = |name: &str| format!("{path}.x-kubernetes-validations[{index}].{name}");
        let word = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
        let (source, message) = (word("rule").trim(), word("message"));
        if source.is_empty() {
            errors.push(FieldError::required(at("rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            let detail = "must be non-empty if specified";
            errors.push(FieldError::invalid(at("message"), &Value::from(message), detail));
        } else if message.trim().contains('\n') {
            errors.push(FieldError::invalid(
                at("message"),
                &Value::from(message),
                "must not contain line breaks",
            ));
        } else if source.contains('\n') && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            errors.push(FieldError::required(at("message"), detail));
        }
    }
}
