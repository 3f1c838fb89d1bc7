//! What this service has for itself in a cloud, beside its customers' clusters.

use api::domain;
use cloud::{Put, ResourceId, Shape};
use serde::{Deserialize, Serialize};

/// What this service has for itself in a cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The zone under which clusters are reached that name only a label, where locations have none of their own.
    pub domain: String,
    /// What the zones of locations have in common: in `eastus`, with `clusters.example`, it is `eastus.clusters.example`.
    #[serde(default)]
    pub zone: Option<String>,
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
            zone: None,
            subscription: subscription.to_owned(),
            group: group.to_owned(),
            location: location.to_owned(),
            address_space: address_space(),
        }
    }

    /// The same, with a zone for each location below that one.
    #[must_use]
    pub fn with_zones(self, zone: Option<&str>) -> Service {
        Service { zone: zone.map(str::to_owned), ..self }
    }

    /// The zone of the names of clusters in a location.
    pub fn domain_in(&self, location: &str) -> String {
        match &self.zone {
            Some(zone) => domain::zone_in(location, Some(zone)),
            None => self.domain.clone(),
        }
    }

    /// The whole domain name of a cluster in a location that asked for `domain`.
    pub fn domain_of(&self, domain: &str, location: &str) -> String {
        domain::managed(domain, &self.domain_in(location)).unwrap_or_else(|| domain.to_owned())
    }

    /// The service's own group.
    pub fn group_id(&self) -> ResourceId {
        ResourceId::group(&self.subscription, &self.group)
    }

    /// A zone of clusters' names.
    pub fn zone_id(&self, zone: &str) -> ResourceId {
        self.group_id().sibling("Microsoft.Network", "dnsZones", zone)
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

    /// What a zone of clusters' names needs.
    pub fn zone_puts(&self, zone: &str) -> Vec<Put> {
        vec![
            self.put(self.group_id(), Shape::ResourceGroup { managed_by: None }),
            self.put(self.zone_id(zone), Shape::DnsZone {}),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_named_in_the_zone_of_its_location() {
        let one = Service::new("clusters.test", "s", "g", "eastus");
        assert_eq!(one.domain_of("harbour", "westus"), "harbour.clusters.test");
        let many = one.with_zones(Some("clusters.example"));
        assert_eq!(many.domain_of("harbour", "WestUS"), "harbour.westus.clusters.example");
        assert_eq!(many.domain_of("harbour", "eastus"), "harbour.eastus.clusters.example");
        assert_eq!(many.domain_of("harbour.customer.test", "eastus"), "harbour.customer.test");
        assert_eq!(
            many.domain_of("harbour.eastus.clusters.example", "eastus"),
            "harbour.eastus.clusters.example"
        );
    }
}
