//! The steps of a cluster's removal. Each tolerates missing resources: the creation of the cluster may be incomplete, and an earlier
//! removal may have been interrupted.

use std::sync::Arc;

use api::doc::Identity;
use cloud::{CloudError, Properties, Resource, ResourceId, ResourceKind, ResourceRequest, ResourceState};
use serde::{Deserialize, Serialize};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::resources::remove;
use steps::lifecycle::{ClusterSnapshot, certificates as shared, resource_id, store_failed};

use super::network::{change_subnet, subnets};
use super::{base, done, issuer, names, prepare, step_names};
use crate::Context;

/// Stops the installation, if it still runs.
pub(crate) async fn stop_installer(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    cx.installer.remove(cx.life.cluster()).await?;
    cx.life.connections.forget(cx.life.cluster());
    done()
}

/// Removes the DNS records of the cluster.
pub(crate) async fn names(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if !snapshot.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::default()));
    }
    let mut own = Vec::new();
    for record in names::records(&cx.life, &snapshot) {
        // A cluster that was rejected for its domain owns no record; the existing one belongs to another cluster.
        match cx.life.cloud.infrastructure.get(&record).await? {
            Some(found) if !names::is_own_record(&cx.life, &snapshot, &found) => {}
            _ => own.push(record),
        }
    }
    remove(&*cx.life.cloud.infrastructure, &own).await
}

/// Removes the private endpoint to the API server.
pub(crate) async fn private_endpoint(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    remove(&*cx.life.cloud.infrastructure, &[names::private_endpoint(&cx.life)]).await
}

/// What the check of the resource group leaves for the steps after it.
#[derive(Serialize, Deserialize)]
struct GroupOwnership {
    /// Whether the cluster owns the group.
    ours: bool,
}

/// Determines whether the cluster owns its resource group, by repeating the PUT that created it: a cloud that does not show the
/// group yet, or that revoked our permissions on it, still knows who manages it. Best effort: if the PUT fails, the group that GET
/// returns decides.
pub(crate) async fn ensure_group(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let is_own = match cx.life.cloud.infrastructure.put(base::group_request(&snapshot)?).await {
        Ok(_) => true,
        Err(CloudError::InUse { .. })
            if cx.life.cloud.infrastructure.get(&snapshot.group()?).await?.is_none() =>
        {
            return Ok(PollStatus::Waiting("the resource group is being removed".to_owned()));
        }
        Err(error @ (CloudError::Throttled { .. } | CloudError::Unavailable { .. })) => {
            return Err(error.into());
        }
        Err(_) => {
            let found = cx.life.cloud.infrastructure.get(&snapshot.group()?).await?;
            found.is_some_and(|it| base::is_own_group(&snapshot, &it))
        }
    };
    let message = if is_own {
        "the resource group belongs to the cluster"
    } else {
        "the resource group does not belong to the cluster; keeping it"
    };
    Ok(PollStatus::Done(StepOutcome::with_message(message).with_memory(&GroupOwnership { ours: is_own })))
}

/// The managed resource group, if the cluster owns it.
fn own_group(step: &StepContext, snapshot: &ClusterSnapshot) -> Result<Option<ResourceId>, StepError> {
    let ownership = step.memory_of::<GroupOwnership>(&step_names::ENSURE_RESOURCE_GROUP);
    ownership.is_some_and(|it| it.ours).then(|| snapshot.group()).transpose()
}

