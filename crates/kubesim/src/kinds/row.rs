//! One row of the table of built-in kinds.

use serde_json::Value;

use super::columns::{self, Column};
use super::shared::SharedTable;
use super::{VERBS, rules};
use crate::names::NameRule;
use crate::schema::FieldError;

/// A built-in kind.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The API group, empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The resource.
    pub plural: &'static str,
    /// The singular name.
    pub singular: &'static str,
    /// Short names.
    pub short: &'static [&'static str],
    /// Categories.
    pub categories: &'static [&'static str],
    /// Whether its objects have a namespace.
    pub namespaced: bool,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// The subresources.
    pub subresources: &'static [Subresource],
    /// The rule for names.
    pub names: NameRule,
    /// How `status` is handled.
    pub status: StatusRule,
    /// Whether `metadata.generation` counts changes of the desired state.
    pub generation: bool,
    /// Whether a deletion returns the object instead of a Status.
    pub returns_deleted: bool,
    /// The table of another kind, if its objects are those of that kind.
    pub shared: Option<SharedTable>,
    /// Fields, besides name and namespace, by which objects can be selected.
    pub fields: &'static [&'static str],
    /// The columns of `kubectl get`.
    pub columns: &'static [Column],
    /// Sets defaults of missing fields.
    pub default: fn(&mut Value),
    /// Sets the fields that the server sets on creation.
    pub prepare: fn(&mut Value),
    /// Validates an object; on an update together with the previous one.
    pub validate: fn(&Value, Option<&Value>) -> Vec<FieldError>,
}

/// How the `status` of an object is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatusRule {
    /// Like any other field, or absent.
    Plain,
    /// Written through the `status` subresource only; dropped on creation.
    Cleared,
    /// Written through the `status` subresource, or on creation.
    KeptOnCreate,
}

/// A subresource.
#[derive(Debug, Clone, Copy)]
pub struct Subresource {
    /// Its name, such as `status`.
    pub name: &'static str,
    /// The group, version and kind of the body, if it is not the kind itself.
    pub sends: Option<(&'static str, &'static str, &'static str)>,
    /// The verbs.
    pub verbs: &'static [&'static str],
}

/// Reading and writing the status.
pub(super) const STATUS: Subresource =
    Subresource { name: "status", sends: None, verbs: &["get", "patch", "update"] };
/// Reading and writing the number of replicas.
pub(super) const SCALE: Subresource = Subresource {
    name: "scale",
    sends: Some(("autoscaling", "v1", "Scale")),
    verbs: &["get", "patch", "update"],
};

impl Row {
    /// A namespaced kind with the usual settings.
    pub const fn namespaced(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Row {
        Row {
            group,
            version: "v1",
            kind,
            plural,
            singular,
            short: &[],
            categories: &[],
            namespaced: true,
            verbs: VERBS,
            subresources: &[],
            names: NameRule::Subdomain,
            status: StatusRule::Plain,
            generation: false,
            returns_deleted: false,
            shared: None,
            fields: &[],
            columns: columns::PLAIN,
            default: rules::no_change,
            prepare: rules::no_change,
            validate: rules::no_errors,
        }
    }

    /// A cluster-scoped kind with the usual settings.
    pub const fn cluster_scoped(
        group: &'static str,
        kind: &'static str,
        plural: &'static str,
        singular: &'static str,
    ) -> Row {
        let mut row = Row::namespaced(group, kind, plural, singular);
        row.namespaced = false;
        row
    }
}
