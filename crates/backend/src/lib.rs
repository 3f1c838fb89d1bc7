//! The backend: runs the operations that customers request for their clusters (create, update, delete), removes the clusters of
//! deleted subscriptions, and opens and closes billing records.
//!
//! It claims lanes of kind operation, runs the plan of each, and writes the completion of the operation, its cluster's state and
//! the completion of the work in one transaction under the fence. Any number of backends may run. The queue runs a customer's
//! operation before all maintenance of its cluster.
//!
//! It neither validates requests and enqueues them (`frontend`) nor maintains clusters (`maintenance`).

mod completion;
mod config;
mod context;
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
