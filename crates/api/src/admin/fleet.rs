//! The fleet, one line for each cluster, with its current and next work.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Reachability;
use crate::doc::ProvisioningState;
use crate::health::HealthStatus;

/// A page of the fleet, and counts over the whole fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetForm {
    /// Number of clusters.
    pub of: u64,
    /// Number of clusters that match the query.
    pub matched: u64,
    /// Number of clusters of the whole fleet by provisioning state.
    pub states: BTreeMap<String, u64>,
    /// Number of clusters by location.
    pub locations: BTreeMap<String, u64>,
    /// Number of clusters by version; those of unknown version count under the empty text.
    pub versions: BTreeMap<String, u64>,
    /// Number of clusters that respond (`reachable`), do not respond (`unreachable`), or were not contacted yet (`unknown`).
    pub reachability: BTreeMap<String, u64>,
    /// Number of clusters of the whole fleet by health; those that were not observed count as `unknown`.
    #[serde(default)]
    pub health: BTreeMap<String, u64>,
    /// The clusters of this page.
    pub value: Vec<FleetLine>,
}

/// The health of a cluster, in short.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetHealth {
    /// `healthy`, `degraded`, `unreachable` or `unknown`.
    #[schema(value_type = String)]
    pub status: HealthStatus,
    /// The main cause.
    #[serde(default)]
    pub cause: Option<String>,
    /// When it was observed last.
    #[schema(value_type = String, format = DateTime)]
    pub observed_at: Timestamp,
}

/// One cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FleetLine {
    /// Its resource id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its unique id.
    pub uuid: Uuid,
    /// Its location.
    pub location: String,
    /// Its provisioning state.
    #[schema(value_type = String)]
    pub provisioning_state: ProvisioningState,
    /// The provisioning state in which it failed.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub failed_provisioning_state: Option<ProvisioningState>,
    /// The last observed version.
    #[serde(default)]
    pub version: Option<String>,
    /// Whether its API server responds; absent until it was contacted.
    #[serde(default)]
    pub reachability: Option<Reachability>,
    /// Its health; absent until it was observed.
    #[serde(default)]
    pub health: Option<FleetHealth>,
    /// Labels for selectors.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Work that runs on it now.
    #[serde(default)]
    pub running: Option<RunningWork>,
    /// Work that is next.
    #[serde(default)]
    pub next: Option<NextWork>,
}

/// Work that runs on a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunningWork {
    /// The manifest or operation.
    pub id: Uuid,
    /// `manifest` or `operation`.
    pub kind: String,
    /// The task's name, or the operation's verb.
    #[serde(default)]
    pub title: String,
    /// The current step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<super::StepProgress>,
}

/// Next work of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextWork {
    /// `manifest` or `operation`.
    pub kind: String,
    /// When it is due; absent when it starts as soon as possible.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub due: Option<Timestamp>,
    /// The budget that it waits for.
    #[serde(default)]
    pub waits_for: Option<String>,
}
