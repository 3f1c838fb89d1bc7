//! The first step of a create and an update: whether the cloud has, and lets us and the cluster use, what the customer named.
//!
//! Facts are gathered, a pure function says what is wrong with them. Rights that were just given take minutes to spread: while
//! they may still be on their way they are waited for, afterwards their absence is the customer's to mend.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::doc::{Identity, OutboundType, Spec, Switch};
use cloud::capacity::{
    CapacityProblem, ENCRYPTION_FEATURE, Pool, exceeded_quota, unavailable_size, unregistered_feature,
    unregistered_provider,
};
use cloud::{CloudError, Credential, Principal, Properties, Resource, ResourceId, ResourceState};
use steps::engine::{PollStatus, StepContext, StepError, StepOutcome};
use steps::lifecycle::fault::user_error;
use steps::lifecycle::{ClusterSnapshot, resource_id};

use super::identities::issuer;
use super::names;
use super::ranges::Range;
use crate::Context;

const MASTER_SUBNET: &str = "properties.masterProfile.subnetId";
const PRINCIPAL: &str = "properties.servicePrincipalProfile";
const OUTBOUND: &str = "properties.networkProfile.loadBalancerProfile.managedOutboundIps.count";
/// A subnet of fewer addresses than this has no room for a pool.
const SUBNET_BITS_MAX: u32 = 27;

/// What is wrong with what the customer named: a code, a sentence, a field. Rights may come late, the rest will not.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrong {
    code: &'static str,
    message: String,
    target: String,
    may_spread: bool,
}

impl Wrong {
    fn new(code: &'static str, target: &str, message: String) -> Wrong {
        Wrong { code, message, target: target.to_owned(), may_spread: false }
    }
}

/// Looks at everything that the customer named.
pub(crate) async fn resources(cx: Arc<Context>, _: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    match first_wrong(&cx, &ours).await? {
        None => Ok(PollStatus::Done(StepOutcome::with_message(
            "all that the cluster needs is there and may be used",
        ))),
        Some(wrong) if wrong.may_spread && cx.may_still_spread() => Ok(PollStatus::Waiting(wrong.message)),
        Some(wrong) => Err(user_error(wrong.code, wrong.message, Some(&wrong.target))),
    }
}

/// The same before a cluster is made, and first whether its subscription can have it at all. The API has looked at that when it
/// took the cluster in, as far as the cloud answered it then, and others have asked for theirs since.
pub(crate) async fn resources_of_new(cx: Arc<Context>, step: StepContext) -> Result<PollStatus, StepError> {
    let ours = cx.life.snapshot().await?;
    // What was made by an earlier run counts as used, and was looked at before it was made.
    if ours.record().infra_id.is_none()
        && let Some(CapacityProblem { code, message, target }) = lack(&cx, &ours).await?
    {
        return Err(user_error(code.as_str(), message, target.as_deref()));
    }
    resources(cx, step).await
}

/// What its subscription cannot have, if anything.
async fn lack(cx: &Context, ours: &ClusterSnapshot) -> Result<Option<CapacityProblem>, StepError> {
    let (cloud, spec, document) = (&cx.life.cloud.infrastructure, ours.spec(), ours.document());
    let (subscription, location) = (&document.subscription_id, &document.location);
    let is_on = |it: Switch| it == Switch::Enabled;
    let masters = Pool::masters(&spec.master.vm_size, is_on(spec.master.encryption_at_host));
    let workers =
        spec.workers.iter().enumerate().map(|(at, it)| {
            Pool::workers(at, &it.vm_size, is_on(it.encryption_at_host), u64::from(it.count))
        });
    let pools: Vec<Pool> = std::iter::once(masters).chain(workers).collect();
    if let Some(lack) = unavailable_size(&cloud.sizes(subscription, location).await?, &pools, location) {
        return Ok(Some(lack));
    }
    if pools.iter().any(|it| it.is_encrypted)
        && cloud.feature(subscription, ENCRYPTION_FEATURE).await? != Some(true)
    {
        return Ok(Some(unregistered_feature()));
    }
    let outbound = spec.network.managed_outbound_ips.unwrap_or(1);
    if let Some(lack) = exceeded_quota(&cloud.usages(subscription, location).await?, &pools, outbound) {
        return Ok(Some(lack));
    }
    Ok(unregistered_provider(&cloud.providers(subscription).await?))
}

