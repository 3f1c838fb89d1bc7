//! The instance provider on Amazon Web Services: instances of EC2 for the machine controllers of a cluster, in the terms of OpenShift's
//! AWS provider.
//!
//! An instance is launched with the Machine's uid as the idempotency token, so that a repeated launch is one launch. `create` succeeds
//! when the instance can be read: until then the Machine has no providerID, and `create` is called again. What a Machine has recorded is
//! found by its id, everything else by the tags `Name` and `kubernetes.io/cluster/ID`
//! (docs/decisions/0047-aws-instances.md).
//!
//! The SDK takes minutes to build, so this crate is outside of the default members and an optional dependency of the executable.

mod access;
mod actions;
mod balancers;
mod create;
mod delete;
mod errors;
mod find;
mod launch;
mod network;
mod provider;
mod settings;
mod spec;
mod state;
mod tags;
mod transport;
mod update;
mod validate;

pub use actions::ACTIONS;
pub use provider::AwsInstances;
pub use settings::{AwsSettings, Endpoints, SettingsError};
pub use transport::Transport;
