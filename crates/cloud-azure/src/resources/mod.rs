//! Translation between the properties of resources and the bodies of the resource manager, kind by kind.
//!
//! A body is read, changed and written back whole, so that members which this client does not know survive. Pure functions: the
//! calls are in `infrastructure.rs`.

mod compute;
mod dns;
mod group;
mod identity;
mod link;
mod load_balancer;
mod network;
mod storage;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cloud::{
    CloudError, Properties, ResourceFailure, ResourceId, ResourceKind, ResourceRequest, ResourceState,
};
use serde_json::{Value, json};

use crate::json::{is_same_location, set, text};
use crate::settings::MachineSettings;

pub(crate) use compute::{nic_name, os_disk_name, power_change, running};
pub(crate) use identity::{credential_body, credential_key, credential_name, is_credential_of_cluster};
pub(crate) use link::{connection_of, link_connections};

/// The API version of a kind: old enough for sovereign clouds.
pub(crate) fn version(kind: ResourceKind) -> &'static str {
    match kind {
        ResourceKind::ResourceGroup => "2021-04-01",
        ResourceKind::VirtualNetwork
        | ResourceKind::Subnet
        | ResourceKind::SecurityGroup
        | ResourceKind::RouteTable
        | ResourceKind::NatGateway
        | ResourceKind::PublicIp
        | ResourceKind::LoadBalancer
        | ResourceKind::PrivateEndpoint
        | ResourceKind::PrivateLinkService
        | ResourceKind::NetworkInterface => "2024-05-01",
        ResourceKind::DnsZone | ResourceKind::DnsRecord => "2018-05-01",
        ResourceKind::PrivateDnsZone | ResourceKind::PrivateDnsRecord | ResourceKind::PrivateDnsLink => {
            "2024-06-01"
        }
        ResourceKind::StorageAccount => STORAGE,
        ResourceKind::Machine => "2024-07-01",
        ResourceKind::Disk | ResourceKind::DiskEncryptionSet => "2024-03-02",
        ResourceKind::Identity => "2024-11-30",
        ResourceKind::Lock => "2020-05-01",
    }
}

/// The API version of storage accounts and their containers.
pub(crate) const STORAGE: &str = "2023-05-01";

/// What a read of the kind asks for in addition.
pub(crate) fn expansion(kind: ResourceKind) -> &'static [(&'static str, &'static str)] {
    match kind {
        ResourceKind::Machine => &[("$expand", "instanceView")],
        ResourceKind::PrivateEndpoint => &[("$expand", "networkInterfaces")],
        _ => &[],
    }
}

/// The resource whose writes exclude each other: a network with its subnets, a load balancer, an identity.
pub(crate) fn write_key(id: &ResourceId, kind: ResourceKind) -> String {
    match kind {
        ResourceKind::Subnet => id.parent().unwrap_or_else(|| id.clone()).key(),
        _ => id.key(),
    }
}

/// Whether writes of the kind are guarded by the etag. Others write these resources too.
pub(crate) fn has_etag(kind: ResourceKind) -> bool {
    kind == ResourceKind::Machine
        || kind.provider().is_some_and(|(namespace, _)| namespace == "Microsoft.Network")
}

/// Whether a resource is a claim on a name that others may want, so that it is created only where there is none.
pub(crate) fn is_claim(kind: ResourceKind) -> bool {
    matches!(kind, ResourceKind::DnsRecord | ResourceKind::PrivateDnsRecord)
}

