//! Tests of the actuator: its behaviour, simulated faults, and processes that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "clippy recognises only functions marked #[test] as tests, not their helpers"
)]

mod behaviour;
mod chaos;
mod plan_matches_runs;
mod simulation;
