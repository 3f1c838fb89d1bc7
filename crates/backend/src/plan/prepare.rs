//! Steps before the deployment of a cluster: zones, names, keys, tokens, certificates; and the billing record.

use std::sync::Arc;

use api::doc::{Billing, secrets};
use api::secret::Secret;
use cloud::Size;
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::{certificates as shared, registry, store_failed};

use super::done;
use crate::Context;

/// Highest number of zones over which machines are spread.
const ZONES_MAX: usize = 3;
/// The subscription feature that enables large packets.
const LARGE_MTU_FEATURE: &str = "Microsoft.RedHatOpenShift/MTU3900";
/// Longest part of the cluster's name in the infra id, with which the names of machines begin.
const NAME_PART_MAX: usize = 15;

/// Chooses the zones in which the VM size of the control plane is available.
pub(crate) async fn zones(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if !snapshot.record().zones.is_empty() {
        return done();
    }
    let document = snapshot.document();
    let sizes = cx.life.cloud.infrastructure.sizes(&document.subscription_id, &document.location).await?;
    let zones = choose_zones(&sizes, &snapshot.spec().master.vm_size).map_err(|message| {
        user_error("InvalidParameter", message, Some("properties.masterProfile.VMSize"))
    })?;
    let message = match zones.as_slice() {
        [] => "the location has no zones".to_owned(),
        zones => format!("zones {}", zones.join(", ")),
    };
    cx.life.record(step.hold, |record| record.zones.clone_from(&zones)).await?;
    Ok(StepOutcome::with_message(message))
}

fn choose_zones(sizes: &[Size], master: &str) -> Result<Vec<String>, String> {
    let size = sizes.iter().find(|it| it.name.eq_ignore_ascii_case(master));
    let size =
        size.ok_or_else(|| format!("The VM size {master} is not available in the cluster's location."))?;
    let mut zones = size.zones.clone();
    zones.sort();
    zones.truncate(ZONES_MAX);
    Ok(zones)
}

/// Ensures the token with which the cluster pulls images.
pub(crate) async fn registry_token(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let token = registry::ensure_token(&cx.life, step.hold).await?;
    Ok(StepOutcome::with_message(format!("token {}", token.name)))
}

/// Rotates the password of the registry token when it is due.
pub(crate) async fn rotate_registry_token(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if !registry::is_old(snapshot.record().registry_token.as_ref(), cx.life.clock.now()) {
        return Ok(StepOutcome::with_message("the password is recent"));
    }
    let token = registry::issue(&cx.life, step.hold).await?;
    Ok(StepOutcome::with_message(format!("token {} has a new password", token.name)))
}

/// Records the prefix of all resource names: the beginning of the cluster's name and five characters.
pub(crate) async fn infra_id(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let fresh = format!("{}-{}", name_part(&snapshot.document().name), cx.derive_suffix("infra-id", 5));
    let recorded = cx
        .life
        .record(step.hold, |record| {
            record.infra_id.get_or_insert_with(|| fresh.clone());
        })
        .await?;
    Ok(StepOutcome::with_message(recorded.infra_id.unwrap_or_default()))
}

/// The part of a cluster's name that is valid in a host name, which must begin with a letter.
fn name_part(name: &str) -> String {
    let name = name.to_lowercase();
    let letters = name.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '-' });
    let letters: String = letters.collect();
    let letters = letters.trim_start_matches('-');
    let before = if letters.starts_with(|it: char| it.is_ascii_digit()) { "c" } else { "" };
    let part: String = before.chars().chain(letters.chars()).take(NAME_PART_MAX).collect();
    let part = part.trim_end_matches('-');
    if part.is_empty() { "aro".to_owned() } else { part.to_owned() }
}