async fn first_wrong(cx: &Context, ours: &ClusterSnapshot) -> Result<Option<Wrong>, StepError> {
    let spec = ours.spec();
    let credential = cx.life.credential(spec).await?;
    if let Some(wrong) = principal(cx, spec, &credential).await? {
        return Ok(Some(wrong));
    }
    if let Some(wrong) = wrong_ranges(spec) {
        return Ok(Some(wrong));
    }
    let subnets = Subnets::gather(cx, spec).await?;
    if let Some(wrong) = subnets.wrong(ours) {
        return Ok(Some(wrong));
    }
    // Twice: as the cluster and as ourselves.
    for (credential, code) in [(&credential, code_of(spec)), (&Credential::Service, SERVICE_RIGHTS)] {
        for (id, target, actions) in subnets.rights(spec) {
            if let Some(wrong) = rights(cx, credential, code, &id, &target, &actions).await? {
                return Ok(Some(wrong));
            }
        }
    }
    if let Some(wrong) = disk_encryption_sets(cx, ours, &credential).await? {
        return Ok(Some(wrong));
    }
    outbound_addresses(cx, ours).await
}

const SERVICE_RIGHTS: &str = "InvalidResourceProviderPermissions";

fn code_of(spec: &Spec) -> &'static str {
    match spec.identity {
        Identity::ServicePrincipal { .. } => "InvalidServicePrincipalPermissions",
        Identity::Workload { .. } => "InvalidWorkloadIdentityPermissions",
    }
}

/// a: the principal is who it says; a': the identities of the platform may be used.
async fn principal(cx: &Context, spec: &Spec, credential: &Credential) -> Result<Option<Wrong>, StepError> {
    match &spec.identity {
        Identity::ServicePrincipal { .. } => match cx.life.cloud.identities.principal(credential).await {
            Ok(principal) => Ok(wrong_principal(&principal)),
            Err(error @ CloudError::Credential { .. }) => {
                Ok(Some(Wrong::new("InvalidServicePrincipalCredentials", PRINCIPAL, error.to_string())))
            }
            Err(error) => Err(error.into()),
        },
        Identity::Workload { platform, .. } => {
            for (operator, identity) in platform {
                let target = format!(
                    "properties.platformWorkloadIdentityProfile.platformWorkloadIdentities.{operator}"
                );
                let id = resource_id(&identity.resource_id)?;
                let code = "InvalidClusterMSIPermissions";
                let Some(found) = cx.life.cloud.infrastructure.get(&id).await? else {
                    let message = format!("The identity {id} of operator {operator} was not found.");
                    return Ok(Some(Wrong::new("InvalidWorkloadIdentityPermissions", &target, message)));
                };
                if let Some(wrong) = wrong_federation(&found, operator, &issuer(cx), &target) {
                    return Ok(Some(wrong));
                }
                let actions = [
                    "Microsoft.ManagedIdentity/userAssignedIdentities/read",
                    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read",
                    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write",
                    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/delete",
                ];
                if let Some(wrong) = rights(cx, credential, code, &id, &target, &actions).await? {
                    return Ok(Some(wrong));
                }
            }
            Ok(None)
        }
    }
}

