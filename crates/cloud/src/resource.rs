//! Resources: objects with an id, desired properties, and a state that follows slowly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::{ResourceFailure, ResourceId};

/// The desired state of a resource. Repeating a put with the same properties changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequest {
    /// The id.
    pub id: ResourceId,
    /// The location.
    pub location: String,
    /// The tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The desired properties.
    #[serde(rename = "shape")]
    pub properties: Properties,
}

/// A resource with its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// The id.
    pub id: ResourceId,
    /// The location.
    pub location: String,
    /// The tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The current properties, with those that the cloud assigns (addresses, link ids).
    #[serde(rename = "shape")]
    pub properties: Properties,
    /// The provisioning state.
    pub state: ResourceState,
}

/// The provisioning state of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum ResourceState {
    /// Accepted, creation in progress.
    Creating,
    /// Update in progress.
    Updating,
    /// Deletion in progress; a deleted resource is not found.
    Deleting,
    /// As requested.
    Succeeded,
    /// Provisioning failed. A further put tries again.
    Failed {
        /// The failure.
        #[serde(rename = "fault")]
        failure: ResourceFailure,
    },
}

/// The kinds of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names are those of Azure; `Properties` documents each")]
pub enum ResourceKind {
    ResourceGroup,
    VirtualNetwork,
    Subnet,
    SecurityGroup,
    RouteTable,
    NatGateway,
    PublicIp,
    LoadBalancer,
    DnsZone,
    DnsRecord,
    StorageAccount,
    PrivateEndpoint,
    Machine,
    Disk,
    DiskEncryptionSet,
    Identity,
    PrivateLinkService,
    NetworkInterface,
    PrivateDnsZone,
    PrivateDnsRecord,
    PrivateDnsLink,
    Lock,
}

/// The properties of a resource by its kind. Requests leave out what the cloud assigns; a put keeps assigned values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum Properties {
    /// A group of resources. Deleting it deletes them, unless a resource outside uses one of them.
    ResourceGroup {
        /// The resource that manages the group; another manager is a conflict.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        managed_by: Option<String>,
    },
    /// A virtual network.
    VirtualNetwork {
        /// The address ranges.
        address_space: Vec<String>,
    },
    /// A subnet of a virtual network.
    Subnet {
        /// The address range.
        address_prefix: String,
        /// The network security group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        security_group: Option<ResourceId>,
        /// The route table.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route_table: Option<ResourceId>,
        /// The NAT gateway for outbound traffic.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nat_gateway: Option<ResourceId>,
        /// The service endpoints.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        service_endpoints: Vec<String>,
        /// Whether network policies apply to private links in it.
        #[serde(default)]
        private_link_policies: bool,
    },
    /// A network security group.
    SecurityGroup {
        /// The rules, by priority.
        rules: Vec<SecurityRule>,
    },
    /// A route table.
    RouteTable {
        /// Next hops by destination range.
        routes: BTreeMap<String, String>,
    },
    /// A NAT gateway.
    NatGateway {},
    /// A public IP address.
    PublicIp {
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// A load balancer.
    LoadBalancer {
        /// The frontends.
        frontends: Vec<LoadBalancerFrontend>,
        /// The backend pool. Machines join it by themselves: a request without backends keeps the present ones, and a deleted
        /// machine leaves the pool.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        backends: Vec<LoadBalancerBackend>,
        /// The public addresses of outbound traffic.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outbound: Vec<ResourceId>,
    },
    /// A DNS zone.
    DnsZone {},
    /// An A record.
    DnsRecord {
        /// The time to live in seconds.
        ttl: u32,
        /// The addresses.
        addresses: Vec<String>,
    },
    /// A storage account.
    StorageAccount {
        /// The blob containers.
        containers: Vec<String>,
        /// The subnets with access; empty allows all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        allowed_subnets: Vec<ResourceId>,
    },
    /// A private endpoint.
    PrivateEndpoint {
        /// The subnet of its address.
        subnet: ResourceId,
        /// The service that it connects to.
        target: ResourceId,
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Assigned by the cloud; ids are reused after a delete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link_id: Option<String>,
    },
    /// A virtual machine.
    Machine {
        /// The VM size.
        size: String,
        /// The subnet.
        subnet: ResourceId,
        /// The availability zone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
        /// The size of the OS disk.
        disk_size_gb: u32,
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Whether it is started.
        #[serde(default = "yes")]
        running: bool,
    },
    /// A disk.
    Disk {
        /// The size.
        size_gb: u32,
    },
    /// A disk encryption set.
    DiskEncryptionSet {},
    /// A managed identity.
    Identity {
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_id: Option<String>,
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        principal_id: Option<String>,
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<String>,
        /// The federated credentials: subject by issuer-qualified name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        federated: BTreeMap<String, String>,
    },
    /// A private link service in front of a load balancer.
    PrivateLinkService {
        /// The frontends of the load balancer, by their full ids.
        frontends: Vec<String>,
        /// The subnet of its own addresses.
        subnet: ResourceId,
        /// The subscriptions that see it and whose endpoints are approved without being asked.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        subscriptions: Vec<String>,
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        alias: Option<String>,
        /// Reported by the cloud.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        connections: Vec<LinkConnection>,
    },
    /// A network interface.
    NetworkInterface {
        /// The subnet.
        subnet: ResourceId,
        /// The backend pools that it belongs to, by their full ids.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pools: Vec<String>,
        /// Assigned by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Reported by the cloud: the machine that it is attached to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        machine: Option<ResourceId>,
    },
    /// A private DNS zone.
    PrivateDnsZone {},
    /// An A record of a private DNS zone.
    PrivateDnsRecord {
        /// The time to live in seconds.
        ttl: u32,
        /// The addresses.
        addresses: Vec<String>,
    },
    /// The link of a private DNS zone to a virtual network.
    PrivateDnsLink {
        /// The virtual network.
        network: ResourceId,
        /// Whether machines of the network are registered in the zone.
        #[serde(default)]
        registration: bool,
    },
    /// A lock of a resource group.
    Lock {
        /// What it prevents.
        level: LockLevel,
        /// Why it exists.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notes: Option<String>,
    },
}

