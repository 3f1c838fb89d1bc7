//! Reads OpenAPI schemas into an arena of nodes.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::node::{Arena, Field, Kind, Limits, List, MapType, Merge, Node, NodeId, Origin, Pattern, Zero};

/// Reads OpenAPI schemas into an arena.
pub(crate) struct Reader<'a> {
    components: &'a Map<String, Value>,
    origin: Origin,
    named: HashMap<&'a str, NodeId>,
    arena: Arena,
}

const REFERENCE_PREFIX: &str = "#/components/schemas/";

impl<'a> Reader<'a> {
    pub(crate) fn new(components: &'a Map<String, Value>, origin: Origin) -> Reader<'a> {
        Reader { components, origin, named: HashMap::new(), arena: Arena::default() }
    }

    pub(crate) fn finish(self) -> Arena {
        self.arena
    }

    /// The node of a named type; the same node at every call.
    pub(crate) fn component(&mut self, name: &'a str) -> Option<NodeId> {
        if let Some(id) = self.named.get(name) {
            return Some(*id);
        }
        let schema = self.components.get(name)?;
        // The index is reserved before the type is read, so that a type may contain itself.
        let id = self.reserve();
        self.named.insert(name, id);
        let origin = std::mem::replace(&mut self.origin, Origin::BuiltIn);
        let mut node = self.node(schema);
        self.origin = origin;
        node.go_type = go_name(name);
        self.arena.nodes[id as usize] = node;
        Some(id)
    }

    /// The node of an inline schema, or of the type that it refers to.
    pub(crate) fn schema(&mut self, schema: &'a Value) -> NodeId {
        if let Some(id) = reference(schema).and_then(|name| self.component(name)) {
            return match map_type(schema) {
                // An atomic use of a type that is granular elsewhere.
                Some(map) if map != self.arena.node(id).map => {
                    let node = self.node_of_reference(schema, map);
                    self.push(node)
                }
                _ => id,
            };
        }
        let id = self.reserve();
        let node = self.node(schema);
        self.arena.nodes[id as usize] = node;
        id
    }

    /// Adds `apiVersion`, `kind` and `metadata` to the root of a CRD's schema.
    pub(crate) fn add_object_meta(&mut self, root: NodeId, object_meta: &'a str) {
        let text = self.push(Node { kind: Kind::String, ..Node::default() });
        let mut fields = vec![("apiVersion", text), ("kind", text)];
        if let Some(meta) = self.component(object_meta) {
            fields.push(("metadata", meta));
        }
        let properties = &mut self.arena.nodes[root as usize].properties;
        for (name, node) in fields {
            properties.entry(name.to_owned()).or_insert(Field::plain(node));
            if name == "metadata" {
                properties.insert(name.to_owned(), Field::plain(node));
            }
        }
    }

    fn node_of_reference(&mut self, schema: &'a Value, map: MapType) -> Node {
        let target = reference(schema).and_then(|name| self.components.get(name));
        let mut node = target.map(|target| self.node(target)).unwrap_or_default();
        node.map = map;
        node
    }

    fn node(&mut self, schema: &'a Value) -> Node {
        let Some(keywords) = schema.as_object() else {
            return Node { preserve: true, ..Node::default() };
        };
        let flag = |name: &str| keywords.get(name) == Some(&Value::Bool(true));
        if keywords.contains_key("x-kubernetes-validations") {
            self.arena.has_rules = true;
        }
        let mut node = Node {
            kind: kind(keywords),
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            required: strings(keywords.get("required")),
            default: keywords.get("default").cloned(),
            list: list_type(keywords),
            map: map_type(schema).unwrap_or_default(),
            go_type: keywords.get("x-go-type").and_then(Value::as_str).map(str::to_owned),
            ..Node::default()
        };
        if let Some(Value::Object(properties)) = keywords.get("properties") {
            for (name, property) in properties {
                let field = self.field(property);
                node.properties.insert(name.clone(), field);
            }
        }
        node.additional = match keywords.get("additionalProperties") {
            Some(Value::Bool(false)) | None => None,
            Some(additional) => Some(self.schema(additional)),
        };
        node.items = keywords.get("items").map(|items| self.schema(items));
        if self.origin == Origin::BuiltIn && node.properties.is_empty() && node.additional.is_none() {
            node.preserve = matches!(node.kind, Kind::Object | Kind::Any);
        }
        node.limits = self.limits(keywords);
        node
    }

    fn field(&mut self, property: &'a Value) -> Field {
        let strategy =
            property.get("x-kubernetes-patch-strategy").and_then(Value::as_str).unwrap_or_default();
        Field {
            node: self.schema(property),
            default: property.get("default").cloned(),
            merge: Merge {
                merge: strategy.split(',').any(|word| word == "merge"),
                retain_keys: strategy.split(',').any(|word| word == "retainKeys"),
                key: property.get("x-kubernetes-patch-merge-key").and_then(Value::as_str).map(str::to_owned),
            },
            zero: match property.get("x-go-zero").and_then(Value::as_str) {
                Some("omit") => Zero::Omit,
                Some("fill") => Zero::Fill,
                Some("null") => Zero::Null,
                Some("omit-struct") => Zero::OmitStruct,
                _ => Zero::Keep,
            },
        }
    }

    fn limits(&mut self, keywords: &'a Map<String, Value>) -> Option<Box<Limits>> {
        const NAMES: [&str; 18] = [
            "format",
            "pattern",
            "enum",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
        ];
        if reference_keywords(keywords).is_some() || !NAMES.iter().any(|name| keywords.contains_key(*name)) {
            return None;
        }
        let number = |name: &str| keywords.get(name).and_then(whole);
        let flag = |name: &str| keywords.get(name) == Some(&Value::Bool(true));
        let value = |name: &str| keywords.get(name).filter(|value| value.is_number()).cloned();
        let text = |name: &str| keywords.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        Some(Box::new(Limits {
            format: text("format").map(str::to_owned),
            pattern: text("pattern").map(Pattern::new),
            enumeration: keywords.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            minimum: value("minimum"),
            maximum: value("maximum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: value("multipleOf"),
            min_length: number("minLength"),
            max_length: number("maxLength"),
            min_items: number("minItems"),
            max_items: number("maxItems"),
            min_properties: number("minProperties"),
            max_properties: number("maxProperties"),
            all_of: self.alternatives(keywords.get("allOf")),
            any_of: self.alternatives(keywords.get("anyOf")),
            one_of: self.alternatives(keywords.get("oneOf")),
            not: keywords.get("not").map(|not| self.schema(not)),
        }))
    }

    fn alternatives(&mut self, schemas: Option<&'a Value>) -> Vec<NodeId> {
        schemas.and_then(Value::as_array).into_iter().flatten().map(|schema| self.schema(schema)).collect()
    }

    fn reserve(&mut self) -> NodeId {
        self.push(Node::default())
    }

    fn push(&mut self, node: Node) -> NodeId {
        let id =
            NodeId::try_from(self.arena.nodes.len()).expect("documents are bounded far below 2^32 nodes");
        self.arena.nodes.push(node);
        id
    }
}

impl Field {
    fn plain(node: NodeId) -> Field {
        Field { node, default: None, merge: Merge::default(), zero: Zero::Keep }
    }
}

/// The name of the type that a schema refers to, directly or through an `allOf` with one item.
fn reference(schema: &Value) -> Option<&str> {
    reference_keywords(schema.as_object()?)
}

fn reference_keywords(keywords: &Map<String, Value>) -> Option<&str> {
    let direct = keywords.get("$ref");
    let wrapped = || match keywords.get("allOf")?.as_array()?.as_slice() {
        [only] => only.get("$ref"),
        _ => None,
    };
    direct.or_else(wrapped)?.as_str()?.strip_prefix(REFERENCE_PREFIX)
}

fn kind(keywords: &Map<String, Value>) -> Kind {
    let format = keywords.get("format").and_then(Value::as_str);
    if keywords.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
        || format == Some("int-or-string")
    {
        return Kind::IntOrString;
    }
    match keywords.get("type").and_then(Value::as_str) {
        Some("object") => Kind::Object,
        Some("array") => Kind::Array,
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Any,
    }
}

/// The list type as the real server determines it for server-side apply: the list type itself, or else the older
/// patch strategy.
fn list_type(keywords: &Map<String, Value>) -> List {
    let text = |name: &str| keywords.get(name).and_then(Value::as_str);
    match text("x-kubernetes-list-type") {
        Some("set") => List::Set,
        Some("map") => List::Map(strings(keywords.get("x-kubernetes-list-map-keys"))),
        Some(_) => List::Atomic,
        None => match (text("x-kubernetes-patch-strategy"), text("x-kubernetes-patch-merge-key")) {
            (Some("merge" | "merge,retainKeys"), Some(key)) => List::Map(vec![key.to_owned()]),
            (Some("merge" | "merge,retainKeys"), None) => List::Set,
            _ => List::Atomic,
        },
    }
}

fn map_type(schema: &Value) -> Option<MapType> {
    match schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
        Some("atomic") => Some(MapType::Atomic),
        Some("granular") => Some(MapType::Granular),
        _ => None,
    }
}

fn strings(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
}

/// `io.k8s.api.core.v1.Container` is `v1.Container` in Go.
fn go_name(component: &str) -> Option<String> {
    let (rest, kind) = component.rsplit_once('.')?;
    let (_, package) = rest.rsplit_once('.')?;
    Some(format!("{package}.{kind}"))
}
