//! The certificates and tokens of a cluster that we made: kept in the vault and the registry of its cloud, carried into the
//! cluster, and told of in its record.
//!
//! Every verb makes one thing true and may be said again at any moment. Keys go from the vault to the cluster and nowhere else:
//! no message, record or error holds one.

mod certificates;
mod identity;
mod registry;

use std::sync::Arc;

use api::doc::{Cluster, Provisioned, Record, ResultCode};
use cloud::{CloudError, Identities, Vault};
use store::{AuditContext, DesiredState, Store, StoreError, Transaction, WorkLease};
use uuid::Uuid;

use crate::engine::StepError;

pub use certificates::{CertificateUse, carry_certificates, configure_api_server, configure_ingress};
pub use identity::{Renewal, ensure_identity_certificate};
pub use registry::{TOKEN_DAYS, TOKEN_ROTATION_DAYS, check_token, is_token_old};

/// So often a record that others change at the same time is read and written again.
const WRITES_MAX: usize = 5;

/// What is needed to work on a cluster of ours besides the way to it: its document, its cloud, and the store to record in.
#[derive(Debug, Clone)]
pub struct Ours {
    /// The cluster.
    pub uuid: Uuid,
    /// What its customer asked for and what we made, as it was when the plan was made.
    pub provisioned: Box<Provisioned>,
    /// The vault of the cloud that it runs in.
    pub vault: Arc<dyn Vault>,
    /// The identity service of that cloud.
    pub identities: Arc<dyn Identities>,
    /// Where its document is.
    pub store: Store,
    /// Who writes, in the audit log.
    pub service: &'static str,
}

impl Ours {
    /// Changes the cluster's record under the fence of whoever works: one whose lease was lost changes nothing.
    pub async fn record(&self, hold: WorkLease, change: impl Fn(&mut Record)) -> Result<(), StepError> {
        let failed = |error: StoreError| {
            StepError::transient("Store", "the cluster's record was not written").because(error)
        };
        let by = AuditContext::service(self.service);
        for _ in 0..WRITES_MAX {
            let read = self.store.documents::<Cluster>().get(self.uuid).await.map_err(failed)?;
            let gone = || StepError::terminal(ResultCode::CLUSTER_GONE, "the cluster is gone");
            let read = read.ok_or_else(gone)?;
            let mut wanted = read.document.clone();
            change(&mut wanted.provisioned.as_mut().ok_or_else(gone)?.record);
            if wanted == read.document {
                return Ok(());
            }
            let write = Transaction::new().guard(hold).update(&read, &wanted, DesiredState::Unchanged, &by);
            match self.store.commit(write.map_err(failed)?).await {
                Ok(_) => return Ok(()),
                Err(StoreError::Changed { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(StepError::transient("Store", "the cluster's record is changed by others all the time"))
    }
}

/// What a cloud's failure means here: whatever it is, it may mend itself.
fn for_now(error: CloudError) -> StepError {
    let after = match &error {
        CloudError::Throttled { after } => *after,
        _ => None,
    };
    StepError::transient("Cloud", error.to_string()).because(error).after(after)
}
