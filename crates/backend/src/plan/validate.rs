//! The first step of a create and an update: validates that the resources in the customer's request exist, and that the service
//! and the cluster may use them.
//!
//! Facts are gathered first, pure functions check them. Permissions that were just granted take minutes to propagate: the step
//! waits for missing ones until the propagation timeout, and then reports them to the customer.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::cidr;
use api::doc::{Identity, OutboundType, Spec, Switch};
use cloud::capacity::{
    CapacityProblem, ENCRYPTION_FEATURE, Pool, exceeded_quota, unavailable_size, unregistered_feature,
    unregistered_provider,
};
use cloud::{CloudError, Credential, Principal, Properties, Resource, ResourceId, ResourceState};
use futures_util::future::join_all;
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::{ClusterSnapshot, resource_id};

use super::issuer::issuer;
use super::names;
use crate::Context;

const MASTER_SUBNET: &str = "properties.masterProfile.subnetId";
const PRINCIPAL: &str = "properties.servicePrincipalProfile";
const OUTBOUND: &str = "properties.networkProfile.loadBalancerProfile.managedOutboundIps.count";
/// Longest prefix of a subnet: a smaller subnet has too few addresses for a pool.
const SUBNET_BITS_MAX: u8 = 27;

/// An error in the customer's request or in the resources that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InvalidInput {
    code: &'static str,
    message: String,
    /// Path of the field in the request.
    target: String,
    /// Whether it is a missing permission, which may only need time to propagate.
    may_propagate: bool,
}

impl InvalidInput {
    fn new(code: &'static str, target: &str, message: String) -> InvalidInput {
        InvalidInput { code, message, target: target.to_owned(), may_propagate: false }
    }
}

/// Validates the resources in the customer's request.
pub(crate) async fn resources(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    match first_invalid(&cx, &snapshot).await? {
        None => Ok(PollStatus::Done(StepOutcome::with_message("the resources and permissions are valid"))),
        Some(invalid) if invalid.may_propagate && cx.may_still_propagate() => {
            Ok(PollStatus::Waiting(invalid.message))
        }
        Some(invalid) => Err(user_error(invalid.code, invalid.message, Some(&invalid.target))),
    }
}

/// Validates the capacity of the subscription before a cluster is created, and then the same as [`resources`]. The API checks the
/// capacity too when it accepts the request, as far as the cloud responds in time, but other clusters may have used it since.
pub(crate) async fn resources_before_create(
    cx: Arc<Context>,
    step: StepContext,
) -> Result<PollStatus, StepError> {
    let snapshot = cx.life.snapshot().await?;
    // Resources of an earlier attempt count as used, and were checked before they were created.
    if snapshot.record().infra_id.is_none()
        && let Some(CapacityProblem { code, message, target }) = capacity_problem(&cx, &snapshot).await?
    {
        return Err(user_error(code.as_str(), message, target.as_deref()));
    }
    resources(cx, step).await
}

/// The first size, feature, quota or provider that the subscription lacks.
async fn capacity_problem(
    cx: &Context,
    snapshot: &ClusterSnapshot,
) -> Result<Option<CapacityProblem>, StepError> {
    let (cloud, spec, document) = (&cx.life.cloud.infrastructure, snapshot.spec(), snapshot.document());
    let (subscription, location) = (&document.subscription_id, &document.location);
    let is_on = |it: Switch| it == Switch::Enabled;
    let masters = Pool::masters(&spec.master.vm_size, is_on(spec.master.encryption_at_host));
    let workers =
        spec.workers.iter().enumerate().map(|(at, it)| {
            Pool::workers(at, &it.vm_size, is_on(it.encryption_at_host), u64::from(it.count))
        });
    let pools: Vec<Pool> = std::iter::once(masters).chain(workers).collect();
    // A read that fails must not hide a problem that the earlier ones show.
    let (sizes, usages, providers) = tokio::join!(
        cloud.sizes(subscription, location),
        cloud.usages(subscription, location),
        cloud.providers(subscription)
    );
    if let Some(problem) = unavailable_size(&sizes?, &pools, location) {
        return Ok(Some(problem));
    }
    if pools.iter().any(|it| it.is_encrypted)
        && cloud.feature(subscription, ENCRYPTION_FEATURE).await? != Some(true)
    {
        return Ok(Some(unregistered_feature()));
    }
    let outbound = spec.network.managed_outbound_ips.unwrap_or(1);
    if let Some(problem) = exceeded_quota(&usages?, &pools, outbound) {
        return Ok(Some(problem));
    }
    Ok(unregistered_provider(&providers?))
}

