//! The engine: it walks a plan for whoever holds the work, and leaves every outcome in the store under the fence.

mod error;
mod journal;
mod plan;

pub use error::{StepError, StepErrorKind};
pub use journal::{Done, Journal, Undoing, Waiting, WaitingCode};
pub use plan::{
    Body, LOOK_EVERY, Look, Outcome, PLAN_TIME, Plan, Retry, STEP_TIME, Step, StepContext, Teller, Undo,
};
