//! Schemas as a graph of small nodes, read once from OpenAPI v3 (built-in kinds) or from a CRD.
//!
//! Nodes are named by number within their arena, because built-in types refer to each other and some to themselves.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value};

pub(crate) type NodeId = u32;

/// All nodes that a schema can reach.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
    /// Some node has `x-kubernetes-validations`.
    pub(crate) has_rules: bool,
}

/// One place in a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// The Go type that the real server decodes this into, where a name is known: `v1.Container`.
    pub(crate) go_type: Option<String>,
    pub(crate) nullable: bool,
    /// Fields that the schema does not name are kept.
    pub(crate) preserve: bool,
    /// The value is a whole object with apiVersion, kind and metadata.
    pub(crate) embedded: bool,
    pub(crate) properties: BTreeMap<String, Field>,
    pub(crate) additional: Option<NodeId>,
    pub(crate) items: Option<NodeId>,
    pub(crate) required: Vec<String>,
    pub(crate) default: Option<Value>,
    pub(crate) list: List,
    pub(crate) map: MapType,
    pub(crate) limits: Option<Box<Limits>>,
}

/// A property of an object: its node and what holds only at this place.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) node: NodeId,
    pub(crate) default: Option<Value>,
    pub(crate) merge: Merge,
    pub(crate) zero: Zero,
}

/// How a strategic merge patch treats a field.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Merge {
    /// Lists are merged item by item instead of being replaced.
    pub(crate) merge: bool,
    /// The field of an item that tells it from others; none for lists of scalars.
    pub(crate) key: Option<String>,
    /// `$retainKeys` is honoured here.
    pub(crate) retain_keys: bool,
}

/// What the real server makes of the zero value of a field when it writes the object back (its Go type decides).
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zero {
    /// Kept as it is; only null disappears. A pointer in Go, and every field of a CRD.
    #[default]
    Keep,
    /// `false`, `0`, `""`, `[]` and `{}` disappear.
    Omit,
    /// Always there: when missing it is written as its zero value.
    Fill,
    /// Always there: when missing it is written as null.
    Null,
    /// A struct that disappears when all its fields are zero.
    OmitStruct,
}

/// The JSON type of a value.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    IntOrString,
}

impl Kind {
    /// The word for the type in messages of the real server.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Kind::Any => "any",
            Kind::Object => "object",
            Kind::Array => "array",
            Kind::String => "string",
            Kind::Integer => "integer",
            Kind::Number => "number",
            Kind::Boolean => "boolean",
            Kind::IntOrString => "integer,string",
        }
    }
}

/// How the items of a list are told apart.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum List {
    /// The list is one value.
    #[default]
    Atomic,
    /// The items are scalars, each at most once.
    Set,
    /// The items are objects with these keys.
    Map(Vec<String>),
}

/// Whether the fields of an object have owners of their own.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapType {
    /// Each field on its own.
    #[default]
    Granular,
    /// The object is one value.
    Atomic,
}

/// What a value must satisfy beyond its type.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) format: Option<String>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) minimum: Option<Value>,
    pub(crate) maximum: Option<Value>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<Value>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) all_of: Vec<NodeId>,
    pub(crate) any_of: Vec<NodeId>,
    pub(crate) one_of: Vec<NodeId>,
    pub(crate) not: Option<NodeId>,
}

/// A regular expression, compiled when it is first needed: most are never used.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    fn new(source: &str) -> Pattern {
        Pattern { source: source.to_owned(), compiled: OnceLock::new() }
    }

    /// Whether the text matches; `None` if the pattern is none that we can read.
    pub(crate) fn is_match(&self, text: &str) -> Option<bool> {
        let regex = self.compiled.get_or_init(|| Regex::new(&self.source).ok());
        regex.as_ref().map(|regex| regex.is_match(text))
    }
}

/// Where a schema comes from; the same words mean a little different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The OpenAPI document of built-in kinds.
    BuiltIn,
    /// The structural schema of a CRD.
    Crd,
}

