//! A cluster as a request describes it, independent of the request's version; input of validation and conversion.
//! Each version creates one from its own type; a member that the version does not have is absent and stays unchanged.

use std::collections::BTreeMap;

use super::{
    ApiserverProfile, ConsoleProfile, HiddenText, IngressProfile, ManagedIdentity, MasterProfile,
    NetworkProfile, PlatformWorkloadIdentityProfile, ServicePrincipalProfile, WorkerProfile,
};

/// A cluster as a request describes it.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// Whether the request's version has managed identities. A version without them neither requires nor removes them.
    pub knows_identities: bool,
    /// The id in the body.
    pub id: Option<&'a str>,
    /// The name in the body.
    pub name: Option<&'a str>,
    /// The type in the body.
    pub kind: Option<&'a str>,
    /// The location.
    pub location: Option<&'a str>,
    /// The tags.
    pub tags: Option<&'a BTreeMap<String, Option<String>>>,
    /// The managed identity.
    pub identity: Option<&'a ManagedIdentity>,
    /// The properties.
    pub properties: Option<DraftProperties<'a>>,
}

/// The properties of a draft.
#[derive(Debug, Clone, Copy)]
pub struct DraftProperties<'a> {
    /// Provisioning state that the client read earlier.
    pub provisioning_state: Option<&'a str>,
    /// Whether there is a cluster profile.
    pub has_cluster_profile: bool,
    /// The pull secret.
    pub pull_secret: Option<&'a HiddenText>,
    /// The domain.
    pub domain: Option<&'a str>,
    /// The version.
    pub version: Option<&'a str>,
    /// The managed resource group.
    pub resource_group_id: Option<&'a str>,
    /// Whether only validated cryptographic modules are used.
    pub fips: Option<&'a str>,
    /// The console.
    pub console: Option<&'a ConsoleProfile>,
    /// The service principal.
    pub service_principal: Option<&'a ServicePrincipalProfile>,
    /// The operators' identities.
    pub platform: Option<&'a PlatformWorkloadIdentityProfile>,
    /// The networks.
    pub network: Option<&'a NetworkProfile>,
    /// The control plane.
    pub master: Option<&'a MasterProfile>,
    /// The workers.
    pub workers: Option<&'a [WorkerProfile]>,
    /// The observed workers; read-only.
    pub workers_status: Option<&'a [WorkerProfile]>,
    /// The API server.
    pub apiserver: Option<&'a ApiserverProfile>,
    /// The ingresses.
    pub ingresses: Option<&'a [IngressProfile]>,
}
