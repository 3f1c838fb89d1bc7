//! Validation of objects against their schema, with the error texts of the real server.

mod alternatives;
mod limits;
mod path;

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::error::FieldError;
use super::node::{Kind, List, Node, NodeId, Origin};
use super::{DEPTH_MAX, Schema, rules};
use path::Path;

impl Schema {
    /// All errors of an object that is pruned and defaulted, for a Status with code 422.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.errors(object, None)
    }

    /// The same for an object that replaces another. Invalid values that did not change are accepted, so that objects
    /// can still be changed after their schema became stricter.
    pub fn validate_update(&self, object: &Value, before: &Value) -> Vec<FieldError> {
        self.errors(object, Some(before).filter(|_| self.origin == Origin::Crd))
    }

    fn errors(&self, object: &Value, before: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let root = Path::root(before);
        self.check_value(object, self.root, &root, &mut errors, DEPTH_MAX);
        if let Some((node, metadata)) = self.metadata.zip(object.get("metadata")) {
            self.check_value(metadata, node, &root.field("metadata"), &mut errors, DEPTH_MAX);
        }
        let mut old_repetitions = Vec::new();
        if let Some(before) = before {
            self.check_lists(before, self.root, &root, &mut old_repetitions, DEPTH_MAX);
        }
        if old_repetitions.is_empty() {
            self.check_lists(object, self.root, &root, &mut errors, DEPTH_MAX);
        }
        if let (Origin::BuiltIn, Some(go_type)) = (self.origin, &self.root().go_type) {
            rules::check(go_type, object, &mut errors);
        }
        errors
    }

    /// Adds the errors of a value. Returns how many values matched, by which the real server picks the best of
    /// several failures.
    fn check_value(
        &self,
        value: &Value,
        id: NodeId,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) -> usize {
        let Some(left) = left.checked_sub(1) else {
            errors.push(FieldError::invalid(path.text(), &Value::from(""), "nested too deep"));
            return 0;
        };
        if path.before() == Some(value) {
            return 1;
        }
        let node = self.node(id);
        let mut matches = 1;
        if let Some(error) = self.type_error(value, node, path) {
            errors.push(error);
        } else {
            matches += 1;
        }
        if value.is_null() {
            return matches;
        }
        if let Some(limits) = &node.limits {
            matches += self.check_alternatives(value, limits, path, errors, left);
            self.check_limits(value, node, limits, path, errors);
        }
        match value {
            Value::Array(list) => {
                if let Some(items) = node.items {
                    let before = items_by_key(path.before(), &node.list);
                    for (index, item) in list.iter().enumerate() {
                        let old = match before.is_empty() {
                            true => None,
                            false => before.get(&key_of(item, &node.list).to_string()).copied(),
                        };
                        matches += self.check_value(item, items, &path.item(index, old), errors, left);
                    }
                }
            }
            Value::Object(map) => matches += self.check_object(map, node, path, errors, left),
            _ => {}
        }
        matches
    }

    fn check_object(
        &self,
        map: &Map<String, Value>,
        node: &Node,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) -> usize {
        let mut matches = 0;
        for (name, value) in map {
            // Metadata is the same for all kinds and checked elsewhere.
            if path.is_root() && name == "metadata" {
                continue;
            }
            let child = node.properties.get(name).map(|field| field.node).or(node.additional);
            if let Some(child) = child {
                matches += self.check_value(value, child, &path.field(name), errors, left);
            }
        }
        for name in &node.required {
            let is_missing = match (self.origin, map.get(name)) {
                (_, None) => true,
                // Go does not distinguish an empty value of a required field from a missing one.
                (Origin::BuiltIn, Some(Value::String(text))) => text.is_empty(),
                (Origin::BuiltIn, Some(value)) => value.is_null(),
                (Origin::Crd, Some(_)) => false,
            };
            if is_missing {
                errors.push(FieldError::required(path.field(name).text(), ""));
            }
        }
        matches
    }

    fn type_error(&self, value: &Value, node: &Node, path: &Path<'_>) -> Option<FieldError> {
        if self.origin == Origin::BuiltIn {
            return None; // decoding has settled it
        }
        let found = type_name(value);
        let fits = match (node.kind, value) {
            (Kind::Any, _) => true,
            (_, Value::Null) => node.nullable,
            (Kind::Object, _) => value.is_object(),
            (Kind::Array, _) => value.is_array(),
            (Kind::String, _) => value.is_string(),
            (Kind::Integer, _) => is_whole(value),
            (Kind::Number, _) => value.is_number(),
            (Kind::Boolean, _) => value.is_boolean(),
            (Kind::IntOrString, _) => value.is_string() || is_whole(value),
        };
        if fits {
            return None;
        }
        let detail = format!("{} in body must be of type {}: \"{found}\"", path.name(), node.kind.as_str());
        Some(FieldError::type_invalid(path.text(), &Value::from(found), &detail))
    }

    /// Checks that lists of type set or map contain each item once.
    fn check_lists(
        &self,
        value: &Value,
        id: NodeId,
        path: &Path<'_>,
        errors: &mut Vec<FieldError>,
        left: usize,
    ) {
        let Some(left) = left.checked_sub(1) else { return };
        let node = self.node(id);
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    if let Some(field) = node.properties.get(name) {
                        self.check_lists(value, field.node, &path.field(name), errors, left);
                    } else if let Some(additional) = node.additional {
                        self.check_lists(value, additional, &path.key(name), errors, left);
                    }
                }
            }
            Value::Array(list) => {
                // In built-in kinds, Go code checks for duplicates, by other keys than the schema's.
                if self.origin == Origin::Crd {
                    check_duplicates(list, &node.list, path, errors);
                }
                if let Some(items) = node.items {
                    for (index, item) in list.iter().enumerate() {
                        self.check_lists(item, items, &path.index(index), errors, left);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The items of the previous list by key, if they have keys.
fn items_by_key<'a>(before: Option<&'a Value>, kind: &List) -> HashMap<String, &'a Value> {
    let items = before.and_then(Value::as_array).filter(|_| matches!(kind, List::Map(_)));
    items.into_iter().flatten().map(|item| (key_of(item, kind).to_string(), item)).collect()
}

/// The key of a list item; null if it has none.
fn key_of(item: &Value, kind: &List) -> Value {
    let List::Map(names) = kind else { return Value::Null };
    let pairs = names.iter().filter_map(|name| Some((name.clone(), item.get(name)?.clone())));
    Value::Object(pairs.collect())
}

fn check_duplicates(list: &[Value], kind: &List, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let keys: Vec<Value> = match kind {
        List::Atomic => return,
        List::Set => list.to_vec(),
        List::Map(_) => {
            if let Some((index, item)) =
                list.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null())
            {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(path.index(index).text(), item, detail));
                return;
            }
            list.iter().map(|item| key_of(item, kind)).collect()
        }
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, key) in keys.iter().enumerate() {
        let times = seen.entry(key.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path.index(index).text(), key));
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn is_whole(value: &Value) -> bool {
    match value {
        Value::Number(number) => {
            !number.is_f64()
                || number.as_f64().is_some_and(|number| number.fract() == 0.0 && number.abs() < 9e15)
        }
        _ => false,
    }
}
