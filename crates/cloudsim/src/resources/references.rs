//! What a resource needs of others, and must therefore outlive it.

use cloud::{ResourceId, Shape};

/// The resources that one of this shape uses. Machines behind a load balancer are not among them: they come and go.
pub(crate) fn of(shape: &Shape) -> Vec<&ResourceId> {
    match shape {
        Shape::Subnet { security_group, route_table, nat_gateway, .. } => {
            security_group.iter().chain(route_table).chain(nat_gateway).collect()
        }
        Shape::LoadBalancer { frontends, outbound, .. } => {
            frontends.iter().flat_map(|it| it.public_ip.iter().chain(&it.subnet)).chain(outbound).collect()
        }
        Shape::PrivateEndpoint { subnet, target, .. } => vec![subnet, target],
        Shape::Machine { subnet, .. } => vec![subnet],
        Shape::ResourceGroup { .. }
        | Shape::VirtualNetwork { .. }
        | Shape::SecurityGroup { .. }
        | Shape::RouteTable { .. }
        | Shape::NatGateway {}
        | Shape::PublicIp { .. }
        | Shape::DnsZone {}
        | Shape::DnsRecord { .. }
        | Shape::StorageAccount { .. }
        | Shape::Disk { .. }
        | Shape::DiskEncryptionSet {}
        | Shape::Identity { .. } => Vec::new(),
    }
}
