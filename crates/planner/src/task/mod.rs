//! The catalogue of tasks: what can be done to a cluster, by id or name.
//!
//! Built-in tasks are part of this program; tasks as data are written by teams and kept in the store. Both are a
//! [`Definition`]: they are listed, checked, given parameters and made into plans in the same way. A definition that a
//! manifest began with can be frozen into its checkpoint, so that a change of the task does not change running work.

pub mod builtin;
mod catalogue;
mod cost;
mod definition;
mod expected;
mod form;
mod parameters;
mod requires;

pub use builtin::CodedTask;
pub use catalogue::Catalogue;
pub use definition::Definition;
pub use expected::ExpectedDuration;
pub use form::{BODY_MAX, Format, STEPS_MAX, check, from_value, read};
pub use parameters::check_parameters;
pub use requires::requires_met;

/// What is wrong with a task or its parameters: the place, and one sentence.
pub type TaskProblem = steps::Problem;
