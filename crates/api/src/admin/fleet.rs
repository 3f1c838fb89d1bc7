//! The whole fleet, a line for each cluster, with what is done on it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::Reachability;
use crate::doc::ProvisioningState;

/// A page of the fleet, and what there is in all of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetForm {
    /// So many clusters there are,
    pub of: u64,
    /// and so many of them are what was asked for.
    pub matched: u64,
    /// How many clusters of the whole fleet are in which state, by its name.
    pub states: BTreeMap<String, u64>,
    /// How many are where.
    pub locations: BTreeMap<String, u64>,
    /// How many have which version; those of which none is known count under the empty text.
    pub versions: BTreeMap<String, u64>,
    /// How many answer (`reachable`), do not (`unreachable`), or were not asked yet (`unknown`).
    pub reachability: BTreeMap<String, u64>,
    /// The clusters of this page.
    pub value: Vec<FleetLine>,
}

/// One cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetLine {
    /// Its resource id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Where it runs.
    pub location: String,
    /// Where its life stands.
    #[schema(value_type = String)]
    pub provisioning_state: ProvisioningState,
    /// What it was doing when it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub failed_provisioning_state: Option<ProvisioningState>,
    /// The version that was last seen in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Whether its API server answers; absent until somebody has looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reachability: Option<Reachability>,
    /// By which selections find it.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// What is done on it now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<RunningWork>,
    /// What is done next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextWork>,
}

/// What is done on a cluster now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningWork {
    /// The manifest or operation.
    pub id: Uuid,
    /// `manifest` or `operation`.
    pub kind: String,
    /// The task's name, or what the operation does.
    #[serde(default)]
    pub title: String,
    /// The step that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<super::StepProgress>,
}

/// What is done on a cluster next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextWork {
    /// `manifest` or `operation`.
    pub kind: String,
    /// When it is due; absent when it goes as soon as it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due: Option<Timestamp>,
    /// The budget that it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
}
