//! The backend: carries out what customers ask of their clusters (create, update, delete) and removes the clusters of
//! subscriptions that are deleted; opens and closes what is billed.
//!
//! It claims lanes of kind operation, walks the plan of each, and writes the end of an operation, its cluster's state and the
//! end of its work together, under the fence. Any number of backends may run. A customer's operation goes before all
//! maintenance of its cluster: the queue sees to that.
//!
//! What is not here: the frontend's part (to validate, to answer, to enqueue) and how a cluster is maintained.

mod config;
mod context;
mod ending;
mod installer;
mod metrics;
mod operation_timing;
pub mod plan;
mod qos;
mod service;
mod work;

pub use config::Config;
pub use context::Context;
pub use metrics::Metrics;
pub use operation_timing::OperationTiming;
pub use service::{Deps, Error, LEASE_PREFIX, run};
