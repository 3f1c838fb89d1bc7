//! Requests and responses of the Admin API, used by the frontend and the client.
//!
//! Members are spelled as on the wire. Times that MIMO's clients know are Unix seconds (`runAfter`, `runBefore`); all
//! others are RFC 3339 in UTC. Durations are text such as `90s` or `24h`.

mod budget;
mod cluster;
mod fleet;
mod health;
mod history;
mod manifest;
mod operation;
mod plan;
mod record;
mod schedule;
mod task;
mod why;

pub use budget::{BudgetForm, BudgetRequest};
pub use cluster::{AdminCluster, AdminClusterProperties, ImportRequest, Reachability};
pub use fleet::{FleetForm, FleetHealth, FleetLine, NextWork, RunningWork};
pub use health::{ClusterHealth, HealthForm, HealthTransition};
pub use history::{Entry, EntryEvent};
pub use manifest::{CancelRequest, ManifestForm, ManifestRequest, Phase, StepProgress, WaitingFor};
pub use operation::OperationForm;
pub use plan::{
    Confidence, PlanDuration, PlanEntry, PlanForm, PlanGrouping, PlanOutcome, PlanRun, PlanTruncation,
};
pub use record::{AuditChainForm, TimelineForm, TimelineRun};
pub use schedule::{PreviewCluster, PreviewForm, ScheduleForm, ScheduleStatus};
pub use task::{RequiresForm, RetryForm, StepForm, TaskForm, TaskSource, UndoForm};
pub use why::{Blocker, BlockerCode, Owner, Verdict, WhyForm};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Page<T> {
    /// The items.
    pub value: Vec<T>,
    /// URL of the next page; empty on the last page.
    #[serde(default)]
    pub next_link: String,
}

/// Body of every error response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorEnvelope {
    /// The error.
    pub error: ErrorBody,
}

/// The error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// A code of the resource manager's contract.
    pub code: String,
    /// Message for people, one sentence.
    pub message: String,
    /// The invalid member or parameter.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target: String,
}
