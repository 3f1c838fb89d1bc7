//! System tests: the real executable, from outside.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions marked #[test] for tests, not their fixtures"
)]

mod alerts;
mod azure;
mod azure_cli;
mod clusters;
mod config;
mod executable;
mod layers;
mod machines;
mod maintenance;
mod old_postgres;
mod pages;
mod processes;
mod sim;
mod store;
mod telemetry;
mod up;
