//! kubelink's verbs on a real API server.

#![allow(clippy::unwrap_used, reason = "tests and what they stand on")]

#[path = "../support/mod.rs"]
mod support;

mod apply;
mod cordon;
mod drain;
mod drain_faults;
mod facts;
mod killed;
mod link;
mod objects;
mod restart;
mod simulated;
