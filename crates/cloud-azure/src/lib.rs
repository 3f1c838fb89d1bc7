//! The client of Azure and of its emulator: every role of a cloud over Azure's public wire protocol.
//!
//! From the official libraries come tokens (azure_identity), the pipeline (azure_core) and the clients of Key Vault. The calls of the
//! resource manager, their repetition, long operations and errors are our own, because no maintained library has them
//! (docs/decisions/0032-azure-client-libraries.md). [`AzureClient`] is the service's client; [`AzureInstances`] is what machine
//! controllers inside a cluster use, with the cluster's credential.
//!
//! No call waits for a state, and none is repeated for longer than a few seconds: callers poll. Nothing here reads the environment, apart
//! from azure_identity, which chooses by it between the kinds of managed identities.

mod actions;
mod arm;
mod blobs;
mod call;
mod certificate;
mod client;
mod credential;
mod entra;
mod error;
#[cfg(test)]
mod exchanges;
mod headers;
mod identities;
mod infrastructure;
mod instances;
mod inventory;
mod json;
mod limits;
mod machines;
mod operations;
mod permissions;
mod redact;
mod registry;
mod resources;
mod role_names;
#[cfg(test)]
mod secrecy;
mod settings;
mod start_only;
mod subscription;
#[cfg(test)]
mod testing;
mod token_file;
mod token_renewal;
mod transport;
mod vault;
mod write_locks;

pub use actions::{instance_actions, preparation_actions, required_actions, role_definition};
pub use client::AzureClient;
pub use instances::{AzureInstances, InstanceSettings};
pub use settings::{
    EMULATED_ISSUER, IssuerSettings, MachineSettings, PUBLIC_BLOB_SUFFIX, PUBLIC_REGISTRY_SUFFIX,
    PUBLIC_SCOPE, SELF_SIGNED, ServiceCredential, Settings, SettingsError,
};
