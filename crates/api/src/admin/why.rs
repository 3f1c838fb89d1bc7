//! Why a manifest waits, or what its step waits for while it runs.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::StepProgress;
use crate::work::WorkState;

/// All that stands between a manifest and its start, or between its step and the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyForm {
    /// The manifest.
    pub manifest: Uuid,
    /// Its state.
    #[schema(value_type = String)]
    pub state: WorkState,
    /// In a word.
    pub verdict: Verdict,
    /// The latest `until` of the blockers where all are known; null otherwise.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub earliest_start: Option<Timestamp>,
    /// The step that it is in, or was in last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepProgress>,
    /// Whether what was done is being undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoing: bool,
    /// Every one of them, not the first. Of running work: what its step waits for, as far as the step names it.
    pub blockers: Vec<Blocker>,
}

/// Where a manifest stands, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Something stands in its way.
    Blocked,
    /// Nothing does; it starts at the next look.
    Ready,
    /// It is at work.
    Running,
    /// It is at its end.
    Finished,
}

/// One thing that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    /// What.
    pub code: BlockerCode,
    /// In a sentence, with names.
    pub message: String,
    /// Who can do something about it.
    pub owner: Owner,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// Until when, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// What can stand in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum BlockerCode {
    /// Its time has not come.
    NotDue,
    /// It rests after a failed attempt.
    BackingOff,
    /// Other work runs on the cluster, or goes before it.
    ClusterBusy,
    /// A customer's operation goes first.
    OperationPending,
    /// As much runs as may.
    BudgetFull,
    /// The cluster's API server does not answer.
    Unreachable,
    /// What the task requires of the cluster is not so.
    Precondition,
    /// Nobody is there to do it.
    NoActuator,
    /// The step that it is in waits for something.
    StepWaiting,
}

/// Who can do something about a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// Whoever keeps the schedule.
    Schedule,
    /// The cluster's customer.
    Customer,
    /// The fleet's operator.
    Operator,
    /// Shipshape itself; waiting helps.
    System,
}
