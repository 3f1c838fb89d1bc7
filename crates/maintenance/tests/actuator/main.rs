//! The actuator as a whole: how it behaves, simulated faults by the thousand, and real processes that are killed.

mod behaviour;
mod chaos;
mod simulation;
