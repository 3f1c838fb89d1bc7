//! Tests of kinds on a database in memory, through the functions that requests use.

use cloud::ResourceId;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::{machines, registry, storage};
use crate::arm::{ActionOutcome, ArmResource, find_kind, groups, resources, store, type_of};
use crate::call_context::{CallContext, FaultEffects};
use crate::database;
use crate::endpoints::Endpoints;
use crate::entra::VerifiedTokens;
use crate::failure::Failure;

/// A cloud in memory with one group.
struct Fixture {
    db: Connection,
    endpoints: Endpoints,
    tokens: VerifiedTokens,
    now: Timestamp,
    pace: f64,
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

impl Fixture {
    fn new() -> Fixture {
        let endpoints = Endpoints { blob: "https://127.0.0.1:9".to_owned(), ..Endpoints::default() };
        let fixture = Fixture {
            db: database::open(None).unwrap(),
            endpoints,
            tokens: VerifiedTokens::default(),
            now: Timestamp::UNIX_EPOCH,
            pace: 0.0,
        };
        groups::write(&fixture.cx(), &group(), &object(json!({ "location": "westeurope" }))).unwrap();
        fixture
    }

    fn cx(&self) -> CallContext<'_> {
        CallContext {
            db: &self.db,
            now: self.now,
            seed: 1,
            pace: self.pace,
            effects: FaultEffects::default(),
            endpoints: &self.endpoints,
            tokens: &self.tokens,
        }
    }

    fn pass(&mut self, seconds: i64) {
        self.now = self.now.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        store::sweep(&self.db, self.now).unwrap();
    }

    fn try_put(&self, id: &ResourceId, body: Value) -> Result<ArmResource, Failure> {
        let kind = find_kind(&type_of(id).unwrap()).unwrap();
        let mut body = object(body);
        if kind.has_location && !body.contains_key("location") {
            body.insert("location".to_owned(), json!("westeurope"));
        }
        resources::write(&self.cx(), kind, id, body).map(|it| it.resource)
    }

    fn put(&self, id: &ResourceId, body: Value) -> Value {
        self.try_put(id, body).unwrap();
        self.get(id, None)
    }

    fn get(&self, id: &ResourceId, expand: Option<&str>) -> Value {
        let found = store::find(&self.db, &id.key()).unwrap().unwrap();
        Value::Object(resources::shown(&self.cx(), &found, expand).unwrap())
    }

    fn exists(&self, id: &ResourceId) -> bool {
        store::find(&self.db, &id.key()).unwrap().is_some()
    }

    fn delete(&self, id: &ResourceId) -> Result<(), Failure> {
        let found = store::find(&self.db, &id.key()).unwrap().unwrap();
        resources::delete(&self.cx(), find_kind(&found.type_name).unwrap(), &found).map(drop)
    }

    /// Carries out an action and returns its result.
    fn act(&self, id: &ResourceId, action: &str, body: &Value) -> Result<Value, Failure> {
        let found = store::find(&self.db, &id.key()).unwrap().unwrap();
        let kind = find_kind(&found.type_name).unwrap();
        Ok(match kind.behaviour.act(&self.cx(), &found, action, &[], body)?.unwrap() {
            ActionOutcome::Done(value) => value,
            ActionOutcome::Accepted { result, change, .. } => {
                if let Some(body) = change {
                    resources::replace_body(&self.cx(), &found, body).unwrap();
                }
                result
            }
        })
    }

    fn account_keys(&self, name: &str) -> [String; 2] {
        let account = storage::find_account(&self.cx(), name).unwrap().unwrap();
        storage::account_keys(&account).unwrap()
    }

    /// A network `v` with the subnets `a` and `b`.
    fn network(&self) -> ResourceId {
        let id = of_network("virtualNetworks", "v");
        self.put(
            &id,
            json!({ "properties": {
                "addressSpace": { "addressPrefixes": ["10.0.0.0/16"] },
                "subnets": [
                    { "name": "a", "properties": { "addressPrefix": "10.0.0.0/24" } },
                    { "name": "b", "properties": {
                        "addressPrefix": "10.0.1.0/24", "privateLinkServiceNetworkPolicies": "Disabled" } },
                ]
            } }),
        );
        id
    }

