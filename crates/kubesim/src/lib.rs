//! A small Kubernetes API server in memory, many clusters in one process. It serves what our own code, our README and
//! everyday kubectl ask of it; anything else is refused with a clear Status, never answered wrongly.

pub mod access;
pub mod apply;
mod cluster;
mod controllers;
pub mod faults;
mod fields;
pub mod http;
pub mod kinds;
pub mod kubelet;
pub mod logs;
pub mod names;
pub mod objects;
pub mod patch;
mod random;
pub mod registry;
pub mod schema;
pub mod selector;
pub mod state;
pub mod status;
pub mod verbs;

pub use cluster::{ClusterInner, ClusterOptions, SimulatedCluster, SimulatedClusters, StartError};
