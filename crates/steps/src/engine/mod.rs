//! The engine: runs a plan for the worker that holds the lease, and writes every outcome to the store under the fence.

mod decide;
mod error;
pub mod fault_harness;
mod journal;
mod plan;
mod progress;
mod recorder;
mod run;
mod run_control;
mod step;
mod undo;

#[cfg(test)]
mod tests;

pub use decide::{
    ATTEMPTS_MAX, AttemptDecision, decide_attempt, next_try_delay, park_duration, retry_backoff,
};
pub use error::{StepError, StepErrorKind};
pub use journal::{CompletedStep, Journal, UndoState, WaitState, WaitingCode};
pub use plan::{
    ActionBody, Body, Obstacle, PLAN_TIME, POLL_INTERVAL, Plan, PollBody, PollStatus, ProgressReporter,
    Report, Retry, STEP_TIME, Step, StepContext, StepOutcome, Undo, UndoBody,
};
pub use progress::{Progress, progress};
pub use run::{PlanError, RunOutcome, RunRequest, finish_without_plan, run};
pub use run_control::RunControl;
