//! Plans of named steps, and the engine that walks them: checkpointed, cancellable, resumable.
//!
//! The engine knows names, time limits, error classes and cancellation, and nothing about clouds or clusters. The work that
//! we know how to do on a cluster is beside it, one module for each subject.

mod aside;
mod cluster;
pub mod credentials;
pub mod crew;
pub mod engine;
pub mod expression;
pub mod kinds;
pub mod lifecycle;
mod problem;
mod template;

pub use aside::{aside, check_aside};
pub use cluster::{ClusterContext, ClusterFacts};
pub use problem::Problem;
pub use template::{Given, Names, names_cluster};
