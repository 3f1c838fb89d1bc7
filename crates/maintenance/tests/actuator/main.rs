//! The actuator as a whole: how it behaves, simulated faults by the thousand, and real processes that are killed.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions marked #[test] for tests, not what they stand on"
)]

mod behaviour;
mod chaos;
mod plan_matches_runs;
mod simulation;
