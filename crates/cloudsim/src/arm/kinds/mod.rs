//! The types of resources, by provider.

mod addresses;
mod allocation;
mod availability;
mod balancers;
mod body;
pub(crate) mod boot;
mod disks;
mod dns;
mod identity;
mod interfaces;
mod machine_actions;
pub(crate) mod machines;
mod networks;
mod private_dns;
mod private_endpoints;
mod private_link;
pub(crate) mod registry;
mod rows;
mod security;
pub(crate) mod storage;
#[cfg(test)]
mod tests;
pub(crate) mod vaults;

use std::time::Duration;

use crate::arm::{Behaviour, DeleteStyle, Kind, PutStyle};

/// Every type that has resources of its own below a group or below another resource.
pub(crate) fn all() -> impl Iterator<Item = &'static Kind> {
    NETWORK.iter().chain(&DNS).chain(&COMPUTE).chain(&OTHERS)
}

/// A kind whose PUT and DELETE are long operations with `Azure-AsyncOperation`, that has a location and etags: the rule in `Microsoft.Network`.
const fn network(type_name: &'static str, seconds: u64, behaviour: &'static dyn Behaviour) -> Kind {
    Kind {
        type_name,
        put: PutStyle::AsyncOperation,
        delete: DeleteStyle::Async,
        span: Duration::from_secs(seconds),
        has_location: true,
        has_etag: true,
        behaviour,
    }
}

/// A kind whose PUT and DELETE complete at once.
const fn sync(type_name: &'static str, has_location: bool, behaviour: &'static dyn Behaviour) -> Kind {
    Kind {
        type_name,
        put: PutStyle::Sync,
        delete: DeleteStyle::Sync,
        span: Duration::ZERO,
        has_location,
        has_etag: false,
        behaviour,
    }
}

/// A record set of DNS.
const fn record(type_name: &'static str, behaviour: &'static dyn Behaviour) -> Kind {
    Kind { has_etag: true, ..sync(type_name, false, behaviour) }
}

static NETWORK: [Kind; 12] = [
    network(networks::NETWORK, 5, &networks::VirtualNetworks),
    Kind { has_location: false, ..network(networks::SUBNET, 5, &networks::Subnets) },
    network("Microsoft.Network/networkSecurityGroups", 5, &security::SecurityGroups),
    network("Microsoft.Network/applicationSecurityGroups", 5, &availability::ApplicationSecurityGroups),
    network("Microsoft.Network/routeTables", 5, &security::RouteTables),
    network("Microsoft.Network/natGateways", 5, &addresses::NatGateways),
    network("Microsoft.Network/publicIPAddresses", 8, &addresses::PublicAddresses),
    network("Microsoft.Network/loadBalancers", 10, &balancers::LoadBalancers),
    network(interfaces::INTERFACE, 5, &interfaces::Interfaces),
    network(private_link::LINK_SERVICE, 15, &private_link::LinkServices),
    Kind {
        put: PutStyle::SyncOk,
        span: Duration::ZERO,
        has_location: false,
        ..network(private_link::CONNECTION, 0, &private_link::Connections)
    },
    network(private_endpoints::PRIVATE_ENDPOINT, 25, &private_endpoints::PrivateEndpoints),
];

static DNS: [Kind; 11] = [
    Kind {
        delete: DeleteStyle::Async,
        has_etag: true,
        ..sync("Microsoft.Network/dnsZones", true, &dns::Zones)
    },
    record(dns::RECORD_TYPES[0], &dns::Records),
    record(dns::RECORD_TYPES[1], &dns::Records),
    record(dns::RECORD_TYPES[2], &dns::Records),
    record(dns::RECORD_TYPES[3], &dns::Records),
    network("Microsoft.Network/privateDnsZones", 5, &private_dns::Zones),
    network(private_dns::LINK, 5, &private_dns::Links),
    record(private_dns::RECORD_TYPES[0], &private_dns::Records),
    record(private_dns::RECORD_TYPES[1], &private_dns::Records),
    record(private_dns::RECORD_TYPES[2], &private_dns::Records),
    record(private_dns::RECORD_TYPES[3], &private_dns::Records),
];

static COMPUTE: [Kind; 4] = [
    Kind {
        put: PutStyle::SyncOk,
        ..sync("Microsoft.Compute/availabilitySets", true, &availability::AvailabilitySets)
    },
    network(machines::MACHINE, 60, &machines::Machines),
    Kind { put: PutStyle::Accepted, has_etag: false, ..network(disks::DISK, 8, &disks::Disks) },
    Kind {
        put: PutStyle::Accepted,
        has_etag: false,
        ..network("Microsoft.Compute/diskEncryptionSets", 8, &disks::EncryptionSets)
    },
];

static OTHERS: [Kind; 9] = [
    Kind {
        put: PutStyle::Location,
        span: Duration::from_secs(25),
        ..sync(storage::ACCOUNT, true, &storage::Accounts)
    },
    Kind { put: PutStyle::SyncOk, ..sync(storage::BLOB_SERVICE, false, &storage::BlobServices) },
    Kind { has_etag: true, ..sync(storage::CONTAINER, false, &storage::Containers) },
    sync(identity::IDENTITY, true, &identity::Identities),
    Kind {
        span: Duration::from_secs(1),
        ..sync(identity::CREDENTIAL, false, &identity::FederatedCredentials)
    },
    Kind { has_etag: false, ..network(registry::REGISTRY, 5, &registry::Registries) },
    Kind { has_etag: false, has_location: false, ..network(registry::TOKEN, 3, &registry::Tokens) },
    Kind { has_etag: false, has_location: false, ..network(registry::SCOPE_MAP, 3, &registry::ScopeMaps) },
    sync(vaults::VAULT, true, &vaults::Vaults),
];
