//! `metadata.managedFields`: the field managers of an object, each with its fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::set::FieldSet;

/// Highest number of managers that only update; the oldest beyond it are merged into one, as in the real server.
const UPDATERS_MAX: usize = 10;
const MERGED_UPDATERS: &str = "ancient-changes";

/// A field manager. Entries of `managedFields` are distinguished by these fields.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FieldManager {
    pub(super) name: String,
    pub(super) operation: Operation,
    /// Set for updates only: an applier is the same manager in every version.
    pub(super) api_version: Option<String>,
    pub(super) subresource: Option<String>,
}

/// How a manager acquired its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

/// The fields of one manager.
#[derive(Debug, Clone)]
pub(super) struct ManagerEntry {
    pub(super) api_version: String,
    fields: FieldSet,
    /// The fields as they were read, while they are unchanged.
    written: Option<Value>,
    pub(super) time: Option<String>,
}

impl ManagerEntry {
    pub(super) fn new(api_version: &str, fields: FieldSet, time: Option<String>) -> ManagerEntry {
        ManagerEntry { api_version: api_version.to_owned(), fields, written: None, time }
    }

    pub(super) fn fields(&self) -> &FieldSet {
        &self.fields
    }

    pub(super) fn set_fields(&mut self, fields: FieldSet) {
        self.fields = fields;
        self.written = None;
    }
}

/// All managers of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct ManagedFields {
    pub(super) managers: BTreeMap<FieldManager, ManagerEntry>,
}

impl FieldManager {
    pub(super) fn applier(name: &str, subresource: Option<&str>) -> FieldManager {
        let name = if name.is_empty() { "unknown" } else { name };
        FieldManager {
            name: name.to_owned(),
            operation: Operation::Apply,
            api_version: None,
            subresource: subresource.map(str::to_owned),
        }
    }

    pub(super) fn updater(name: &str, api_version: &str, subresource: Option<&str>) -> FieldManager {
        let applier = FieldManager::applier(name, subresource);
        FieldManager { operation: Operation::Update, api_version: Some(api_version.to_owned()), ..applier }
    }

    /// The manager as the real server prints it in conflicts.
    pub(super) fn printed(&self) -> String {
        let mut text = crate::schema::quoted(&self.name);
        if let Some(subresource) = &self.subresource {
            text.push_str(&format!(" with subresource {}", crate::schema::quoted(subresource)));
        }
        if let Some(version) = &self.api_version {
            text.push_str(&format!(" using {version}"));
        }
        text
    }
}

impl ManagedFields {
    /// Reads the entries of an object, or returns what is wrong with them.
    pub(super) fn parse(object: &Value) -> Result<ManagedFields, String> {
        let mut managed = ManagedFields::default();
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = match text("operation") {
                "Apply" => Operation::Apply,
                "Update" => Operation::Update,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion").to_owned();
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => {
                    return Err(format!("invalid fieldsType \"{other}\" in managed fields entry {index}"));
                }
            }
            let written = entry.get("fieldsV1").filter(|fields| !fields.is_null());
            let fields = match written {
                None => FieldSet::default(),
                Some(fields) => {
                    FieldSet::from_fields(fields).map_err(|text| format!("error decoding set: {text}"))?
                }
            };
            let manager = FieldManager {
                name: text("manager").to_owned(),
                operation,
                api_version: (operation == Operation::Update).then(|| api_version.clone()),
                subresource: Some(text("subresource")).filter(|name| !name.is_empty()).map(str::to_owned),
            };
            let time = Some(text("time")).filter(|time| !time.is_empty()).map(str::to_owned);
            managed
                .managers
                .insert(manager, ManagerEntry { api_version, fields, written: written.cloned(), time });
        }
        Ok(managed)
    }

    /// Writes the entries into an object. Without managers the field is removed.
    pub(super) fn write(&self, object: &mut Value) {
        let mut entries: Vec<_> = self.managers.iter().collect();
        entries.sort_by_key(|(manager, owned)| {
            let seconds = owned.time.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
            (manager.operation, seconds.map_or(0, Timestamp::as_second), (*manager).clone())
        });
        let entries: Vec<Value> = entries.into_iter().map(|(manager, owned)| entry(manager, owned)).collect();
        let Value::Object(map) = object else { return };
        let metadata = map.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        let Value::Object(metadata) = metadata else { return };
        match entries.is_empty() {
            true => metadata.remove("managedFields"),
            false => metadata.insert("managedFields".to_owned(), Value::Array(entries)),
        };
    }

    /// Merges the oldest updaters into one when there are more than [`UPDATERS_MAX`].
    pub(super) fn cap(&mut self) {
        let mut updaters: Vec<(i64, FieldManager)> = Vec::new();
        for (manager, owned) in
            self.managers.iter().filter(|(manager, _)| manager.operation == Operation::Update)
        {
            let time = owned.time.as_deref().and_then(|time| time.parse::<Timestamp>().ok());
            updaters.push((time.map_or(0, Timestamp::as_second), manager.clone()));
        }
        updaters.sort();
        let mut count = updaters.len();
        let mut first: BTreeMap<String, FieldManager> = BTreeMap::new();
        for (_, manager) in updaters {
            if count <= UPDATERS_MAX {
                break;
            }
            let Some(version) = manager.api_version.clone() else { continue };
            let Some(oldest) = first.get(&version).cloned() else {
                first.insert(version, manager);
                continue;
            };
            let bucket = FieldManager::updater(MERGED_UPDATERS, &version, None);
            if !self.managers.contains_key(&bucket)
                && let Some(owned) = self.managers.remove(&oldest)
            {
                self.managers.insert(bucket.clone(), owned);
            }
            let Some(owned) = self.managers.remove(&manager) else { continue };
            let merged = self.managers.entry(bucket).or_insert_with(|| owned.clone());
            let fields = merged.fields.union(&owned.fields);
            merged.set_fields(fields);
            merged.time = owned.time;
            count -= 1;
        }
    }
}

fn entry(manager: &FieldManager, owned: &ManagerEntry) -> Value {
    let mut entry = json!({
        "manager": manager.name,
        "operation": match manager.operation {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        },
        "apiVersion": owned.api_version,
        "fieldsType": "FieldsV1",
    });
    entry["fieldsV1"] = owned.written.clone().unwrap_or_else(|| owned.fields.to_fields());
    if let Some(time) = &owned.time {
        entry["time"] = Value::from(time.as_str());
    }
    if let Some(subresource) = &manager.subresource {
        entry["subresource"] = Value::from(subresource.as_str());
    }
    entry
}

/// Whether a client resets all ownership, with an empty list or a single empty entry.
pub(super) fn is_reset(object: &Value) -> bool {
    match object.pointer("/metadata/managedFields") {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [only] => only
                .as_object()
                .is_some_and(|entry| entry.values().all(|value| value.is_null() || value == "")),
            _ => false,
        },
        _ => false,
    }
}

/// Formats a time as the API does: whole seconds, UTC.
pub(super) fn format_time(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
