//! The parts of objects that collectors read. Every field may be absent: what a cluster answers is not trusted.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;

/// Labels or annotations.
pub(crate) type Labels = BTreeMap<String, String>;

/// Metadata of an object.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) labels: Labels,
    pub(crate) annotations: Labels,
    pub(crate) owner_references: Vec<OwnerReference>,
}

/// The owner of an object.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) controller: bool,
}

/// A condition of a status.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
}

impl Condition {
    /// The status as a label: one of the three that exist, or `Unknown`.
    pub(crate) fn status_label(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self.status.as_str() {
            "True" => "True",
            "False" => "False",
            _ => "Unknown",
        })
    }
}

/// A named version in a status.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Versioned {
    pub(crate) name: String,
    pub(crate) version: String,
}
