//! Stored documents. Each is a JSON document with a uuid, a path that is unique among
//! documents that are not deleted, and a scope under which it is listed. Secrets are never in them.
//!
//! A type has the members that this release knows; members that a newer release has added survive a read and a write
//! (the store applies our changes to the stored body), so none of these types needs a catch-all.

mod billing;
mod cluster;
mod health;
mod manifest;
mod members;
mod operation;
mod role_set;
mod schedule;
pub mod secrets;
mod step_name;
mod subscription;
mod task;
mod task_stats;
mod version;
mod work_result;

pub use billing::Billing;
pub use cluster::{
    Cluster, Identity, Ingress, MasterPool, NetworkSpec, OutboundType, PlatformIdentity, Provisioned,
    ProvisioningState, Record, RegistryToken, Spec, Switch, SystemData, Visibility, WorkerPool,
    WorkerPoolStatus,
};
pub use health::{
    CollectorError, HealthCause, HealthDetails, NodeCount, ObservedHealth, PoolHealth, ReachabilityFailure,
};
pub use manifest::Manifest;
pub use operation::{Operation, OperationError, Verb};
pub use role_set::{OperatorRole, RoleSet};
pub use schedule::{MissedPolicy, Schedule, ScheduleOutlook, ScheduleState, SpreadBy};
pub use step_name::StepName;
pub use subscription::{Subscription, SubscriptionState};
pub use task::Task;
pub use task_stats::{RUNS_MAX as TASK_RUNS_MAX, TaskStats};
pub use version::Version;
pub use work_result::{ResultCode, WorkResult};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A stored document.
pub trait Document: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// Name of the kind in the store, in the change feed and in messages.
    const KIND: &'static str;

    /// Path in lower case, by which it is found. The caller's spelling is in the body.
    fn path(&self) -> String;

    /// Scope under which it is listed, in lower case.
    fn scope(&self) -> String;

    /// Keys that no other document may hold at the same time, unless it is deleted.
    fn unique_keys(&self) -> Vec<String> {
        Vec::new()
    }
}
