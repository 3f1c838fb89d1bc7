//! What a cluster's removal consists of. Everything tolerates that there is nothing (any more): a cluster may be half made, and
//! a removal may have been interrupted.

use std::sync::Arc;

use api::doc::{Identity, StepName};
use cloud::{CloudError, Properties, Resource, ResourceId, ResourceKind, ResourceRequest, ResourceState};
use serde_json::json;
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::resources::remove;
use steps::lifecycle::{ClusterSnapshot, certificates as shared, resource_id, store_failed};

use super::network::{change_subnet, subnets};
use super::{base, done, identities, names, prepare, step_names};
use crate::Context;

/// Nobody makes anything of it any more.
pub(crate) async fn stop_installer(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    cx.installer.remove(cx.life.cluster()).await?;
    cx.life.connections.forget(cx.life.cluster());
    done()
}

/// Its names lead nowhere.
pub(crate) async fn names(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    if !ours.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::default()));
    }
    let mut own = Vec::new();
    for record in names::records(&cx.life, &ours) {
        // A cluster that was refused for its name has none; what is there is another's.
        match cx.life.cloud.infrastructure.get(&record).await? {
            Some(found) if !names::is_own_record(&cx.life, &ours, &found) => {}
            _ => own.push(record),
        }
    }
    remove(&*cx.life.cloud.infrastructure, &own).await
}

/// Our own way to its API server is gone.
pub(crate) async fn private_endpoint(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    remove(&*cx.life.cloud.infrastructure, &[names::private_endpoint(&cx.life)]).await
}

/// The step that leaves for those after it whether the group is ours.
const OWNED_BY: StepName = step_names::ENSURE_RESOURCE_GROUP;

/// Makes sure whose the group is, by putting it as it was made: a cloud that does not show it yet, or that has taken our rights
/// over it, still knows who manages it. Best effort; where it cannot be put, what is seen decides.
pub(crate) async fn ensure_group(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let is_ours = match cx.life.cloud.infrastructure.put(base::group_put(&ours)?).await {
        Ok(_) => true,
        Err(CloudError::InUse { .. })
            if cx.life.cloud.infrastructure.get(&ours.group()?).await?.is_none() =>
        {
            return Ok(PollStatus::Waiting("the resource group is being removed".to_owned()));
        }
        Err(error @ (CloudError::Throttled { .. } | CloudError::Unavailable { .. })) => {
            return Err(error.into());
        }
        Err(_) => {
            let found = cx.life.cloud.infrastructure.get(&ours.group()?).await?;
            found.is_some_and(|it| base::is_own_group(&ours, &it))
        }
    };
    let said = if is_ours { "it is the cluster's own" } else { "it is not the cluster's own, and stays" };
    Ok(PollStatus::Done(StepOutcome {
        memory: json!({ "ours": is_ours }),
        ..StepOutcome::with_message(said)
    }))
}

/// The group that we manage for it, if it is ours.
fn own_group(step: &StepContext, ours: &ClusterSnapshot) -> Result<Option<ResourceId>, StepError> {
    let is_ours = step.memory.get(OWNED_BY.as_str()).is_some_and(|it| it["ours"] == true);
    is_ours.then(|| ours.group()).transpose()
}