    fn interface(&self, name: &str, pools: Value) -> ResourceId {
        let id = of_network("networkInterfaces", name);
        self.put(
            &id,
            json!({ "properties": { "ipConfigurations": [{ "name": "one", "properties": {
                "subnet": { "id": subnet("a") }, "loadBalancerBackendAddressPools": pools
            } }] } }),
        );
        id
    }

    fn balancer(&self) -> ResourceId {
        let id = of_network("loadBalancers", "lb");
        let part = |kind: &str, name: &str| json!({ "id": id.child(kind, name) });
        self.put(
            &id,
            json!({ "sku": { "name": "Standard" }, "properties": {
                "frontendIPConfigurations": [{ "name": "front", "properties": { "subnet": { "id": subnet("b") } } }],
                "backendAddressPools": [{ "name": "pool" }],
                "probes": [{ "name": "probe", "properties": { "protocol": "Tcp", "port": 6443 } }],
                "loadBalancingRules": [{ "name": "api", "properties": {
                    "protocol": "Tcp", "frontendPort": 6443, "backendPort": 6443,
                    "frontendIPConfiguration": part("frontendIPConfigurations", "front"),
                    "backendAddressPool": part("backendAddressPools", "pool"), "probe": part("probes", "probe")
                } }],
            } }),
        );
        id
    }
}

fn group() -> ResourceId {
    ResourceId::group("s", "g")
}

fn of_network(kind: &str, name: &str) -> ResourceId {
    group().sibling("Microsoft.Network", kind, name)
}

fn subnet(name: &str) -> ResourceId {
    of_network("virtualNetworks", "v").child("subnets", name)
}

fn machine(name: &str) -> ResourceId {
    group().sibling("Microsoft.Compute", "virtualMachines", name)
}

fn machine_body(interface: &ResourceId, delete_option: &str) -> Value {
    json!({ "zones": ["1"], "properties": {
        "hardwareProfile": { "vmSize": "Standard_D8s_v5" },
        "storageProfile": { "osDisk": {
            "name": "m_OSDisk", "createOption": "FromImage", "diskSizeGB": 128, "deleteOption": delete_option } },
        "osProfile": { "computerName": "m", "adminUsername": "core", "adminPassword": "not kept", "customData": "e30=" },
        "networkProfile": { "networkInterfaces": [{ "id": interface, "properties": { "deleteOption": delete_option } }] }
    } })
}

#[track_caller]
fn check_code<T: std::fmt::Debug>(result: Result<T, Failure>, status: u16, code: &str) {
    match result {
        Err(Failure::Arm(error)) => {
            assert_eq!((error.status.as_u16(), error.code.as_str()), (status, code), "{}", error.message);
        }
        other => panic!("expected {code}, not {other:?}"),
    }
}

#[test]
fn subnets_of_a_network_are_resources_that_stay_when_a_put_leaves_them_out() {
    let fixture = Fixture::new();
    let network = fixture.network();
    let names = |shown: &Value| -> Vec<String> {
        let subnets = shown["properties"]["subnets"].as_array().unwrap();
        subnets.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&fixture.get(&network, None)), ["a", "b"]);
    let again = fixture
        .put(&network, json!({ "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/8"] } } }));
    assert_eq!(names(&again), ["a", "b"]);
    let one = json!({ "properties": { "addressSpace": { "addressPrefixes": ["10.0.0.0/8"] },
        "subnets": [{ "name": "a", "properties": { "addressPrefix": "10.0.0.0/24" } }] } });
    assert_eq!(names(&fixture.put(&network, one)), ["a"]);
    let shown = fixture.get(&subnet("a"), None);
    assert_eq!(shown["properties"]["privateLinkServiceNetworkPolicies"], "Enabled");
    assert!(!shown.to_string().contains('$'));
}

#[test]
fn ranges_of_subnets_are_checked() {
    let fixture = Fixture::new();
    fixture.network();
    for (prefix, code) in [
        ("10.0.0.0/25", "NetcfgSubnetRangesOverlap"),
        ("10.1.0.0/24", "NetcfgInvalidSubnet"),
        ("10.0.2.1/24", "InvalidCIDRNotation"),
    ] {
        let result = fixture.try_put(&subnet("c"), json!({ "properties": { "addressPrefix": prefix } }));
        check_code(result, 400, code);
    }
}