async fn first_invalid(cx: &Context, snapshot: &ClusterSnapshot) -> Result<Option<InvalidInput>, StepError> {
    let spec = snapshot.spec();
    let credential = cx.life.credential(spec).await?;
    if let Some(invalid) = principal(cx, snapshot, &credential).await? {
        return Ok(Some(invalid));
    }
    if let Some(invalid) = check_ranges(spec) {
        return Ok(Some(invalid));
    }
    let subnets = Subnets::gather(cx, spec).await?;
    if let Some(invalid) = subnets.check(snapshot) {
        return Ok(Some(invalid));
    }
    // Permissions of the cluster's identity, then those of the service.
    let required = subnets.required_permissions(spec);
    let of = |credential, code| {
        required
            .iter()
            .map(move |(id, target, actions)| check_permissions(cx, credential, code, id, target, actions))
    };
    let checks = of(&credential, permission_code(spec)).chain(of(&Credential::Service, SERVICE_PERMISSIONS));
    for checked in join_all(checks).await {
        if let Some(invalid) = checked? {
            return Ok(Some(invalid));
        }
    }
    if let Some(invalid) = disk_encryption_sets(cx, snapshot, &credential).await? {
        return Ok(Some(invalid));
    }
    outbound_addresses(cx, snapshot).await
}

const SERVICE_PERMISSIONS: &str = "InvalidResourceProviderPermissions";

/// Error code for a missing permission of the cluster's identity.
fn permission_code(spec: &Spec) -> &'static str {
    match spec.identity {
        Identity::ServicePrincipal { .. } => "InvalidServicePrincipalPermissions",
        Identity::Workload { .. } => "InvalidWorkloadIdentityPermissions",
    }
}

/// Checks the claims of the service principal, or that the platform's identities exist and may be used.
async fn principal(
    cx: &Context,
    snapshot: &ClusterSnapshot,
    credential: &Credential,
) -> Result<Option<InvalidInput>, StepError> {
    match &snapshot.spec().identity {
        Identity::ServicePrincipal { .. } => match cx.life.cloud.identities.principal(credential).await {
            Ok(principal) => Ok(check_principal(&principal)),
            Err(error @ CloudError::Credential { .. }) => Ok(Some(InvalidInput::new(
                "InvalidServicePrincipalCredentials",
                PRINCIPAL,
                error.to_string(),
            ))),
            Err(error) => Err(error.into()),
        },
        Identity::Workload { platform, .. } => {
            let issuer = issuer(cx, snapshot)?;
            for (operator, identity) in platform {
                let target = format!(
                    "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities.{operator}"
                );
                let id = resource_id(&identity.resource_id)?;
                let code = "InvalidClusterMSIPermissions";
                let Some(found) = cx.life.cloud.infrastructure.get(&id).await? else {
                    let message = format!("The identity {id} of operator {operator} was not found.");
                    return Ok(Some(InvalidInput::new(
                        "InvalidWorkloadIdentityPermissions",
                        &target,
                        message,
                    )));
                };
                if let Some(invalid) = check_federation(&found, operator, &issuer, &target) {
                    return Ok(Some(invalid));
                }
                let actions = [
                    "Microsoft.ManagedIdentity/userAssignedIdentities/read",
                    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read",
                    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write",
                    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/delete",
                ];
                if let Some(invalid) = check_permissions(cx, credential, code, &id, &target, &actions).await?
                {
                    return Ok(Some(invalid));
                }
            }
            Ok(None)
        }
    }
}

/// Checks that an operator's identity is federated with this cluster only: another issuer could act as the operator.
fn check_federation(identity: &Resource, operator: &str, issuer: &str, target: &str) -> Option<InvalidInput> {
    let Properties::Identity { federated, .. } = &identity.properties else { return None };
    let own = format!("{issuer}|");
    let foreign = federated.keys().find(|name| !name.starts_with(&own))?;
    let message = format!(
        "The identity {} of operator {operator} has the federated credential {foreign}, which is not of this cluster; remove \
         it.",
        identity.id
    );
    Some(InvalidInput::new("PlatformWorkloadIdentityContainsInvalidCredential", target, message))
}

