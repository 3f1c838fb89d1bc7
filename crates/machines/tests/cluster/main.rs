//! The controllers on a real API server, with a provider in memory.

#![allow(clippy::unwrap_used, reason = "tests and what they stand on")]

mod audit;
mod crash;
mod life;
mod payload;
mod random;
mod termination;
mod world;