/// Ensures the SSH key of the machines.
pub(crate) async fn ssh_key(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    if cx.life.records.secret(secrets::SSH_KEY).await?.is_some() {
        return done();
    }
    let key = rcgen::KeyPair::generate();
    let key =
        key.map_err(|error| StepError::transient("Key", "generating a key failed").with_source(error))?;
    let key = Secret::new(key.serialize_pem().into_bytes());
    cx.life.records.update(step.hold, &[(secrets::SSH_KEY, &key)], |_| ()).await?;
    done()
}

/// Records the suffix of the names of the storage accounts.
pub(crate) async fn storage_suffix(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let fresh = cx.derive_suffix("storage-suffix", 10);
    let recorded = cx
        .life
        .record(step.hold, |record| {
            let suffix = record.storage_suffix.get_or_insert_with(|| fresh.clone()).clone();
            record.image_registry_storage_account = Some(format!("imageregistry{suffix}"));
        })
        .await?;
    Ok(StepOutcome::with_message(recorded.storage_suffix.unwrap_or_default()))
}

/// Records the MTU of the cluster's network.
pub(crate) async fn mtu(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let path = format!("/subscriptions/{}", snapshot.document().subscription_id);
    let subscription = cx.life.records.store.subscriptions().find(&path).await.map_err(store_failed)?;
    let large = subscription
        .is_some_and(|it| it.document.registered_features.iter().any(|feature| feature == LARGE_MTU_FEATURE));
    let recorded = cx
        .life
        .record(step.hold, |record| {
            record.mtu.get_or_insert(if large { 3900 } else { 1500 });
        })
        .await?;
    Ok(StepOutcome::with_message(format!("{} bytes", recorded.mtu.unwrap_or_default())))
}

/// Ensures the certificates of the API server and the ingress in the vault.
pub(crate) async fn certificates(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    shared::ensure_issued(&cx.life).await
}

/// Opens the billing record.
pub(crate) async fn billing(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let record = billing_record(&cx).await?;
    let records = cx.life.records.store.billing().with_lease(step.hold);
    records.ensure_open(&record, &cx.life.records.author()).await.map_err(store_failed)?;
    done()
}

/// The cluster's billing record, starting now.
pub(crate) async fn billing_record(cx: &Context) -> Result<Billing, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let document = snapshot.document();
    let path = format!("/subscriptions/{}", document.subscription_id);
    let subscription = cx.life.records.store.subscriptions().find(&path).await.map_err(store_failed)?;
    Ok(Billing {
        cluster: cx.life.cluster(),
        cluster_path: api::doc::Document::path(document),
        subscription_id: document.subscription_id.clone(),
        managed_resource_group: document.managed_resource_group.clone(),
        infra_id: document.provisioned.as_deref().and_then(|it| it.record.infra_id.clone()),
        location: document.location.clone(),
        tenant_id: subscription.and_then(|it| it.document.tenant_id),
        creation_time: cx.life.clock.now(),
        deletion_time: None,
        last_billing_time: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_part_of_hosts_names() {
        let check = |name: &str, expect: &str| assert_eq!(name_part(name), expect);
        check("Prod_West.1", "prod-west-1");
        check("a-very-long-name-of-a-cluster", "a-very-long-nam");
        check("---", "aro");
        check("\u{fc}ber", "ber");
        check("1st", "c1st");
        check("9", "c9");
        check("-9-", "c9");
        check("1234567890123456", "c12345678901234");
    }

    #[test]
    fn at_most_three_zones_are_chosen_and_an_unavailable_size_is_rejected() {
        let size = Size {
            name: "Standard_D8s_v5".to_owned(),
            family: "standardDSv5Family".to_owned(),
            cores: 8,
            zones: ["3", "1", "4", "2"].map(str::to_owned).to_vec(),
            encryption_at_host: true,
            availability: cloud::Availability::Available,
        };
        let sizes = [size];
        assert_eq!(choose_zones(&sizes, "standard_d8s_V5").unwrap(), ["1", "2", "3"]);
        assert!(choose_zones(&sizes, "Standard_D2").unwrap_err().contains("Standard_D2"));
    }
}
