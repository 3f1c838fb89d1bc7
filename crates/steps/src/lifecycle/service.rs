//! What this service has for itself in a cloud, beside its customers' clusters.

use cloud::{Put, ResourceId, Shape};
use serde::{Deserialize, Serialize};

/// What this service has for itself in a cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The zone under which clusters are reached that name only a label.
    pub domain: String,
    /// The service's own subscription.
    pub subscription: String,
    /// The service's own resource group.
    pub group: String,
    /// Where that is.
    pub location: String,
    /// The addresses of the network from which the service reaches API servers.
    #[serde(default = "address_space")]
    pub address_space: String,
}

fn address_space() -> String {
    "172.30.0.0/16".to_owned()
}

impl Service {
    /// A service of that domain, in a group of its own.
    pub fn new(domain: &str, subscription: &str, group: &str, location: &str) -> Service {
        Service {
            domain: domain.to_owned(),
            subscription: subscription.to_owned(),
            group: group.to_owned(),
            location: location.to_owned(),
            address_space: address_space(),
        }
    }

    /// The whole domain name of a cluster that asked for `domain`.
    pub fn domain_of(&self, domain: &str) -> String {
        if domain.contains('.') { domain.to_owned() } else { format!("{domain}.{}", self.domain) }
    }

    /// The service's own group.
    pub fn group_id(&self) -> ResourceId {
        ResourceId::group(&self.subscription, &self.group)
    }

    /// The zone of its clusters' names.
    pub fn zone_id(&self) -> ResourceId {
        self.group_id().sibling("Microsoft.Network", "dnsZones", &self.domain)
    }

    fn network_id(&self) -> ResourceId {
        self.group_id().sibling("Microsoft.Network", "virtualNetworks", "rp-pe-vnet")
    }

    /// The subnet from which the service reaches API servers.
    pub fn subnet_id(&self) -> ResourceId {
        self.network_id().child("subnets", "rp-pe-subnet")
    }

    fn put(&self, id: ResourceId, shape: Shape) -> Put {
        Put { id, location: self.location.clone(), tags: [].into(), shape, token: None }
    }

    /// What the zone of its clusters' names needs.
    pub fn zone(&self) -> Vec<Put> {
        vec![
            self.put(self.group_id(), Shape::ResourceGroup { managed_by: None }),
            self.put(self.zone_id(), Shape::DnsZone {}),
        ]
    }

    /// What private endpoints to API servers need.
    pub fn network(&self) -> Vec<Put> {
        let subnet = Shape::Subnet {
            address_prefix: self.address_space.clone(),
            security_group: None,
            route_table: None,
            nat_gateway: None,
            service_endpoints: Vec::new(),
            private_link_policies: false,
        };
        let network = Shape::VirtualNetwork { address_space: vec![self.address_space.clone()] };
        vec![
            self.put(self.group_id(), Shape::ResourceGroup { managed_by: None }),
            self.put(self.network_id(), network),
            self.put(self.subnet_id(), subnet),
        ]
    }
}
