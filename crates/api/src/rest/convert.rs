//! Conversion of a request to the internal type: a draft is applied to the stored cluster, and members that its version does not have stay.

use std::collections::BTreeMap;

use super::draft::{Draft, DraftProperties};
use super::{IngressProfile, MasterProfile, NetworkProfile, WorkerProfile};
use crate::doc::{
    Cluster, Identity, Ingress, MasterPool, NetworkSpec, OutboundType, PlatformIdentity, Provisioned, Record,
    Spec, Switch, SystemData, Visibility, WorkerPool,
};

/// Apply a validated draft to a cluster. A cluster without properties gets them, with the defaults of
/// the contract. Secrets are stored beside the document and not changed here.
pub fn apply_draft(draft: &Draft<'_>, cluster: &mut Cluster) {
    if let Some(location) = draft.location {
        cluster.location = location.to_lowercase();
    }
    let stored = cluster.provisioned.take().map(|it| *it);
    let mut provisioned = stored.unwrap_or_else(fresh);
    if let Some(tags) = draft.tags {
        let text =
            |(name, value): (&String, &Option<String>)| (name.clone(), value.clone().unwrap_or_default());
        provisioned.tags = tags.iter().map(text).collect();
    } else {
        provisioned.tags.clear();
    }
    if let Some(properties) = &draft.properties {
        lay_spec(draft, properties, &mut provisioned.spec);
    }
    cluster.credential = Some(credential(&provisioned.spec.identity));
    cluster.managed_resource_group = Some(provisioned.spec.resource_group_id.clone());
    cluster.provisioned = Some(Box::new(provisioned));
}

/// Key that identifies a cluster's identity among all clusters.
fn credential(identity: &Identity) -> String {
    match identity {
        Identity::ServicePrincipal { client_id } => client_id.to_lowercase(),
        Identity::Workload { resource_id, .. } => resource_id.to_lowercase(),
    }
}

fn fresh() -> Provisioned {
    Provisioned {
        tags: BTreeMap::new(),
        system_data: SystemData::default(),
        spec: Spec {
            domain: String::new(),
            version: String::new(),
            resource_group_id: String::new(),
            fips: Switch::Disabled,
            identity: Identity::ServicePrincipal { client_id: String::new() },
            network: NetworkSpec {
                pod_cidr: String::new(),
                service_cidr: String::new(),
                outbound_type: OutboundType::Loadbalancer,
                preconfigured_nsg: Switch::Disabled,
                managed_outbound_ips: None,
            },
            master: MasterPool {
                vm_size: String::new(),
                subnet_id: String::new(),
                encryption_at_host: Switch::Disabled,
                disk_encryption_set_id: None,
            },
            workers: Vec::new(),
            api_visibility: Visibility::Public,
            ingress: Vec::new(),
        },
        managed_domain: None,
        record: Record::default(),
        created_by: String::new(),
        provisioned_by: String::new(),
        bucket: 0,
        last_admin_update_error: None,
    }
}

fn lay_spec(draft: &Draft<'_>, given: &DraftProperties<'_>, spec: &mut Spec) {
    set(&mut spec.domain, given.domain);
    set(&mut spec.version, given.version);
    if let Some(group) = given.resource_group_id {
        spec.resource_group_id = group.to_lowercase();
    }
    lay(&mut spec.fips, given.fips, switch);
    lay_identity(draft, given, &mut spec.identity);
    if let Some(network) = given.network {
        lay_network(network, &mut spec.network);
    }
    if let Some(master) = given.master {
        lay_master(master, &mut spec.master);
    }
    if let Some(workers) = given.workers {
        spec.workers = workers.iter().map(worker).collect();
    }
    if let Some(apiserver) = given.apiserver {
        lay(&mut spec.api_visibility, apiserver.visibility.as_deref(), visibility);
    }
    if let Some(ingresses) = given.ingresses {
        spec.ingress = ingresses.iter().map(ingress).collect();
    }
}

fn set(field: &mut String, given: Option<&str>) {
    if let Some(given) = given {
        given.clone_into(field);
    }
}

fn lay<T>(field: &mut T, given: Option<&str>, parse: fn(&str) -> Option<T>) {
    if let Some(value) = given.and_then(parse) {
        *field = value;
    }
}

pub(super) fn switch(text: &str) -> Option<Switch> {
    match text {
        "Enabled" => Some(Switch::Enabled),
        "Disabled" => Some(Switch::Disabled),
        _ => None,
    }
}

