//! Version 2025-07-25, the newest.

mod convert;
mod types;

pub use types::{ClusterProfile, OpenShiftCluster, OpenShiftClusterProperties};
