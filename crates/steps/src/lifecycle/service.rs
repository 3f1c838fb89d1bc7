//! The service's own resources in a cloud, beside its customers' clusters.

use api::domain;
use cloud::{Properties, ResourceId, ResourceRequest};
use serde::{Deserialize, Serialize};

/// The service's own resources in a cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The DNS zone of clusters that name only a label, where locations have no zones of their own.
    pub domain: String,
    /// The common parent of the zones of locations: in `eastus`, with `clusters.example`, the zone is `eastus.clusters.example`.
    #[serde(default)]
    pub zone: Option<String>,
    /// The service's own subscription.
    pub subscription: String,
    /// The service's own resource group.
    pub group: String,
    /// Its location.
    pub location: String,
    /// The address space of the network from which the service reaches API servers.
    #[serde(default = "address_space")]
    pub address_space: String,
}

fn address_space() -> String {
    "172.30.0.0/16".to_owned()
}

impl Service {
    /// A service with that domain, in a group of its own.
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

    /// Adds a zone for each location, below that one.
    #[must_use]
    pub fn with_zones(self, zone: Option<&str>) -> Service {
        Service { zone: zone.map(str::to_owned), ..self }
    }

    /// The DNS zone of clusters in a location.
    pub fn domain_in(&self, location: &str) -> String {
        match &self.zone {
            Some(zone) => domain::zone_in(location, Some(zone)),
            None => self.domain.clone(),
        }
    }

    /// The whole domain name of a cluster in a location that requested `domain`.
    pub fn domain_of(&self, domain: &str, location: &str) -> String {
        domain::managed(domain, &self.domain_in(location)).unwrap_or_else(|| domain.to_owned())
    }

    /// The service's own group.
    pub fn group_id(&self) -> ResourceId {
        ResourceId::group(&self.subscription, &self.group)
    }

    /// A DNS zone of clusters.
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

    fn put(&self, id: ResourceId, properties: Properties) -> ResourceRequest {
        ResourceRequest { id, location: self.location.clone(), tags: [].into(), properties }
    }

    /// The resources of a DNS zone of clusters.
    pub fn zone_puts(&self, zone: &str) -> Vec<ResourceRequest> {
        vec![
            self.put(self.group_id(), Properties::ResourceGroup { managed_by: None }),
            self.put(self.zone_id(zone), Properties::DnsZone {}),
        ]
    }

    /// The resources that private endpoints to API servers need.
    pub fn network(&self) -> Vec<ResourceRequest> {
        let subnet = Properties::Subnet {
            address_prefix: self.address_space.clone(),
            security_group: None,
            route_table: None,
            nat_gateway: None,
            service_endpoints: Vec::new(),
            private_link_policies: false,
        };
        let network = Properties::VirtualNetwork { address_space: vec![self.address_space.clone()] };
        vec![
            self.put(self.group_id(), Properties::ResourceGroup { managed_by: None }),
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
