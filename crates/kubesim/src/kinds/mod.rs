//! The kinds that a cluster serves, as data. A built-in kind is a row in one of the tables in this directory; a
//! custom kind comes from its CustomResourceDefinition.

mod apps;
mod batch;
mod columns;
mod core;
mod custom;
mod defaults;
mod other;
mod row;
mod rules;
mod shared;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::names::NameRule;
use crate::objects::TableName;
use crate::schema::{Schema, Schemas};

pub use columns::{Cell, Column};
pub use custom::{Custom, CustomColumn, json_path};
pub use row::{Row, StatusRule, Subresource};
pub use shared::SharedTable;

/// All verbs on objects, in the order of discovery.
pub const VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A kind as it is served: one resource in one version of one group.
#[derive(Debug)]
pub struct Kind {
    row: Row,
    names: Names,
    table: TableName,
    schema: Option<Schema>,
    custom: Option<Custom>,
}

/// The names of a kind; borrowed for the built-in ones.
#[derive(Debug, Clone)]
struct Names {
    group: Cow<'static, str>,
    version: Cow<'static, str>,
    kind: Cow<'static, str>,
    list: Cow<'static, str>,
    plural: Cow<'static, str>,
    singular: Cow<'static, str>,
    short: Vec<Cow<'static, str>>,
    categories: Vec<Cow<'static, str>>,
}

impl Kind {
    fn built_in(row: &Row) -> Kind {
        let names = Names {
            group: row.group.into(),
            version: row.version.into(),
            kind: row.kind.into(),
            list: format!("{}List", row.kind).into(),
            plural: row.plural.into(),
            singular: row.singular.into(),
            short: row.short.iter().map(|name| (*name).into()).collect(),
            categories: row.categories.iter().map(|name| (*name).into()).collect(),
        };
        Kind {
            table: match row.shared {
                Some(shared) => shared.table.into(),
                None => format!("{}/{}", row.group, row.plural).into(),
            },
            schema: Schemas::builtin().find(row.group, row.version, row.kind),
            row: *row,
            names,
            custom: None,
        }
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        &self.names.group
    }

    /// The group in whose form objects are stored and validated.
    pub fn internal_group(&self) -> &str {
        match self.row.shared {
            Some(shared) => shared.table.split_once('/').map_or("", |(group, _)| group),
            None => self.group(),
        }
    }

    /// The version, such as `v1`.
    pub fn version(&self) -> &str {
        &self.names.version
    }

    /// The kind, such as `Pod`.
    pub fn kind(&self) -> &str {
        &self.names.kind
    }

    /// The kind of a list, such as `PodList`.
    pub fn list_kind(&self) -> &str {
        &self.names.list
    }

    /// The resource, such as `pods`.
    pub fn plural(&self) -> &str {
        &self.names.plural
    }

    /// The singular name, such as `pod`.
    pub fn singular(&self) -> &str {
        &self.names.singular
    }

    /// The short names.
    pub fn short_names(&self) -> &[Cow<'static, str>] {
        &self.names.short
    }

    /// Categories, such as `all`.
    pub fn categories(&self) -> &[Cow<'static, str>] {
        &self.names.categories
    }

    /// Whether its objects have a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.row.namespaced
    }

    /// The verbs it serves.
    pub fn verbs(&self) -> &'static [&'static str] {
        self.row.verbs
    }

    /// Its subresources.
    pub fn subresources(&self) -> &[Subresource] {
        self.custom.as_ref().map_or(self.row.subresources, |custom| &custom.subresources)
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources().iter().find(|subresource| subresource.name == name)
    }

    /// The table of its objects. All versions of a kind share one table.
    pub fn table(&self) -> &TableName {
        &self.table
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        if self.names.group.is_empty() {
            self.version().to_owned()
        } else {
            format!("{}/{}", self.group(), self.version())
        }
    }

    /// `plural.group`, as messages name the kind.
    pub fn qualified(&self) -> String {
        if self.names.group.is_empty() {
            self.plural().to_owned()
        } else {
            format!("{}.{}", self.plural(), self.group())
        }
    }

    /// Its schema, if it has one.
    pub fn schema(&self) -> Option<&Schema> {
        self.schema.as_ref()
    }

    /// The settings of its CustomResourceDefinition, if it has one.
    pub fn custom(&self) -> Option<&Custom> {
        self.custom.as_ref()
    }

    /// The row of the kind; that of a custom kind has the usual settings.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// The rule for its names.
    pub fn name_rule(&self) -> NameRule {
        self.row.names
    }

    /// How `status` is handled.
    pub fn status_rule(&self) -> StatusRule {
        match &self.custom {
            Some(custom) if custom.has_status => StatusRule::Cleared,
            Some(_) => StatusRule::Plain,
            None => self.row.status,
        }
    }

    /// Adds `kind` and `apiVersion`.
    pub fn set_type_meta(&self, value: &mut Value) {
        if let Some(fields) = value.as_object_mut() {
            fields.insert("kind".into(), self.kind().into());
            fields.insert("apiVersion".into(), self.api_version().into());
        }
    }

    /// The form of a stored object that this kind serves.
    pub fn served(&self, mut stored: Value) -> Value {
        if let Some(shared) = self.row.shared {
            (shared.from_stored)(&mut stored);
        }
        stored
    }

    /// The form in which an object of this kind is stored.
    pub fn stored(&self, mut served: Value) -> Value {
        if let Some(shared) = self.row.shared {
            (shared.to_stored)(&mut served);
        }
        served
    }

    /// The start of an object's JSON: `{"kind":"Pod","apiVersion":"v1",`.
    pub fn json_prefix(&self) -> String {
        format!("{{\"kind\":{},\"apiVersion\":{},", Value::from(self.kind()), Value::from(self.api_version()))
    }

    /// The stored name of the field, if objects of this kind can be selected by it.
    pub fn selectable(&self, field: &str) -> Result<String, String> {
        let common = field == "metadata.name" || (field == "metadata.namespace" && self.is_namespaced());
        if common || self.row.fields.contains(&field) {
            return Ok(self.row.shared.map_or(field.to_owned(), |shared| (shared.stored_field)(field)));
        }
        if let Some(custom) = &self.custom
            && custom.selectable.iter().any(|path| path == field)
        {
            return Ok(field.to_owned());
        }
        if self.kind() == "Pod" && field == "spec.host" {
            return Ok("spec.nodeName".to_owned());
        }
        if self.row.fields.is_empty() && self.custom.is_none() {
            return Err(format!(
                "\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            ));
        }
        Err(format!("field label not supported: {field}"))
    }
}

/// The built-in kinds, in the order of discovery.
pub fn built_in() -> &'static [Arc<Kind>] {
    static KINDS: LazyLock<Vec<Arc<Kind>>> = LazyLock::new(|| {
        [core::ROWS, apps::ROWS, batch::ROWS, other::ROWS]
            .into_iter()
            .flatten()
            .map(|row| Arc::new(Kind::built_in(row)))
            .collect()
    });
    &KINDS
}

/// Finds a built-in kind.
pub fn find(group: &str, kind: &str) -> Option<&'static Arc<Kind>> {
    built_in().iter().find(|one| one.group() == group && one.kind() == kind)
}
