//! Version 2023-11-22, without managed identities. A cluster that has them is rendered without them, and keeps them.

mod convert;
mod types;

pub use types::{ClusterProfile, OpenShiftCluster, OpenShiftClusterProperties};
