//! References between resources, found in their bodies.

use cloud::ResourceId;
use serde_json::{Map, Value};

use super::kind::{find_kind, type_of};

/// The resources that strings under a key `id` anywhere in `properties` name, without the resource itself and what is below it. A part of a
/// resource, such as a frontend of a load balancer, counts as the resource.
pub(crate) fn in_properties(id: &ResourceId, body: &Map<String, Value>) -> Vec<ResourceId> {
    let mut found = Vec::new();
    if let Some(properties) = body.get("properties") {
        collect(properties, &mut found);
    }
    let (own, below) = (id.key(), format!("{}/", id.key()));
    let mut references: Vec<ResourceId> = found
        .iter()
        .filter_map(|text| text.parse().ok())
        .filter_map(|id: ResourceId| owner(&id))
        .filter(|it| it.key() != own && !it.key().starts_with(&below))
        .collect();
    references.sort();
    references.dedup();
    references
}

fn collect<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "id" => found.push(text),
                    member => collect(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|it| collect(it, found)),
        _ => {}
    }
}

/// The nearest resource of a known type at or above an id; `None` for types that the emulator does not have.
pub(crate) fn owner(id: &ResourceId) -> Option<ResourceId> {
    let mut id = id.clone();
    loop {
        if find_kind(&type_of(&id)?).is_some() {
            return Some(id);
        }
        id = id.parent()?;
    }
}