/// What a lock prevents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LockLevel {
    /// Deletion.
    CanNotDelete,
    /// Deletion and every change.
    ReadOnly,
}

/// The connection of a private endpoint to a private link service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LinkConnection {
    /// The name of the connection.
    pub name: String,
    /// The private endpoint.
    pub endpoint: String,
    /// The id that distinguishes the endpoint's traffic; ids are reused after a delete.
    pub link_id: String,
    /// Whether the owner of the service has approved it.
    pub approved: bool,
}

fn yes() -> bool {
    true
}

/// A rule of a network security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityRule {
    /// The name.
    pub name: String,
    /// The priority; lower numbers are evaluated first.
    pub priority: u32,
    /// Whether it allows the traffic.
    pub allow: bool,
    /// The source.
    pub source: String,
    /// The destination port.
    pub port: u16,
}

/// A frontend of a load balancer.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerFrontend {
    /// The name.
    pub name: String,
    /// The public address; `None` for an internal frontend.
    #[serde(default)]
    pub public_ip: Option<ResourceId>,
    /// The subnet of the private address.
    #[serde(default)]
    pub subnet: Option<ResourceId>,
    /// Assigned by the cloud.
    #[serde(default)]
    pub address: Option<String>,
    /// The ports.
    pub ports: Vec<u16>,
}

/// A machine in the backend pool of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerBackend {
    /// The machine.
    pub machine: ResourceId,
}

impl Properties {
    /// The kind of resource that has these properties.
    pub fn kind(&self) -> ResourceKind {
        match self {
            Properties::ResourceGroup { .. } => ResourceKind::ResourceGroup,
            Properties::VirtualNetwork { .. } => ResourceKind::VirtualNetwork,
            Properties::Subnet { .. } => ResourceKind::Subnet,
            Properties::SecurityGroup { .. } => ResourceKind::SecurityGroup,
            Properties::RouteTable { .. } => ResourceKind::RouteTable,
            Properties::NatGateway {} => ResourceKind::NatGateway,
            Properties::PublicIp { .. } => ResourceKind::PublicIp,
            Properties::LoadBalancer { .. } => ResourceKind::LoadBalancer,
            Properties::DnsZone {} => ResourceKind::DnsZone,
            Properties::DnsRecord { .. } => ResourceKind::DnsRecord,
            Properties::StorageAccount { .. } => ResourceKind::StorageAccount,
            Properties::PrivateEndpoint { .. } => ResourceKind::PrivateEndpoint,
            Properties::Machine { .. } => ResourceKind::Machine,
            Properties::Disk { .. } => ResourceKind::Disk,
            Properties::DiskEncryptionSet {} => ResourceKind::DiskEncryptionSet,
            Properties::Identity { .. } => ResourceKind::Identity,
            Properties::PrivateLinkService { .. } => ResourceKind::PrivateLinkService,
            Properties::NetworkInterface { .. } => ResourceKind::NetworkInterface,
            Properties::PrivateDnsZone {} => ResourceKind::PrivateDnsZone,
            Properties::PrivateDnsRecord { .. } => ResourceKind::PrivateDnsRecord,
            Properties::PrivateDnsLink { .. } => ResourceKind::PrivateDnsLink,
            Properties::Lock { .. } => ResourceKind::Lock,
        }
    }
}

