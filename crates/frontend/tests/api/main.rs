//! The HTTP API, driven from outside over real connections, on real stores.
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod arm;
mod bad_input;
mod conventions;
mod description;
mod events;
mod fixture;
mod identity;
mod listener;
mod manifests;
mod reads;
mod schedules;
mod tasks;
