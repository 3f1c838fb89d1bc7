//! The part of an object's metadata that templates have.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::schema;

/// Metadata of an object that is made from a template.
#[serde_with::skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TemplateMeta {
    /// Name of the object.
    pub name: Option<String>,
    /// Prefix of the name, to which the API server adds a suffix.
    pub generate_name: Option<String>,
    /// Namespace of the object.
    pub namespace: Option<String>,
    /// Labels of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the object.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Owners of the object.
    #[schemars(schema_with = "schema::owner_references")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<OwnerReference>,
}