fn check_principal(principal: &Principal) -> Option<InvalidInput> {
    let claims = ["altsecid", "oid", "puid"];
    if !principal.claims.iter().any(|it| claims.contains(&it.as_str())) {
        let message =
            "The token of the service principal has none of the claims altsecid, oid and puid.".to_owned();
        return Some(InvalidInput::new("InvalidServicePrincipalClaims", PRINCIPAL, message));
    }
    let forbidden = "Application.ReadWrite.OwnedBy";
    if principal.directory_roles.iter().any(|it| it == forbidden) {
        let message = format!("The service principal must not hold the application role {forbidden}.");
        return Some(InvalidInput::new("InvalidServicePrincipalCredentials", PRINCIPAL, message));
    }
    None
}

/// Checks that a credential has permission for all of these actions on a resource.
async fn check_permissions(
    cx: &Context,
    credential: &Credential,
    code: &'static str,
    id: &ResourceId,
    target: &str,
    actions: &[&str],
) -> Result<Option<InvalidInput>, StepError> {
    let missing: Vec<String> = match cx.life.cloud.identities.permissions(credential, id, actions).await {
        Ok(permissions) => permissions.into_iter().filter(|it| !it.allowed).map(|it| it.action).collect(),
        Err(CloudError::Denied { action, .. }) => vec![action],
        Err(error) => return Err(error.into()),
    };
    Ok((!missing.is_empty()).then(|| InvalidInput {
        may_propagate: true,
        ..InvalidInput::new(code, target, format!("Missing on {id}: {}.", missing.join(", ")))
    }))
}

/// The subnets in the customer's request, their virtual networks and the resources attached to them.
struct Subnets {
    /// Path of the field in the request, id, and the subnet if it exists.
    subnets: Vec<(String, ResourceId, Option<Resource>)>,
    networks: BTreeMap<String, (ResourceId, Option<Resource>)>,
    /// Route tables and NAT gateways of the subnets.
    attached: BTreeMap<String, Attached>,
}

/// A resource attached to a subnet.
struct Attached {
    id: ResourceId,
    /// Path of the field that names the subnet.
    field: String,
    kind: Attachment,
    exists: bool,
}

#[derive(Debug, Clone, Copy)]
enum Attachment {
    RouteTable,
    NatGateway,
}

impl Attachment {
    /// Error code and noun for a missing resource.
    fn missing(self) -> (&'static str, &'static str) {
        match self {
            Attachment::RouteTable => ("InvalidLinkedRouteTable", "route table"),
            Attachment::NatGateway => ("InvalidLinkedNatGateway", "NAT gateway"),
        }
    }

    fn actions(self) -> Vec<&'static str> {
        match self {
            Attachment::RouteTable => vec![
                "Microsoft.Network/routeTables/join/action",
                "Microsoft.Network/routeTables/read",
                "Microsoft.Network/routeTables/write",
            ],
            Attachment::NatGateway => vec![
                "Microsoft.Network/natGateways/join/action",
                "Microsoft.Network/natGateways/read",
                "Microsoft.Network/natGateways/write",
            ],
        }
    }
}

impl Subnets {
    async fn gather(cx: &Context, spec: &Spec) -> Result<Subnets, StepError> {
        let mut named = vec![(MASTER_SUBNET.to_owned(), resource_id(&spec.master.subnet_id)?)];
        for (index, pool) in spec.workers.iter().enumerate() {
            let id = resource_id(&pool.subnet_id)?;
            if !named.iter().any(|(_, other)| *other == id) {
                named.push((format!("properties.workerProfiles[{index}].subnetId"), id));
            }
        }
        let cloud = &cx.life.cloud.infrastructure;
        let mut all = Subnets { subnets: Vec::new(), networks: BTreeMap::new(), attached: BTreeMap::new() };
        for (field, id) in named {
            let found = cloud.get(&id).await?;
            if let Some(network) = id.parent()
                && !all.networks.contains_key(&network.key())
            {
                let found = cloud.get(&network).await?;
                all.networks.insert(network.key(), (network, found));
            }
            if let Some(Resource {
                properties: Properties::Subnet { route_table, nat_gateway, .. }, ..
            }) = &found
            {
                let table = route_table.iter().map(|id| (Attachment::RouteTable, id));
                let gateway = nat_gateway.iter().map(|id| (Attachment::NatGateway, id));
                for (kind, id) in table.chain(gateway) {
                    let (exists, id, field) = (cloud.get(id).await?.is_some(), id.clone(), field.clone());
                    all.attached.entry(id.key()).or_insert(Attached { id, field, kind, exists });
                }
            }
            all.subnets.push((field, id, found));
        }
        Ok(all)
    }

