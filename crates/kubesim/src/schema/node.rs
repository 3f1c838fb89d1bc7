//! Schemas as a graph of small nodes, read once from OpenAPI v3 (built-in kinds) or from a CRD.
//!
//! Nodes are named by number within their arena, because built-in types refer to each other and some to themselves.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

pub(crate) type NodeId = u32;

/// All nodes that a schema can reach.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pub(super) nodes: Vec<Node>,
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
    /// Preserved as it is; only null disappears. A pointer in Go, and every field of a CRD.
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
    pub(super) fn new(source: &str) -> Pattern {
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
