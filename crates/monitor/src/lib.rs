//! The monitor visits every cluster once a minute and says how it is: in metrics, and in one health record per cluster that
//! everybody else reads instead of contacting clusters. It changes nothing on a cluster, and writes only health and its membership
//! in the pool of monitors.
//!
//! Any number of processes share the clusters: a cluster belongs to one of 256 buckets, and each bucket to one living process
//! (`balance`, `membership`). A process follows the change feed (`fleet`) and runs one task per cluster that it owns
//! (`worker`). A visit (`visit`) looks whether the API server answers and then runs the collectors (`collect`); what they find
//! becomes series (`series`) and the record (`record`), which `writer` stores in batches.

mod balance;
mod collect;
mod config;
mod fleet;
mod membership;
mod metrics;
mod record;
mod series;
mod service;
mod visit;
mod worker;
mod writer;

#[cfg(test)]
mod tests;

pub use balance::{balance, bucket};
pub use config::Config;
pub use metrics::Metrics;
pub use service::{Deps, Error, Status, run};