/// The body of a put: the present one with the requested members.
pub(crate) fn target(
    request: &ResourceRequest,
    present: Option<&Value>,
    machines: &MachineSettings,
) -> Result<Value, CloudError> {
    let mut body = present.cloned().unwrap_or_else(|| json!({}));
    let kind = request.properties.kind();
    if let Some(object) = body.as_object_mut() {
        for assigned in ["etag", "systemData"] {
            object.remove(assigned);
        }
    }
    let is_new = present.is_none();
    let location = match kind {
        ResourceKind::Subnet
        | ResourceKind::DnsRecord
        | ResourceKind::PrivateDnsRecord
        | ResourceKind::Lock => None,
        ResourceKind::DnsZone | ResourceKind::PrivateDnsZone | ResourceKind::PrivateDnsLink => Some("global"),
        _ => Some(request.location.as_str()),
    };
    if let Some(location) = location {
        let present = text(&body, "/location");
        if is_new {
            set(&mut body, &["location"], json!(location));
        } else if !present.is_empty() && !is_same_location(present, location) {
            let why = format!("it is in {present}, and a resource does not move to {location}");
            return Err(CloudError::Conflict { what: request.id.to_string(), why });
        }
    }
    let tags: &[&str] = match kind {
        ResourceKind::Subnet | ResourceKind::Lock => &[],
        ResourceKind::DnsRecord | ResourceKind::PrivateDnsRecord => &["properties", "metadata"],
        _ => &["tags"],
    };
    if !tags.is_empty() {
        // Tags of others, such as those that a policy adds, stay.
        let present = self::tags(kind, &body);
        for (name, value) in &request.tags {
            if let Some(owner) = present.get(name).filter(|it| is_claim(kind) && *it != value) {
                // The first client keeps the name.
                let why = format!("it exists already, and its {name} is {owner}");
                return Err(CloudError::Conflict { what: request.id.to_string(), why });
            }
            let path: Vec<&str> = tags.iter().copied().chain([name.as_str()]).collect();
            set(&mut body, &path, json!(value));
        }
    }
    match &request.properties {
        Properties::ResourceGroup { managed_by } => {
            group::apply(&mut body, &request.id, managed_by.as_deref(), is_new)?;
        }
        Properties::Lock { level, notes } => group::apply_lock(&mut body, *level, notes.as_deref()),
        Properties::VirtualNetwork { address_space } => {
            network::apply_network(&mut body, &request.id, address_space, is_new)?;
        }
        subnet @ Properties::Subnet { .. } => network::apply_subnet(&mut body, subnet),
        Properties::SecurityGroup { rules } => network::apply_security_group(&mut body, rules),
        Properties::RouteTable { routes } => network::apply_route_table(&mut body, routes),
        Properties::NatGateway {} => network::apply_standard(&mut body, is_new),
        Properties::PublicIp { .. } => network::apply_public_ip(&mut body, is_new),
        Properties::NetworkInterface { subnet, pools, .. } => {
            network::apply_interface(&mut body, subnet, pools);
        }
        Properties::LoadBalancer { frontends, outbound, .. } => {
            load_balancer::apply(&mut body, &request.id, frontends, outbound, is_new);
        }
        Properties::DnsZone {} | Properties::PrivateDnsZone {} => {}
        Properties::DnsRecord { ttl, addresses } => dns::apply_public(&mut body, *ttl, addresses),
        Properties::PrivateDnsRecord { ttl, addresses } => dns::apply_private(&mut body, *ttl, addresses),
        Properties::PrivateDnsLink { network, registration } => {
            dns::apply_link(&mut body, network, *registration);
        }
        Properties::StorageAccount { allowed_subnets, .. } => {
            storage::apply(&mut body, allowed_subnets, is_new);
        }
        Properties::PrivateEndpoint { subnet, target, .. } => {
            link::apply_endpoint(&mut body, &request.id, subnet, target);
        }
        Properties::PrivateLinkService { frontends, subnet, subscriptions, .. } => {
            link::apply_service(&mut body, &request.id, frontends, subnet, subscriptions);
        }
        machine @ Properties::Machine { .. } => {
            compute::apply_machine(&mut body, &request.id, machine, machines, is_new);
        }
        Properties::Disk { size_gb } => compute::apply_disk(&mut body, *size_gb, is_new),
        Properties::DiskEncryptionSet {} => compute::apply_encryption_set(&mut body, is_new),
        Properties::Identity { .. } => {}
    }
    Ok(body)
}

/// The properties of a body. What a further call tells (containers, federated credentials, an interface) is left empty.
pub(crate) fn decode(id: &ResourceId, kind: ResourceKind, body: &Value) -> Option<Properties> {
    Some(match kind {
        ResourceKind::ResourceGroup => {
            Properties::ResourceGroup { managed_by: crate::json::optional_text(body, "/managedBy") }
        }
        ResourceKind::Lock => group::lock(body),
        ResourceKind::VirtualNetwork => network::network(body),
        ResourceKind::Subnet => network::subnet(body),
        ResourceKind::SecurityGroup => network::security_group(body),
        ResourceKind::RouteTable => network::route_table(body),
        ResourceKind::NatGateway => Properties::NatGateway {},
        ResourceKind::PublicIp => {
            Properties::PublicIp { address: crate::json::optional_text(body, "/properties/ipAddress") }
        }
        ResourceKind::NetworkInterface => network::interface(body)?,
        ResourceKind::LoadBalancer => load_balancer::load_balancer(id, body),
        ResourceKind::DnsZone => Properties::DnsZone {},
        ResourceKind::DnsRecord => dns::public_record(body),
        ResourceKind::PrivateDnsZone => Properties::PrivateDnsZone {},
        ResourceKind::PrivateDnsRecord => dns::private_record(body),
        ResourceKind::PrivateDnsLink => dns::link(body)?,
        ResourceKind::StorageAccount => storage::account(body),
        ResourceKind::PrivateEndpoint => link::endpoint(body)?,
        ResourceKind::PrivateLinkService => link::service(body)?,
        ResourceKind::Machine => compute::machine(body, None),
        ResourceKind::Disk => compute::disk(body),
        ResourceKind::DiskEncryptionSet => Properties::DiskEncryptionSet {},
        ResourceKind::Identity => identity::identity(body, BTreeMap::new()),
    })
}

/// The properties of a machine with its interface, and of an identity with its federated credentials.
pub(crate) fn decode_machine(body: &Value, interface: Option<&Value>) -> Properties {
    compute::machine(body, interface)
}

pub(crate) fn decode_identity(body: &Value, federated: BTreeMap<String, String>) -> Properties {
    identity::identity(body, federated)
}

pub(crate) fn tags(kind: ResourceKind, body: &Value) -> BTreeMap<String, String> {
    let pointer = match kind {
        ResourceKind::DnsRecord | ResourceKind::PrivateDnsRecord => "/properties/metadata",
        _ => "/tags",
    };
    let tags = body.pointer(pointer).and_then(Value::as_object);
    let pairs = tags.into_iter().flatten();
    pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

/// The state that the body tells. A failure has no reason here; the operation knows it.
pub(crate) fn state(body: &Value) -> ResourceState {
    match text(body, "/properties/provisioningState").to_lowercase().as_str() {
        "" | "succeeded" => ResourceState::Succeeded,
        "deleting" | "deprovisioning" => ResourceState::Deleting,
        "creating" | "accepted" | "resolvingdns" => ResourceState::Creating,
        "failed" | "canceled" => ResourceState::Failed {
            failure: ResourceFailure {
                code: "ProvisioningFailed".to_owned(),
                message: "the resource is in state Failed, and no operation tells why".to_owned(),
            },
        },
        _ => ResourceState::Updating,
    }
}
