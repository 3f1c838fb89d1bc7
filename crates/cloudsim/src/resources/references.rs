//! References between resources: a referenced resource cannot be deleted before its user.

use cloud::{Properties, ResourceId};

/// The resources that these properties refer to. Machines in a backend pool are not among them: they come and go.
pub(crate) fn of(properties: &Properties) -> Vec<&ResourceId> {
    match properties {
        Properties::Subnet { security_group, route_table, nat_gateway, .. } => {
            security_group.iter().chain(route_table).chain(nat_gateway).collect()
        }
        Properties::LoadBalancer { frontends, outbound, .. } => {
            frontends.iter().flat_map(|it| it.public_ip.iter().chain(&it.subnet)).chain(outbound).collect()
        }
        Properties::PrivateEndpoint { subnet, target, .. } => vec![subnet, target],
        Properties::Machine { subnet, .. }
        | Properties::PrivateLinkService { subnet, .. }
        | Properties::NetworkInterface { subnet, .. } => vec![subnet],
        Properties::PrivateDnsLink { network, .. } => vec![network],
        Properties::ResourceGroup { .. }
        | Properties::VirtualNetwork { .. }
        | Properties::SecurityGroup { .. }
        | Properties::RouteTable { .. }
        | Properties::NatGateway {}
        | Properties::PublicIp { .. }
        | Properties::DnsZone {}
        | Properties::DnsRecord { .. }
        | Properties::StorageAccount { .. }
        | Properties::Disk { .. }
        | Properties::DiskEncryptionSet {}
        | Properties::PrivateDnsZone {}
        | Properties::PrivateDnsRecord { .. }
        | Properties::Lock { .. }
        | Properties::Identity { .. } => Vec::new(),
    }
}
