//! The kinds that every cluster has.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::Schema;
use super::node::{Arena, NodeId, Origin};
use super::read::Reader;

/// Made by `tools/kube/schemas` from the OpenAPI documents of the real API server.
const DATA: &str = include_str!("../../data/schemas.json");

/// The type of `metadata` in every object.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The schemas of all built-in kinds.
#[derive(Debug)]
pub struct Schemas {
    arena: Arc<Arena>,
    kinds: HashMap<(String, String, String), NodeId>,
}

impl Schemas {
    /// The schemas of the built-in kinds, read when first asked for and then kept.
    pub fn builtin() -> &'static Schemas {
        static SCHEMAS: OnceLock<Schemas> = OnceLock::new();
        SCHEMAS.get_or_init(|| Schemas::read(components()))
    }

    /// The schema of a kind; the group of core kinds is empty.
    pub fn find(&self, group: &str, version: &str, kind: &str) -> Option<Schema> {
        let root = *self.kinds.get(&(group.to_owned(), version.to_owned(), kind.to_owned()))?;
        let has_status = self.arena.node(root).properties.contains_key("status");
        Some(Schema { arena: self.arena.clone(), root, origin: Origin::BuiltIn, metadata: None, has_status })
    }

    fn read(components: &'static Map<String, Value>) -> Schemas {
        let mut reader = Reader::new(components, Origin::BuiltIn);
        let mut kinds = HashMap::new();
        for (name, schema) in components {
            for kind in
                schema.get("x-kubernetes-group-version-kind").and_then(Value::as_array).into_iter().flatten()
            {
                let word = |name: &str| kind.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                if let Some(node) = reader.component(name) {
                    kinds.insert((word("group"), word("version"), word("kind")), node);
                }
            }
        }
        Schemas { arena: Arc::new(reader.finish()), kinds }
    }
}

/// The types of the built-in kinds by their OpenAPI names.
pub(crate) fn components() -> &'static Map<String, Value> {
    static COMPONENTS: OnceLock<Map<String, Value>> = OnceLock::new();
    COMPONENTS.get_or_init(|| serde_json::from_str(DATA).expect("a test reads the embedded file"))
}
