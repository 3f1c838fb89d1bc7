//! What a cluster is given before anything of it is made: names, keys, tokens, certificates; and what is billed.

use std::sync::Arc;

use api::doc::{Billing, secrets};
use api::secret::Secret;
use cloud::Size;
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::{certificates as shared, registry, store_failed};

use super::done;
use crate::Context;

/// Machines are spread over so many zones at most.
const ZONES_MAX: usize = 3;
/// The feature of a subscription that wants large packets.
const LARGE_PACKETS: &str = "Microsoft.RedHatOpenShift/MTU3900";
/// Names of machines begin with the infra id; a longer one would not fit.
const NAME_PART_MAX: usize = 15;

/// Chooses the zones: those where the control plane's size can be had.
pub(crate) async fn zones(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    if !ours.record().zones.is_empty() {
        return done();
    }
    let document = ours.document();
    let sizes = cx.life.cloud.infrastructure.sizes(&document.subscription_id, &document.location).await?;
    let zones = choose_zones(&sizes, &ours.spec().master.vm_size).map_err(|message| {
        user_error("InvalidParameter", message, Some("properties.masterProfile.VMSize"))
    })?;
    let said = match zones.as_slice() {
        [] => "the location has no zones".to_owned(),
        zones => format!("zones {}", zones.join(", ")),
    };
    cx.life.record(step.hold, |record| record.zones.clone_from(&zones)).await?;
    Ok(StepOutcome::with_message(said))
}

fn choose_zones(sizes: &[Size], master: &str) -> Result<Vec<String>, String> {
    let size = sizes.iter().find(|it| it.name.eq_ignore_ascii_case(master));
    let size = size.ok_or_else(|| format!("The size {master} cannot be had in the cluster's location."))?;
    let mut zones = size.zones.clone();
    zones.sort();
    zones.truncate(ZONES_MAX);
    Ok(zones)
}

/// The token by which it pulls images.
pub(crate) async fn registry_token(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let token = registry::ensure_token(&cx.life, step.hold).await?;
    Ok(StepOutcome::with_message(format!("token {}", token.name)))
}

/// Another password for the token, when the present one is old.
pub(crate) async fn rotate_registry_token(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    if !registry::is_old(ours.record().registry_token.as_ref(), cx.life.clock.now()) {
        return Ok(StepOutcome::with_message("the password is young enough"));
    }
    let token = registry::issue(&cx.life, step.hold).await?;
    Ok(StepOutcome::with_message(format!("token {} has a new password", token.name)))
}

/// The prefix of the names of all that belongs to it: the name's beginning and five letters.
pub(crate) async fn infra_id(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let fresh = format!("{}-{}", name_part(&ours.document().name), cx.draw("infra-id", 5));
    let recorded = cx
        .life
        .record(step.hold, |record| {
            record.infra_id.get_or_insert_with(|| fresh.clone());
        })
        .await?;
    Ok(StepOutcome::with_message(recorded.infra_id.unwrap_or_default()))
}

/// What of a cluster's name can be part of a host's name: it begins with a letter, which not every cluster's name does.
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

/// The key by which its machines are reached.
pub(crate) async fn ssh_key(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    ensure_key(&cx, &step, secrets::SSH_KEY).await
}

/// Draws a private key, once, and seals it.
pub(crate) async fn ensure_key(
    cx: &Context,
    step: &StepContext,
    name: &'static str,
) -> Result<StepOutcome, StepError> {
    if cx.life.records.secret(name).await?.is_some() {
        return done();
    }
    let key = rcgen::KeyPair::generate();
    let key = key.map_err(|error| StepError::transient("Key", "no key could be drawn").with_source(error))?;
    let key = Secret::new(key.serialize_pem().into_bytes());
    cx.life.records.update(step.hold, &[(name, &key)], |_| ()).await?;
    done()
}

/// The end of the names of its storage accounts.
pub(crate) async fn storage_suffix(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let fresh = cx.draw("storage-suffix", 10);
    let recorded = cx
        .life
        .record(step.hold, |record| {
            let suffix = record.storage_suffix.get_or_insert_with(|| fresh.clone()).clone();
            record.image_registry_storage_account = Some(format!("imageregistry{suffix}"));
        })
        .await?;
    Ok(StepOutcome::with_message(recorded.storage_suffix.unwrap_or_default()))
}

/// The largest packet of its network.
pub(crate) async fn mtu(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let path = format!("/subscriptions/{}", ours.document().subscription_id);
    let subscription = cx.life.records.store.subscriptions().find(&path).await.map_err(store_failed)?;
    let large = subscription
        .is_some_and(|it| it.document.registered_features.iter().any(|feature| feature == LARGE_PACKETS));
    let recorded = cx
        .life
        .record(step.hold, |record| {
            record.mtu.get_or_insert(if large { 3900 } else { 1500 });
        })
        .await?;
    Ok(StepOutcome::with_message(format!("{} bytes", recorded.mtu.unwrap_or_default())))
}

/// The certificates of its API server and its ingress, in the vault.
pub(crate) async fn certificates(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    shared::ensure_issued(&cx.life).await
}

/// It is billed from now on.
pub(crate) async fn billing(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let record = billing_record(&cx).await?;
    let records = cx.life.records.store.billing().with_lease(step.hold);
    records.ensure_open(&record, &cx.life.records.author()).await.map_err(store_failed)?;
    done()
}

/// What is billed for the cluster, from now on.
pub(crate) async fn billing_record(cx: &Context) -> Result<Billing, StepError> {
    let ours = cx.life.snapshot().await?;
    let document = ours.document();
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
    fn at_most_three_zones_are_chosen_and_a_size_that_is_not_there_is_refused() {
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
