//! Reasons why a manifest waits, or what its current step waits for.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use super::StepProgress;
use crate::work::WorkState;

/// Everything that delays the start of a manifest or its current step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyForm {
    /// The manifest.
    pub manifest: Uuid,
    /// Its state.
    #[schema(value_type = String)]
    pub state: WorkState,
    /// The verdict.
    pub verdict: Verdict,
    /// The latest `until` of the blockers where all are known; null otherwise.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub earliest_start: Option<Timestamp>,
    /// The current or last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepProgress>,
    /// Whether its steps are being undone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undoing: bool,
    /// All blockers, not only the first. For running work: what its step waits for, as far as the step names it.
    pub blockers: Vec<Blocker>,
}

/// Whether a manifest is blocked, ready, running or finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// At least one blocker delays it.
    Blocked,
    /// Nothing delays it; it starts with the next claim.
    Ready,
    /// It runs.
    Running,
    /// It has finished.
    Finished,
}

/// A reason for a delay.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Blocker {
    /// Its code.
    pub code: BlockerCode,
    /// Message for people, with names.
    pub message: String,
    /// Who can resolve it.
    pub owner: Owner,
    /// When it began.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub since: Option<Timestamp>,
    /// When it ends, if that is known.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub until: Option<Timestamp>,
}

/// Code of a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub enum BlockerCode {
    /// Its earliest start is in the future.
    NotDue,
    /// It backs off after a failed attempt.
    BackingOff,
    /// Other work runs on the cluster, or is ahead of it in the queue.
    ClusterBusy,
    /// A customer's operation is ahead of it.
    OperationPending,
    /// A budget is full.
    BudgetFull,
    /// The cluster's API server does not respond.
    Unreachable,
    /// A precondition of the task is not met.
    Precondition,
    /// No actuator is running.
    NoActuator,
    /// The current step waits for something.
    StepWaiting,
}

/// Who can resolve a blocker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Owner {
    /// The owner of the schedule.
    Schedule,
    /// The cluster's customer.
    Customer,
    /// The fleet's operator.
    Operator,
    /// Shipshape itself; no action is needed.
    System,
}