    /// Checks everything but permissions.
    fn check(&self, snapshot: &ClusterSnapshot) -> Option<InvalidInput> {
        let spec = snapshot.spec();
        for (id, found) in self.networks.values() {
            let Some(network) = found else {
                let message = format!("The virtual network {id} was not found.");
                return Some(InvalidInput::new("InvalidLinkedVNet", MASTER_SUBNET, message));
            };
            let location = &snapshot.document().location;
            if !network.location.eq_ignore_ascii_case(location) {
                let there = &network.location;
                let message =
                    format!("The virtual network {id} is in {there}; the cluster's location is {location}.");
                return Some(InvalidInput::new("InvalidLinkedVNet", MASTER_SUBNET, message));
            }
        }
        let own_group = names::security_group(snapshot).ok();
        for (field, id, found) in &self.subnets {
            let Some(subnet) = found else {
                let message = format!("The subnet {id} was not found.");
                return Some(InvalidInput::new("InvalidLinkedSubnet", field, message));
            };
            if let Some(message) = check_subnet(id, subnet, spec, own_group.as_ref()) {
                return Some(InvalidInput::new("InvalidLinkedVNet", field, message));
            }
        }
        let missing = self.attached.values().find(|it| !it.exists);
        missing.map(|it| {
            let (code, what) = it.kind.missing();
            InvalidInput::new(code, &it.field, format!("The {what} {} was not found.", it.id))
        })
    }

    /// Actions that must be allowed on each resource, with the field to report.
    fn required_permissions(&self, spec: &Spec) -> Vec<(ResourceId, String, Vec<&'static str>)> {
        let mut wanted = Vec::new();
        for (id, _) in self.networks.values() {
            wanted.push((
                id.clone(),
                MASTER_SUBNET.to_owned(),
                vec![
                    "Microsoft.Network/virtualNetworks/join/action",
                    "Microsoft.Network/virtualNetworks/read",
                    "Microsoft.Network/virtualNetworks/write",
                ],
            ));
        }
        for (field, id, found) in &self.subnets {
            wanted.push((
                id.clone(),
                field.clone(),
                vec![
                    "Microsoft.Network/virtualNetworks/subnets/join/action",
                    "Microsoft.Network/virtualNetworks/subnets/read",
                    "Microsoft.Network/virtualNetworks/subnets/write",
                ],
            ));
            if spec.network.preconfigured_nsg == Switch::Enabled
                && let Some(Resource {
                    properties: Properties::Subnet { security_group: Some(group), .. },
                    ..
                }) = found
            {
                let action = "Microsoft.Network/networkSecurityGroups/join/action";
                wanted.push((group.clone(), field.clone(), vec![action]));
            }
        }
        for Attached { id, field, kind, .. } in self.attached.values() {
            wanted.push((id.clone(), field.clone(), kind.actions()));
        }
        wanted
    }
}

/// Checks that the ranges of pods and services do not overlap.
fn check_ranges(spec: &Spec) -> Option<InvalidInput> {
    let (pods, services) = (&spec.network.pod_cidr, &spec.network.service_cidr);
    let ranges = cidr::parse(pods).ok().zip(cidr::parse(services).ok());
    let overlap = ranges.is_some_and(|(pods, services)| cidr::overlap(&pods, &services));
    let message = format!("The pod range {pods} overlaps with the service range {services}.");
    overlap.then(|| InvalidInput::new("InvalidLinkedVNet", "properties.networkProfile", message))
}

