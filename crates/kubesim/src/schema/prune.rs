//! What a schema does not know is taken out, as the real server does when it decodes an object.
//!
//! A built-in object passes through Go's types there, so that zero values disappear as well where the type says so.

use serde_json::{Map, Value};

use super::node::{Kind, Node, NodeId, Origin, Zero};
use super::{DEPTH_MAX, Schema, scalar};

impl Schema {
    /// Takes out fields that the schema does not name, and values that the real server would not write back.
    pub fn prune(&self, object: &mut Value) {
        Pruning { schema: self, unknown: None }.value(object, self.root, &mut Vec::new(), Place::Root);
    }

    /// The paths of fields that the schema does not name, sorted: what strict field validation complains about.
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut unknown = Vec::new();
        let mut copy = object.clone();
        let mut pruning = Pruning { schema: self, unknown: Some(&mut unknown) };
        pruning.value(&mut copy, self.root, &mut Vec::new(), Place::Root);
        unknown.sort();
        unknown
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Inner,
}

enum Step {
    Field(String),
    Index(usize),
}

struct Pruning<'a> {
    schema: &'a Schema,
    unknown: Option<&'a mut Vec<String>>,
}

impl Pruning<'_> {
    fn value(&mut self, value: &mut Value, id: NodeId, path: &mut Vec<Step>, place: Place) {
        if path.len() > DEPTH_MAX {
            return;
        }
        let schema = self.schema;
        let node = schema.node(id);
        match value {
            Value::Object(map) => self.object(map, node, path, place),
            Value::Array(list) => {
                let Some(items) = node.items else { return };
                for (index, item) in list.iter_mut().enumerate() {
                    path.push(Step::Index(index));
                    self.value(item, items, path, Place::Inner);
                    path.pop();
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

    fn object(&mut self, map: &mut Map<String, Value>, node: &Node, path: &mut Vec<Step>, place: Place) {
        let names: Vec<String> = map.keys().cloned().collect();
        for name in names {
            let is_meta = matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
            let keeps_meta = is_meta && (node.embedded || place == Place::Root);
            let known = node.properties.get(&name).map(|field| field.node).or(node.additional);
            let Some(child) = known else {
                if !keeps_meta && !node.preserve {
                    path.push(Step::Field(name.clone()));
                    self.record(path);
                    path.pop();
                    map.remove(&name);
                }
                continue;
            };
            let Some(value) = map.get_mut(&name) else { continue };
            path.push(Step::Field(name.clone()));
            self.value(value, child, path, Place::Inner);
            path.pop();
            if self.vanishes(value, node, &name, child) {
                map.remove(&name);
            }
        }
    }

    /// Whether the real server would leave this (already pruned) field out when it writes the object.
    fn vanishes(&self, value: &Value, parent: &Node, name: &str, id: NodeId) -> bool {
        let node = self.schema.node(id);
        let field = parent.properties.get(name);
        if value.is_null() {
            let has_default = field.is_some_and(|field| field.default.is_some()) || node.default.is_some();
            return match self.schema.origin {
                Origin::BuiltIn => !field.is_some_and(|field| field.zero == Zero::Null),
                // A default takes the place of a null later.
                Origin::Crd => !node.nullable && !has_default && node.kind != Kind::Any,
            };
        }
        match field.map(|field| field.zero) {
            Some(Zero::Omit) => is_zero(value),
            Some(Zero::OmitStruct) => value.as_object().is_some_and(Map::is_empty),
            Some(Zero::Keep | Zero::Fill | Zero::Null) | None => false,
        }
    }

    fn record(&mut self, path: &[Step]) {
        let Some(unknown) = self.unknown.as_deref_mut() else { return };
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
        unknown.push(text);
    }
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