impl Arena {
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }
}

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

    /// The node of a named type; the same one at every call.
    pub(crate) fn component(&mut self, name: &'a str) -> Option<NodeId> {
        if let Some(id) = self.named.get(name) {
            return Some(*id);
        }
        let schema = self.components.get(name)?;
        // The number is known before the type is read, so that a type may contain itself.
        let id = self.reserve();
        self.named.insert(name, id);
        let origin = std::mem::replace(&mut self.origin, Origin::BuiltIn);
        let mut node = self.node(schema);
        self.origin = origin;
        node.go_type = go_name(name);
        self.arena.nodes[id as usize] = node;
        Some(id)
    }

    /// The node of a schema written in place, or of the type that it refers to.
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

    /// Adds `metadata` (and the two words of every object) to the root of a CRD's schema.
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
        let Some(words) = schema.as_object() else {
            return Node { preserve: true, ..Node::default() };
        };
        let flag = |name: &str| words.get(name) == Some(&Value::Bool(true));
        if words.contains_key("x-kubernetes-validations") {
            self.arena.has_rules = true;
        }
        let mut node = Node {
            kind: kind(words),
            nullable: flag("nullable"),
            preserve: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            required: strings(words.get("required")),
            default: words.get("default").cloned(),
            list: list_type(words),
            map: map_type(schema).unwrap_or_default(),
            go_type: words.get("x-go-type").and_then(Value::as_str).map(str::to_owned),
            ..Node::default()
        };
        if let Some(Value::Object(properties)) = words.get("properties") {
            for (name, property) in properties {
                let field = self.field(property);
                node.properties.insert(name.clone(), field);
            }
        }
        node.additional = match words.get("additionalProperties") {
            Some(Value::Bool(false)) | None => None,
            Some(additional) => Some(self.schema(additional)),
        };
        node.items = words.get("items").map(|items| self.schema(items));
        if self.origin == Origin::BuiltIn && node.properties.is_empty() && node.additional.is_none() {
            node.preserve = matches!(node.kind, Kind::Object | Kind::Any);
        }
        node.limits = self.limits(words);
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

    fn limits(&mut self, words: &'a Map<String, Value>) -> Option<Box<Limits>> {
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
        if reference_words(words).is_some() || !NAMES.iter().any(|name| words.contains_key(*name)) {
            return None;
        }
        let number = |name: &str| words.get(name).and_then(whole);
        let flag = |name: &str| words.get(name) == Some(&Value::Bool(true));
        let value = |name: &str| words.get(name).filter(|value| value.is_number()).cloned();
        let text = |name: &str| words.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        Some(Box::new(Limits {
            format: text("format").map(str::to_owned),
            pattern: text("pattern").map(Pattern::new),
            enumeration: words.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
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
            all_of: self.alternatives(words.get("allOf")),
            any_of: self.alternatives(words.get("anyOf")),
            one_of: self.alternatives(words.get("oneOf")),
            not: words.get("not").map(|not| self.schema(not)),
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

/// The name of the type that a schema refers to, directly or as the one part of an `allOf`.
fn reference(schema: &Value) -> Option<&str> {
    reference_words(schema.as_object()?)
}

fn reference_words(words: &Map<String, Value>) -> Option<&str> {
    let direct = words.get("$ref");
    let wrapped = || match words.get("allOf")?.as_array()?.as_slice() {
        [only] => only.get("$ref"),
        _ => None,
    };
    direct.or_else(wrapped)?.as_str()?.strip_prefix(REFERENCE_PREFIX)
}

fn kind(words: &Map<String, Value>) -> Kind {
    let format = words.get("format").and_then(Value::as_str);
    if words.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) || format == Some("int-or-string")
    {
        return Kind::IntOrString;
    }
    match words.get("type").and_then(Value::as_str) {
        Some("object") => Kind::Object,
        Some("array") => Kind::Array,
        Some("string") => Kind::String,
        Some("integer") => Kind::Integer,
        Some("number") => Kind::Number,
        Some("boolean") => Kind::Boolean,
        _ => Kind::Any,
    }
}

/// As the real server reads it for server-side apply: the list type, or else the older patch strategy.
fn list_type(words: &Map<String, Value>) -> List {
    let text = |name: &str| words.get(name).and_then(Value::as_str);
    match text("x-kubernetes-list-type") {
        Some("set") => List::Set,
        Some("map") => List::Map(strings(words.get("x-kubernetes-list-map-keys"))),
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