/// An operator's identity must speak for this cluster alone: whoever else it lets in could act as the operator.
fn wrong_federation(identity: &Resource, operator: &str, issuer: &str, target: &str) -> Option<Wrong> {
    let Properties::Identity { federated, .. } = &identity.properties else { return None };
    let own = format!("{issuer}|");
    let foreign = federated.keys().find(|name| !name.starts_with(&own))?;
    let message = format!(
        "The identity {} of operator {operator} has the federated credential {foreign}, which is not of this cluster; remove \
         it.",
        identity.id
    );
    Some(Wrong::new("PlatformWorkloadIdentityContainsInvalidCredential", target, message))
}

fn wrong_principal(principal: &Principal) -> Option<Wrong> {
    let claims = ["altsecid", "oid", "puid"];
    if !principal.claims.iter().any(|it| claims.contains(&it.as_str())) {
        let message =
            "The token of the service principal has none of the claims altsecid, oid and puid.".to_owned();
        return Some(Wrong::new("InvalidServicePrincipalClaims", PRINCIPAL, message));
    }
    let forbidden = "Application.ReadWrite.OwnedBy";
    if principal.directory_roles.iter().any(|it| it == forbidden) {
        let message = format!("The service principal must not hold the application role {forbidden}.");
        return Some(Wrong::new("InvalidServicePrincipalCredentials", PRINCIPAL, message));
    }
    None
}

/// Which of these actions somebody may not do, if any.
async fn rights(
    cx: &Context,
    credential: &Credential,
    code: &'static str,
    id: &ResourceId,
    target: &str,
    actions: &[&str],
) -> Result<Option<Wrong>, StepError> {
    let missing: Vec<String> = match cx.life.cloud.identities.permissions(credential, id, actions).await {
        Ok(answers) => answers.into_iter().filter(|it| !it.allowed).map(|it| it.action).collect(),
        Err(CloudError::Denied { action, .. }) => vec![action],
        Err(error) => return Err(error.into()),
    };
    Ok((!missing.is_empty()).then(|| Wrong {
        may_spread: true,
        ..Wrong::new(code, target, format!("Missing on {id}: {}.", missing.join(", ")))
    }))
}

/// The subnets that the customer named, with the field that names each, and the network that they are in.
struct Subnets {
    /// By the field.
    subnets: Vec<(String, ResourceId, Option<Resource>)>,
    networks: BTreeMap<String, (ResourceId, Option<Resource>)>,
    /// Route tables and gateways that are on one of them, and whether they are there.
    attached: BTreeMap<String, Attached>,
}

/// What is on a subnet.
struct Attached {
    id: ResourceId,
    /// Whose field names the subnet.
    field: String,
    kind: Attachment,
    is_there: bool,
}

#[derive(Debug, Clone, Copy)]
enum Attachment {
    RouteTable,
    NatGateway,
}

