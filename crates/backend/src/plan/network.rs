//! The cluster's network: settings of the customer's subnets, addresses, DNS names, and the private endpoint to the API server.

use std::sync::Arc;

use api::doc::{Switch, Visibility};
use cloud::{Properties, Resource, ResourceId, ResourceRequest};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::resources::{ensure, expect};
use steps::lifecycle::{ClusterSnapshot, resource_id};

use super::names;
use crate::Context;

/// Cloud services that machines reach through service endpoints.
const SERVICE_ENDPOINTS: [&str; 2] = ["Microsoft.ContainerRegistry", "Microsoft.Storage"];
/// TTL of DNS records, in seconds.
const TTL: u32 = 300;

/// Ensures the DNS zone of the service's clusters, and that no other cluster uses this cluster's domain.
pub(crate) async fn zone(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if !snapshot.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::with_message("the customer manages the DNS names")));
    }
    let zone = cx.life.service.zone_puts(names::label_and_zone(&snapshot).1);
    if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &zone).await? {
        return Ok(waiting);
    }
    for record in names::records(&cx.life, &snapshot) {
        if let Some(waiting) = expect_free(&cx, &snapshot, &record).await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Rejects a DNS record that another cluster owns. The store guarantees unique domains, but not for clusters that an earlier release
/// accepted, nor for records that were added to the zone manually. Waits for a record that is being removed.
async fn expect_free(
    cx: &Context,
    snapshot: &ClusterSnapshot,
    record: &ResourceId,
) -> Result<Option<PollStatus>, StepError> {
    let Some(found) = cx.life.cloud.infrastructure.get(record).await? else { return Ok(None) };
    if names::is_own_record(&cx.life, snapshot, &found) {
        return Ok(None);
    }
    if found.state == cloud::ResourceState::Deleting {
        return Ok(Some(PollStatus::Waiting(format!(
            "record {} of another cluster is being removed",
            record.name()
        ))));
    }
    let message = format!("The provided domain '{}' is already in use by another cluster.", snapshot.domain);
    Err(user_error("DuplicateDomain", message, Some("properties.clusterProfile.domain")))
}

/// The customer's subnets without duplicates.
pub(crate) fn subnets(snapshot: &ClusterSnapshot) -> Result<Vec<ResourceId>, StepError> {
    let mut all = vec![resource_id(&snapshot.spec().master.subnet_id)?];
    for pool in &snapshot.spec().workers {
        let id = resource_id(&pool.subnet_id)?;
        if !all.contains(&id) {
            all.push(id);
        }
    }
    Ok(all)
}

/// The properties of a subnet that the service changes.
pub(crate) struct SubnetSettings<'a> {
    pub(crate) security_group: &'a mut Option<ResourceId>,
    pub(crate) service_endpoints: &'a mut Vec<String>,
    pub(crate) private_link_policies: &'a mut bool,
}

