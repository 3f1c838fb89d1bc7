//! The HTTP API, driven from outside over real connections, on real stores.
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod arm;
mod bad_input;
mod description;
mod door;
mod events;
mod fixture;
mod identity;
mod looking;
mod manifests;
mod manners;
mod schedules;
mod tasks;
