//! The catalogue of tasks.
//!
//! Built-in tasks are part of this program; teams write tasks as data, which the store holds. Both are a [`Definition`]: listing,
//! validation, parameters and plans work in the same way. A manifest stores a snapshot of its definition in its checkpoint, so
//! that a change of the task does not change running work.

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

/// Error of a task or its parameters: the invalid member and a message.
pub type TaskProblem = steps::Problem;
