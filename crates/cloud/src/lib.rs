//! What we ask of a cloud, in one trait ([`Cloud`]), so that a simulated one, Azure, AWS and others can stand behind it.
//!
//! Most of what a cluster needs are *resources*: things with an id, a wanted shape and a state that follows slowly. They share
//! four verbs (put, get, list, delete), whatever they are; a new kind is a variant of [`Shape`]. What is no resource (sizes,
//! quotas, permissions, the vault, the registry) has verbs of its own.
//!
//! Every verb may be said again at any moment: a put compares, a delete of what is gone has succeeded. Errors say what may
//! be done about them ([`CloudError`] knows its class). Nothing here retries, waits for a state or reads the clock.

pub mod capacity;
mod cloud;
mod error;
mod principal;
mod registry;
mod resource;
mod sizes;
mod vault;

pub use api::resource_id::{ResourceId, ResourceIdError};
pub use cloud::{Cloud, SharedCloud};
pub use error::{CloudError, Fault};
pub use principal::{Credential, Permission, Principal, RoleAssignment};
pub use registry::{IssuedToken, Token};
pub use resource::{Backend, Frontend, Kind, Put, Resource, Rule, Shape, State};
pub use sizes::{Availability, Provider, Restriction, Size, Usage};
pub use vault::{Certificate, CertificateWish, IssuedCertificate, VaultSecret};