impl Attachment {
    /// The code and the words when it is missing.
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
                    let (is_there, id, field) = (cloud.get(id).await?.is_some(), id.clone(), field.clone());
                    all.attached.entry(id.key()).or_insert(Attached { id, field, kind, is_there });
                }
            }
            all.subnets.push((field, id, found));
        }
        Ok(all)
    }

    /// What is wrong with them, rights aside.
    fn wrong(&self, ours: &ClusterSnapshot) -> Option<Wrong> {
        let spec = ours.spec();
        for (id, found) in self.networks.values() {
            let Some(network) = found else {
                let message = format!("The virtual network {id} was not found.");
                return Some(Wrong::new("InvalidLinkedVNet", MASTER_SUBNET, message));
            };
            let location = &ours.document().location;
            if !network.location.eq_ignore_ascii_case(location) {
                let there = &network.location;
                let message =
                    format!("The virtual network {id} is in {there}; the cluster's location is {location}.");
                return Some(Wrong::new("InvalidLinkedVNet", MASTER_SUBNET, message));
            }
        }
        let own_group = names::security_group(ours).ok();
        for (field, id, found) in &self.subnets {
            let Some(subnet) = found else {
                let message = format!("The subnet {id} was not found.");
                return Some(Wrong::new("InvalidLinkedSubnet", field, message));
            };
            if let Some(message) = wrong_subnet(id, subnet, spec, own_group.as_ref()) {
                return Some(Wrong::new("InvalidLinkedVNet", field, message));
            }
        }
        let missing = self.attached.values().find(|it| !it.is_there);
        missing.map(|it| {
            let (code, what) = it.kind.missing();
            Wrong::new(code, &it.field, format!("The {what} {} was not found.", it.id))
        })
    }

    /// What must be allowed on which of them, with the field at fault.
    fn rights(&self, spec: &Spec) -> Vec<(ResourceId, String, Vec<&'static str>)> {
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

/// e: the ranges of pods and services, which are in no subnet.
fn wrong_ranges(spec: &Spec) -> Option<Wrong> {
    let (pods, services) = (&spec.network.pod_cidr, &spec.network.service_cidr);
    let overlap =
        Range::parse(pods).zip(Range::parse(services)).is_some_and(|(one, other)| one.overlaps(other));
    let message = format!("The pod range {pods} overlaps with the service range {services}.");
    overlap.then(|| Wrong::new("InvalidLinkedVNet", "properties.networkProfile", message))
}

/// e and f: what is wrong with a subnet that is there.
fn wrong_subnet(
    id: &ResourceId,
    subnet: &Resource,
    spec: &Spec,
    own_group: Option<&ResourceId>,
) -> Option<String> {
    let Properties::Subnet { address_prefix, security_group, .. } = &subnet.properties else {
        return Some(format!("{id} is not a subnet."));
    };
    // What we ourselves are changing in it will have settled soon.
    if !matches!(subnet.state, ResourceState::Succeeded | ResourceState::Updating) {
        return Some(format!("The subnet {id} is not in state Succeeded."));
    }
    let Some(range) = Range::parse(address_prefix) else {
        return Some(format!("The range {address_prefix} of subnet {id} is not a CIDR."));
    };
    if range.bits() > SUBNET_BITS_MAX {
        return Some(format!(
            "The subnet {id} must be /{SUBNET_BITS_MAX} or larger; it is {address_prefix}."
        ));
    }
    for (what, text) in [("pod", &spec.network.pod_cidr), ("service", &spec.network.service_cidr)] {
        if Range::parse(text).is_some_and(|other| other.overlaps(range)) {
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

/// g: the keys of disks.
async fn disk_encryption_sets(
    cx: &Context,
    ours: &ClusterSnapshot,
    credential: &Credential,
) -> Result<Option<Wrong>, StepError> {
    let spec = ours.spec();
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
            return Ok(Some(Wrong::new(code, &field, message)));
        };
        let location = &ours.document().location;
        if !set.location.eq_ignore_ascii_case(location) {
            let message = format!(
                "The disk encryption set {id} is in {}; the cluster's location is {location}.",
                set.location
            );
            return Ok(Some(Wrong::new(code, &field, message)));
        }
        for (credential, code) in [(credential, code_of(spec)), (&Credential::Service, SERVICE_RIGHTS)] {
            let action = ["Microsoft.Compute/diskEncryptionSets/read"];
            if let Some(wrong) = rights(cx, credential, code, &id, &field, &action).await? {
                return Ok(Some(wrong));
            }
        }
    }
    Ok(None)
}

/// h: room for further public addresses.
async fn outbound_addresses(cx: &Context, ours: &ClusterSnapshot) -> Result<Option<Wrong>, StepError> {
    let network = &ours.spec().network;
    let has = ours.record().effective_outbound_ips.len() as u64;
    let wanted = u64::from(network.managed_outbound_ips.unwrap_or(1));
    // Before the first deployment the whole quota is looked at: see `resources_of_new`.
    if network.outbound_type != OutboundType::Loadbalancer || has == 0 || wanted <= has {
        return Ok(None);
    }
    let document = ours.document();
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
        Wrong::new("ResourceQuotaExceeded", OUTBOUND, message)
    }))
}

#[cfg(test)]
#[path = "validate/tests.rs"]
mod tests;