/// Checks state, range and security group of an existing subnet.
fn check_subnet(
    id: &ResourceId,
    subnet: &Resource,
    spec: &Spec,
    own_group: Option<&ResourceId>,
) -> Option<String> {
    let Properties::Subnet { address_prefix, security_group, .. } = &subnet.properties else {
        return Some(format!("{id} is not a subnet."));
    };
    // The service itself may be updating the subnet.
    if !matches!(subnet.state, ResourceState::Succeeded | ResourceState::Updating) {
        return Some(format!("The subnet {id} is not in state Succeeded."));
    }
    let Ok(range) = cidr::parse(address_prefix) else {
        return Some(format!("The range {address_prefix} of subnet {id} is not a CIDR."));
    };
    if range.prefix_len() > SUBNET_BITS_MAX {
        return Some(format!(
            "The subnet {id} must be /{SUBNET_BITS_MAX} or larger; it is {address_prefix}."
        ));
    }
    for (what, text) in [("pod", &spec.network.pod_cidr), ("service", &spec.network.service_cidr)] {
        if cidr::parse(text).is_ok_and(|other| cidr::overlap(&other, &range)) {
            return Some(format!(
                "The range {address_prefix} of subnet {id} overlaps with the {what} range {text}."
            ));
        }
    }
    match (spec.network.preconfigured_nsg, security_group) {
        (Switch::Enabled, None) => Some(format!("The subnet {id} must have a network security group.")),
        (Switch::Disabled, Some(group)) if Some(group) != own_group => {
            Some(format!("The subnet {id} must not have a network security group attached; it has {group}."))
        }
        (Switch::Enabled, Some(_)) | (Switch::Disabled, _) => None,
    }
}

/// Checks that the disk encryption sets exist, are in the cluster's location and may be read.
async fn disk_encryption_sets(
    cx: &Context,
    snapshot: &ClusterSnapshot,
    credential: &Credential,
) -> Result<Option<InvalidInput>, StepError> {
    let spec = snapshot.spec();
    let of_master = spec.master.disk_encryption_set_id.iter();
    let of_master = of_master.map(|id| ("properties.masterProfile.diskEncryptionSetId".to_owned(), id));
    let of_workers = spec.workers.iter().enumerate().filter_map(|(index, pool)| {
        let field = format!("properties.workerProfiles[{index}].diskEncryptionSetId");
        pool.disk_encryption_set_id.as_ref().map(|id| (field, id))
    });
    let code = "InvalidLinkedDiskEncryptionSet";
    for (field, id) in of_master.chain(of_workers) {
        let id = resource_id(id)?;
        let Some(set) = cx.life.cloud.infrastructure.get(&id).await? else {
            let message = format!("The disk encryption set {id} was not found.");
            return Ok(Some(InvalidInput::new(code, &field, message)));
        };
        let location = &snapshot.document().location;
        if !set.location.eq_ignore_ascii_case(location) {
            let message = format!(
                "The disk encryption set {id} is in {}; the cluster's location is {location}.",
                set.location
            );
            return Ok(Some(InvalidInput::new(code, &field, message)));
        }
        for (credential, code) in
            [(credential, permission_code(spec)), (&Credential::Service, SERVICE_PERMISSIONS)]
        {
            let action = ["Microsoft.Compute/diskEncryptionSets/read"];
            if let Some(invalid) = check_permissions(cx, credential, code, &id, &field, &action).await? {
                return Ok(Some(invalid));
            }
        }
    }
    Ok(None)
}

/// Checks the quota for additional outbound addresses.
async fn outbound_addresses(
    cx: &Context,
    snapshot: &ClusterSnapshot,
) -> Result<Option<InvalidInput>, StepError> {
    let network = &snapshot.spec().network;
    let has = snapshot.record().effective_outbound_ips.len() as u64;
    let wanted = u64::from(network.managed_outbound_ips.unwrap_or(1));
    // Before the first deployment the whole quota is checked: see `resources_before_create`.
    if network.outbound_type != OutboundType::Loadbalancer || has == 0 || wanted <= has {
        return Ok(None);
    }
    let document = snapshot.document();
    let usages = cx.life.cloud.infrastructure.usages(&document.subscription_id, &document.location).await?;
    let full = usages.iter().find(|it| it.quota == "PublicIPAddresses");
    let full = full.filter(|it| wanted - has > it.limit.saturating_sub(it.used));
    Ok(full.map(|it| {
        let message = format!(
            "The quota PublicIPAddresses is exceeded: {} of {} are used and {} more are wanted.",
            it.used,
            it.limit,
            wanted - has
        );
        InvalidInput::new("ResourceQuotaExceeded", OUTBOUND, message)
    }))
}

#[cfg(test)]
#[path = "validate/tests.rs"]
mod tests;
