//! The client of Azure on the emulator: every verb for every kind of resource, repeated, and under every fault.

mod blobs;
mod faults;
mod resources;
mod roles;
mod vault;

use std::collections::BTreeMap;
use std::time::Duration;

use api::error::{Class, Classify as _};
use api::secret::Secret;
use cloud::{
    CloudError, Infrastructure as _, LoadBalancerFrontend, LockLevel, Properties, Resource, ResourceId,
    ResourceKind, ResourceRequest, ResourceState, SecurityRule,
};
use cloud_azure::{AzureClient, ServiceCredential, Settings};
use cloudsim::{Endpoints, Options};

use crate::environment::{Environment, LOCATION, SUBSCRIPTION, eventually, within};

/// The client and the emulator that it calls.
struct AzureEnvironment {
    emulator: Environment,
    endpoints: Endpoints,
    azure: AzureClient,
}

impl AzureEnvironment {
    async fn new() -> AzureEnvironment {
        AzureEnvironment::with(Options::default()).await
    }

    async fn with(options: Options) -> AzureEnvironment {
        let emulator = Environment::with(options).await;
        let endpoints = emulator.endpoints.clone();
        let azure = AzureClient::new(settings(&endpoints)).unwrap();
        AzureEnvironment { emulator, endpoints, azure }
    }

    /// A client with other settings.
    fn client(&self, change: impl FnOnce(&mut Settings)) -> AzureClient {
        let mut settings = settings(&self.endpoints);
        change(&mut settings);
        AzureClient::new(settings).unwrap()
    }

    /// A client of another principal with a secret.
    fn client_of(&self, client_id: &str, secret: &Secret<String>) -> AzureClient {
        self.client(|it| {
            it.credential =
                ServiceCredential::ClientSecret { client_id: client_id.to_owned(), secret: secret.clone() };
        })
    }

    /// Puts a resource until it is ready, as the steps of a plan do: transient errors are tried again.
    async fn ready(&self, request: &ResourceRequest) -> Resource {
        eventually(&format!("{} is ready", request.id), async || {
            match self.azure.put(request.clone()).await {
                Ok(found) if found.state == ResourceState::Succeeded => Some(found),
                Ok(_) => None,
                Err(error) if error.class() == Class::Transient => None,
                Err(error) => panic!("{}: {error}", request.id),
            }
        })
        .await
    }

    /// Deletes a resource until it is gone.
    async fn gone(&self, id: &ResourceId) {
        eventually(&format!("{id} is gone"), async || {
            match self.azure.delete(id).await {
                Ok(()) => {}
                Err(error) if error.class() == Class::Transient => return None,
                Err(error) => panic!("{id}: {error}"),
            }
            match self.azure.get(id).await {
                Ok(found) => found.is_none().then_some(()),
                Err(error) if error.class() == Class::Transient => None,
                Err(error) => panic!("{id}: {error}"),
            }
        })
        .await;
    }
}

fn settings(endpoints: &Endpoints) -> Settings {
    Settings::from_endpoints_json(&serde_json::to_string(endpoints).unwrap()).unwrap()
}

fn group() -> ResourceId {
    ResourceId::group(SUBSCRIPTION, "cluster")
}

fn network(kind: &str, name: &str) -> ResourceId {
    group().sibling("Microsoft.Network", kind, name)
}

fn subnet() -> ResourceId {
    network("virtualNetworks", "net").child("subnets", "master")
}

