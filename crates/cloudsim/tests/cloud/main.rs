//! The simulated cloud as its users meet it: service and client, every verb, every fault, restarts, installations.

#![allow(clippy::unwrap_used, reason = "tests and what they stand on")]

mod azure;
mod environment;
mod faults;
mod identities;
mod installing;
mod instances;
mod providers;
mod resources;
mod restarts;
mod stores;
