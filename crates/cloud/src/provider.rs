//! A cloud as the set of the roles that its provider implements.

use std::fmt;
use std::sync::Arc;

use crate::{Blobs, Identities, Infrastructure, IssuerStorage, Machines, Registry, Vault};

/// The roles of one cloud. A service takes the roles that it needs from here. Roles without which no cluster can be created are
/// always present; a provider may lack the others.
#[derive(Clone)]
pub struct Cloud {
    /// Resources, sizes, quotas and registrations.
    pub infrastructure: Arc<dyn Infrastructure>,
    /// Principals, permissions and roles.
    pub identities: Arc<dyn Identities>,
    /// Certificates and secrets.
    pub vault: Arc<dyn Vault>,
    /// Tokens of the image registry.
    pub registry: Arc<dyn Registry>,
    /// Instances.
    pub machines: Option<Arc<dyn Machines>>,
    /// Blobs of storage accounts.
    pub blobs: Option<Arc<dyn Blobs>>,
    /// The place of the documents of clusters' token issuers, which clusters with managed identities need.
    pub issuers: Option<IssuerStorage>,
}

impl Cloud {
    /// A cloud whose provider implements every role but blobs in one type.
    pub fn from_provider<P>(provider: P) -> Cloud
    where
        P: Infrastructure + Identities + Vault + Registry + Machines,
    {
        let provider = Arc::new(provider);
        Cloud {
            infrastructure: provider.clone(),
            identities: provider.clone(),
            vault: provider.clone(),
            registry: provider.clone(),
            machines: Some(provider),
            blobs: None,
            issuers: None,
        }
    }
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("infrastructure", &self.infrastructure).finish_non_exhaustive()
    }
}