impl ResourceKind {
    /// The provider namespace and type in resource ids; a group has none.
    pub fn provider(self) -> Option<(&'static str, &'static str)> {
        match self {
            ResourceKind::ResourceGroup => None,
            ResourceKind::VirtualNetwork => Some(("Microsoft.Network", "virtualNetworks")),
            ResourceKind::Subnet => Some(("Microsoft.Network", "virtualNetworks/subnets")),
            ResourceKind::SecurityGroup => Some(("Microsoft.Network", "networkSecurityGroups")),
            ResourceKind::RouteTable => Some(("Microsoft.Network", "routeTables")),
            ResourceKind::NatGateway => Some(("Microsoft.Network", "natGateways")),
            ResourceKind::PublicIp => Some(("Microsoft.Network", "publicIPAddresses")),
            ResourceKind::LoadBalancer => Some(("Microsoft.Network", "loadBalancers")),
            ResourceKind::DnsZone => Some(("Microsoft.Network", "dnsZones")),
            ResourceKind::DnsRecord => Some(("Microsoft.Network", "dnsZones/A")),
            ResourceKind::StorageAccount => Some(("Microsoft.Storage", "storageAccounts")),
            ResourceKind::PrivateEndpoint => Some(("Microsoft.Network", "privateEndpoints")),
            ResourceKind::Machine => Some(("Microsoft.Compute", "virtualMachines")),
            ResourceKind::Disk => Some(("Microsoft.Compute", "disks")),
            ResourceKind::DiskEncryptionSet => Some(("Microsoft.Compute", "diskEncryptionSets")),
            ResourceKind::Identity => Some(("Microsoft.ManagedIdentity", "userAssignedIdentities")),
            ResourceKind::PrivateLinkService => Some(("Microsoft.Network", "privateLinkServices")),
            ResourceKind::NetworkInterface => Some(("Microsoft.Network", "networkInterfaces")),
            ResourceKind::PrivateDnsZone => Some(("Microsoft.Network", "privateDnsZones")),
            ResourceKind::PrivateDnsRecord => Some(("Microsoft.Network", "privateDnsZones/A")),
            ResourceKind::PrivateDnsLink => {
                Some(("Microsoft.Network", "privateDnsZones/virtualNetworkLinks"))
            }
            ResourceKind::Lock => Some(("Microsoft.Authorization", "locks")),
        }
    }

    /// Every kind.
    pub const ALL: [ResourceKind; 22] = [
        ResourceKind::ResourceGroup,
        ResourceKind::VirtualNetwork,
        ResourceKind::Subnet,
        ResourceKind::SecurityGroup,
        ResourceKind::RouteTable,
        ResourceKind::NatGateway,
        ResourceKind::PublicIp,
        ResourceKind::LoadBalancer,
        ResourceKind::DnsZone,
        ResourceKind::DnsRecord,
        ResourceKind::StorageAccount,
        ResourceKind::PrivateEndpoint,
        ResourceKind::Machine,
        ResourceKind::Disk,
        ResourceKind::DiskEncryptionSet,
        ResourceKind::Identity,
        ResourceKind::PrivateLinkService,
        ResourceKind::NetworkInterface,
        ResourceKind::PrivateDnsZone,
        ResourceKind::PrivateDnsRecord,
        ResourceKind::PrivateDnsLink,
        ResourceKind::Lock,
    ];

    /// The kind of the resource that has this id; `None` for types that are not managed here.
    pub fn of_id(id: &ResourceId) -> Option<ResourceKind> {
        let mut segments = id.as_str().split('/').skip(6);
        let Some(namespace) = segments.next() else { return Some(ResourceKind::ResourceGroup) };
        let types: Vec<&str> = segments.step_by(2).collect();
        let types = types.join("/");
        ResourceKind::ALL.into_iter().find(|kind| {
            kind.provider().is_some_and(|(space, its)| {
                space.eq_ignore_ascii_case(namespace) && its.eq_ignore_ascii_case(&types)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_its_kind() {
        let group = ResourceId::group("s", "g");
        for kind in ResourceKind::ALL {
            let id = match kind.provider() {
                None => group.clone(),
                Some((namespace, types)) => {
                    let mut segments = types.split('/');
                    let first = segments.next().expect("a type");
                    let id = group.sibling(namespace, &first.to_uppercase(), "n");
                    segments.fold(id, |id, segment| id.child(segment, "m"))
                }
            };
            assert_eq!(ResourceKind::of_id(&id), Some(kind), "{id}");
        }
        assert_eq!(ResourceKind::of_id(&group.sibling("Microsoft.Web", "sites", "n")), None);
    }
}
