//! Objects and their schema: how values are merged, compared and removed, and which fields they have.
//!
//! Every traversal stops at values that the schema declares atomic, as in structured-merge-diff.

mod compare;
mod merge;

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::set::{self, FieldSet};
use crate::schema::{DEPTH_MAX, Kind, List, MapType, NodeId, Schema, go_format, go_type_of};

/// The type of a value in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// A node of the schema.
    Node(NodeId),
    /// A value below a node that keeps unknown fields: objects are granular, lists are atomic.
    Deduced,
    /// A value without fields of its own.
    Untyped,
}

/// How a traversal handles a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Map { is_atomic: bool },
    List,
    AtomicList,
    Scalar,
}

/// The fields that differ between two values.
#[derive(Debug, Clone, Default)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

/// The schema of an object; without one, all types are deduced from the values.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaTypes<'a> {
    pub(super) schema: Option<&'a Schema>,
}

impl SchemaTypes<'_> {
    pub(super) fn root(&self) -> Type {
        self.schema.map_or(Type::Deduced, |schema| Type::Node(schema.root))
    }

    fn shape(&self, kind: Type, value: &Value) -> Shape {
        let deduced = |is_atomic| match value {
            Value::Object(_) => Shape::Map { is_atomic },
            Value::Array(_) => Shape::AtomicList,
            _ => Shape::Scalar,
        };
        let (Type::Node(id), Some(schema)) = (kind, self.schema) else {
            return deduced(kind == Type::Untyped);
        };
        let node = schema.node(id);
        let is_atomic = node.map == MapType::Atomic;
        match node.kind {
            Kind::Object => Shape::Map { is_atomic },
            Kind::Array if node.list == List::Atomic => Shape::AtomicList,
            Kind::Array => Shape::List,
            Kind::Any if value.is_object() || value.is_array() => deduced(is_atomic),
            Kind::Any | Kind::String | Kind::Integer | Kind::Number | Kind::Boolean | Kind::IntOrString => {
                Shape::Scalar
            }
        }
    }

    /// The type of a field, and whether the schema names it.
    pub(super) fn field(&self, kind: Type, name: &str) -> Option<(Type, bool)> {
        match (kind, self.schema) {
            (Type::Untyped, _) => Some((Type::Untyped, false)),
            (Type::Deduced, _) | (_, None) => Some((Type::Deduced, false)),
            (Type::Node(id), Some(schema)) => {
                let node = schema.node(id);
                if let Some(field) = node.properties.get(name) {
                    return Some((Type::Node(field.node), true));
                }
                let is_open = node.preserve || node.properties.is_empty();
                node.additional.map(Type::Node).or(is_open.then_some(Type::Deduced)).map(|kind| (kind, false))
            }
        }
    }

    fn field_or_deduced(&self, kind: Type, name: &str) -> (Type, bool) {
        self.field(kind, name).unwrap_or((Type::Deduced, false))
    }

    pub(super) fn items(&self, kind: Type) -> Type {
        match (kind, self.schema) {
            (Type::Node(id), Some(schema)) => schema.node(id).items.map_or(Type::Untyped, Type::Node),
            _ => Type::Untyped,
        }
    }

    /// The path element of an item in a list of type set or map.
    fn element(&self, kind: Type, item: &Value) -> Result<String, String> {
        let (Type::Node(id), Some(schema)) = (kind, self.schema) else {
            return Err("invalid indexing of non-associative list".to_owned());
        };
        let node = schema.node(id);
        let List::Map(names) = &node.list else {
            return match item {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => {
                    Err("associative list without keys has an element that's an explicit null".to_owned())
                }
                scalar => Ok(set::value(scalar)),
            };
        };
        let object = match item {
            Value::Object(object) => object,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut key = Map::new();
        for name in names {
            let default = || schema.default_of_field(schema.node(node.items?).properties.get(name)?);
            if let Some(value) = object.get(name).cloned().or_else(default) {
                key.insert(name.clone(), value);
            }
        }
        if key.is_empty() {
            let names: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(set::key(key))
    }

    /// The first value that does not fit its type, with its path: `.spec.foo: field not declared in schema`.
    pub(super) fn check(&self, object: &Value, may_repeat: bool) -> Result<(), String> {
        self.check_at(self.root(), object, &mut Vec::new(), may_repeat)
    }

    fn check_at(
        &self,
        kind: Type,
        value: &Value,
        path: &mut Vec<String>,
        may_repeat: bool,
    ) -> Result<(), String> {
        if path.len() > DEPTH_MAX {
            return Err(format!("{}: nested too deep", set::printed(path)));
        }
        let at = |path: &[String], text: String| match path.is_empty() {
            true => Err(text),
            false => Err(format!("{}: {text}", set::printed(path))),
        };
        match (self.shape(kind, value), value) {
            (_, Value::Null) => Ok(()),
            (Shape::Map { .. }, Value::Object(map)) => {
                for (name, value) in map {
                    path.push(set::field(name));
                    let Some((kind, _)) = self.field(kind, name) else {
                        return at(path, "field not declared in schema".to_owned());
                    };
                    self.check_at(kind, value, path, may_repeat)?;
                    path.pop();
                }
                Ok(())
            }
            (Shape::Map { .. }, other) => at(path, format!("expected map, got &{{{}}}", go_format(other))),
            (shape @ (Shape::List | Shape::AtomicList), Value::Array(list)) => {
                let items = self.items(kind);
                let mut seen = HashSet::new();
                for (index, item) in list.iter().enumerate() {
                    let element = match shape {
                        Shape::List => match self.element(kind, item) {
                            Ok(element) => element,
                            Err(text) => return at(path, format!("element {index}: {text}")),
                        },
                        _ => format!("i:{index}"),
                    };
                    if shape == Shape::List && !seen.insert(element.clone()) && !may_repeat {
                        let element = set::printed(&[element]);
                        return at(path, format!("duplicate entries for key {element}"));
                    }
                    path.push(element);
                    self.check_at(items, item, path, may_repeat)?;
                    path.pop();
                }
                Ok(())
            }
            (Shape::List | Shape::AtomicList, other) => {
                at(path, format!("expected list, got &{{{}}}", go_format(other)))
            }
            (Shape::Scalar, other) => match self.scalar_error(kind, other) {
                Some(text) => at(path, text),
                None => Ok(()),
            },
        }
    }

    fn scalar_error(&self, kind: Type, value: &Value) -> Option<String> {
        let (Type::Node(id), Some(schema)) = (kind, self.schema) else { return None };
        match schema.node(id).kind {
            Kind::Integer | Kind::Number if !value.is_number() => {
                let found = go_type_of(value);
                Some(format!("expected numeric (int or float), got {found}"))
            }
            Kind::String if !value.is_string() => {
                Some(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_format(value)))
            }
            Kind::Boolean if !value.is_boolean() => {
                Some(format!("expected boolean, got &{{{}}}", go_format(value)))
            }
            _ => None,
        }
    }

    /// All fields of an object.
    pub(super) fn fields(&self, object: &Value) -> FieldSet {
        let mut set = FieldSet::default();
        self.gather(self.root(), object, &mut Vec::new(), &mut set);
        set
    }

    fn gather(&self, kind: Type, value: &Value, path: &mut Vec<String>, set: &mut FieldSet) {
        match (self.shape(kind, value), value) {
            (Shape::Map { is_atomic: true } | Shape::AtomicList | Shape::Scalar, _) => set.insert(path),
            (Shape::Map { .. }, Value::Object(map)) => {
                for (name, value) in map {
                    let (kind, is_named) = self.field_or_deduced(kind, name);
                    path.push(set::field(name));
                    self.gather(kind, value, path, set);
                    if value.is_null() || value.as_object().is_some_and(Map::is_empty) || !is_named {
                        set.insert(path);
                    }
                    path.pop();
                }
            }
            (Shape::List, Value::Array(list)) => {
                let items = self.items(kind);
                let elements: Vec<Option<String>> =
                    list.iter().map(|item| self.element(kind, item).ok()).collect();
                let mut count: HashMap<&str, usize> = HashMap::new();
                for element in elements.iter().flatten() {
                    *count.entry(element).or_default() += 1;
                }
                for (element, item) in elements.iter().zip(list) {
                    let Some(element) = element else { continue };
                    path.push(element.clone());
                    // Items with a duplicate key are owned as a whole.
                    if count.get(element.as_str()) == Some(&1) {
                        self.gather(items, item, path, set);
                    }
                    set.insert(path);
                    path.pop();
                }
            }
            (Shape::Map { .. } | Shape::List, _) => {}
        }
    }

    /// The object without the fields of a set.
    pub(super) fn remove(&self, object: &Value, fields: &FieldSet) -> Value {
        match self.remove_at(self.root(), object, fields) {
            Value::Null => Value::Object(Map::new()),
            left => left,
        }
    }

    /// A value that becomes empty is replaced by null, as in the real server: it still exists in a comparison of the
    /// result.
    fn remove_at(&self, kind: Type, value: &Value, fields: &FieldSet) -> Value {
        match (self.shape(kind, value), value) {
            (Shape::Map { is_atomic: false }, Value::Object(map)) if !map.is_empty() => {
                let mut retained = Map::new();
                for (name, value) in map {
                    let element = set::field(name);
                    if fields.has(&element) {
                        continue;
                    }
                    let (kind, _) = self.field_or_deduced(kind, name);
                    let value = match fields.below(&element) {
                        Some(below) => self.remove_at(kind, value, below),
                        None => value.clone(),
                    };
                    retained.insert(name.clone(), value);
                }
                if retained.is_empty() { Value::Null } else { Value::Object(retained) }
            }
            (Shape::List, Value::Array(list)) if !list.is_empty() => {
                let items = self.items(kind);
                let mut retained = Vec::new();
                for item in list {
                    let Ok(element) = self.element(kind, item) else { continue };
                    if fields.has(&element) {
                        continue;
                    }
                    match fields.below(&element) {
                        Some(below) => retained.push(self.remove_at(items, item, below)),
                        None => retained.push(item.clone()),
                    }
                }
                retained.retain(|item| !item.is_null());
                if retained.is_empty() { Value::Null } else { Value::Array(retained) }
            }
            (Shape::Scalar, value) => value.clone(),
            // A part of an atomic value cannot be removed without the value.
            _ => Value::Null,
        }
    }

    /// Adds fields that the schema names wherever something below them is a member.
    pub(super) fn with_named(&self, set: &FieldSet) -> FieldSet {
        let step = |kind: &Type, element: &str| match element.strip_prefix("f:") {
            Some(name) => self.field_or_deduced(*kind, name).0,
            None => self.items(*kind),
        };
        let is_named = |kind: &Type, element: &str| {
            element.strip_prefix("f:").is_some_and(|name| self.field_or_deduced(*kind, name).1)
        };
        set.with_named(&self.root(), &step, &is_named)
    }
}

fn object(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

fn list(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
