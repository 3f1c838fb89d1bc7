//! Planning of maintenance: the catalogue of tasks, the manifests that schedules require, why a manifest waits, and which
//! manifests will run where and when.
//!
//! Every decision is a pure function of its input and a time parameter; this crate does no I/O.

pub mod plan;
pub mod schedule;
pub mod task;
pub mod why;
