//! The rules for schemas in CRDs: each must be *structural*, so that every field has one known type.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::builtin::{OBJECT_META, components};
use super::error::FieldError;
use super::node::{Origin, Reader};
use super::{Schema, is_too_deep};

/// The schema of a version of a CRD, from its `openAPIV3Schema`; or all that is wrong with it.
///
/// The paths of errors begin with `openAPIV3Schema`; the caller puts what stands before it in front.
pub fn of_crd(open_api_v3_schema: &Value) -> Result<Schema, Vec<FieldError>> {
    const ROOT: &str = "openAPIV3Schema";
    if is_too_deep(open_api_v3_schema) {
        return Err(vec![FieldError::invalid(ROOT, &Value::from(""), "nested too deep")]);
    }
    let Some(words) = open_api_v3_schema.as_object() else {
        return Err(vec![FieldError::required(ROOT, "schemas are required")]);
    };
    let mut errors = Vec::new();
    check_words(words, ROOT, Place { is_root: true, ..Place::default() }, &mut errors);
    // With words that it does not support at all, the real server does not look at the structure.
    let is_readable = !errors.iter().any(|error| UNREADABLE.iter().any(|word| error.field.ends_with(word)));
    if is_readable {
        let mut structure = Vec::new();
        check_structure(words, Level::Root, ROOT, &mut structure);
        check_complete(words, Some(words), ROOT, ROOT, &mut structure);
        structure.sort_by_cached_key(ToString::to_string);
        errors.append(&mut structure);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let schema = read(open_api_v3_schema);
    let mut errors = Vec::new();
    check_defaults(&schema, words, ROOT, &mut errors);
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

#[derive(Clone, Copy, Default)]
struct Place {
    is_root: bool,
    /// Why a default may not stand here.
    forbids_default: Option<Forbids>,
    is_in_meta: bool,
}

#[derive(Clone, Copy)]
enum Forbids {
    TopLevel(&'static str),
    InsideMetadataMap,
}

impl Forbids {
    fn detail(self) -> String {
        match self {
            Forbids::TopLevel(name) => format!("must not be set in top-level {name}"),
            Forbids::InsideMetadataMap => {
                "must not be set inside additionalProperties applying to object metadata".to_owned()
            }
        }
    }
}

/// Words that cannot be part of a structural schema, whatever they say.
const UNREADABLE: [&str; 6] =
    [".id", ".additionalItems", ".patternProperties", ".definitions", ".dependencies", ".$ref"];

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Words that may not be used, or not together.
fn check_words(words: &Map<String, Value>, path: &str, place: Place, errors: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let kind = text(words, "type");
    if kind == "null" {
        let detail = "type cannot be set to null, use nullable as an alternative";
        errors.push(FieldError::forbidden(at("type"), detail));
    }
    if !kind.is_empty() && !TYPES.contains(&kind) {
        let types = TYPES.map(Value::from);
        errors.push(FieldError::not_supported(at("type"), &Value::from(kind), types.iter()));
    }
    if let Some(forbids) =
        place.forbids_default.filter(|_| words.get("default").is_some_and(|value| !value.is_null()))
    {
        errors.push(FieldError::forbidden(at("default"), &forbids.detail()));
    }
    for name in UNREADABLE.map(|name| name.trim_start_matches('.')) {
        if words.contains_key(name) {
            errors.push(FieldError::forbidden(at(name), &format!("{name} is not supported")));
        }
    }
    if words.get("items").is_some_and(Value::is_array) {
        errors.push(FieldError::forbidden(at("items"), "items must be a schema object and not an array"));
    }
    if place.is_in_meta && is_set(words, "x-kubernetes-embedded-resource") {
        let detail = "must not be used inside of resource meta";
        errors.push(FieldError::forbidden(at("x-kubernetes-embedded-resource"), detail));
    }
    if is_set(words, "uniqueItems") {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        errors.push(FieldError::forbidden(at("uniqueItems"), detail));
    }
    if words.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(false)) {
        let detail = "must be true or undefined";
        errors.push(FieldError::invalid(
            at("x-kubernetes-preserve-unknown-fields"),
            &Value::Bool(false),
            detail,
        ));
    }
    check_additional(words, path, place, errors);
    check_list_words(words, path, errors);
    check_rules(words, path, errors);
    for (name, schema) in objects(words, "properties") {
        let inner = match name {
            "metadata" | "apiVersion" | "kind"
                if place.is_root || is_set(words, "x-kubernetes-embedded-resource") =>
            {
                let name = ["metadata", "apiVersion", "kind"].into_iter().find(|meta| *meta == name);
                let forbids = name.filter(|_| place.is_root).map(Forbids::TopLevel);
                Place { is_root: false, is_in_meta: true, forbids_default: forbids.or(place.forbids_default) }
            }
            _ => Place { is_root: false, ..place },
        };
        check_words(schema, &format!("{path}.properties[{name}]"), inner, errors);
    }
    let inner = Place { is_root: false, ..place };
    for (schema, at) in nested(words, path) {
        check_words(schema, &at, inner, errors);
    }
    if let Some(Value::Object(items)) = words.get("items") {
        check_words(items, &at("items"), inner, errors);
    }
}

fn check_additional(words: &Map<String, Value>, path: &str, place: Place, errors: &mut Vec<FieldError>) {
    let Some(additional) = words.get("additionalProperties") else { return };
    let at = format!("{path}.additionalProperties");
    let has_properties = objects(words, "properties").next().is_some();
    if has_properties && *additional != Value::Bool(true) {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(&at, detail));
    }
    if let Value::Object(schema) = additional {
        let forbids_default = match place.is_in_meta {
            true => Some(Forbids::InsideMetadataMap),
            false => place.forbids_default,
        };
        check_words(schema, &at, Place { is_root: false, forbids_default, ..place }, errors);
    }
}

fn check_list_words(words: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let kind = text(words, "type");
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
    let map_type = words.get("x-kubernetes-map-type").and_then(Value::as_str);
    let list_type = words.get("x-kubernetes-list-type").and_then(Value::as_str);
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
    let items = words.get("items").and_then(Value::as_object);
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
            // The real server prints the item's list type here, which an object has not.
            errors.push(FieldError::invalid(at("items.x-kubernetes-map-type"), &Value::Null, detail));
        }
    }
    check_map_keys(words, list_type, items, path, errors);
}

