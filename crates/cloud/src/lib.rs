//! The roles of a cloud, their types and errors, so that Azure, a simulated cloud and others can provide them.
//!
//! A provider implements the roles that it has: [`Infrastructure`] (resources of a cluster, sizes, quotas), [`Machines`], [`Vault`],
//! [`Registry`], [`Blobs`] and [`Identities`]. [`Cloud`] bundles the roles of one provider; each service takes the roles that it needs.
//! Controllers inside a cluster use one role, [`InstanceProvider`], with the cluster's own credential.
//!
//! Most of what a cluster needs are *resources*: objects with an id, desired properties and a state that follows slowly. They share
//! four verbs (put, get, list, delete); a new kind is a variant of [`Properties`].
//!
//! Every call can be repeated at any moment: a put compares, a delete of a missing resource succeeds. Errors have a class
//! ([`CloudError`]). Nothing here retries, waits for a state or reads the clock.

mod blobs;
pub mod capacity;
mod error;
mod identities;
mod infrastructure;
mod instances;
mod issuers;
mod machines;
mod provider;
mod registry;
mod resource;
mod sizes;
mod vault;

pub use api::resource_id::{ResourceId, ResourceIdError};
pub use blobs::{BlobAddress, Blobs};
pub use error::{CloudError, ResourceFailure};
pub use identities::{Credential, Identities, Permission, Principal, RoleAssignment, RoleDefinition};
pub use infrastructure::Infrastructure;
pub use instances::{
    AddressKind, Instance, InstanceAddress, InstanceError, InstanceProvider, InstanceRequest, SecretRef,
    SecretRefs,
};
pub use issuers::IssuerStorage;
pub use machines::{Machine, Machines};
pub use provider::Cloud;
pub use registry::{IssuedPullToken, PullToken, Registry};
pub use resource::{
    LinkConnection, LoadBalancerBackend, LoadBalancerFrontend, LockLevel, Properties, Resource, ResourceKind,
    ResourceRequest, ResourceState, SecurityRule,
};
pub use sizes::{Availability, ProviderRegistration, Restriction, Size, Usage};
pub use vault::{CertificateSpec, IssuedCertificate, Vault, VaultCertificate, VaultSecret};
