//! Resources: things with an id, a wanted shape, and a state that follows slowly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Fault, ResourceId};

/// What is wanted of a resource. Saying it again with the same shape changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Put {
    /// Which.
    pub id: ResourceId,
    /// Where.
    pub location: String,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How it should be.
    pub shape: Shape,
    /// The same for every repetition of one wish, so that the cloud answers the second as it did the first; with another
    /// shape it is a conflict, and so it is once the resource has been removed: whoever repeats the wish then has missed
    /// the deletion. Without one, puts are only compared with what is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Uuid>,
}

/// A resource as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Which.
    pub id: ResourceId,
    /// Where.
    pub location: String,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How it is, with what the cloud filled in (addresses, link ids).
    pub shape: Shape,
    /// How far it is.
    pub state: State,
}

/// How far a resource is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "state")]
pub enum State {
    /// Accepted, and being made.
    Creating,
    /// Being changed.
    Updating,
    /// Being removed; once gone it is not found.
    Deleting,
    /// As wanted.
    Succeeded,
    /// It came to a bad end. A further put tries again.
    Failed {
        /// Why.
        fault: Fault,
    },
}

/// The kinds of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "the names say what they are; `Shape` says what each has")]
pub enum Kind {
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
}

/// How a resource should be, or is. What the cloud fills in is absent from a wish; a put keeps what was filled in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename_all_fields = "camelCase")]
pub enum Shape {
    /// Holds resources; whoever deletes it deletes them, unless one is in use from outside.
    ResourceGroup {
        /// The resource on whose behalf it is managed; another manager is a conflict.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        managed_by: Option<String>,
    },
    /// A network.
    VirtualNetwork {
        /// Its ranges of addresses.
        address_space: Vec<String>,
    },
    /// A part of a network.
    Subnet {
        /// Its range of addresses.
        address_prefix: String,
        /// The security group that guards it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        security_group: Option<ResourceId>,
        /// Its routes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        route_table: Option<ResourceId>,
        /// What hides its machines behind a few addresses on the way out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nat_gateway: Option<ResourceId>,
        /// Services of the cloud that are reached directly from it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        service_endpoints: Vec<String>,
        /// Whether network policies apply to private links in it.
        #[serde(default)]
        private_link_policies: bool,
    },
    /// Rules about traffic.
    SecurityGroup {
        /// The rules, by priority.
        rules: Vec<Rule>,
    },
    /// Routes.
    RouteTable {
        /// Next hops by destination range.
        routes: BTreeMap<String, String>,
    },
    /// Hides machines behind a few addresses on the way out.
    NatGateway {},
    /// A public address.
    PublicIp {
        /// Filled in by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
    },
    /// Spreads connections over machines.
    LoadBalancer {
        /// Where it listens.
        frontends: Vec<Frontend>,
        /// The machines behind it. Machines join: a wish without any keeps those that are there, and a machine that is gone
        /// has left.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        backends: Vec<Backend>,
        /// Public addresses that traffic leaves from.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outbound: Vec<ResourceId>,
    },
    /// A zone of names.
    DnsZone {},
    /// A name in a zone.
    DnsRecord {
        /// Seconds that an answer may be kept.
        ttl: u32,
        /// The addresses.
        addresses: Vec<String>,
    },
    /// Blobs.
    StorageAccount {
        /// Its containers.
        containers: Vec<String>,
        /// Subnets that may reach it; all may when empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        allowed_subnets: Vec<ResourceId>,
    },
    /// A private way to a service in another network.
    PrivateEndpoint {
        /// The subnet where it appears.
        subnet: ResourceId,
        /// What it leads to.
        target: ResourceId,
        /// Filled in by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Filled in by the cloud; ids are used again after a delete.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        link_id: Option<String>,
    },
    /// A machine.
    Machine {
        /// Its size.
        size: String,
        /// The subnet that it is in.
        subnet: ResourceId,
        /// The zone that it is in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        zone: Option<String>,
        /// Its disk.
        disk_size_gb: u32,
        /// Filled in by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// Whether it runs; it is started when it is made.
        #[serde(default = "yes")]
        running: bool,
    },
    /// A disk.
    Disk {
        /// Its size.
        size_gb: u32,
    },
    /// Keys of disks.
    DiskEncryptionSet {},
    /// A managed identity.
    Identity {
        /// Filled in by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_id: Option<String>,
        /// Filled in by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        principal_id: Option<String>,
        /// Filled in by the cloud.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tenant_id: Option<String>,
        /// Service accounts whose tokens speak for it: subject by issuer-qualified name.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        federated: BTreeMap<String, String>,
    },
}