/// Updates the settings of a customer's subnet, unless they are up to date.
pub(crate) async fn change_subnet(
    cx: &Context,
    id: &ResourceId,
    change: impl Fn(SubnetSettings<'_>),
) -> Result<PollStatus, StepError> {
    let Some(found) = cx.life.cloud.infrastructure.get(id).await? else {
        return Err(StepError::transient("NotSeen", format!("subnet {id} was not found")));
    };
    let mut properties = found.properties.clone();
    let Properties::Subnet { security_group, service_endpoints, private_link_policies, .. } = &mut properties
    else {
        return Err(StepError::terminal("Invalid", format!("{id} is not a subnet")));
    };
    change(SubnetSettings { security_group, service_endpoints, private_link_policies });
    if properties == found.properties && found.state == cloud::ResourceState::Succeeded {
        return Ok(PollStatus::Done(StepOutcome::default()));
    }
    let put = ResourceRequest { id: id.clone(), location: found.location, tags: found.tags, properties };
    ensure(&*cx.life.cloud.infrastructure, &[put]).await
}

/// Ensures the service endpoints for storage and registry on the subnets.
pub(crate) async fn service_endpoints(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    for id in subnets(&snapshot)? {
        let update = change_subnet(&cx, &id, |subnet| {
            for wanted in SERVICE_ENDPOINTS {
                if !subnet.service_endpoints.iter().any(|it| it == wanted) {
                    subnet.service_endpoints.push(wanted.to_owned());
                }
            }
        });
        if let waiting @ PollStatus::Waiting(_) = update.await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Disables the private link policies of the control plane's subnet.
pub(crate) async fn master_subnet_policies(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let master = resource_id(&snapshot.spec().master.subnet_id)?;
    change_subnet(&cx, &master, |subnet| *subnet.private_link_policies = false).await
}

/// Attaches the security group to the subnets, unless the customer provides security groups.
pub(crate) async fn attach_security_groups(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if snapshot.spec().network.preconfigured_nsg == Switch::Enabled {
        return Ok(PollStatus::Done(StepOutcome::with_message("the customer provides the security groups")));
    }
    let own = names::security_group(&snapshot)?;
    for id in subnets(&snapshot)? {
        let update = change_subnet(&cx, &id, |subnet| {
            *subnet.security_group = Some(own.clone());
        });
        if let waiting @ PollStatus::Waiting(_) = update.await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Records the addresses of the API server and creates its DNS record.
pub(crate) async fn api_address(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let internal = frontend_address(&cx, &names::internal_load_balancer(&snapshot)?).await?;
    let address = match snapshot.spec().api_visibility {
        Visibility::Public => public_address(&cx, &names::api_address(&snapshot)?).await?,
        Visibility::Private => internal.clone(),
    };
    cx.life
        .record(step.hold, |record| {
            record.api_internal_ip = Some(internal.clone());
            record.api_ip = Some(address.clone());
        })
        .await?;
    ensure_record(&cx, &snapshot, 0, &address).await
}

/// Reserves and records the address of the default ingress and creates the DNS record of applications.
pub(crate) async fn ingress_address(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let public = snapshot.spec().ingress.iter().all(|it| it.visibility == Visibility::Public);
    let address = if public {
        let id = names::ingress_address(&snapshot)?;
        let location = snapshot.document().location.clone();
        let properties = Properties::PublicIp { address: None };
        let put = ResourceRequest { id: id.clone(), location, tags: [].into(), properties };
        if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &[put]).await? {
            return Ok(waiting);
        }
        public_address(&cx, &id).await?
    } else {
        frontend_address(&cx, &names::internal_load_balancer(&snapshot)?).await?
    };
    cx.life.record(step.hold, |record| record.ingress_ip = Some(address.clone())).await?;
    ensure_record(&cx, &snapshot, 1, &address).await
}

/// Ensures a DNS record of the cluster: that of the API server (0) or of applications (1).
async fn ensure_record(
    cx: &Context,
    snapshot: &ClusterSnapshot,
    index: usize,
    address: &str,
) -> Result<PollStatus, StepError> {
    if !snapshot.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::with_message(address)));
    }
    let id = names::records(&cx.life, snapshot)[index].clone();
    if let Some(waiting) = expect_free(cx, snapshot, &id).await? {
        return Ok(waiting);
    }
    let location = cx.life.service.location.clone();
    let properties = Properties::DnsRecord { ttl: TTL, addresses: vec![address.to_owned()] };
    let tags = [(names::OWNER.to_owned(), cx.life.cluster().to_string())].into();
    ensure(&*cx.life.cloud.infrastructure, &[ResourceRequest { id, location, tags, properties }]).await
}

async fn public_address(cx: &Context, id: &ResourceId) -> Result<String, StepError> {
    match expect(&*cx.life.cloud.infrastructure, id).await?.properties {
        Properties::PublicIp { address: Some(address) } => Ok(address),
        _ => Err(StepError::transient("NotSeen", format!("{} has no address yet", id.name()))),
    }
}

async fn frontend_address(cx: &Context, id: &ResourceId) -> Result<String, StepError> {
    let found = expect(&*cx.life.cloud.infrastructure, id).await?;
    let Resource { properties: Properties::LoadBalancer { frontends, .. }, .. } = found else {
        return Err(StepError::terminal("Invalid", format!("{id} is not a load balancer")));
    };
    let address = frontends.into_iter().find_map(|it| it.address);
    address.ok_or_else(|| StepError::transient("NotSeen", format!("{} has no address yet", id.name())))
}

/// Ensures the private endpoint through which the service reaches the API server, and records its address.
pub(crate) async fn private_endpoint(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let service = &cx.life.service;
    let id = names::private_endpoint(&cx.life);
    let properties = Properties::PrivateEndpoint {
        subnet: service.subnet_id(),
        target: names::private_link_service(&snapshot)?,
        address: None,
        link_id: None,
    };
    let mut wanted = service.network();
    wanted.push(ResourceRequest {
        id: id.clone(),
        location: service.location.clone(),
        tags: [].into(),
        properties,
    });
    if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &wanted).await? {
        return Ok(waiting);
    }
    let Properties::PrivateEndpoint { address: Some(address), .. } =
        expect(&*cx.life.cloud.infrastructure, &id).await?.properties
    else {
        return Ok(PollStatus::Waiting(format!("{} has no address yet", id.name())));
    };
    cx.life.record(step.hold, |record| record.private_endpoint_ip = Some(address.clone())).await?;
    Ok(PollStatus::Done(StepOutcome::with_message(address)))
}
