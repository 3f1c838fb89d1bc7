//! Requests and responses of the ARM API. Each api-version converts to and from one internal type,
//! [`doc::Cluster`](crate::doc::Cluster).
//!
//! A version has its own types and two converters. The versions share fragments of the types (`form`),
//! validation (`validate`), merging of a body into the stored resource (`merge`), and rules of immutability (`change`). Nothing
//! here reads a store, a clock or a network.

mod change;
mod convert;
mod draft;
mod field_error;
mod form;
mod hidden;
mod merge;
mod names;
mod semver;
mod show;
mod sizes;
mod small;
pub mod v2023_11_22;
pub mod v2025_07_25;
mod validate;
mod version;

#[cfg(test)]
mod tests;

pub use change::check_unchanged;
pub use convert::apply_draft;
pub use draft::{Draft, DraftProperties};
pub use field_error::{FieldError, FieldErrorCode};
pub use form::{
    ApiserverProfile, ConsoleProfile, EffectiveOutboundIp, IngressProfile, LoadBalancerProfile,
    ManagedIdentity, ManagedOutboundIps, MasterProfile, NetworkProfile, PlatformWorkloadIdentity,
    PlatformWorkloadIdentityProfile, ServicePrincipalProfile, SystemDataForm, UserAssignedIdentity,
    WorkerProfile,
};
pub use hidden::HiddenText;
pub use merge::{patched, replaced};
pub use names::{is_group_name, is_uuid};
pub use semver::Semver;
pub use sizes::{PoolRole, VmSize, find_size, vm_sizes};
pub use small::{
    AdminKubeconfig, ArmPage, Credentials, OpenShiftVersion, OpenShiftVersionProperties, OperationDisplay,
    OperationForm, OperationStatus, OperationStep, PreflightStatus, RoleForm, RoleSetForm, RoleSetProperties,
};
pub use validate::{ValidationContext, match_roles, validate, version_of_draft};
pub use version::{ApiVersion, ExternalCluster};

/// The resource type of clusters.
pub const CLUSTER_TYPE: &str = "Microsoft.RedHatOpenShift/openShiftClusters";
