//! The certificate of a cluster's identity: fetched from the cloud's identity service, stored in the vault, renewed in time.

use api::doc::Identity;
use api::secret::Secret;
use cloud::{ResourceId, VaultSecret};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::WorkLease;

use super::{ManagedCluster, retryable};
use crate::engine::StepError;

/// Day of its life from which a certificate is replaced; the identity service issues the next one from day 45 on.
const RENEW_FROM_DAY: i64 = 46;

/// Result of [`ensure_identity_certificate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// There was none, and one was stored.
    Created,
    /// It was replaced.
    Renewed,
    /// It is valid.
    Verified,
}

/// A certificate as it is stored in the vault. It contains the key, so it has no Debug form.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredCertificate {
    /// The resource id of the identity.
    identity: String,
    /// The chain, in PEM.
    certificate: String,
    /// The key, in PEM.
    key: String,
    /// Start of its validity.
    not_before: Timestamp,
    /// End of its validity.
    not_after: Timestamp,
}

/// Name of the secret in the vault.
fn secret_name(cluster: &ManagedCluster) -> String {
    format!("{}-identity", cluster.uuid())
}

/// Ensures that the vault holds a valid certificate of the cluster's identity; returns what was done, and when it expires. None
/// if the cluster uses a service principal and needs no certificate.
pub async fn ensure_identity_certificate(
    cluster: &ManagedCluster,
    hold: WorkLease,
    now: Timestamp,
) -> Result<Option<(Renewal, Timestamp)>, StepError> {
    let Identity::Workload { resource_id, .. } = &cluster.provisioned.spec.identity else { return Ok(None) };
    let wrong = |error: cloud::ResourceIdError| {
        let message = format!("the cluster's identity {resource_id} is no resource id");
        StepError::terminal("Identity", message).with_source(error)
    };
    let identity: ResourceId = resource_id.parse().map_err(wrong)?;
    let found = cluster.vault.secret(&secret_name(cluster)).await.map_err(retryable)?;
    let good = found.as_ref().and_then(read).filter(|stored| !is_due(stored, resource_id, now));
    let (done, until) = match (good, found) {
        (Some(stored), _) => (Renewal::Verified, stored.not_after),
        (None, before) => {
            let until = issue(cluster, &identity, resource_id).await?;
            (if before.is_some() { Renewal::Renewed } else { Renewal::Created }, until)
        }
    };
    cluster.record(hold, |record| record.identity_certificate_expires = Some(until)).await?;
    Ok(Some((done, until)))
}

fn read(secret: &VaultSecret) -> Option<StoredCertificate> {
    serde_json::from_str(secret.value.expose()).ok()
}

/// Whether a certificate must be replaced: it is another identity's, or old enough.
fn is_due(stored: &StoredCertificate, identity: &str, now: Timestamp) -> bool {
    let renew_from = stored.not_before.saturating_add(SignedDuration::from_hours(24 * RENEW_FROM_DAY));
    !stored.identity.eq_ignore_ascii_case(identity)
        || stored.not_after <= now
        || renew_from.is_ok_and(|from| from <= now)
}

async fn issue(
    cluster: &ManagedCluster,
    identity: &ResourceId,
    spelled: &str,
) -> Result<Timestamp, StepError> {
    let issued = cluster.identities.identity_certificate(identity).await.map_err(retryable)?;
    let (Some(not_before), Some(not_after)) = (issued.certificate.not_before, issued.certificate.not_after)
    else {
        let message = format!("the certificate of {spelled} does not say from when until when it is good");
        return Err(StepError::transient("Identity", message));
    };
    let stored = StoredCertificate {
        identity: spelled.to_owned(),
        certificate: issued.chain_pem,
        key: issued.key_pem.expose().clone(),
        not_before,
        not_after,
    };
    let text = serde_json::to_string(&stored).map(Secret::new);
    let text = text.map_err(|_| StepError::terminal("Identity", "the certificate cannot be stored"))?;
    let put = cluster.vault.put_secret(&secret_name(cluster), text.expose(), Some(not_after)).await;
    put.map_err(retryable)?;
    Ok(not_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_from_day_46_on_and_for_another_identity() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let stored = StoredCertificate {
            identity: "/subscriptions/s/x/A".to_owned(),
            certificate: String::new(),
            key: String::new(),
            not_before: at("2026-01-01T00:00:00Z"),
            not_after: at("2026-04-01T00:00:00Z"),
        };
        let due = |identity: &str, now: &str| is_due(&stored, identity, at(now));
        assert!(!due("/subscriptions/S/x/a", "2026-02-15T23:59:59Z"));
        assert!(due("/subscriptions/s/x/a", "2026-02-16T00:00:00Z"));
        assert!(due("/subscriptions/s/x/a", "2026-05-01T00:00:00Z"));
        assert!(due("/subscriptions/s/x/b", "2026-01-02T00:00:00Z"));
    }
}