/// Resources left in the group; empty if the group does not exist.
async fn remaining_resources(cx: &Context, step: &StepContext) -> Result<Vec<Resource>, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let Some(group) = own_group(step, &snapshot)? else { return Ok(Vec::new()) };
    match cx.life.cloud.infrastructure.list(&group).await {
        Ok(all) => Ok(all),
        // Without permission to list the group there is nothing left to remove in it.
        Err(CloudError::NotFound { .. } | CloudError::Denied { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// Revokes the role assignments on the group.
pub(crate) async fn role_assignments(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let Some(group) = own_group(&step, &snapshot)? else { return done() };
    let assignments = match cx.life.cloud.identities.role_assignments(&group).await {
        Ok(assignments) => assignments,
        Err(error) if error.is_not_found() => return done(),
        Err(error) => return Err(error.into()),
    };
    for role in assignments.into_iter().filter(|it| it.role != "Owner") {
        cx.life.cloud.identities.revoke_role(&role.scope, &role.name).await?;
    }
    done()
}

/// Order in which resources are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Machines,
    PrivateLinkServices,
    Interfaces,
    Others,
    /// Security groups, which subnets still reference, and private zones, whose links go first.
    Last,
}

fn level(kind: ResourceKind) -> Level {
    match kind {
        ResourceKind::Machine | ResourceKind::PrivateEndpoint => Level::Machines,
        ResourceKind::PrivateLinkService => Level::PrivateLinkServices,
        ResourceKind::NetworkInterface => Level::Interfaces,
        ResourceKind::SecurityGroup | ResourceKind::PrivateDnsZone => Level::Last,
        ResourceKind::ResourceGroup
        | ResourceKind::VirtualNetwork
        | ResourceKind::Subnet
        | ResourceKind::RouteTable
        | ResourceKind::NatGateway
        | ResourceKind::PublicIp
        | ResourceKind::LoadBalancer
        | ResourceKind::DnsZone
        | ResourceKind::DnsRecord
        | ResourceKind::StorageAccount
        | ResourceKind::Disk
        | ResourceKind::DiskEncryptionSet
        | ResourceKind::PrivateDnsRecord
        | ResourceKind::PrivateDnsLink
        | ResourceKind::Lock
        | ResourceKind::Identity => Level::Others,
    }
}

/// Removes the resources of these levels, each after those of the level before.
async fn remove_levels(cx: &Context, step: &StepContext, wanted: &[Level]) -> Result<PollStatus, StepError> {
    let all = remaining_resources(cx, step).await?;
    for wanted in wanted {
        let of_level = all.iter().filter(|it| level(it.properties.kind()) == *wanted);
        let ids: Vec<ResourceId> = of_level.map(|it| it.id.clone()).collect();
        if let waiting @ PollStatus::Waiting(_) = remove(&*cx.life.cloud.infrastructure, &ids).await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Removes the machines and private endpoints.
pub(crate) async fn machines(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    remove_levels(&cx, &step, &[Level::Machines]).await
}

/// Removes all other resources but those of the last level.
pub(crate) async fn resources(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    remove_levels(&cx, &step, &[Level::PrivateLinkServices, Level::Interfaces, Level::Others]).await
}

/// Detaches the cluster's security group from the customer's subnets.
pub(crate) async fn detach_security_groups(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    // Without an infra id no security group was created.
    let Ok(own) = names::security_group(&snapshot) else {
        return Ok(PollStatus::Done(StepOutcome::default()));
    };
    for id in subnets(&snapshot)? {
        // The customer may have deleted the subnet.
        let Some(Resource { properties: Properties::Subnet { security_group, .. }, state, .. }) =
            cx.life.cloud.infrastructure.get(&id).await?
        else {
            continue;
        };
        if security_group.as_ref() != Some(&own) {
            if state == ResourceState::Updating {
                return Ok(PollStatus::Waiting(format!("subnet {} is being changed", id.name())));
            }
            continue;
        }
        let update = change_subnet(&cx, &id, |subnet| *subnet.security_group = None);
        if let waiting @ PollStatus::Waiting(_) = update.await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Removes the security groups and private zones.
pub(crate) async fn security_groups(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    remove_levels(&cx, &step, &[Level::Last]).await
}

/// Removes the group itself, with resources that others added and that the cloud did not list.
pub(crate) async fn resource_group(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    match own_group(&step, &snapshot)? {
        Some(group) => remove(&*cx.life.cloud.infrastructure, &[group]).await,
        None => Ok(PollStatus::Done(StepOutcome::default())),
    }
}

/// Removes the cluster's federated credentials from the customer's identities. Best effort: the identities belong to the customer,
/// and the tokens of a deleted cluster are not accepted anywhere.
pub(crate) async fn federated_credentials(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<StepOutcome, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let Identity::Workload { platform, .. } = &snapshot.spec().identity else { return done() };
    // A cluster that was rejected before it had an issuer has no credentials.
    let Ok(issuer) = issuer::issuer(&cx, &snapshot) else { return done() };
    let own = issuer::credential_prefix(&issuer);
    for (operator, identity) in platform {
        if let Err(error) = unfederate(&cx, &identity.resource_id, &own).await {
            tracing::warn!(cluster.id = %cx.life.cluster(), error = %error.full_message(), "Removing the federated credentials of operator {operator} of cluster {} failed; they remain", snapshot.document().name);
        }
    }
    done()
}

async fn unfederate(cx: &Context, id: &str, own: &str) -> Result<(), StepError> {
    let id = resource_id(id)?;
    let Some(Resource { location, tags, properties: Properties::Identity { mut federated, .. }, .. }) =
        cx.life.cloud.infrastructure.get(&id).await?
    else {
        return Ok(());
    };
    let before = federated.len();
    federated.retain(|name, _| !name.starts_with(own));
    if federated.len() == before {
        return Ok(());
    }
    let properties = Properties::Identity { federated, client_id: None, principal_id: None, tenant_id: None };
    cx.life.cloud.infrastructure.put(ResourceRequest { id, location, tags, properties }).await?;
    Ok(())
}

/// Deletes the certificate of the cluster's identity.
pub(crate) async fn identity_certificate(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    cx.life.cloud.vault.delete_secret(&cx.life.identity_secret()).await?;
    done()
}

/// Deletes the certificates of the API server and the ingress.
pub(crate) async fn certificates(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    shared::remove(&cx.life).await?;
    done()
}

/// Deletes the registry token; its name is recorded before the token is created.
pub(crate) async fn registry_token(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    if let Some(token) = &cx.life.snapshot().await?.record().registry_token {
        cx.life.cloud.registry.delete_token(&token.name).await?;
    }
    done()
}

/// Closes the billing record.
pub(crate) async fn billing(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let record = prepare::billing_record(&cx).await?;
    let records = cx.life.records.store.billing().with_lease(step.hold);
    records
        .ensure_closed(&record, cx.life.clock.now(), &cx.life.records.author())
        .await
        .map_err(store_failed)?;
    done()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_stored_ownership_is_read() {
        for ours in [true, false] {
            let stored = json!({"ours": ours});
            let ownership = GroupOwnership::deserialize(&stored).unwrap();
            assert_eq!((ownership.ours, json!(ownership)), (ours, stored));
        }
    }
}