fn yes() -> bool {
    true
}

/// One rule about traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// Lower ones come first.
    pub priority: u32,
    /// Whether it lets through what it matches.
    pub allow: bool,
    /// From where.
    pub source: String,
    /// To which port.
    pub port: u16,
}

/// Where a load balancer listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frontend {
    /// Its name.
    pub name: String,
    /// A public address, or none for one of a subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_ip: Option<ResourceId>,
    /// The subnet of its private address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subnet: Option<ResourceId>,
    /// Filled in by the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its ports.
    pub ports: Vec<u16>,
}

/// A machine behind a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// The machine.
    pub machine: ResourceId,
    /// Filled in by the cloud: whether it answers its probe.
    #[serde(default)]
    pub healthy: bool,
}

impl Shape {
    /// What kind of resource has this shape.
    pub fn kind(&self) -> Kind {
        match self {
            Shape::ResourceGroup { .. } => Kind::ResourceGroup,
            Shape::VirtualNetwork { .. } => Kind::VirtualNetwork,
            Shape::Subnet { .. } => Kind::Subnet,
            Shape::SecurityGroup { .. } => Kind::SecurityGroup,
            Shape::RouteTable { .. } => Kind::RouteTable,
            Shape::NatGateway {} => Kind::NatGateway,
            Shape::PublicIp { .. } => Kind::PublicIp,
            Shape::LoadBalancer { .. } => Kind::LoadBalancer,
            Shape::DnsZone {} => Kind::DnsZone,
            Shape::DnsRecord { .. } => Kind::DnsRecord,
            Shape::StorageAccount { .. } => Kind::StorageAccount,
            Shape::PrivateEndpoint { .. } => Kind::PrivateEndpoint,
            Shape::Machine { .. } => Kind::Machine,
            Shape::Disk { .. } => Kind::Disk,
            Shape::DiskEncryptionSet {} => Kind::DiskEncryptionSet,
            Shape::Identity { .. } => Kind::Identity,
        }
    }
}

impl Kind {
    /// The provider and type in the ids of such resources; a group has none.
    pub fn provider(self) -> Option<(&'static str, &'static str)> {
        match self {
            Kind::ResourceGroup => None,
            Kind::VirtualNetwork => Some(("Microsoft.Network", "virtualNetworks")),
            Kind::Subnet => Some(("Microsoft.Network", "virtualNetworks/subnets")),
            Kind::SecurityGroup => Some(("Microsoft.Network", "networkSecurityGroups")),
            Kind::RouteTable => Some(("Microsoft.Network", "routeTables")),
            Kind::NatGateway => Some(("Microsoft.Network", "natGateways")),
            Kind::PublicIp => Some(("Microsoft.Network", "publicIPAddresses")),
            Kind::LoadBalancer => Some(("Microsoft.Network", "loadBalancers")),
            Kind::DnsZone => Some(("Microsoft.Network", "dnsZones")),
            Kind::DnsRecord => Some(("Microsoft.Network", "dnsZones/A")),
            Kind::StorageAccount => Some(("Microsoft.Storage", "storageAccounts")),
            Kind::PrivateEndpoint => Some(("Microsoft.Network", "privateEndpoints")),
            Kind::Machine => Some(("Microsoft.Compute", "virtualMachines")),
            Kind::Disk => Some(("Microsoft.Compute", "disks")),
            Kind::DiskEncryptionSet => Some(("Microsoft.Compute", "diskEncryptionSets")),
            Kind::Identity => Some(("Microsoft.ManagedIdentity", "userAssignedIdentities")),
        }
    }
}
