//! The managed resource group of a cluster, and its resources that the machines require.

use std::sync::Arc;

use api::doc::{OutboundType, ResultCode, Switch, Visibility};
use cloud::{
    LoadBalancerFrontend, Properties, Resource, ResourceId, ResourceRequest, RoleAssignment, SecurityRule,
};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::resources::{ensure, ensure_stages};
use steps::lifecycle::{ClusterSnapshot, resource_id};
use uuid::Uuid;

use super::{done, identities, names, network};
use crate::Context;

/// Role of the cluster's service principal in its group.
const CONTRIBUTOR: &str = "Contributor";

/// Ensures the managed resource group. Rejects an existing group, because it belongs to the customer.
pub(crate) async fn resource_group(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let put = group_request(&snapshot)?;
    let taken = || {
        let group = put.id.name();
        let message = format!("The resource group '{group}' already exists. Name one that does not exist.");
        let target = Some("properties.clusterProfile.resourceGroupId");
        user_error("ClusterResourceGroupAlreadyExists", message, target)
    };
    match cx.life.cloud.infrastructure.get(&put.id).await? {
        Some(found) if !is_own_group(&snapshot, &found) => return Err(taken()),
        _ => {}
    }
    match ensure(&*cx.life.cloud.infrastructure, std::slice::from_ref(&put)).await {
        // The group exists, but the cloud does not show it yet.
        Err(error) if *error.code() == ResultCode::CONFLICT => Err(taken()),
        status => status,
    }
}

/// The request that creates the group.
pub(crate) fn group_request(snapshot: &ClusterSnapshot) -> Result<ResourceRequest, StepError> {
    let managed_by = Some(snapshot.document().id.clone());
    let put = put(snapshot, snapshot.group()?, Properties::ResourceGroup { managed_by });
    Ok(ResourceRequest { tags: snapshot.provisioned.tags.clone(), ..put })
}

/// Whether a group is managed on behalf of the cluster.
pub(crate) fn is_own_group(snapshot: &ClusterSnapshot, found: &Resource) -> bool {
    let Properties::ResourceGroup { managed_by } = &found.properties else { return false };
    managed_by.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(&snapshot.document().id))
}

fn put(snapshot: &ClusterSnapshot, id: ResourceId, properties: Properties) -> ResourceRequest {
    ResourceRequest { id, location: snapshot.document().location.clone(), tags: [].into(), properties }
}

/// The ports of the internal load balancer: the API server, the machine config server, and SSH on each machine of the control plane.
const INTERNAL_PORTS: [u16; 5] = [6443, 22623, 2200, 2201, 2202];
/// The frontend of the internal load balancer.
const INTERNAL_FRONTEND: &str = "internal-lb-ip-v4";

/// Ensures the resources that the machines require: storage, security group, addresses, load balancers, roles.
pub(crate) async fn deploy(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    let status = ensure_stages(&*cx.life.cloud.infrastructure, &template(&cx, &snapshot)?).await?;
    if let PollStatus::Done(_) = &status {
        assign(&cx, &snapshot).await?;
        record_outbound(&cx, &step, &snapshot).await?;
    }
    Ok(status)
}

/// The resources that the machines require, in stages: load balancers refer to addresses, the private link service to a load balancer.
fn template(cx: &Context, snapshot: &ClusterSnapshot) -> Result<Vec<Vec<ResourceRequest>>, StepError> {
    let spec = snapshot.spec();
    let containers = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    // Their service endpoints were ensured before.
    let allowed_subnets = network::subnets(snapshot)?;
    let account = |purpose: &str, names: &[&str]| -> Result<ResourceRequest, StepError> {
        let (containers, allowed_subnets) = (containers(names), allowed_subnets.clone());
        let properties = Properties::StorageAccount { containers, allowed_subnets };
        Ok(put(snapshot, names::storage_account(snapshot, purpose)?, properties))
    };
    let mut independent =
        vec![account("cluster", &["ignition", "aro"])?, account("imageregistry", &["image-registry"])?];
    if spec.network.preconfigured_nsg == Switch::Disabled {
        independent.push(put(
            snapshot,
            names::security_group(snapshot)?,
            Properties::SecurityGroup { rules: rules(snapshot) },
        ));
    }
    let master = resource_id(&spec.master.subnet_id)?;
    let internal = Properties::LoadBalancer {
        frontends: vec![LoadBalancerFrontend {
            name: INTERNAL_FRONTEND.to_owned(),
            public_ip: None,
            subnet: Some(master.clone()),
            address: None,
            ports: INTERNAL_PORTS.to_vec(),
        }],
        backends: Vec::new(),
        outbound: Vec::new(),
    };
    let internal_id = names::internal_load_balancer(snapshot)?;
    let link = Properties::PrivateLinkService {
        frontends: vec![internal_id.child("frontendIPConfigurations", INTERNAL_FRONTEND).to_string()],
        subnet: master,
        subscriptions: vec![cx.life.service.subscription.clone()],
        alias: None,
        connections: Vec::new(),
    };
    let link = put(snapshot, names::private_link_service(snapshot)?, link);
    let mut balancers = vec![put(snapshot, internal_id, internal)];
    if let Some(PublicResources { addresses, balancer }) = public_resources(snapshot)? {
        independent.extend(addresses);
        balancers.push(balancer);
    }
    Ok(vec![independent, balancers, vec![link]])
}

fn rules(snapshot: &ClusterSnapshot) -> Vec<SecurityRule> {
    let rule = |name: &str, priority, port| SecurityRule {
        name: name.to_owned(),
        priority,
        allow: true,
        source: "*".to_owned(),
        port,
    };
    match snapshot.spec().api_visibility {
        Visibility::Public => vec![rule("apiserver_in", 120, 6443)],
        Visibility::Private => Vec::new(),
    }
}

