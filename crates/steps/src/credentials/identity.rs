//! The certificate of a cluster's own identity: fetched from the cloud's identity service, kept in the vault, renewed in time.

use api::doc::Identity;
use api::secret::Secret;
use cloud::{ResourceId, VaultSecret};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use store::WorkLease;

use super::{Ours, for_now};
use crate::engine::StepError;

/// A certificate is replaced from this day of its life on; the identity service issues the next one from day 45 on.
const RENEW_FROM_DAY: i64 = 46;

/// What was done about a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// There was none; there is now.
    Created,
    /// It was replaced.
    Renewed,
    /// It is good.
    Verified,
}

/// A certificate as the vault keeps it. The key is in here, so it is shown by nobody.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    /// Whose it is.
    identity: String,
    /// The chain, in PEM.
    certificate: String,
    /// The key, in PEM.
    key: String,
    /// From when it is good.
    not_before: Timestamp,
    /// Until when it is good.
    not_after: Timestamp,
}

/// The name of the secret in the vault.
fn secret_name(ours: &Ours) -> String {
    format!("{}-identity", ours.uuid)
}

/// Makes sure that the vault holds a certificate of the cluster's identity that lasts: what was done, and until when it is good.
/// None when the cluster works as a service principal and needs none.
pub async fn ensure_identity_certificate(
    ours: &Ours,
    hold: WorkLease,
    now: Timestamp,
) -> Result<Option<(Renewal, Timestamp)>, StepError> {
    let Identity::Workload { resource_id, .. } = &ours.provisioned.spec.identity else { return Ok(None) };
    let wrong = |error: cloud::ResourceIdError| {
        let message = format!("the cluster's identity {resource_id} is no resource id");
        StepError::terminal("Identity", message).because(error)
    };
    let identity: ResourceId = resource_id.parse().map_err(wrong)?;
    let found = ours.vault.secret(&secret_name(ours)).await.map_err(for_now)?;
    let good = found.as_ref().and_then(read).filter(|kept| !is_due(kept, resource_id, now));
    let (done, until) = match (good, found) {
        (Some(kept), _) => (Renewal::Verified, kept.not_after),
        (None, before) => {
            let until = issue(ours, &identity, resource_id).await?;
            (if before.is_some() { Renewal::Renewed } else { Renewal::Created }, until)
        }
    };
    ours.record(hold, |record| record.identity_certificate_expires = Some(until)).await?;
    Ok(Some((done, until)))
}

fn read(secret: &VaultSecret) -> Option<Kept> {
    serde_json::from_str(secret.value.expose()).ok()
}

/// Whether a certificate must be replaced: it is another identity's, or old enough.
fn is_due(kept: &Kept, identity: &str, now: Timestamp) -> bool {
    let renew_from = kept.not_before.saturating_add(SignedDuration::from_hours(24 * RENEW_FROM_DAY));
    !kept.identity.eq_ignore_ascii_case(identity)
        || kept.not_after <= now
        || renew_from.is_ok_and(|from| from <= now)
}

async fn issue(ours: &Ours, identity: &ResourceId, spelled: &str) -> Result<Timestamp, StepError> {
    let issued = ours.identities.identity_certificate(identity).await.map_err(for_now)?;
    let (Some(not_before), Some(not_after)) = (issued.certificate.not_before, issued.certificate.not_after)
    else {
        let message = format!("the certificate of {spelled} does not say from when until when it is good");
        return Err(StepError::transient("Identity", message));
    };
    let kept = Kept {
        identity: spelled.to_owned(),
        certificate: issued.chain_pem,
        key: issued.key_pem.expose().clone(),
        not_before,
        not_after,
    };
    let text = serde_json::to_string(&kept).map(Secret::new);
    let text = text.map_err(|_| StepError::terminal("Identity", "the certificate cannot be kept"))?;
    let put = ours.vault.put_secret(&secret_name(ours), text.expose(), Some(not_after)).await;
    put.map_err(for_now)?;
    Ok(not_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_from_day_46_on_and_when_it_is_anothers() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let kept = Kept {
            identity: "/subscriptions/s/x/A".to_owned(),
            certificate: String::new(),
            key: String::new(),
            not_before: at("2026-01-01T00:00:00Z"),
            not_after: at("2026-04-01T00:00:00Z"),
        };
        let due = |identity: &str, now: &str| is_due(&kept, identity, at(now));
        assert!(!due("/subscriptions/S/x/a", "2026-02-15T23:59:59Z"));
        assert!(due("/subscriptions/s/x/a", "2026-02-16T00:00:00Z"));
        assert!(due("/subscriptions/s/x/a", "2026-05-01T00:00:00Z"));
        assert!(due("/subscriptions/s/x/b", "2026-01-02T00:00:00Z"));
    }
}
