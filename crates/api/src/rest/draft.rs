//! A cluster as a request describes it, whatever the version of the request: what the rules look at and what is converted.
//! Each version makes one from its own type; a member that the version does not have is absent and left alone.

use std::collections::BTreeMap;

use super::{
    ApiserverProfile, ConsoleProfile, HiddenText, IngressProfile, ManagedIdentity, MasterProfile,
    NetworkProfile, PlatformWorkloadIdentityProfile, ServicePrincipalProfile, WorkerProfile,
};

/// A cluster as a request describes it.
#[derive(Debug, Clone, Copy)]
pub struct Draft<'a> {
    /// Whether the version of the request knows managed identities. One that does not neither asks for them nor wipes them.
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
    /// The rest.
    pub properties: Option<DraftProperties<'a>>,
}

/// The properties of a draft.
#[derive(Debug, Clone, Copy)]
pub struct DraftProperties<'a> {
    /// What the sender read earlier.
    pub provisioning_state: Option<&'a str>,
    /// Whether there is a cluster profile at all.
    pub has_cluster_profile: bool,
    /// The pull secret.
    pub pull_secret: Option<&'a HiddenText>,
    /// The domain.
    pub domain: Option<&'a str>,
    /// The version.
    pub version: Option<&'a str>,
    /// The managed resource group.
    pub resource_group_id: Option<&'a str>,
    /// Whether only validated modules are used.
    pub fips: Option<&'a str>,
    /// The console.
    pub console: Option<&'a ConsoleProfile>,
    /// The principal.
    pub service_principal: Option<&'a ServicePrincipalProfile>,
    /// The operators' identities.
    pub platform: Option<&'a PlatformWorkloadIdentityProfile>,
    /// The networks.
    pub network: Option<&'a NetworkProfile>,
    /// The control plane.
    pub master: Option<&'a MasterProfile>,
    /// The workers.
    pub workers: Option<&'a [WorkerProfile]>,
    /// The workers as they were seen; read-only.
    pub workers_status: Option<&'a [WorkerProfile]>,
    /// The API server.
    pub apiserver: Option<&'a ApiserverProfile>,
    /// The ways in.
    pub ingresses: Option<&'a [IngressProfile]>,
}
