//! The provider on moto's server, with a proxy in between that adds what moto lacks and injects faults.

#![allow(clippy::unwrap_used, reason = "tests and what they stand on")]

mod balancers;
mod controllers;
mod crashes;
mod environment;
mod failures;
mod life;
mod proxy;
