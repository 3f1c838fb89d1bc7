//! A cloud in memory that accepts everything, for tests about what the client sends and keeps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cloud::{
    LoadBalancerFrontend, LockLevel, Properties, ResourceId, ResourceKind, ResourceRequest, SecurityRule,
};
use serde_json::{Value, json};

use super::{Reply, ScriptedService, Sent};

/// Resources by their lower-case paths, as they were sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryCloud {
    resources: Arc<Mutex<BTreeMap<String, Value>>>,
    /// Secrets and certificates that are deleted and not purged.
    deleted: Arc<Mutex<BTreeSet<String>>>,
    /// Whether the right to purge is there; it comes after the first refusal.
    may_purge: Arc<AtomicBool>,
}

impl MemoryCloud {
    pub(crate) fn service(&self) -> ScriptedService {
        let cloud = self.clone();
        ScriptedService::by(move |sent| cloud.respond(sent))
    }

    /// Changes a resource behind the client's back.
    pub(crate) fn change(&self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut resources = self.resources.lock().unwrap();
        change(resources.entry(path.to_lowercase()).or_insert_with(|| json!({})));
    }

    /// Removes a resource behind the client's back.
    pub(crate) fn remove(&self, path: &str) {
        self.resources.lock().unwrap().remove(&path.to_lowercase());
    }

    pub(crate) fn respond(&self, sent: &Sent) -> Reply {
        match sent.origin.as_str() {
            "https://keys.vault.azure.net" => self.vault(sent),
            origin if origin.ends_with("blob.core.windows.net") => self.blob(sent),
            _ => self.manager(sent),
        }
    }

    fn manager(&self, sent: &Sent) -> Reply {
        let mut resources = self.resources.lock().unwrap();
        let key = sent.path.to_lowercase();
        match sent.method.as_str() {
            "PUT" => {
                let etag = format!("W/\"{}\"", resources.len() + sent.text.len());
                let mut body = sent.json();
                body["id"] = json!(sent.path);
                body["name"] = json!(sent.path.rsplit('/').next());
                body["etag"] = json!(etag);
                resources.insert(key, body.clone());
                Reply::json(200, body)
            }
            "DELETE" => Reply::json(if resources.remove(&key).is_some() { 200 } else { 204 }, Value::Null),
            "POST" => {
                let password = json!({"name": "password1", "value": "issued-once"});
                Reply::json(200, json!({"username": "t", "passwords": [password]}))
            }
            _ => match resources.get(&key) {
                Some(body) => Reply::json(200, body.clone()),
                None if is_collection(&sent.path) => {
                    let parent = key.strip_suffix("/resources").unwrap_or(&key);
                    let items: Vec<&Value> = resources
                        .range(format!("{parent}/")..format!("{parent}0"))
                        .map(|(_, it)| it)
                        .collect();
                    Reply::json(200, json!({ "value": items }))
                }
                None => Reply::error(404, "ResourceNotFound"),
            },
        }
    }

    fn vault(&self, sent: &Sent) -> Reply {
        if sent.header("authorization").is_empty() {
            let challenge = "Bearer authorization=\"https://login.microsoftonline.com/t\", resource=\"https://vault.azure.net\"";
            return Reply::json(401, json!({})).with("www-authenticate", challenge);
        }
        let mut resources = self.resources.lock().unwrap();
        let mut deleted = self.deleted.lock().unwrap();
        let segments: Vec<&str> = sent.path.split('/').filter(|it| !it.is_empty()).collect();
        let key = format!("{}/{}", segments[0].trim_start_matches("deleted"), segments[1]);
        let id = format!("https://keys.vault.azure.net/{key}/0123456789abcdef0123456789abcdef");
        let is_deleted = segments[0].starts_with("deleted");
        match (sent.method.as_str(), is_deleted) {
            ("PUT" | "POST", false) if deleted.contains(&key) => {
                let inner = json!({"code": "ObjectIsDeletedButRecoverable"});
                Reply::json(409, json!({"error": {"code": "Conflict", "message": "m", "innererror": inner}}))
            }
            ("PUT" | "POST", false) => {
                let body = json!({"id": id, "value": "v", "cer": "AA==", "attributes": {"enabled": true}});
                resources.insert(key, body.clone());
                let operation = json!({"id": id, "status": "completed", "target": id});
                if sent.method == "PUT" { Reply::json(200, body) } else { Reply::json(202, operation) }
            }
            ("DELETE", false) => {
                deleted.insert(key.clone());
                match resources.remove(&key) {
                    Some(body) => Reply::json(200, body),
                    None => Reply::error(404, "NotFound"),
                }
            }
            ("DELETE", true) if !self.may_purge.swap(true, Ordering::SeqCst) => {
                Reply::error(403, "ForbiddenByRbac")
            }
            ("DELETE", true) => {
                deleted.remove(&key);
                Reply::json(204, Value::Null)
            }
            ("POST", true) => {
                deleted.remove(&key);
                Reply::json(200, json!({ "id": id }))
            }
            _ => match (resources.get(&key), segments.get(2)) {
                (Some(_), Some(&"policy")) => Reply::json(200, json!({"id": id})),
                (Some(_), Some(&"pending")) => {
                    Reply::json(200, json!({"id": id, "status": "completed", "target": id}))
                }
                (Some(body), _) => Reply::json(200, body.clone()),
                (None, _) => Reply::error(404, "NotFound"),
            },
        }
    }

    fn blob(&self, sent: &Sent) -> Reply {
        match sent.method.as_str() {
            "PUT" => Reply::text(201, ""),
            "DELETE" => Reply::text(202, ""),
            _ => Reply::text(200, "content"),
        }
    }
}

