//! Schemas as a graph of small nodes, read once from OpenAPI v3 (built-in kinds) or from a CRD.
//!
//! Nodes refer to each other by their index in the arena, because some built-in types contain themselves.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::Value;

pub(crate) type NodeId = u32;

/// All nodes of a schema.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    pub(super) nodes: Vec<Node>,
    /// Whether any node has `x-kubernetes-validations`.
    pub(crate) has_rules: bool,
}

/// The schema of one value.
#[derive(Debug, Default)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// The Go type into which the real server decodes the value, if it has a name: `v1.Container`.
    pub(crate) go_type: Option<String>,
    pub(crate) nullable: bool,
    /// Whether unknown fields are kept.
    pub(crate) preserve: bool,
    /// Whether the value is a complete object with apiVersion, kind and metadata.
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

/// A property of an object: its node, and what applies to this property only.
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
    /// The field that identifies an item; `None` for lists of scalars.
    pub(crate) key: Option<String>,
    /// Whether `$retainKeys` is supported here.
    pub(crate) retain_keys: bool,
}

/// How the real server serializes the zero value of a field, which depends on its Go type.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Zero {
    /// Kept; only null is omitted. This is a pointer in Go, and every field of a CRD.
    #[default]
    Keep,
    /// `false`, `0`, `""`, `[]` and `{}` are omitted.
    Omit,
    /// Always present: a missing field is written as its zero value.
    Fill,
    /// Always present: a missing field is written as null.
    Null,
    /// A struct that is omitted when all its fields are zero.
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
    /// The name of the type in messages of the real server.
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

/// How the items of a list are identified.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum List {
    /// The list is a single value.
    #[default]
    Atomic,
    /// The items are scalars, each at most once.
    Set,
    /// The items are objects with these keys.
    Map(Vec<String>),
}

/// Whether the fields of an object have separate owners.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MapType {
    /// Each field has its own owners.
    #[default]
    Granular,
    /// The object is a single value.
    Atomic,
}

/// Constraints on a value besides its type.
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

/// A regular expression, compiled on first use, because most are never used.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) source: String,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    pub(super) fn new(source: &str) -> Pattern {
        Pattern { source: source.to_owned(), compiled: OnceLock::new() }
    }

    /// Whether the text matches; `None` if the pattern cannot be compiled.
    pub(crate) fn is_match(&self, text: &str) -> Option<bool> {
        let regex = self.compiled.get_or_init(|| Regex::new(&self.source).ok());
        regex.as_ref().map(|regex| regex.is_match(text))
    }
}

/// The origin of a schema. Some keywords have different meanings in each.
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