/// What is left in the group; nothing when it is not there.
async fn left(cx: &Context, step: &StepContext) -> Result<Vec<Resource>, StepError> {
    let ours = cx.life.snapshot().await?;
    let Some(group) = own_group(step, &ours)? else { return Ok(Vec::new()) };
    match cx.life.cloud.infrastructure.list(&group).await {
        Ok(all) => Ok(all),
        // Whoever may not even list it has nothing there any more.
        Err(CloudError::NotFound { .. } | CloudError::Denied { .. }) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The roles that were given over the group.
pub(crate) async fn role_assignments(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let Some(group) = own_group(&step, &ours)? else { return done() };
    let given = match cx.life.cloud.identities.role_assignments(&group).await {
        Ok(given) => given,
        Err(error) if error.is_not_found() => return done(),
        Err(error) => return Err(error.into()),
    };
    for role in given.into_iter().filter(|it| it.role != "Owner") {
        cx.life.cloud.identities.revoke_role(&role.scope, &role.name).await?;
    }
    done()
}

/// At which level a resource is removed; lower ones first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Machines,
    Middle,
    Guards,
}

fn level(kind: ResourceKind) -> Level {
    match kind {
        ResourceKind::Machine | ResourceKind::PrivateEndpoint => Level::Machines,
        ResourceKind::SecurityGroup => Level::Guards,
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
        | ResourceKind::Identity => Level::Middle,
    }
}

async fn remove_level(cx: &Context, step: &StepContext, wanted: Level) -> Result<PollStatus, StepError> {
    let all = left(cx, step).await?;
    let ids: Vec<ResourceId> =
        all.into_iter().filter(|it| level(it.properties.kind()) == wanted).map(|it| it.id).collect();
    remove(&*cx.life.cloud.infrastructure, &ids).await
}

/// The machines, and private ways to others.
pub(crate) async fn machines(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    remove_level(&cx, &step, Level::Machines).await
}

/// All that nothing stands on any more.
pub(crate) async fn resources(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    remove_level(&cx, &step, Level::Middle).await
}

/// The customer's subnets are as they brought them, as far as our security group goes.
pub(crate) async fn detach_security_groups(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    // Before there was an infra id there was no security group.
    let Ok(own) = names::security_group(&ours) else { return Ok(PollStatus::Done(StepOutcome::default())) };
    for id in subnets(&ours)? {
        // The customer may have removed the subnet.
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
        let look = change_subnet(&cx, &id, |subnet| *subnet.security_group = None);
        if let waiting @ PollStatus::Waiting(_) = look.await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// The security groups.
pub(crate) async fn security_groups(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    remove_level(&cx, &step, Level::Guards).await
}

/// The group itself, with whatever somebody put into it since, and with what the cloud did not show.
pub(crate) async fn resource_group(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    match own_group(&step, &ours)? {
        Some(group) => remove(&*cx.life.cloud.infrastructure, &[group]).await,
        None => Ok(PollStatus::Done(StepOutcome::default())),
    }
}

/// The tokens of its service accounts speak for no identity of the customer's any more. Best effort: the identities are the
/// customer's, and tokens of a cluster that is gone are good for nothing.
pub(crate) async fn federated_credentials(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<StepOutcome, StepError> {
    let ours = cx.life.snapshot().await?;
    let Identity::Workload { platform, .. } = &ours.spec().identity else { return done() };
    for (operator, identity) in platform {
        if let Err(error) = unfederate(&cx, &identity.resource_id).await {
            tracing::warn!(cluster.id = %cx.life.cluster(), error = %error.full_message(), "The federated credentials of {operator} of cluster {} stay", ours.document().name);
        }
    }
    done()
}

async fn unfederate(cx: &Context, id: &str) -> Result<(), StepError> {
    let id = resource_id(id)?;
    let Some(Resource { location, tags, properties: Properties::Identity { mut federated, .. }, .. }) =
        cx.life.cloud.infrastructure.get(&id).await?
    else {
        return Ok(());
    };
    let (own, before) = (identities::own_prefix(cx), federated.len());
    federated.retain(|name, _| !name.starts_with(&own));
    if federated.len() == before {
        return Ok(());
    }
    let properties = Properties::Identity { federated, client_id: None, principal_id: None, tenant_id: None };
    cx.life.cloud.infrastructure.put(ResourceRequest { id, location, tags, properties, token: None }).await?;
    Ok(())
}

/// The certificate of its identity.
pub(crate) async fn identity_certificate(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    cx.life.cloud.vault.delete_secret(&cx.life.identity_secret()).await?;
    done()
}

/// Its certificates.
pub(crate) async fn certificates(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    shared::remove(&cx.life).await?;
    done()
}

/// The token by which it pulled images; its name was recorded before it was made.
pub(crate) async fn registry_token(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    if let Some(token) = &cx.life.snapshot().await?.record().registry_token {
        cx.life.cloud.registry.delete_token(&token.name).await?;
    }
    done()
}

/// It is billed no longer.
pub(crate) async fn billing(cx: Arc<Context>, step: StepContext) -> Result<StepOutcome, StepError> {
    let record = prepare::billing_record(&cx).await?;
    let records = cx.life.records.store.billing().with_lease(step.hold);
    records
        .ensure_closed(&record, cx.life.clock.now(), &cx.life.records.author())
        .await
        .map_err(store_failed)?;
    done()
}
