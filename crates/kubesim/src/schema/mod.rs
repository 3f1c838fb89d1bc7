//! Schemas of built-in kinds and of CRDs: validation, defaulting, pruning, how lists merge.
//!
//! Built-in kinds come from the real API server's own OpenAPI documents (`data/`, made by `tools/kube/schemas`); CRDs
//! bring their schema along. Both become a [`Schema`], which answers the same questions for either. Rules in CEL
//! (`x-kubernetes-validations`) are read but never enforced: [`Schema::has_rules`] says so, for a warning.

mod builtin;
mod computed;
mod decode;
mod default;
mod error;
mod format;
mod node;
mod openapi;
mod prune;
mod read;
mod rules;
mod scalar;
mod structural;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

use std::sync::Arc;

use serde_json::Value;

pub use builtin::Schemas;
pub use decode::DecodeError;
pub(crate) use decode::json_type;
pub use error::{FieldError, Reason};
pub use openapi::{ResourceDoc, open_api_v3, open_api_v3_index};
pub use structural::parse_crd;

pub(crate) use error::{go_format, go_type_of, quoted};
pub(crate) use node::{Arena, Kind, List, MapType, Merge, Node, NodeId, Origin};

/// Objects may be nested this deep and no deeper. It is what our JSON reader takes from the wire; patches must not grow
/// an object beyond it, or it could not be read back.
pub const DEPTH_MAX: usize = 127;

/// The schema of one version of one kind. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Schema {
    pub(crate) arena: Arc<Arena>,
    pub(crate) root: NodeId,
    pub(crate) origin: Origin,
    /// What a CRD says about `metadata` beyond what every object's metadata must satisfy.
    pub(crate) metadata: Option<NodeId>,
    /// `status` is written through a subresource, and only there.
    pub(crate) has_status: bool,
}

impl Schema {
    /// Whether some part of the schema has rules in CEL, which are not enforced here.
    pub fn has_rules(&self) -> bool {
        self.arena.has_rules
    }

    /// The schema of a CRD whose version has the `status` subresource. Built-in kinds have it where they have a status.
    pub fn with_status(self) -> Schema {
        Schema { has_status: true, ..self }
    }

    /// Whether a request to the object itself leaves `status` as it is.
    pub(crate) fn resets_status(&self) -> bool {
        self.has_status
    }

    pub(crate) fn root(&self) -> &Node {
        self.arena.node(self.root)
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.arena.node(id)
    }
}

/// Whether a value is nested deeper than [`DEPTH_MAX`].
pub fn is_too_deep(value: &Value) -> bool {
    fn exceeds(value: &Value, left: usize) -> bool {
        let Some(left) = left.checked_sub(1) else {
            return matches!(value, Value::Object(_) | Value::Array(_));
        };
        match value {
            Value::Object(map) => map.values().any(|value| exceeds(value, left)),
            Value::Array(list) => list.iter().any(|value| exceeds(value, left)),
            _ => false,
        }
    }
    exceeds(value, DEPTH_MAX)
}
