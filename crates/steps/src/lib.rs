//! Plans of named steps, the engine that runs them (checkpointed, cancellable, resumable), and the pool of workers that claims
//! work and runs it.
//!
//! The engine knows names, time limits, error classes and cancellation, and nothing about clouds or clusters. The steps on
//! clusters are beside it, one module for each subject.

mod backoff;
mod cluster;
mod connections;
pub mod credentials;
pub mod engine;
pub mod expression;
pub mod kinds;
pub mod lifecycle;
mod offload;
mod problem;
mod template;
pub mod worker;

pub use backoff::store_backoff;
pub use cluster::{ClusterContext, ClusterFacts};
pub use connections::ClusterConnections;
pub use offload::{offload, offload_check};
pub use problem::Problem;
pub use template::{TemplateNames, TemplateValues, names_cluster};
