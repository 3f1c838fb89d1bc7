//! The frame on a real API server.

#![allow(clippy::unwrap_used, reason = "tests and what they stand on")]

mod crash;
mod definitions;
mod events;
mod informer;
mod leader;
mod outage;
mod sample;
mod support;
mod writes;
