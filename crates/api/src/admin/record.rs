//! The audit log, and past and present maintenance over time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::work::WorkState;

/// One entry of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditForm {
    /// Its id.
    pub id: Uuid,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub time: Timestamp,
    /// Who.
    pub actor: String,
    /// What, as a dotted verb.
    pub action: String,
    /// To which thing.
    pub target: String,
    /// Why, in the words of the actor.
    #[serde(default)]
    pub reason: String,
    /// The request or run that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Uuid>,
    /// Digest of the thing before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    /// Digest of the thing after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Its number in the chain; absent until it is sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<i64>,
    /// The chain's value after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

/// Whether the audit log is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditChainForm {
    /// So many sealed records were looked at.
    pub records: i64,
    /// So many are written and not sealed yet.
    pub unsealed: u64,
    /// The end of the chain, as `audit verify` takes it.
    pub head: String,
    /// Everything that is wrong, each in a sentence.
    pub faults: Vec<String>,
    /// When it was looked through.
    #[schema(value_type = String, format = DateTime)]
    pub checked_at: Timestamp,
}

/// What ran and runs between two times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineForm {
    /// From when.
    #[schema(value_type = String, format = DateTime)]
    pub from: Timestamp,
    /// Until when.
    #[schema(value_type = String, format = DateTime)]
    pub to: Timestamp,
    /// The runs, the newest end first; what runs now before what has ended.
    pub value: Vec<TimelineRun>,
    /// Whether there are more than are told.
    pub is_cut: bool,
}

/// One manifest that began or ended.
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
    /// The schedule that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Its state.
    #[schema(value_type = String)]
    pub state: WorkState,
    /// When it began; absent when it ended without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub start: Option<Timestamp>,
    /// When it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub end: Option<Timestamp>,
    /// The result, in a sentence.
    #[serde(default)]
    pub status_text: String,
}
