//! Conversion of the internal type to the fragments that the versions share. Secrets are never converted.

use std::collections::BTreeMap;

use super::{
    ApiserverProfile, CLUSTER_TYPE, ConsoleProfile, EffectiveOutboundIp, IngressProfile, LoadBalancerProfile,
    ManagedIdentity, ManagedOutboundIps, MasterProfile, NetworkProfile, PlatformWorkloadIdentity,
    PlatformWorkloadIdentityProfile, ServicePrincipalProfile, SystemDataForm, UserAssignedIdentity,
    WorkerProfile,
};
use crate::doc::{
    Cluster, Identity, MasterPool, NetworkSpec, OutboundType, Provisioned, ProvisioningState, Record, Spec,
    Switch, SystemData, Visibility, WorkerPool,
};

/// The resource type as spelled at the creation.
pub(super) fn kind(cluster: &Cluster) -> String {
    let mut segments = cluster.id.rsplit('/').skip(1);
    match (segments.next(), segments.next()) {
        (Some(kind), Some(namespace)) => format!("{namespace}/{kind}"),
        _ => CLUSTER_TYPE.to_owned(),
    }
}

pub(super) fn state(state: ProvisioningState) -> &'static str {
    match state {
        ProvisioningState::Creating => "Creating",
        ProvisioningState::Updating => "Updating",
        ProvisioningState::AdminUpdating => "AdminUpdating",
        ProvisioningState::Deleting => "Deleting",
        ProvisioningState::Succeeded => "Succeeded",
        ProvisioningState::Failed => "Failed",
    }
}

pub(super) fn switch(value: Switch) -> String {
    let word = match value {
        Switch::Enabled => "Enabled",
        Switch::Disabled => "Disabled",
    };
    word.to_owned()
}

fn visibility(value: Visibility) -> String {
    let word = match value {
        Visibility::Public => "Public",
        Visibility::Private => "Private",
    };
    word.to_owned()
}

pub(super) fn tags(provisioned: &Provisioned) -> Option<BTreeMap<String, Option<String>>> {
    let tags = provisioned.tags.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
    Some(tags.collect::<BTreeMap<_, _>>()).filter(|tags| !tags.is_empty())
}

pub(super) fn system_data(provisioned: &Provisioned) -> Option<SystemDataForm> {
    let SystemData {
        created_by,
        created_by_type,
        created_at,
        last_modified_by,
        last_modified_by_type,
        last_modified_at,
    } = provisioned.system_data.clone();
    let form = SystemDataForm {
        created_by,
        created_by_type,
        created_at,
        last_modified_by,
        last_modified_by_type,
        last_modified_at,
    };
    Some(form).filter(|_| !provisioned.system_data.is_empty())
}

/// The version that it runs, or the one that it is being installed with.
pub(super) fn version(provisioned: &Provisioned) -> &str {
    provisioned.record.running_version.as_deref().unwrap_or(&provisioned.spec.version)
}

pub(super) fn console(record: &Record) -> Option<ConsoleProfile> {
    record.console_url.clone().map(|url| ConsoleProfile { url: Some(url) })
}

pub(super) fn service_principal(identity: &Identity) -> Option<ServicePrincipalProfile> {
    match identity {
        Identity::ServicePrincipal { client_id } => {
            Some(ServicePrincipalProfile { client_id: Some(client_id.clone()), client_secret: None })
        }
        Identity::Workload { .. } => None,
    }
}

pub(super) fn identity(identity: &Identity) -> Option<ManagedIdentity> {
    match identity {
        Identity::ServicePrincipal { .. } => None,
        Identity::Workload { resource_id, tenant_id, .. } => Some(ManagedIdentity {
            kind: Some("UserAssigned".to_owned()),
            principal_id: None,
            tenant_id: tenant_id.clone(),
            user_assigned_identities: Some(BTreeMap::from([(
                resource_id.clone(),
                Some(UserAssignedIdentity::default()),
            )])),
        }),
    }
}

pub(super) fn strip_identity(identity: &mut ManagedIdentity) {
    (identity.principal_id, identity.tenant_id) = (None, None);
    for known in identity.user_assigned_identities.iter_mut().flatten() {
        *known.1 = Some(UserAssignedIdentity::default());
    }
}

