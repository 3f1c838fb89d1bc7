//! Built-in and stored tasks: their effects and errors on a real API server, and every plan through the fault harness of the
//! engine on simulated clusters.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod effects;
mod environment;
mod examples;
mod expressions;
mod fault_runs;
mod faults;
mod installed;
mod machines;
mod managed;
mod secrets;
mod sim;
