//! Version 2023-11-22: before managed identities. A cluster that has them is shown without, and keeps them.

mod convert;
mod types;

pub use types::{ClusterProfile, OpenShiftCluster, OpenShiftClusterProperties};