pub(super) fn platform(identity: &Identity) -> Option<PlatformWorkloadIdentityProfile> {
    match identity {
        Identity::ServicePrincipal { .. } => None,
        Identity::Workload { platform, upgradeable_to, .. } => {
            let shown = platform.iter().map(|(operator, known)| {
                let identity = PlatformWorkloadIdentity {
                    resource_id: Some(known.resource_id.clone()),
                    client_id: known.client_id.clone(),
                    object_id: known.object_id.clone(),
                };
                (operator.clone(), Some(identity))
            });
            Some(PlatformWorkloadIdentityProfile {
                upgradeable_to: upgradeable_to.clone(),
                platform_workload_identities: Some(shown.collect()),
            })
        }
    }
}

pub(super) fn strip_platform(profile: &mut PlatformWorkloadIdentityProfile) {
    let identities = profile.platform_workload_identities.iter_mut().flatten();
    for identity in identities.filter_map(|(_, identity)| identity.as_mut()) {
        (identity.client_id, identity.object_id) = (None, None);
    }
}

pub(super) fn network(network: &NetworkSpec, record: &Record) -> NetworkProfile {
    let outbound = match network.outbound_type {
        OutboundType::Loadbalancer => "Loadbalancer",
        OutboundType::UserDefinedRouting => "UserDefinedRouting",
    };
    let effective: Vec<EffectiveOutboundIp> =
        record.effective_outbound_ips.iter().map(|id| EffectiveOutboundIp { id: Some(id.clone()) }).collect();
    NetworkProfile {
        pod_cidr: Some(network.pod_cidr.clone()),
        service_cidr: Some(network.service_cidr.clone()),
        outbound_type: Some(outbound.to_owned()),
        load_balancer_profile: network.managed_outbound_ips.map(|count| LoadBalancerProfile {
            managed_outbound_ips: Some(ManagedOutboundIps { count: Some(i64::from(count)) }),
            effective_outbound_ips: Some(effective).filter(|it| !it.is_empty()),
        }),
        preconfigured_nsg: Some(switch(network.preconfigured_nsg)),
    }
}

pub(super) fn strip_network(network: &mut NetworkProfile) {
    if let Some(balancer) = &mut network.load_balancer_profile {
        balancer.effective_outbound_ips = None;
    }
}

pub(super) fn master(master: &MasterPool) -> MasterProfile {
    MasterProfile {
        vm_size: Some(master.vm_size.clone()),
        subnet_id: Some(master.subnet_id.clone()),
        encryption_at_host: Some(switch(master.encryption_at_host)),
        disk_encryption_set_id: master.disk_encryption_set_id.clone(),
    }
}

pub(super) fn worker(worker: &WorkerPool) -> WorkerProfile {
    WorkerProfile {
        name: Some(worker.name.clone()),
        vm_size: Some(worker.vm_size.clone()),
        disk_size_gb: Some(i64::from(worker.disk_size_gb)),
        subnet_id: Some(worker.subnet_id.clone()),
        count: Some(i64::from(worker.count)),
        encryption_at_host: Some(switch(worker.encryption_at_host)),
        disk_encryption_set_id: worker.disk_encryption_set_id.clone(),
    }
}

pub(super) fn workers_status(record: &Record) -> Option<Vec<WorkerProfile>> {
    let seen = record.workers.iter().map(|seen| WorkerProfile {
        name: Some(seen.name.clone()),
        vm_size: seen.vm_size.clone(),
        disk_size_gb: seen.disk_size_gb.map(i64::from),
        subnet_id: seen.subnet_id.clone(),
        count: Some(i64::from(seen.count)),
        ..WorkerProfile::default()
    });
    Some(seen.collect::<Vec<_>>()).filter(|it| !it.is_empty())
}

pub(super) fn apiserver(spec: &Spec, record: &Record) -> ApiserverProfile {
    ApiserverProfile {
        visibility: Some(visibility(spec.api_visibility)),
        url: record.api_url.clone(),
        ip: record.api_ip.clone(),
    }
}

pub(super) fn ingresses(spec: &Spec, record: &Record) -> Vec<IngressProfile> {
    let shown = spec.ingress.iter().map(|ingress| IngressProfile {
        name: Some(ingress.name.clone()),
        visibility: Some(visibility(ingress.visibility)),
        ip: record.ingress_ip.clone().filter(|_| ingress.name == "default"),
    });
    shown.collect()
}
