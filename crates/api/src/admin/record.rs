//! State of the audit chain, and the timeline of past and present maintenance.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::work::WorkState;

/// Result of a verification of the audit chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditChainForm {
    /// Number of sealed records that were verified.
    pub records: i64,
    /// Number of records that are not sealed yet.
    pub unsealed: u64,
    /// Head of the chain, in the form of `audit verify --expect`.
    pub head: String,
    /// Faults, each in a sentence.
    pub faults: Vec<String>,
    /// Time of the verification.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
}

/// Runs between two times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineForm {
    /// Start of the period.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// End of the period.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// The runs: first those that are in progress, then finished ones by their end, newest first.
    pub value: Vec<TimelineRun>,
    /// Whether there are more runs than `value` holds.
    pub is_cut: bool,
}

/// Run of a manifest.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineRun {
    /// The manifest.
    pub manifest: Uuid,
    /// The cluster's resource id.
    pub cluster: String,
    /// The task's id.
    pub task: Uuid,
    /// The task's name.
    #[serde(default)]
    pub task_name: String,
    /// The schedule that created it.
    #[serde(default)]
    pub schedule: Option<String>,
    /// Its state.
    #[schema(value_type = String)]
    pub state: WorkState,
    /// When it started; absent when it finished without a start.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start: Option<Timestamp>,
    /// When it finished; absent while it runs.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub end: Option<Timestamp>,
    /// Message of the result.
    #[serde(default)]
    pub status_text: String,
}