/// A request of every kind, in an order in which each finds what it refers to.
fn requests() -> Vec<ResourceRequest> {
    let internal = network("loadBalancers", "infra-internal");
    let frontend = |name: &str, public_ip: Option<ResourceId>, subnet: Option<ResourceId>| {
        LoadBalancerFrontend { name: name.to_owned(), public_ip, subnet, address: None, ports: vec![6443] }
    };
    let api = network("publicIPAddresses", "infra-pip-v4");
    let service = network("privateLinkServices", "infra-pls");
    let account = "system:serviceaccount:ns:operator".to_owned();
    let rule = SecurityRule {
        name: "apiserver_in".to_owned(),
        priority: 120,
        allow: true,
        source: "*".to_owned(),
        port: 6443,
    };
    let zone = network("dnsZones", "example.org");
    let private_zone = network("privateDnsZones", "cluster.example.org");
    let all = [
        (group(), Properties::ResourceGroup { managed_by: Some("/the/cluster".to_owned()) }),
        (network("networkSecurityGroups", "infra-nsg"), Properties::SecurityGroup { rules: vec![rule] }),
        (
            network("routeTables", "routes"),
            Properties::RouteTable { routes: [("0.0.0.0/0".to_owned(), "10.0.9.4".to_owned())].into() },
        ),
        (network("natGateways", "nat"), Properties::NatGateway {}),
        (
            network("virtualNetworks", "net"),
            Properties::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] },
        ),
        (
            subnet(),
            Properties::Subnet {
                address_prefix: "10.0.0.0/24".to_owned(),
                security_group: Some(network("networkSecurityGroups", "infra-nsg")),
                route_table: Some(network("routeTables", "routes")),
                nat_gateway: None,
                service_endpoints: vec!["Microsoft.Storage".to_owned()],
                private_link_policies: false,
            },
        ),
        (api.clone(), Properties::PublicIp { address: None }),
        (network("publicIPAddresses", "second"), Properties::PublicIp { address: None }),
        (
            network("loadBalancers", "infra"),
            Properties::LoadBalancer {
                frontends: vec![frontend("public-lb-ip-v4", Some(api.clone()), None)],
                backends: Vec::new(),
                outbound: vec![api, network("publicIPAddresses", "second")],
            },
        ),
        (
            internal.clone(),
            Properties::LoadBalancer {
                frontends: vec![frontend("internal-lb-ip-v4", None, Some(subnet()))],
                backends: Vec::new(),
                outbound: Vec::new(),
            },
        ),
        (
            service.clone(),
            Properties::PrivateLinkService {
                frontends: vec![format!("{internal}/frontendIPConfigurations/internal-lb-ip-v4")],
                subnet: subnet(),
                subscriptions: vec![SUBSCRIPTION.to_owned()],
                alias: None,
                connections: Vec::new(),
            },
        ),
        (
            network("privateEndpoints", "rp-pe"),
            Properties::PrivateEndpoint { subnet: subnet(), target: service, address: None, link_id: None },
        ),
        (
            network("networkInterfaces", "own-nic"),
            Properties::NetworkInterface {
                subnet: subnet(),
                pools: vec![format!("{internal}/backendAddressPools/infra")],
                address: None,
                machine: None,
            },
        ),
        (zone.clone(), Properties::DnsZone {}),
        (
            zone.child("A", "*.apps.c"),
            Properties::DnsRecord { ttl: 300, addresses: vec!["1.2.3.4".to_owned()] },
        ),
        (private_zone.clone(), Properties::PrivateDnsZone {}),
        (
            private_zone.child("A", "api"),
            Properties::PrivateDnsRecord { ttl: 300, addresses: vec!["10.0.0.4".to_owned()] },
        ),
        (
            private_zone.child("virtualNetworkLinks", "net"),
            Properties::PrivateDnsLink { network: network("virtualNetworks", "net"), registration: false },
        ),
        (
            group().sibling("Microsoft.Storage", "storageAccounts", "clusterabc123"),
            Properties::StorageAccount {
                containers: vec!["aro".to_owned(), "ignition".to_owned()],
                allowed_subnets: vec![subnet()],
            },
        ),
        (
            group().sibling("Microsoft.Compute", "virtualMachines", "infra-master-0"),
            Properties::Machine {
                size: "Standard_D8s_v5".to_owned(),
                subnet: subnet(),
                zone: Some("1".to_owned()),
                disk_size_gb: 1024,
                address: None,
                running: true,
            },
        ),
        (group().sibling("Microsoft.Compute", "disks", "data"), Properties::Disk { size_gb: 10 }),
        (group().sibling("Microsoft.Compute", "diskEncryptionSets", "des"), Properties::DiskEncryptionSet {}),
        (
            group().sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "operator"),
            Properties::Identity {
                client_id: None,
                principal_id: None,
                tenant_id: None,
                federated: [(format!("https://issuer.example|{account}"), account)].into(),
            },
        ),
        (
            group().sibling("Microsoft.Authorization", "locks", "keep"),
            Properties::Lock { level: LockLevel::CanNotDelete, notes: Some("kept".to_owned()) },
        ),
    ];
    let request = |(id, properties): (ResourceId, Properties)| ResourceRequest {
        id,
        location: LOCATION.to_owned(),
        tags: BTreeMap::new(),
        properties,
    };
    let all: Vec<ResourceRequest> = all.into_iter().map(request).collect();
    let has = |kind: ResourceKind| all.iter().any(|it| it.properties.kind() == kind);
    assert!(ResourceKind::ALL.into_iter().all(has));
    all
}

fn request_of(kind: ResourceKind) -> ResourceRequest {
    requests().into_iter().find(|it| it.properties.kind() == kind).unwrap()
}