/// Whether a path names a list: its last segment is a type and not a name.
fn is_collection(path: &str) -> bool {
    let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    match segments.iter().rposition(|it| it.eq_ignore_ascii_case("providers")) {
        Some(at) => segments.len() < at + 2 || (segments.len() - at) % 2 == 1,
        None => segments.len() % 2 == 1,
    }
}

/// A request of every kind, in an order in which each finds what it refers to.
pub(crate) fn requests() -> Vec<ResourceRequest> {
    let group = ResourceId::group("s", "g");
    let network = |kind: &str, name: &str| group.sibling("Microsoft.Network", kind, name);
    let (net, balancer) = (network("virtualNetworks", "net"), network("loadBalancers", "infra-internal"));
    let subnet = net.child("subnets", "master");
    let frontend = LoadBalancerFrontend {
        name: "internal-lb-ip-v4".to_owned(),
        public_ip: None,
        subnet: Some(subnet.clone()),
        address: None,
        ports: vec![2200, 6443, 22623],
    };
    let address = network("publicIPAddresses", "infra-pip-v4");
    let service = network("privateLinkServices", "infra-pls");
    let federated =
        [("https://issuer|system:serviceaccount:a:b".to_owned(), "system:serviceaccount:a:b".to_owned())];
    let rule = SecurityRule {
        name: "apiserver_in".to_owned(),
        priority: 120,
        allow: true,
        source: "*".to_owned(),
        port: 6443,
    };
    let all = [
        (group.clone(), Properties::ResourceGroup { managed_by: None }),
        (
            group.sibling("Microsoft.Authorization", "locks", "keep"),
            Properties::Lock { level: LockLevel::CanNotDelete, notes: None },
        ),
        (network("networkSecurityGroups", "infra-nsg"), Properties::SecurityGroup { rules: vec![rule] }),
        (network("routeTables", "routes"), Properties::RouteTable { routes: BTreeMap::new() }),
        (network("natGateways", "nat"), Properties::NatGateway {}),
        (net.clone(), Properties::VirtualNetwork { address_space: vec!["10.0.0.0/16".to_owned()] }),
        (
            subnet.clone(),
            Properties::Subnet {
                address_prefix: "10.0.0.0/24".to_owned(),
                security_group: Some(network("networkSecurityGroups", "infra-nsg")),
                route_table: Some(network("routeTables", "routes")),
                nat_gateway: Some(network("natGateways", "nat")),
                service_endpoints: vec!["Microsoft.Storage".to_owned()],
                private_link_policies: false,
            },
        ),
        (address.clone(), Properties::PublicIp { address: None }),
        (
            balancer.clone(),
            Properties::LoadBalancer {
                frontends: vec![frontend],
                backends: Vec::new(),
                outbound: vec![address],
            },
        ),
        (
            service.clone(),
            Properties::PrivateLinkService {
                frontends: vec![format!("{balancer}/frontendIPConfigurations/internal-lb-ip-v4")],
                subnet: subnet.clone(),
                subscriptions: vec!["s".to_owned()],
                alias: None,
                connections: Vec::new(),
            },
        ),
        (
            network("privateEndpoints", "rp-pe"),
            Properties::PrivateEndpoint {
                subnet: subnet.clone(),
                target: service,
                address: None,
                link_id: None,
            },
        ),
        (
            network("networkInterfaces", "own-nic"),
            Properties::NetworkInterface {
                subnet: subnet.clone(),
                pools: vec![format!("{balancer}/backendAddressPools/infra")],
                address: None,
                machine: None,
            },
        ),
        (network("dnsZones", "example.org"), Properties::DnsZone {}),
        (
            network("dnsZones", "example.org").child("A", "api.c"),
            Properties::DnsRecord { ttl: 300, addresses: vec!["1.2.3.4".to_owned()] },
        ),
        (network("privateDnsZones", "c.org"), Properties::PrivateDnsZone {}),
        (
            network("privateDnsZones", "c.org").child("A", "api"),
            Properties::PrivateDnsRecord { ttl: 300, addresses: vec!["10.0.0.4".to_owned()] },
        ),
        (
            network("privateDnsZones", "c.org").child("virtualNetworkLinks", "net"),
            Properties::PrivateDnsLink { network: net, registration: false },
        ),
        (
            group.sibling("Microsoft.Storage", "storageAccounts", "clusterx"),
            Properties::StorageAccount {
                containers: vec!["aro".to_owned()],
                allowed_subnets: vec![subnet.clone()],
            },
        ),
        (
            group.sibling("Microsoft.Compute", "virtualMachines", "master-0"),
            Properties::Machine {
                size: "Standard_D8s_v5".to_owned(),
                subnet,
                zone: Some("1".to_owned()),
                disk_size_gb: 1024,
                address: None,
                running: true,
            },
        ),
        (group.sibling("Microsoft.Compute", "disks", "data"), Properties::Disk { size_gb: 10 }),
        (group.sibling("Microsoft.Compute", "diskEncryptionSets", "des"), Properties::DiskEncryptionSet {}),
        (
            group.sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "operator"),
            Properties::Identity {
                client_id: None,
                principal_id: None,
                tenant_id: None,
                federated: federated.into(),
            },
        ),
    ];
    let request = |(id, properties)| ResourceRequest {
        id,
        location: "westeurope".to_owned(),
        tags: BTreeMap::new(),
        properties,
    };
    let all: Vec<ResourceRequest> = all.into_iter().map(request).collect();
    assert_eq!(all.len(), ResourceKind::ALL.len());
    all
}
