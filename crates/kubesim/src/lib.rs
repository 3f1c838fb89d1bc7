//! A small Kubernetes API server in memory; one process can hold many clusters. It serves what our own code, our
//! README and everyday kubectl need. It rejects everything else with a clear Status instead of a wrong response.

pub mod access;
pub mod apply;
mod cluster;
mod controllers;
mod cron;
mod events;
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
pub mod rbac;
pub mod registry;
pub mod schema;
pub mod selector;
pub mod state;
pub mod status;
pub mod verbs;
mod webhooks;

pub use cluster::{
    ClusterInner, ClusterOptions, ServiceAccountError, SimulatedCluster, SimulatedClusters, StartError,
};