fn check_map_keys(
    words: &Map<String, Value>,
    list_type: Option<&str>,
    items: Option<&Map<String, Value>>,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let at = |name: &str| format!("{path}.{name}");
    let keys_value = words.get("x-kubernetes-list-map-keys").cloned().unwrap_or(Value::Null);
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

fn check_rules(words: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let rules = words.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Each place has a type, outside of alternatives; alternatives only restrict.
fn check_structure(words: &Map<String, Value>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    let kind = text(words, "type");
    match words.get("items") {
        Some(Value::Object(items)) => check_structure(items, Level::Item, &at("items"), errors),
        None if kind == "array" => errors.push(FieldError::required(at("items"), "must be specified")),
        _ => {}
    }
    for (name, schema) in objects(words, "properties") {
        check_structure(schema, Level::Field, &format!("{path}.properties[{name}]"), errors);
    }
    if let Some(additional) = words.get("additionalProperties") {
        if level == Level::Root {
            errors.push(FieldError::forbidden(at("additionalProperties"), "must not be used at the root"));
        }
        if let Value::Object(schema) = additional {
            check_structure(schema, Level::Field, &at("additionalProperties"), errors);
        }
    }
    let int_or_string = is_set(words, "x-kubernetes-int-or-string");
    let preserves = is_set(words, "x-kubernetes-preserve-unknown-fields");
    let embedded = is_set(words, "x-kubernetes-embedded-resource");
    for (name, is_wrong) in
        [("x-kubernetes-preserve-unknown-fields", preserves), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && is_wrong {
            let detail = "must be false if x-kubernetes-int-or-string is true";
            errors.push(FieldError::invalid(at(name), &Value::Bool(true), detail));
        }
    }
    check_alternatives(words, path, int_or_string_exception(words), errors);
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
    if embedded && words.contains_key("additionalProperties") {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        errors.push(FieldError::forbidden(at("additionalProperties"), detail));
    }
    if level == Level::Root && !kind.is_empty() && kind != "object" {
        errors.push(FieldError::invalid(at("type"), &Value::from(kind), "must be object at the root"));
    }
    if embedded && !preserves && objects(words, "properties").next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
                      x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at("properties"), detail));
    }
    if level == Level::Root || embedded {
        check_meta_fields(words, level, path, errors);
    }
}

