//! The group that we manage for a cluster, and what is in it before there are machines.

use std::sync::Arc;

use api::doc::{OutboundType, ResultCode, Switch, Visibility};
use cloud::{
    LoadBalancerFrontend, Properties, Resource, ResourceId, ResourceRequest, RoleAssignment, SecurityRule,
};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::resources::ensure;
use steps::lifecycle::{ClusterSnapshot, resource_id};
use uuid::Uuid;

use super::{done, identities, names};
use crate::Context;

/// What the cluster's principal is in its group.
const CONTRIBUTOR: &str = "Contributor";

/// The group, managed on the cluster's behalf. One that is there already is its customer's, with what is in it.
pub(crate) async fn resource_group(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let put = group_put(&ours)?;
    let taken = || {
        let group = put.id.name();
        let message = format!(
            "The resource group '{group}' already exists; it must be one that is made for the cluster."
        );
        let target = Some("properties.clusterProfile.resourceGroupId");
        user_error("ClusterResourceGroupAlreadyExists", message, target)
    };
    match cx.life.cloud.infrastructure.get(&put.id).await? {
        Some(found) if !is_own_group(&ours, &found) => return Err(taken()),
        _ => {}
    }
    match ensure(&*cx.life.cloud.infrastructure, std::slice::from_ref(&put)).await {
        // One that is not seen yet.
        Err(error) if *error.code() == ResultCode::CONFLICT => Err(taken()),
        look => look,
    }
}

/// The group as it is made.
pub(crate) fn group_put(ours: &ClusterSnapshot) -> Result<ResourceRequest, StepError> {
    let managed_by = Some(ours.document().id.clone());
    let put = put(ours, ours.group()?, Properties::ResourceGroup { managed_by });
    Ok(ResourceRequest { tags: ours.provisioned.tags.clone(), ..put })
}

/// Whether a group that was found is managed for the cluster.
pub(crate) fn is_own_group(ours: &ClusterSnapshot, found: &Resource) -> bool {
    let Properties::ResourceGroup { managed_by } = &found.properties else { return false };
    managed_by.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(&ours.document().id))
}

fn put(ours: &ClusterSnapshot, id: ResourceId, properties: Properties) -> ResourceRequest {
    ResourceRequest {
        id,
        location: ours.document().location.clone(),
        tags: [].into(),
        properties,
        token: None,
    }
}

/// Everything that the machines stand on: storage, security group, addresses, load balancers, roles.
pub(crate) async fn deploy(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    let look = ensure(&*cx.life.cloud.infrastructure, &template(&ours)?).await?;
    if let PollStatus::Done(_) = &look {
        assign(&cx, &ours).await?;
        record_outbound(&cx, &step, &ours).await?;
    }
    Ok(look)
}

/// What the machines stand on, in the order in which it is made.
fn template(ours: &ClusterSnapshot) -> Result<Vec<ResourceRequest>, StepError> {
    let spec = ours.spec();
    let containers = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
    let account = |purpose: &str, names: &[&str]| -> Result<ResourceRequest, StepError> {
        let properties =
            Properties::StorageAccount { containers: containers(names), allowed_subnets: Vec::new() };
        Ok(put(ours, names::storage_account(ours, purpose)?, properties))
    };
    let mut all =
        vec![account("cluster", &["ignition", "aro"])?, account("imageregistry", &["image-registry"])?];
    if spec.network.preconfigured_nsg == Switch::Disabled {
        all.push(put(ours, names::security_group(ours)?, Properties::SecurityGroup { rules: rules(ours) }));
    }
    let master = resource_id(&spec.master.subnet_id)?;
    let internal = Properties::LoadBalancer {
        frontends: vec![LoadBalancerFrontend {
            name: "internal-lb-ip-v4".to_owned(),
            public_ip: None,
            subnet: Some(master),
            address: None,
            ports: vec![6443, 22623],
        }],
        backends: Vec::new(),
        outbound: Vec::new(),
    };
    all.push(put(ours, names::internal_load_balancer(ours)?, internal));
    all.extend(public_part(ours)?);
    Ok(all)
}

fn rules(ours: &ClusterSnapshot) -> Vec<SecurityRule> {
    let rule = |name: &str, priority, port| SecurityRule {
        name: name.to_owned(),
        priority,
        allow: true,
        source: "*".to_owned(),
        port,
    };
    match ours.spec().api_visibility {
        Visibility::Public => vec![rule("apiserver_in", 120, 6443)],
        Visibility::Private => Vec::new(),
    }
}

/// Whether the cluster has a public load balancer.
fn has_public_part(ours: &ClusterSnapshot) -> bool {
    let spec = ours.spec();
    spec.api_visibility == Visibility::Public || spec.network.outbound_type == OutboundType::Loadbalancer
}

