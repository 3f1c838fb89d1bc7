//! The tasks, built in and as data: their effects and their refusals on a real API server, and every plan through the
//! engine's trial on simulated clusters.

#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod effects;
mod examples;
mod expressions;
mod faults;
mod installed;
mod ours;
mod real;
mod secrets;
mod sim;
mod trials;