/// Whether the cluster has a public load balancer.
fn has_public_load_balancer(snapshot: &ClusterSnapshot) -> bool {
    let spec = snapshot.spec();
    spec.api_visibility == Visibility::Public || spec.network.outbound_type == OutboundType::Loadbalancer
}

/// Number of public addresses for outbound traffic.
fn outbound_count(snapshot: &ClusterSnapshot) -> u32 {
    let network = &snapshot.spec().network;
    match network.outbound_type {
        OutboundType::Loadbalancer => network.managed_outbound_ips.unwrap_or(1).max(1),
        OutboundType::UserDefinedRouting => 0,
    }
}

/// The public load balancer with its addresses.
struct PublicResources {
    addresses: Vec<ResourceRequest>,
    balancer: ResourceRequest,
}

/// The public load balancer, if the cluster has one.
fn public_resources(snapshot: &ClusterSnapshot) -> Result<Option<PublicResources>, StepError> {
    if !has_public_load_balancer(snapshot) {
        return Ok(None);
    }
    let outbound = match outbound_count(snapshot) {
        0 => Vec::new(),
        count => names::outbound_addresses(snapshot, count)?,
    };
    let mut addresses = outbound.clone();
    let api = names::api_address(snapshot)?;
    if !addresses.contains(&api) {
        addresses.push(api.clone());
    }
    let addresses =
        addresses.into_iter().map(|id| put(snapshot, id, Properties::PublicIp { address: None })).collect();
    let ports = match snapshot.spec().api_visibility {
        Visibility::Public => vec![6443],
        Visibility::Private => Vec::new(),
    };
    let frontend = LoadBalancerFrontend {
        name: "public-lb-ip-v4".to_owned(),
        public_ip: Some(api),
        subnet: None,
        address: None,
        ports,
    };
    let properties = Properties::LoadBalancer { frontends: vec![frontend], backends: Vec::new(), outbound };
    let balancer = put(snapshot, names::load_balancer(snapshot)?, properties);
    Ok(Some(PublicResources { addresses, balancer }))
}

/// Ensures the role assignments of the service principal or the platform's identities on the group.
pub(crate) async fn assign_roles(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    assign(&cx, &cx.life.snapshot().await?).await?;
    done()
}

async fn assign(cx: &Context, snapshot: &ClusterSnapshot) -> Result<(), StepError> {
    let mut wanted = identities::platform_roles(cx, snapshot).await?;
    let principal = snapshot.record().service_principal_object_id.clone();
    wanted.extend(principal.map(|principal| (principal, CONTRIBUTOR.to_owned())));
    if wanted.is_empty() {
        return Ok(());
    }
    // The name is derived from role and principal, so that a repetition replaces the assignment, and another principal gets another.
    let assignment_name = |principal: &str, role: &str| {
        Uuid::new_v5(&cx.life.cluster(), format!("{role}/{principal}").as_bytes()).to_string()
    };
    let scope = snapshot.group()?;
    let existing = cx.life.cloud.identities.role_assignments(&scope).await?;
    for (principal, role) in &wanted {
        let (name, scope) = (assignment_name(principal, role), scope.clone());
        let (principal, role) = (principal.clone(), role.clone());
        cx.life.cloud.identities.assign_role(&RoleAssignment { name, principal, role, scope }).await?;
    }
    // Revoke the roles of a replaced principal. Assignments of others have other names, and remain.
    let is_own = |it: &RoleAssignment| it.name == assignment_name(&it.principal, &it.role);
    let is_wanted = |it: &RoleAssignment| wanted.contains(&(it.principal.clone(), it.role.clone()));
    for old in existing.into_iter().filter(|it| is_own(it) && !is_wanted(it)) {
        cx.life.cloud.identities.revoke_role(&old.scope, &old.name).await?;
    }
    Ok(())
}

async fn record_outbound(
    cx: &Context,
    step: &StepContext,
    snapshot: &ClusterSnapshot,
) -> Result<(), StepError> {
    let ids = match outbound_count(snapshot) {
        0 => Vec::new(),
        count => names::outbound_addresses(snapshot, count)?,
    };
    let ids: Vec<String> = ids.into_iter().map(String::from).collect();
    cx.life.record(step.hold, |record| record.effective_outbound_ips.clone_from(&ids)).await?;
    Ok(())
}

/// Ensures the desired number of public addresses for outbound traffic. Surplus addresses are removed after the load balancer no
/// longer uses them.
pub(crate) async fn reconcile_outbound(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    if let Some(PublicResources { addresses, balancer }) = public_resources(&snapshot)?
        && let waiting @ PollStatus::Waiting(_) =
            ensure_stages(&*cx.life.cloud.infrastructure, &[addresses, vec![balancer]]).await?
    {
        return Ok(waiting);
    }
    let wanted = names::outbound_addresses(&snapshot, outbound_count(&snapshot))?;
    // From the cloud, not from the record: a failed update may have created more than it recorded.
    let existing = cx.life.cloud.infrastructure.list(&snapshot.group()?).await?.into_iter().map(|it| it.id);
    let surplus: Vec<ResourceId> = existing
        .filter(|it| names::is_additional_outbound_address(&snapshot, it) && !wanted.contains(it))
        .collect();
    if let waiting @ PollStatus::Waiting(_) =
        steps::lifecycle::resources::remove(&*cx.life.cloud.infrastructure, &surplus).await?
    {
        return Ok(waiting);
    }
    record_outbound(&cx, &step, &snapshot).await?;
    Ok(PollStatus::Done(StepOutcome::with_message(format!("{} addresses", wanted.len()))))
}
