//! The controllers with a provider in memory: on a real API server, and on simulated ones where numbers matter.

#![allow(clippy::unwrap_used, reason = "tests and what they stand on")]

mod alerts;
mod audit;
mod bad_input;
mod crash;
mod failures;
mod faults;
mod inventory;
mod life;
mod memory_cloud;
mod openshift;
mod operator;
mod payload;
mod random;
mod rules;
mod termination;
mod world;
