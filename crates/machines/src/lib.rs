//! Controllers and webhooks inside a cluster that own its machines, compatible with OpenShift's machine API
//! (`machine.openshift.io/v1beta1`).
//!
//! | Module | Duty |
//! |---|---|
//! | [`machine`] | creates and deletes the instance of a Machine |
//! | [`drain`] | drains the Node of a Machine that is being deleted |
//! | [`machine_set`] | keeps the number of Machines of a MachineSet |
//! | [`health_check`] | remediates unhealthy Machines |
//! | [`node_link`] | links Nodes and Machines |
//! | [`certificates`] | approves the certificate requests of Nodes that have a Machine |
//! | [`termination`] | reports on a Node that its cloud is about to take it back |
//! | [`webhooks`] | defaults and validates Machines and MachineSets |
//! | [`operator`] | rolls out all of this and reports its state |
//! | [`metrics_server`] | serves metrics to those who may read them |
//! | [`payload`] | the manifests that install all of this |
//!
//! In the folder of each controller `decide` is pure: what was read and the time go in, what to write comes out. Every decision can be
//! made again after a crash at any point, from what is stored in the cluster and at the provider. [`run`] runs them all.

pub mod certificates;
mod conditions;
mod context;
pub mod drain;
mod duration;
mod error;
pub mod health_check;
pub mod machine;
pub mod machine_set;
mod merge;
mod metrics;
pub mod metrics_server;
pub mod node_link;
pub mod operator;
pub mod payload;
mod platform;
mod run;
mod selector;
pub mod termination;
pub mod webhooks;

pub use metrics::Metrics;
pub use platform::ClusterPlatform;
pub use run::{RunError, Settings, run};
