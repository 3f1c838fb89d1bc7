//! What is decided about maintenance, for the services that answer and the services that work: the catalogue of tasks, what a
//! schedule wants, why a manifest waits, what will run where and when.
//!
//! Everything that decides is a pure function of what was read and of a time that is handed in.

pub mod plan;
pub mod schedule;
pub mod task;
pub mod why;
