//! The certificates and tokens of a managed cluster: stored in the vault and the registry of its cloud, copied into the cluster,
//! and recorded in its document.
//!
//! Every function makes one thing true and can be repeated at any time. Keys go from the vault to the cluster and nowhere else:
//! no message, record or error holds one.

mod certificates;
mod identity;
mod registry;

use std::sync::Arc;

use api::doc::{Provisioned, Record};
use cloud::{CloudError, Identities, Vault};
use store::WorkLease;
use uuid::Uuid;

use crate::engine::StepError;
use crate::lifecycle::ClusterRecords;

pub use certificates::{CertificateUse, carry_certificates, configure_api_server, configure_ingress};
pub use identity::{Renewal, ensure_identity_certificate};
pub use registry::{TOKEN_DAYS, TOKEN_ROTATION_DAYS, check_token, is_token_old};

/// A cluster that Shipshape provisioned, with what its certificates and tokens are managed by.
#[derive(Debug, Clone)]
pub struct ManagedCluster {
    /// The document and the secrets of the cluster.
    pub records: ClusterRecords,
    /// What is provisioned for the cluster, as it was when the plan was made.
    pub provisioned: Box<Provisioned>,
    /// The vault of the cluster's cloud.
    pub vault: Arc<dyn Vault>,
    /// The identity service of that cloud.
    pub identities: Arc<dyn Identities>,
}

impl ManagedCluster {
    /// Identifies the cluster.
    pub fn uuid(&self) -> Uuid {
        self.records.cluster
    }

    /// Changes the cluster's record under the fence of the work.
    pub async fn record(&self, hold: WorkLease, change: impl Fn(&mut Record)) -> Result<(), StepError> {
        self.records.update(hold, &[], |it| change(&mut it.record)).await.map(drop)
    }
}

/// Converts a cloud error into a transient error, whatever its class.
fn retryable(error: CloudError) -> StepError {
    let after = match &error {
        CloudError::Throttled { after } => *after,
        _ => None,
    };
    StepError::transient("Cloud", error.to_string()).with_source(error).with_retry_after(after)
}