fn check_meta_fields(words: &Map<String, Value>, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    for (name, schema) in objects(words, "properties") {
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

/// The two shapes in which an int-or-string may name its types in alternatives.
fn int_or_string_exception(words: &Map<String, Value>) -> bool {
    if !is_set(words, "x-kubernetes-int-or-string") {
        return false;
    }
    let is_pair = |any_of: Option<&Value>| {
        let types =
            any_of.and_then(Value::as_array).map(|list| list.iter().map(|one| one.get("type")).collect());
        types == Some(vec![Some(&Value::from("integer")), Some(&Value::from("string"))])
    };
    is_pair(words.get("anyOf")) || is_pair(words.get("allOf").and_then(|all_of| all_of.get(0)?.get("anyOf")))
}

fn check_alternatives(words: &Map<String, Value>, path: &str, exception: bool, errors: &mut Vec<FieldError>) {
    for (schema, at) in nested(words, path) {
        if exception && at.starts_with(&format!("{path}.anyOf[")) {
            continue;
        }
        check_alternative(schema, &at, exception, errors);
    }
    if let Some(pattern) = words.get("pattern").and_then(Value::as_str)
        && let Err(error) = regex::Regex::new(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {error}");
        errors.push(FieldError::invalid(format!("{path}.pattern"), &Value::from(pattern), &detail));
    }
}

fn check_alternative(words: &Map<String, Value>, path: &str, exception: bool, errors: &mut Vec<FieldError>) {
    let at = |name: &str| format!("{path}.{name}");
    if !(exception && path.ends_with(".allOf[0]")) {
        check_alternatives(words, path, false, errors);
    }
    if let Some(Value::Object(items)) = words.get("items") {
        check_alternative(items, &at("items"), false, errors);
    }
    for (name, schema) in objects(words, "properties") {
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
        let is_said = words.get(name).is_some_and(|value| !matches!(value, Value::Bool(false) | Value::Null));
        if is_said {
            errors.push(FieldError::forbidden(at(name), detail));
        }
    }
}

/// Whatever an alternative speaks of is also specified outside of it.
fn check_complete(
    words: &Map<String, Value>,
    structure: Option<&Map<String, Value>>,
    at: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for (schema, path) in nested(words, path) {
        check_alternative_complete(schema, structure, at, &path, errors);
    }
}

fn check_alternative_complete(
    words: &Map<String, Value>,
    structure: Option<&Map<String, Value>>,
    at: &str,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    let Some(structure) = structure else {
        return errors.push(FieldError::required(at, &format!("because it is defined in {path}")));
    };
    check_complete(words, Some(structure), at, path, errors);
    if let Some(Value::Object(items)) = words.get("items") {
        let inner = structure.get("items").and_then(Value::as_object);
        check_alternative_complete(items, inner, &format!("{at}.items"), &format!("{path}.items"), errors);
    }
    for (name, schema) in objects(words, "properties") {
        let inner =
            objects(structure, "properties").find(|(other, _)| *other == name).map(|(_, schema)| schema);
        let (at, path) = (format!("{at}.properties[{name}]"), format!("{path}.properties[{name}]"));
        check_alternative_complete(schema, inner, &at, &path, errors);
    }
}

/// A default must itself satisfy the schema at its place.
fn check_defaults(schema: &Schema, words: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let _ = schema;
    if let Some(default) = words.get("default").filter(|default| !default.is_null()) {
        let place = Value::Object(words.clone());
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
    for (name, inner) in objects(words, "properties") {
        check_defaults(schema, inner, &format!("{path}.properties[{name}]"), errors);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = words.get(name) {
            check_defaults(schema, inner, &format!("{path}.{name}"), errors);
        }
    }
}

fn text<'a>(words: &'a Map<String, Value>, name: &str) -> &'a str {
    words.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(words: &Map<String, Value>, name: &str) -> bool {
    words.get(name) == Some(&Value::Bool(true))
}

fn objects<'a>(
    words: &'a Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = (&'a str, &'a Map<String, Value>)> {
    let map = words.get(name).and_then(Value::as_object).into_iter().flatten();
    map.filter_map(|(name, schema)| Some((name.as_str(), schema.as_object()?)))
}

/// The schemas under `allOf`, `anyOf`, `oneOf` and `not`, with their paths.
fn nested<'a>(words: &'a Map<String, Value>, path: &str) -> Vec<(&'a Map<String, Value>, String)> {
    let mut found = Vec::new();
    for name in ["anyOf", "allOf", "oneOf"] {
        let schemas = words.get(name).and_then(Value::as_array).into_iter().flatten();
        for (index, schema) in schemas.enumerate() {
            found.extend(schema.as_object().map(|schema| (schema, format!("{path}.{name}[{index}]"))));
        }
    }
    found.extend(words.get("not").and_then(Value::as_object).map(|schema| (schema, format!("{path}.not"))));
    found
}
