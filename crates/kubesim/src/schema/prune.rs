//! Pruning: removes unknown fields, as the real server does when it decodes an object.
//!
//! The real server decodes a built-in object into Go types, so zero values are omitted too where the type says so.

use serde_json::{Map, Value};

use super::node::{Kind, Node, NodeId, Origin, Zero};
use super::{DEPTH_MAX, Schema, scalar};

impl Schema {
    /// Removes fields that the schema does not name, and values that the real server would not write back.
    pub fn prune(&self, object: &mut Value) {
        self.prune_at(object, self.root, Position::Root, DEPTH_MAX);
    }

    /// The sorted paths of fields that the schema does not name, for strict field validation.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut unknown = Vec::new();
        self.find_unknown(object, self.root, Position::Root, &mut Vec::new(), &mut unknown);
        unknown.sort();
        unknown
    }

    fn prune_at(&self, value: &mut Value, id: NodeId, position: Position, left: usize) {
        let Some(left) = left.checked_sub(1) else { return };
        let node = self.node(id);
        match value {
            Value::Object(map) => map.retain(|name, value| match match_field(node, name, position) {
                FieldMatch::Known(child) => {
                    self.prune_at(value, child, Position::Inner, left);
                    self.clear_empty_collection(value, node, name, child);
                    !self.is_omitted(value, node, name, child)
                }
                FieldMatch::Preserved => true,
                FieldMatch::Unknown => false,
            }),
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                for item in list {
                    self.prune_at(item, items, Position::Inner, left);
                }
            }
            scalar => {
                let canonical =
                    node.go_type.as_deref().and_then(|go_type| scalar::canonical(go_type, scalar));
                if let Some(canonical) = canonical {
                    *scalar = canonical;
                }
            }
        }
    }

    /// The real server's storage does not distinguish an empty list or map from a missing one.
    fn clear_empty_collection(&self, value: &mut Value, parent: &Node, name: &str, id: NodeId) {
        let is_always_written = parent.properties.get(name).is_some_and(|field| field.zero == Zero::Null);
        let is_collection = self.node(id).kind == Kind::Array || self.node(id).additional.is_some();
        if is_always_written && is_collection && is_zero(value) {
            *value = Value::Null;
        }
    }

    /// Whether the real server would omit this pruned field when it writes the object.
    fn is_omitted(&self, value: &Value, parent: &Node, name: &str, id: NodeId) -> bool {
        let node = self.node(id);
        let field = parent.properties.get(name);
        if value.is_null() {
            let has_default = field.is_some_and(|field| field.default.is_some()) || node.default.is_some();
            return match self.origin {
                Origin::BuiltIn => !field.is_some_and(|field| field.zero == Zero::Null),
                // The default replaces the null later.
                Origin::Crd => !node.nullable && !has_default && node.kind != Kind::Any,
            };
        }
        match field.map(|field| field.zero) {
            Some(Zero::Omit) => is_zero(value),
            Some(Zero::OmitStruct) => value.as_object().is_some_and(Map::is_empty),
            Some(Zero::Keep | Zero::Fill | Zero::Null) | None => false,
        }
    }

    fn find_unknown<'a>(
        &self,
        value: &'a Value,
        id: NodeId,
        position: Position,
        path: &mut Vec<Step<'a>>,
        unknown: &mut Vec<String>,
    ) {
        if path.len() > DEPTH_MAX {
            return;
        }
        let node = self.node(id);
        match value {
            Value::Object(map) => {
                for (name, value) in map {
                    path.push(Step::Field(name));
                    match match_field(node, name, position) {
                        FieldMatch::Known(child) => {
                            self.find_unknown(value, child, Position::Inner, path, unknown);
                        }
                        FieldMatch::Preserved => {}
                        FieldMatch::Unknown => unknown.push(path_text(path)),
                    }
                    path.pop();
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                for (index, item) in list.iter().enumerate() {
                    path.push(Step::Index(index));
                    self.find_unknown(item, items, Position::Inner, path, unknown);
                    path.pop();
                }
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Root,
    Inner,
}

/// How the schema treats a field.
enum FieldMatch {
    /// The schema has a node for it.
    Known(NodeId),
    /// The schema does not name it, but keeps unknown fields.
    Preserved,
    /// The schema does not name it; it is removed.
    Unknown,
}

fn match_field(node: &Node, name: &str, position: Position) -> FieldMatch {
    if let Some(child) = node.properties.get(name).map(|field| field.node).or(node.additional) {
        return FieldMatch::Known(child);
    }
    let is_whole_object = node.embedded || position == Position::Root;
    match node.preserve || (is_whole_object && matches!(name, "apiVersion" | "kind" | "metadata")) {
        true => FieldMatch::Preserved,
        false => FieldMatch::Unknown,
    }
}

enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

fn path_text(path: &[Step<'_>]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Field(name) if text.is_empty() => text.push_str(name),
            Step::Field(name) => {
                text.push('.');
                text.push_str(name);
            }
            Step::Index(index) => text.push_str(&format!("[{index}]")),
        }
    }
    text
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}
