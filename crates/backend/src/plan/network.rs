//! The cluster's networks: the customer's subnets made fit, addresses, names, and our own way to the API server.

use std::sync::Arc;

use api::doc::{Switch, Visibility};
use cloud::{Properties, Resource, ResourceId, ResourceRequest};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::resources::{ensure, expect};
use steps::lifecycle::{ClusterSnapshot, resource_id};

use super::names;
use crate::Context;

/// Services of the cloud that machines reach directly.
const SERVICE_ENDPOINTS: [&str; 2] = ["Microsoft.ContainerRegistry", "Microsoft.Storage"];
/// Names are asked for again after so many seconds.
const TTL: u32 = 300;

/// The zone of the service's clusters' names, in which nobody else has this cluster's.
pub(crate) async fn zone(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    if !ours.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::with_message("the customer keeps the cluster's names")));
    }
    let zone = cx.life.service.zone_puts(names::label_and_zone(&ours).1);
    if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &zone).await? {
        return Ok(waiting);
    }
    for record in names::records(&cx.life, &ours) {
        if let Some(waiting) = expect_free(&cx, &ours, &record).await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// Refuses a name that leads elsewhere: the store lets no two clusters have the same, but it does not know of those that an
/// earlier build took in, nor of what somebody wrote into the zone by hand. What must go first is waited for.
async fn expect_free(
    cx: &Context,
    ours: &ClusterSnapshot,
    record: &ResourceId,
) -> Result<Option<PollStatus>, StepError> {
    let Some(found) = cx.life.cloud.infrastructure.get(record).await? else { return Ok(None) };
    if names::is_own_record(&cx.life, ours, &found) {
        return Ok(None);
    }
    if found.state == cloud::ResourceState::Deleting {
        return Ok(Some(PollStatus::Waiting(format!("{} of another is still being removed", record.name()))));
    }
    let message = format!("The provided domain '{}' is already in use by another cluster.", ours.domain);
    Err(user_error("DuplicateDomain", message, Some("properties.clusterProfile.domain")))
}

/// The customer's subnets, each once.
pub(crate) fn subnets(ours: &ClusterSnapshot) -> Result<Vec<ResourceId>, StepError> {
    let mut all = vec![resource_id(&ours.spec().master.subnet_id)?];
    for pool in &ours.spec().workers {
        let id = resource_id(&pool.subnet_id)?;
        if !all.contains(&id) {
            all.push(id);
        }
    }
    Ok(all)
}

/// The parts of a subnet that we change.
pub(crate) struct SubnetParts<'a> {
    pub(crate) security_group: &'a mut Option<ResourceId>,
    pub(crate) service_endpoints: &'a mut Vec<String>,
    pub(crate) private_link_policies: &'a mut bool,
}

