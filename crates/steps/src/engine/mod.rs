//! The engine: it walks a plan for whoever holds the work, and leaves every outcome in the store under the fence.

mod control;
mod decide;
mod error;
mod journal;
mod ledger;
mod plan;
mod progress;
mod run;
mod step;
pub mod trial;
mod undo;

#[cfg(test)]
mod tests;

pub use control::Control;
pub use decide::{ATTEMPTS_MAX, Verdict, back_off, next_try, park, verdict};
pub use error::{StepError, StepErrorKind};
pub use journal::{Done, Journal, Undoing, Waiting, WaitingCode};
pub use plan::{
    ActionBody, Body, LOOK_EVERY, Look, LookBody, Obstacle, Outcome, PLAN_TIME, Plan, Report, Retry,
    STEP_TIME, Step, StepContext, Teller, Undo, UndoBody,
};
pub use progress::{Progress, progress};
pub use run::{Ended, Order, Refusal, refuse, run};