pub(super) fn visibility(text: &str) -> Option<Visibility> {
    match text {
        "Public" => Some(Visibility::Public),
        "Private" => Some(Visibility::Private),
        _ => None,
    }
}

pub(super) fn outbound(text: &str) -> Option<OutboundType> {
    match text {
        "Loadbalancer" => Some(OutboundType::Loadbalancer),
        "UserDefinedRouting" => Some(OutboundType::UserDefinedRouting),
        _ => None,
    }
}

fn lay_identity(draft: &Draft<'_>, given: &DraftProperties<'_>, identity: &mut Identity) {
    if let Some(principal) = given.service_principal.filter(|it| !it.is_empty()) {
        if let Some(client_id) = principal.client_id.clone() {
            *identity = Identity::ServicePrincipal { client_id };
        }
        return;
    }
    let (Some(managed), Some(profile)) = (draft.identity, given.platform) else { return };
    let chosen = managed.user_assigned_identities.iter().flatten().map(|(id, _)| id.clone()).next();
    let stored = identity.clone();
    let (stored_id, stored_tenant, stored_url, known) = match stored {
        Identity::Workload { resource_id, tenant_id, identity_url, platform, .. } => {
            (resource_id, tenant_id, identity_url, platform)
        }
        Identity::ServicePrincipal { .. } => (String::new(), None, None, BTreeMap::new()),
    };
    let named = profile.platform_workload_identities.iter().flatten();
    let platform = named.map(|(operator, identity)| {
        let resource_id = identity.as_ref().and_then(|it| it.resource_id.clone()).unwrap_or_default();
        // Resolved ids are kept as long as the identity stays the same.
        let same = known.get(operator).filter(|it| it.resource_id.eq_ignore_ascii_case(&resource_id));
        let resolved = same.cloned().unwrap_or_default();
        (operator.clone(), PlatformIdentity { resource_id, ..resolved })
    });
    *identity = Identity::Workload {
        resource_id: chosen.unwrap_or(stored_id),
        tenant_id: stored_tenant,
        identity_url: stored_url,
        platform: platform.collect(),
        upgradeable_to: profile.upgradeable_to.clone().filter(|it| !it.is_empty()),
    };
}

fn lay_network(given: &NetworkProfile, network: &mut NetworkSpec) {
    set(&mut network.pod_cidr, given.pod_cidr.as_deref());
    set(&mut network.service_cidr, given.service_cidr.as_deref());
    lay(&mut network.outbound_type, given.outbound_type.as_deref(), outbound);
    lay(&mut network.preconfigured_nsg, given.preconfigured_nsg.as_deref(), switch);
    let wanted = given.load_balancer_profile.as_ref().and_then(|it| it.managed_outbound_ips.as_ref()?.count);
    network.managed_outbound_ips = match network.outbound_type {
        OutboundType::UserDefinedRouting => None,
        OutboundType::Loadbalancer => {
            let wanted = wanted.and_then(|count| u32::try_from(count).ok());
            Some(wanted.or(network.managed_outbound_ips).unwrap_or(1))
        }
    };
}

fn some(text: Option<&String>) -> Option<String> {
    text.filter(|it| !it.is_empty()).cloned()
}

fn lay_master(given: &MasterProfile, master: &mut MasterPool) {
    set(&mut master.vm_size, given.vm_size.as_deref());
    set(&mut master.subnet_id, given.subnet_id.as_deref());
    lay(&mut master.encryption_at_host, given.encryption_at_host.as_deref(), switch);
    if let Some(set) = some(given.disk_encryption_set_id.as_ref()) {
        master.disk_encryption_set_id = Some(set);
    }
}

fn worker(given: &WorkerProfile) -> WorkerPool {
    let number = |value: Option<i64>| value.and_then(|it| u32::try_from(it).ok()).unwrap_or_default();
    WorkerPool {
        name: given.name.clone().unwrap_or_default(),
        vm_size: given.vm_size.clone().unwrap_or_default(),
        disk_size_gb: number(given.disk_size_gb),
        subnet_id: given.subnet_id.clone().unwrap_or_default(),
        count: number(given.count),
        encryption_at_host: given.encryption_at_host.as_deref().and_then(switch).unwrap_or_default(),
        disk_encryption_set_id: some(given.disk_encryption_set_id.as_ref()),
    }
}

fn ingress(given: &IngressProfile) -> Ingress {
    Ingress {
        name: given.name.clone().unwrap_or_default(),
        visibility: given.visibility.as_deref().and_then(visibility).unwrap_or(Visibility::Public),
    }
}
