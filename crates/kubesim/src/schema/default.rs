//! Defaults that the real server writes into missing fields.

use serde_json::{Map, Value};

use super::node::{Field, Kind, NodeId, Origin, Zero};
use super::{DEPTH_MAX, Schema, computed};

impl Schema {
    /// Sets the schema's defaults in missing fields.
    pub fn default(&self, object: &mut Value) {
        self.default_value(object, self.root, DEPTH_MAX);
    }

    fn default_value(&self, value: &mut Value, id: NodeId, left: usize) {
        let Some(left) = left.checked_sub(1) else { return };
        let node = self.node(id);
        match value {
            Value::Object(map) => {
                if let (Origin::BuiltIn, Some(go_type)) = (self.origin, &node.go_type) {
                    computed::before_constants(go_type, map);
                }
                for (name, field) in &node.properties {
                    let child = self.node(field.node);
                    let is_unset = match map.get(name) {
                        None => true,
                        Some(value) => value.is_null() && !child.nullable,
                    };
                    if is_unset
                        && let Some(default) = self.default_of(field.default.as_ref(), field.zero, field.node)
                    {
                        map.insert(name.clone(), default);
                    }
                }
                for (name, value) in map.iter_mut() {
                    let child = node.properties.get(name).map(|field| field.node).or(node.additional);
                    if let Some(child) = child {
                        self.default_item(value, child, left);
                    }
                }
            }
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                for item in list {
                    self.default_item(item, items, left);
                }
            }
            _ => {}
        }
    }

    /// The default of a field.
    pub(crate) fn default_of_field(&self, field: &Field) -> Option<Value> {
        self.default_of(field.default.as_ref(), field.zero, field.node).filter(|default| !default.is_null())
    }

    /// Sets only the fields that Go never omits, in an empty object of a built-in kind.
    pub(crate) fn fill_zero(&self, object: &mut Value) {
        self.fill_zero_at(object, self.root, DEPTH_MAX);
    }

    fn fill_zero_at(&self, value: &mut Value, id: NodeId, left: usize) {
        let (Some(left), Value::Object(map)) = (left.checked_sub(1), value) else { return };
        for (name, field) in
            self.node(id).properties.iter().filter(|(_, field)| matches!(field.zero, Zero::Fill | Zero::Null))
        {
            let zero = self.default_of(None, field.zero, field.node);
            let inner = map.entry(name.clone()).or_insert(zero.unwrap_or(Value::Null));
            self.fill_zero_at(inner, field.node, left);
        }
    }

    fn default_item(&self, value: &mut Value, id: NodeId, left: usize) {
        let node = self.node(id);
        if self.origin == Origin::Crd
            && value.is_null()
            && !node.nullable
            && let Some(default) = &node.default
        {
            *value = default.clone();
        }
        self.default_value(value, id, left);
    }

    fn default_of(&self, default: Option<&Value>, zero: Zero, id: NodeId) -> Option<Value> {
        if let Some(default) = default {
            return Some(default.clone());
        }
        match zero {
            Zero::Keep | Zero::Omit | Zero::OmitStruct => return None,
            Zero::Null => return Some(Value::Null),
            Zero::Fill => {}
        }
        // The zero value that Go writes for a field that it never omits.
        Some(match self.node(id).kind {
            Kind::Object if self.node(id).additional.is_none() => Value::Object(Map::new()),
            Kind::String => Value::from(""),
            Kind::Integer | Kind::Number | Kind::IntOrString => Value::from(0),
            Kind::Boolean => Value::Bool(false),
            Kind::Object | Kind::Array | Kind::Any => Value::Null,
        })
    }
}