/// Changes a subnet of the customer's in the parts that are ours, if it is not so already; what is waited for.
pub(crate) async fn change_subnet(
    cx: &Context,
    id: &ResourceId,
    change: impl Fn(SubnetParts<'_>),
) -> Result<PollStatus, StepError> {
    let Some(found) = cx.life.cloud.infrastructure.get(id).await? else {
        return Err(StepError::transient("NotSeen", format!("subnet {id} is not seen")));
    };
    let mut properties = found.properties.clone();
    let Properties::Subnet { security_group, service_endpoints, private_link_policies, .. } = &mut properties
    else {
        return Err(StepError::terminal("Invalid", format!("{id} is not a subnet")));
    };
    change(SubnetParts { security_group, service_endpoints, private_link_policies });
    if properties == found.properties && found.state == cloud::ResourceState::Succeeded {
        return Ok(PollStatus::Done(StepOutcome::default()));
    }
    let put = ResourceRequest {
        id: id.clone(),
        location: found.location,
        tags: found.tags,
        properties,
        token: None,
    };
    ensure(&*cx.life.cloud.infrastructure, &[put]).await
}

/// Machines reach storage and registry directly.
pub(crate) async fn service_endpoints(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    for id in subnets(&ours)? {
        let look = change_subnet(&cx, &id, |subnet| {
            for wanted in SERVICE_ENDPOINTS {
                if !subnet.service_endpoints.iter().any(|it| it == wanted) {
                    subnet.service_endpoints.push(wanted.to_owned());
                }
            }
        });
        if let waiting @ PollStatus::Waiting(_) = look.await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// The control plane's subnet lets private links through.
pub(crate) async fn master_subnet_policies(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let master = resource_id(&ours.spec().master.subnet_id)?;
    change_subnet(&cx, &master, |subnet| *subnet.private_link_policies = false).await
}

/// The security group guards the subnets, unless the customer brings others.
pub(crate) async fn attach_security_groups(
    cx: Arc<Context>,
    _: StepContext,
) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    if ours.spec().network.preconfigured_nsg == Switch::Enabled {
        return Ok(PollStatus::Done(StepOutcome::with_message("the customer brings the security groups")));
    }
    let own = names::security_group(&ours)?;
    for id in subnets(&ours)? {
        let look = change_subnet(&cx, &id, |subnet| {
            *subnet.security_group = Some(own.clone());
        });
        if let waiting @ PollStatus::Waiting(_) = look.await? {
            return Ok(waiting);
        }
    }
    Ok(PollStatus::Done(StepOutcome::default()))
}

/// The addresses of the API server are recorded, and its name leads there.
pub(crate) async fn api_address(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let internal = frontend_address(&cx, &names::internal_load_balancer(&ours)?).await?;
    let address = match ours.spec().api_visibility {
        Visibility::Public => public_address(&cx, &names::api_address(&ours)?).await?,
        Visibility::Private => internal.clone(),
    };
    cx.life
        .record(step.hold, |record| {
            record.api_internal_ip = Some(internal.clone());
            record.api_ip = Some(address.clone());
        })
        .await?;
    lead(&cx, &ours, 0, &address).await
}

/// The address of the default ingress is reserved and recorded, and the applications' names lead there.
pub(crate) async fn ingress_address(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let public = ours.spec().ingress.iter().all(|it| it.visibility == Visibility::Public);
    let address = if public {
        let id = names::ingress_address(&ours)?;
        let location = ours.document().location.clone();
        let properties = Properties::PublicIp { address: None };
        let put = ResourceRequest { id: id.clone(), location, tags: [].into(), properties, token: None };
        if let waiting @ PollStatus::Waiting(_) = ensure(&*cx.life.cloud.infrastructure, &[put]).await? {
            return Ok(waiting);
        }
        public_address(&cx, &id).await?
    } else {
        frontend_address(&cx, &names::internal_load_balancer(&ours)?).await?
    };
    cx.life.record(step.hold, |record| record.ingress_ip = Some(address.clone())).await?;
    lead(&cx, &ours, 1, &address).await
}

/// Makes a name of the cluster lead to an address: that of the API server (0) or of applications (1).
async fn lead(
    cx: &Context,
    ours: &ClusterSnapshot,
    which: usize,
    address: &str,
) -> Result<PollStatus, StepError> {
    if !ours.is_domain_managed() {
        return Ok(PollStatus::Done(StepOutcome::with_message(address)));
    }
    let id = names::records(&cx.life, ours)[which].clone();
    if let Some(waiting) = expect_free(cx, ours, &id).await? {
        return Ok(waiting);
    }
    let location = cx.life.service.location.clone();
    let properties = Properties::DnsRecord { ttl: TTL, addresses: vec![address.to_owned()] };
    let tags = [(names::OWNER.to_owned(), cx.life.cluster().to_string())].into();
    ensure(&*cx.life.cloud.infrastructure, &[ResourceRequest { id, location, tags, properties, token: None }])
        .await
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

/// The private way by which this service reaches the API server.
pub(crate) async fn private_endpoint(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let service = &cx.life.service;
    let id = names::private_endpoint(&cx.life);
    let properties = Properties::PrivateEndpoint {
        subnet: service.subnet_id(),
        target: names::internal_load_balancer(&ours)?,
        address: None,
        link_id: None,
    };
    let mut wanted = service.network();
    wanted.push(ResourceRequest {
        id: id.clone(),
        location: service.location.clone(),
        tags: [].into(),
        properties,
        token: None,
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