#[test]
fn a_used_security_group_stays_and_shows_its_users() {
    let fixture = Fixture::new();
    fixture.network();
    let rules = of_network("networkSecurityGroups", "nsg");
    let rule = |name: &str, priority: u32| {
        json!({ "name": name, "properties": {
            "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "priority": priority } })
    };
    check_code(
        fixture
            .try_put(&rules, json!({ "properties": { "securityRules": [rule("a", 120), rule("b", 120)] } })),
        400,
        "SecurityRuleConflict",
    );
    fixture.put(&rules, json!({ "properties": { "securityRules": [rule("a", 120)] } }));
    let with_group = json!({ "properties": {
        "addressPrefix": "10.0.0.0/24", "networkSecurityGroup": { "id": rules },
        "serviceEndpoints": [{ "service": "Microsoft.Storage" }] } });
    let shown = fixture.put(&subnet("a"), with_group.clone());
    assert_eq!(shown["properties"]["serviceEndpoints"][0]["provisioningState"], "Succeeded");
    let shown = fixture.get(&rules, None);
    assert_eq!(shown["properties"]["subnets"], json!([{ "id": subnet("a") }]));
    assert_eq!(shown["properties"]["defaultSecurityRules"].as_array().unwrap().len(), 6);
    // A client that writes back what it read makes no reference of the users.
    fixture.put(&rules, shown);
    check_code(fixture.delete(&rules), 400, "InUseNetworkSecurityGroupCannotBeDeleted");
    fixture.put(&subnet("a"), json!({ "properties": { "addressPrefix": "10.0.0.0/24" } }));
    fixture.delete(&rules).unwrap();
}

#[test]
fn a_load_balancer_gets_addresses_and_shows_what_refers_to_its_parts() {
    let fixture = Fixture::new();
    fixture.network();
    let balancer = fixture.balancer();
    let pool = json!([{ "id": balancer.child("backendAddressPools", "pool") }]);
    let interface = fixture.interface("nic", pool);
    let shown = fixture.get(&balancer, None);
    let properties = &shown["properties"];
    let front = &properties["frontendIPConfigurations"][0];
    assert_eq!(front["properties"]["privateIPAddress"], "10.0.1.4");
    let rule = json!([{ "id": balancer.child("loadBalancingRules", "api") }]);
    assert_eq!(front["properties"]["loadBalancingRules"], rule);
    assert_eq!(properties["probes"][0]["properties"]["loadBalancingRules"], rule);
    let configuration = interface.child("ipConfigurations", "one");
    let members = &properties["backendAddressPools"][0]["properties"]["backendIPConfigurations"];
    assert_eq!(*members, json!([{ "id": configuration }]));
    // What was read can be written back.
    fixture.put(&balancer, shown.clone());
    assert_eq!(fixture.get(&balancer, None)["properties"]["frontendIPConfigurations"][0]["id"], front["id"]);
    let health = fixture.act(&balancer, "loadBalancingRules/api/health", &Value::Null).unwrap();
    assert_eq!((&health["up"], &health["down"]), (&json!(0), &json!(1)));
    fixture.put(&machine("m"), machine_body(&interface, "Detach"));
    let health = fixture.act(&balancer, "loadBalancingRules/api/health", &Value::Null).unwrap();
    assert_eq!(health["up"], 1);
    check_code(fixture.delete(&subnet("b")), 400, "InUseSubnetCannotBeDeleted");
    // Interfaces do not hold it.
    fixture.delete(&balancer).unwrap();
}

#[test]
fn a_rule_must_refer_to_parts_of_its_load_balancer() {
    let fixture = Fixture::new();
    fixture.network();
    let balancer = fixture.balancer();
    let mut body = fixture.get(&balancer, None);
    body["properties"]["backendAddressPools"] = json!([]);
    check_code(fixture.try_put(&balancer, body), 400, "InvalidResourceReference");
}

#[test]
fn a_public_address_belongs_to_one_resource() {
    let fixture = Fixture::new();
    fixture.network();
    let address = of_network("publicIPAddresses", "ip");
    let shown = fixture.put(
        &address,
        json!({ "sku": { "name": "Standard" }, "properties": { "publicIPAllocationMethod": "Static" } }),
    );
    assert_eq!(shown["properties"]["ipAddress"], "198.18.0.0");
    let body = json!({ "sku": { "name": "Standard" }, "properties": { "frontendIPConfigurations": [
        { "name": "front", "properties": { "publicIPAddress": { "id": address } } }] } });
    let balancer = of_network("loadBalancers", "public");
    fixture.put(&balancer, body.clone());
    let front = balancer.child("frontendIPConfigurations", "front");
    assert_eq!(fixture.get(&address, None)["properties"]["ipConfiguration"]["id"], json!(front));
    check_code(fixture.delete(&address), 400, "PublicIPAddressCannotBeDeleted");
    check_code(fixture.try_put(&of_network("loadBalancers", "other"), body), 400, "PublicIPAddressInUse");
}

#[test]
fn a_private_endpoint_waits_for_approval_and_goes_with_its_interface() {
    let fixture = Fixture::new();
    fixture.network();
    let balancer = fixture.balancer();
    let service = of_network("privateLinkServices", "pls");
    let body = |subnet_name: &str| {
        json!({ "properties": {
            "loadBalancerFrontendIpConfigurations": [{ "id": balancer.child("frontendIPConfigurations", "front") }],
            "ipConfigurations": [{ "name": "one", "properties": { "subnet": { "id": subnet(subnet_name) } } }] } })
    };
    let code = "PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled";
    check_code(fixture.try_put(&service, body("a")), 400, code);
    fixture.put(&service, body("b"));
    check_code(fixture.delete(&balancer), 400, "CannotDeleteLoadBalancerWithPrivateLinkService");
    let endpoint = of_network("privateEndpoints", "pe");
    fixture.put(
        &endpoint,
        json!({ "properties": { "subnet": { "id": subnet("a") }, "manualPrivateLinkServiceConnections": [
            { "name": "link", "properties": { "privateLinkServiceId": service } }] } }),
    );
    let state = |fixture: &Fixture| {
        let shown = fixture.get(&endpoint, Some("networkInterfaces"));
        let link = &shown["properties"]["manualPrivateLinkServiceConnections"][0]["properties"];
        link["privateLinkServiceConnectionState"]["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&fixture), "Pending");
    let shown = fixture.get(&endpoint, Some("networkInterfaces"));
    let interface = &shown["properties"]["networkInterfaces"][0];
    assert_eq!(interface["properties"]["ipConfigurations"][0]["properties"]["privateIPAddress"], "10.0.0.4");
    let interface: ResourceId = interface["id"].as_str().unwrap().parse().unwrap();
    check_code(fixture.delete(&interface), 400, "NicInUse");
    let shown = fixture.get(&service, None);
    let connection = &shown["properties"]["privateEndpointConnections"][0];
    assert_eq!(connection["properties"]["linkIdentifier"], "536870912");
    let id: ResourceId = connection["id"].as_str().unwrap().parse().unwrap();
    fixture.put(
        &id,
        json!({ "properties": { "privateLinkServiceConnectionState": { "status": "Approved", "description": "ok" } } }),
    );
    assert_eq!(state(&fixture), "Approved");
    assert!(fixture.delete(&service).is_err());
    fixture.delete(&endpoint).unwrap();
    assert!(!fixture.exists(&interface) && !fixture.exists(&id));
    fixture.delete(&service).unwrap();
}

#[test]
fn records_keep_the_spelling_of_their_service() {
    let fixture = Fixture::new();
    let zone = of_network("dnsZones", "example.test");
    fixture.put(&zone, json!({ "location": "global" }));
    let record = zone.child("A", "*.apps");
    let shown = fixture
        .put(&record, json!({ "properties": { "TTL": 300, "ARecords": [{ "ipv4Address": "10.0.0.1" }] } }));
    assert_eq!(shown["properties"]["fqdn"], "*.apps.example.test.");
    assert_eq!(shown["properties"]["ARecords"][0]["ipv4Address"], "10.0.0.1");
    assert_eq!(fixture.get(&zone, None)["properties"]["numberOfRecordSets"], 3);
    let wrong = json!({ "properties": { "TTL": 300, "ARecords": [{ "ipv4Address": "x" }] } });
    check_code(fixture.try_put(&zone.child("A", "x"), wrong), 400, "BadRequest");
    let alias = json!({ "properties": { "TTL": 300, "CNAMERecord": { "cname": "x" } } });
    check_code(fixture.try_put(&zone.child("CNAME", "*.apps"), alias), 400, "BadRequest");
}

#[test]
fn a_private_zone_with_links_cannot_be_deleted() {
    let fixture = Fixture::new();
    let network = fixture.network();
    let zone = of_network("privateDnsZones", "private.test");
    fixture.put(&zone, json!({ "location": "global" }));
    let link = zone.child("virtualNetworkLinks", "one");
    fixture
        .put(&link, json!({ "location": "global", "properties": { "virtualNetwork": { "id": network } } }));
    check_code(fixture.delete(&zone), 409, "CannotDeleteResource");
    fixture.delete(&link).unwrap();
    fixture.delete(&zone).unwrap();
}

#[test]
fn a_machine_has_a_disk_and_takes_with_it_what_its_delete_options_say() {
    let fixture = Fixture::new();
    fixture.network();
    let interface = fixture.interface("nic", json!([]));
    let shown = fixture.put(&machine("m"), machine_body(&interface, "Detach"));
    assert!(!shown.to_string().contains("not kept") && !shown.to_string().contains('$'));
    let disk = group().sibling("Microsoft.Compute", "disks", "m_OSDisk");
    let shown = fixture.get(&disk, None);
    assert_eq!(
        (&shown["managedBy"], &shown["properties"]["diskState"]),
        (&json!(machine("m")), &json!("Attached"))
    );
    check_code(fixture.delete(&disk), 409, "OperationNotAllowed");
    check_code(fixture.delete(&interface), 400, "NicInUse");
    assert_eq!(fixture.get(&interface, None)["properties"]["virtualMachine"]["id"], json!(machine("m")));
    check_code(
        fixture.try_put(&machine("other"), machine_body(&interface, "Detach")),
        409,
        "ConflictingUserInput",
    );
    fixture.delete(&machine("m")).unwrap();
    assert_eq!(fixture.get(&disk, None)["properties"]["diskState"], "Unattached");
    fixture.put(&machine("m"), machine_body(&interface, "Delete"));
    fixture.delete(&machine("m")).unwrap();
    assert!(!fixture.exists(&disk) && !fixture.exists(&interface));
}

#[test]
fn the_interface_of_a_deleted_machine_is_reserved_for_a_while() {
    let mut fixture = Fixture::new();
    fixture.network();
    let interface = fixture.interface("nic", json!([]));
    fixture.put(&machine("m"), machine_body(&interface, "Detach"));
    fixture.pace = 1.0;
    fixture.delete(&machine("m")).unwrap();
    fixture.pass(100);
    check_code(fixture.delete(&interface), 400, "NicReservedForAnotherVm");
    fixture.pass(200);
    fixture.delete(&interface).unwrap();
}

#[test]
fn actions_change_the_power_of_a_machine() {
    let fixture = Fixture::new();
    fixture.network();
    let interface = fixture.interface("nic", json!([]));
    fixture.put(&machine("m"), machine_body(&interface, "Detach"));
    let power = |fixture: &Fixture| {
        let view = fixture.get(&machine("m"), Some("instanceView"))["properties"]["instanceView"].clone();
        view["statuses"][1]["code"].as_str().unwrap().to_owned()
    };
    let runs = |fixture: &Fixture| {
        machines::machines_of_group(&fixture.cx(), &group()).unwrap().get(&machine("m").key()).copied()
    };
    assert_eq!((power(&fixture).as_str(), runs(&fixture)), ("PowerState/running", Some(true)));
    fixture.act(&machine("m"), "deallocate", &Value::Null).unwrap();
    assert_eq!((power(&fixture).as_str(), runs(&fixture)), ("PowerState/deallocated", Some(false)));
    check_code(fixture.act(&machine("m"), "restart", &Value::Null), 409, "OperationNotAllowed");
    // A PUT leaves the power as it is.
    fixture.put(&machine("m"), machine_body(&interface, "Detach"));
    assert_eq!(power(&fixture), "PowerState/deallocated");
    fixture.act(&machine("m"), "start", &Value::Null).unwrap();
    let output =
        fixture.act(&machine("m"), "runCommand", &json!({ "commandId": "RunShellScript", "script": ["ls"] }));
    assert_eq!(output.unwrap()["value"][0]["code"], "ComponentStatus/StdOut/succeeded");
    let logs = fixture.act(&machine("m"), "retrieveBootDiagnosticsData", &Value::Null).unwrap();
    assert!(logs["serialConsoleLogBlobUri"].as_str().unwrap().starts_with("https://127.0.0.1:9/"));
}

#[test]
fn an_account_signs_with_keys_that_are_never_shown() {
    let fixture = Fixture::new();
    let account = group().sibling("Microsoft.Storage", "storageAccounts", "clusterabc");
    let body = json!({ "kind": "StorageV2", "sku": { "name": "Standard_LRS" }, "properties": {} });
    let shown = fixture.put(&account, body.clone());
    assert_eq!(shown["properties"]["primaryEndpoints"]["blob"], "https://127.0.0.1:9/clusterabc/");
    let keys = fixture.account_keys("clusterabc");
    assert!(!shown.to_string().contains(&keys[0]));
    let listed = fixture.act(&account, "listKeys", &Value::Null).unwrap();
    assert_eq!(listed["keys"][1]["value"], json!(keys[1]));
    let request = json!({ "signedServices": "b", "signedResourceTypes": "o", "signedPermission": "r",
        "signedProtocol": "https", "signedStart": "2026-01-01T00:00:00Z", "signedExpiry": "2026-01-02T00:00:00Z" });
    let sas = fixture.act(&account, "listAccountSas", &request).unwrap();
    assert!(sas["accountSasToken"].as_str().unwrap().contains("&sp=r&"), "{sas}");
    fixture.act(&account, "regenerateKey", &json!({ "keyName": "key1" })).unwrap();
    let changed = fixture.account_keys("clusterabc");
    assert!(changed[0] != keys[0] && changed[1] == keys[1]);
    let container = account.child("blobServices", "default").child("containers", "ignition");
    assert_eq!(fixture.put(&container, json!({}))["properties"]["publicAccess"], "None");
    let other = ResourceId::group("other", "h");
    groups::write(&fixture.cx(), &other, &object(json!({ "location": "westeurope" }))).unwrap();
    let same_name = other.sibling("Microsoft.Storage", "storageAccounts", "clusterabc");
    check_code(fixture.try_put(&same_name, body), 409, "StorageAccountAlreadyTaken");
}

#[test]
fn federated_credentials_are_unique_and_written_one_at_a_time() {
    let mut fixture = Fixture::new();
    fixture.pace = 1.0;
    let identity = group().sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "one");
    let shown = fixture.put(&identity, json!({}));
    assert!(shown["properties"]["principalId"].is_string());
    let credential = |name: &str| identity.child("federatedIdentityCredentials", name);
    let body = |subject: &str| json!({ "properties": { "issuer": "https://issuer.test", "subject": subject, "audiences": ["openshift"] } });
    fixture.put(&credential("a"), body("system:serviceaccount:x:a"));
    let code = "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity";
    check_code(fixture.try_put(&credential("b"), body("system:serviceaccount:x:b")), 409, code);
    fixture.pass(10);
    check_code(fixture.try_put(&credential("b"), body("system:serviceaccount:x:a")), 409, "Conflict");
    fixture.put(&credential("b"), body("system:serviceaccount:x:b"));
}

#[test]
fn the_password_of_a_token_is_returned_once_and_replaced_by_name() {
    let mut fixture = Fixture::new();
    let id = group().sibling("Microsoft.ContainerRegistry", "registries", "images");
    fixture.put(&id, json!({ "sku": { "name": "Premium" } }));
    let token = id.child("tokens", "token-1");
    fixture
        .put(&token, json!({ "properties": { "scopeMapId": id.child("scopeMaps", "_repositories_pull") } }));
    let issue = |fixture: &Fixture| {
        let request = json!({ "tokenId": token, "name": "password1" });
        let issued = fixture.act(&id, "generateCredentials", &request).unwrap();
        issued["passwords"][0]["value"].as_str().unwrap().to_owned()
    };
    let first = issue(&fixture);
    let accepts = |fixture: &Fixture, password: &str| {
        registry::accepts(&fixture.cx(), &id, "token-1", password).unwrap()
    };
    assert!(accepts(&fixture, &first));
    let second = issue(&fixture);
    assert!(accepts(&fixture, &second) && !accepts(&fixture, &first));
    let shown = fixture.get(&token, None);
    assert_eq!(shown["properties"]["credentials"]["passwords"].as_array().unwrap().len(), 1);
    assert!(!shown.to_string().contains(&second) && !shown.to_string().contains('$'));
    fixture.pass(181 * 24 * 3600);
    assert!(!accepts(&fixture, &second));
}

#[test]
fn the_name_of_a_deleted_vault_stays_reserved() {
    let fixture = Fixture::new();
    let vault = group().sibling("Microsoft.KeyVault", "vaults", "keys-1");
    let body = json!({ "properties": { "sku": { "family": "A", "name": "standard" } } });
    let shown = fixture.put(&vault, body.clone());
    assert_eq!(shown["properties"]["vaultUri"], "https://keys-1.vault.azure.net/");
    fixture.delete(&vault).unwrap();
    check_code(fixture.try_put(&vault, body.clone()), 409, "ConflictError");
    let deleted = super::vaults::deleted(&fixture.cx(), "s").unwrap();
    assert_eq!(deleted["value"][0]["properties"]["location"], "westeurope", "{deleted}");
    super::vaults::purge(&fixture.cx(), "keys-1").unwrap();
    check_code(super::vaults::find_deleted(&fixture.cx(), "keys-1"), 404, "DeletedVaultNotFound");
    fixture.put(&vault, body);
}

#[test]
fn a_change_that_hangs_is_made_again_by_the_same_request() {
    let fixture = Fixture::new();
    let id = of_network("routeTables", "t");
    let mut hanging = fixture.cx();
    hanging.effects.operation_hangs = true;
    let kind = find_kind(&type_of(&id).unwrap()).unwrap();
    let body = json!({ "location": "westeurope" });
    resources::write(&hanging, kind, &id, object(body.clone())).unwrap();
    assert_eq!(fixture.get(&id, None)["properties"]["provisioningState"], "Creating");
    assert_eq!(fixture.put(&id, body)["properties"]["provisioningState"], "Succeeded");
}

#[test]
fn a_second_federated_credential_waits_for_the_first() {
    let mut fixture = Fixture::new();
    fixture.pace = 1.0;
    let identity = group().sibling("Microsoft.ManagedIdentity", "userAssignedIdentities", "i");
    fixture.put(&identity, json!({}));
    let write = |fixture: &Fixture, name: &str| {
        let subject = json!({ "properties": { "issuer": "https://i", "subject": name, "audiences": ["a"] } });
        fixture.try_put(&identity.child("federatedIdentityCredentials", name), subject)
    };
    let first = write(&fixture, "first").unwrap();
    assert!(fixture.now < first.settles);
    let code = "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity";
    check_code(write(&fixture, "second"), 409, code);
    fixture.pass(2);
    write(&fixture, "second").unwrap();
}

#[test]
fn a_peered_network_can_be_deleted() {
    let fixture = Fixture::new();
    let (remote, local) = (fixture.network(), of_network("virtualNetworks", "w"));
    let peered = |remote: &ResourceId, tag: &str| {
        json!({ "tags": { "t": tag }, "properties": {
            "addressSpace": { "addressPrefixes": ["10.1.0.0/16"] },
            "virtualNetworkPeerings": [{ "name": "p", "properties": { "remoteVirtualNetwork": { "id": remote } } }],
        } })
    };
    let absent = of_network("virtualNetworks", "absent");
    check_code(fixture.try_put(&local, peered(&absent, "a")), 400, "InvalidResourceReference");
    fixture.put(&local, peered(&remote, "a"));
    fixture.delete(&remote).unwrap();
    assert!(store::find(&fixture.db, &remote.key()).unwrap().is_none());
    fixture.put(&local, peered(&remote, "b"));
}

#[test]
fn a_template_whose_resources_are_written_out_is_deployed() {
    let fixture = Fixture::new();
    fixture.network();
    let deployment = group().sibling("Microsoft.Resources", "deployments", "d");
    let template = json!({
        "resources": [
            { "type": "Microsoft.Network/loadBalancers", "name": "lb", "location": "westeurope",
              "dependsOn": ["Microsoft.Network/publicIpAddresses/ip"], "sku": { "name": "Standard" }, "properties": {
                "frontendIPConfigurations": [{ "name": "front", "properties": {
                    "privateIPAddress": null,
                    "publicIPAddress": { "id": of_network("publicIPAddresses", "ip") } } }],
            } },
            { "type": "Microsoft.Network/publicIPAddresses", "name": "ip", "location": "westeurope",
              "sku": { "name": "Standard" }, "properties": { "publicIPAllocationMethod": "Static" } },
        ],
        "outputs": { "loadBalancer": { "type": "object", "value": "[reference('lb')]" } },
    });
    let shown =
        fixture.put(&deployment, json!({ "properties": { "mode": "Incremental", "template": template } }));
    let output = &shown["properties"]["outputs"]["loadBalancer"]["value"];
    assert_eq!(output["frontendIPConfigurations"][0]["name"], "front", "{shown}");
    assert!(shown["properties"].get("template").is_none());
    fixture.get(&of_network("loadBalancers", "lb"), None);
}