/// How many public addresses its traffic leaves from.
fn outbound_count(ours: &ClusterSnapshot) -> u32 {
    let network = &ours.spec().network;
    match network.outbound_type {
        OutboundType::Loadbalancer => network.managed_outbound_ips.unwrap_or(1).max(1),
        OutboundType::UserDefinedRouting => 0,
    }
}

/// The public load balancer with its addresses.
fn public_part(ours: &ClusterSnapshot) -> Result<Vec<ResourceRequest>, StepError> {
    if !has_public_part(ours) {
        return Ok(Vec::new());
    }
    let outbound = match outbound_count(ours) {
        0 => Vec::new(),
        count => names::outbound_addresses(ours, count)?,
    };
    let mut addresses = outbound.clone();
    let api = names::api_address(ours)?;
    if !addresses.contains(&api) {
        addresses.push(api.clone());
    }
    let mut all: Vec<ResourceRequest> =
        addresses.into_iter().map(|id| put(ours, id, Properties::PublicIp { address: None })).collect();
    let ports = match ours.spec().api_visibility {
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
    all.push(put(ours, names::load_balancer(ours)?, properties));
    Ok(all)
}

/// What the cluster's principal, or the platform's identities, may do in its group.
pub(crate) async fn assign_roles(cx: Arc<Context>, _: StepContext) -> Result<StepOutcome, StepError> {
    assign(&cx, &cx.life.snapshot().await?).await?;
    done()
}

async fn assign(cx: &Context, ours: &ClusterSnapshot) -> Result<(), StepError> {
    let mut wanted = identities::platform_roles(cx, ours).await?;
    let principal = ours.record().service_principal_object_id.clone();
    wanted.extend(principal.map(|principal| (principal, CONTRIBUTOR.to_owned())));
    if wanted.is_empty() {
        return Ok(());
    }
    // The name follows from what it says, so that a repetition is the same one and another principal gets another.
    let named = |principal: &str, role: &str| {
        Uuid::new_v5(&cx.life.cluster(), format!("{role}/{principal}").as_bytes()).to_string()
    };
    let scope = ours.group()?;
    let given = cx.life.cloud.identities.role_assignments(&scope).await?;
    for (principal, role) in &wanted {
        let (name, scope) = (named(principal, role), scope.clone());
        let (principal, role) = (principal.clone(), role.clone());
        cx.life.cloud.identities.assign_role(&RoleAssignment { name, principal, role, scope }).await?;
    }
    // A principal that was replaced keeps nothing. What others gave has other names, and stays.
    let is_ours = |it: &RoleAssignment| it.name == named(&it.principal, &it.role);
    let is_wanted = |it: &RoleAssignment| wanted.contains(&(it.principal.clone(), it.role.clone()));
    for old in given.into_iter().filter(|it| is_ours(it) && !is_wanted(it)) {
        cx.life.cloud.identities.revoke_role(&old.scope, &old.name).await?;
    }
    Ok(())
}

async fn record_outbound(cx: &Context, step: &StepContext, ours: &ClusterSnapshot) -> Result<(), StepError> {
    let ids = match outbound_count(ours) {
        0 => Vec::new(),
        count => names::outbound_addresses(ours, count)?,
    };
    let ids: Vec<String> = ids.into_iter().map(String::from).collect();
    cx.life.record(step.hold, |record| record.effective_outbound_ips.clone_from(&ids)).await?;
    Ok(())
}

/// As many public addresses for outgoing traffic as are wanted; those that are too many go after the load balancer has let go
/// of them.
pub(crate) async fn reconcile_outbound(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    if let waiting @ PollStatus::Waiting(_) =
        ensure(&*cx.life.cloud.infrastructure, &public_part(&ours)?).await?
    {
        return Ok(waiting);
    }
    let wanted = names::outbound_addresses(&ours, outbound_count(&ours))?;
    // What the cloud holds, not what is recorded: an update that failed made more than it recorded.
    let held = cx.life.cloud.infrastructure.list(&ours.group()?).await?.into_iter().map(|it| it.id);
    let surplus: Vec<ResourceId> =
        held.filter(|it| names::is_further_outbound_address(&ours, it) && !wanted.contains(it)).collect();
    if let waiting @ PollStatus::Waiting(_) =
        steps::lifecycle::resources::remove(&*cx.life.cloud.infrastructure, &surplus).await?
    {
        return Ok(waiting);
    }
    record_outbound(&cx, &step, &ours).await?;
    Ok(PollStatus::Done(StepOutcome::with_message(format!("{} addresses", wanted.len()))))
}
