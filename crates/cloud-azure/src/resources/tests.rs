//! Tests of bodies: what is sent for each kind, what is read back, and what of others stays.

use cloud::{LoadBalancerBackend, LoadBalancerFrontend, SecurityRule};

use super::*;
use crate::testing::requests;

fn request(kind: ResourceKind) -> ResourceRequest {
    requests().into_iter().find(|it| it.properties.kind() == kind).unwrap()
}

fn body(request: &ResourceRequest, present: Option<&Value>) -> Value {
    target(request, present, &MachineSettings::default()).unwrap()
}

fn new(kind: ResourceKind) -> Value {
    body(&request(kind), None)
}

/// The part of that name in a list.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    let all = list.as_array().unwrap();
    all.iter().find(|it| it["name"] == name).unwrap_or_else(|| panic!("no {name} in {list}"))
}

#[test]
fn what_is_sent_is_read_back() {
    for request in requests() {
        let kind = request.properties.kind();
        // These are completed by further calls.
        if matches!(kind, ResourceKind::Machine | ResourceKind::StorageAccount | ResourceKind::Identity) {
            continue;
        }
        let read = decode(&request.id, kind, &body(&request, None)).unwrap();
        assert_eq!(read, request.properties);
        assert_eq!(state(&body(&request, None)), ResourceState::Succeeded);
    }
}

#[test]
fn a_put_of_what_is_there_changes_nothing() {
    for request in requests() {
        let present = body(&request, None);
        assert_eq!(body(&request, Some(&present)), present, "{}", request.id);
    }
}

#[test]
fn members_of_others_survive_a_change() {
    for request in requests() {
        let mut present = body(&request, None);
        present["odd"] = json!({"a": [1, {"b": null}]});
        present["tags"] = json!({"theirs": "x"});
        present["properties"]["odd"] = json!("kept");
        let tagged = ResourceRequest { tags: [("ours".to_owned(), "y".to_owned())].into(), ..request };
        let changed = body(&tagged, Some(&present));
        assert_eq!(
            (&changed["odd"], &changed["properties"]["odd"]),
            (&present["odd"], &present["properties"]["odd"])
        );
        assert_eq!(changed["tags"]["theirs"], "x");
    }
}

#[test]
fn the_internal_balancer_has_the_names_that_clusters_rely_on() {
    let request = request(ResourceKind::LoadBalancer);
    let balancer = body(&request, None);
    let properties = &balancer["properties"];
    assert_eq!((&balancer["sku"]["name"], &balancer["location"]), (&json!("Standard"), &json!("westeurope")));
    let frontend = &named(&properties["frontendIPConfigurations"], "internal-lb-ip-v4")["properties"];
    assert_eq!(frontend["privateIPAllocationMethod"], "Dynamic");
    assert!(frontend["subnet"]["id"].as_str().unwrap().ends_with("/subnets/master"));
    let part = |list: &str, name: &str| json!({"id": format!("{}/{list}/{name}", request.id)});
    let check_rule = |name: &str, ports: [u16; 2], pool: &str, probe: &str, no_snat: bool| {
        let rule = &named(&properties["loadBalancingRules"], name)["properties"];
        let expect = json!({"frontendIPConfiguration": part("frontendIPConfigurations", "internal-lb-ip-v4"),
            "backendAddressPool": part("backendAddressPools", pool), "probe": part("probes", probe), "protocol": "Tcp",
            "frontendPort": ports[0], "backendPort": ports[1], "idleTimeoutInMinutes": 30, "loadDistribution": "Default",
            "disableOutboundSnat": no_snat});
        assert_eq!(*rule, expect);
    };
    check_rule("api-internal-v4", [6443, 6443], "infra", "api-internal-probe", true);
    check_rule("sint-v4", [22623, 22623], "infra", "sint-probe", false);
    check_rule("ssh-0", [2200, 22], "ssh-0", "ssh", true);
    let probe = |name: &str| named(&properties["probes"], name)["properties"].clone();
    let https = |port: u16, path: &str| json!({"protocol": "Https", "port": port, "requestPath": path, "intervalInSeconds": 5, "numberOfProbes": 2});
    assert_eq!(probe("api-internal-probe"), https(6443, "/readyz"));
    assert_eq!(probe("sint-probe"), https(22623, "/healthz"));
    assert_eq!(
        probe("ssh"),
        json!({"protocol": "Tcp", "port": 22, "intervalInSeconds": 5, "numberOfProbes": 2})
    );
    for pool in ["infra", "ssh-0"] {
        named(&properties["backendAddressPools"], pool);
    }
}

/// The public balancer of a cluster with a public API and these outbound addresses.
fn public_balancer(outbound: &[&str]) -> ResourceRequest {
    let group = ResourceId::group("s", "g");
    let address = |name: &str| group.sibling("Microsoft.Network", "publicIPAddresses", name);
    let frontend = LoadBalancerFrontend {
        name: "public-lb-ip-v4".to_owned(),
        public_ip: Some(address("infra-pip-v4")),
        subnet: None,
        address: None,
        ports: vec![6443],
    };
    let outbound = outbound.iter().map(|it| address(it)).collect();
    ResourceRequest {
        id: group.sibling("Microsoft.Network", "loadBalancers", "infra"),
        properties: Properties::LoadBalancer { frontends: vec![frontend], backends: Vec::new(), outbound },
        ..request(ResourceKind::LoadBalancer)
    }
}

#[test]
fn the_public_balancer_has_an_outbound_rule_over_its_addresses() {
    let request = public_balancer(&["infra-pip-v4", "second"]);
    let balancer = body(&request, None);
    let properties = &balancer["properties"];
    let rule = &named(&properties["outboundRules"], "outbound-rule-v4")["properties"];
    let frontend = |name: &str| json!({"id": format!("{}/frontendIPConfigurations/{name}", request.id)});
    // The address of the API is that of its frontend; a further one has a frontend named after it.
    assert_eq!(rule["frontendIPConfigurations"], json!([frontend("public-lb-ip-v4"), frontend("second")]));
    assert_eq!((&rule["protocol"], &rule["idleTimeoutInMinutes"]), (&json!("All"), &json!(30)));
    named(&properties["loadBalancingRules"], "api-internal-v4");
    assert_eq!(decode(&request.id, ResourceKind::LoadBalancer, &balancer), Some(request.properties));
    // Without any, the lists are there and empty.
    let none = body(&public_balancer(&[]), None);
    assert_eq!(none["properties"]["outboundRules"], json!([]));
}

#[test]
fn a_balancer_keeps_what_the_cluster_and_the_customer_put_there() {
    let before = public_balancer(&["infra-pip-v4", "second", "third"]);
    let mut present = body(&before, None);
    let id = before.id.to_string();
    let theirs =
        json!({"name": "a1b2", "properties": {"publicIPAddress": {"id": "/subscriptions/s/p"}, "odd": 1}});
    let rule = |name: &str, frontend: &str| {
        json!({"name": name, "properties": {
        "frontendIPConfiguration": {"id": format!("{id}/frontendIPConfigurations/{frontend}")}, "frontendPort": 80}})
    };
    let push = |present: &mut Value, list: &str, item: Value| {
        present["properties"][list].as_array_mut().unwrap().push(item);
    };
    push(&mut present, "frontendIPConfigurations", theirs.clone());
    push(&mut present, "loadBalancingRules", rule("a1b2-TCP-80", "a1b2"));
    // A service of the cluster shares an outbound address.
    push(&mut present, "loadBalancingRules", rule("third-TCP-80", "third"));
    push(&mut present, "backendAddressPools", json!({"name": "theirs", "properties": {"x": 1}}));
    push(&mut present, "probes", json!({"name": "a1b2-TCP-80", "properties": {"port": 31000}}));
    push(&mut present, "outboundRules", json!({"name": "theirs", "properties": {}}));
    present["properties"]["inboundNatRules"] = json!([{"name": "nat"}]);
    let after = body(&public_balancer(&["infra-pip-v4"]), Some(&present));
    let names = |list: &str| -> Vec<String> {
        let all = after["properties"][list].as_array().unwrap();
        all.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(*named(&after["properties"]["frontendIPConfigurations"], "a1b2"), theirs);
    assert_eq!(names("frontendIPConfigurations"), ["public-lb-ip-v4", "third", "a1b2"]);
    assert_eq!(names("loadBalancingRules"), ["api-internal-v4", "a1b2-TCP-80", "third-TCP-80"]);
    assert_eq!(names("backendAddressPools"), ["infra", "theirs"]);
    assert_eq!(names("probes"), ["api-internal-probe", "a1b2-TCP-80"]);
    assert_eq!(names("outboundRules"), ["outbound-rule-v4", "theirs"]);
    assert_eq!(names("inboundNatRules"), ["nat"]);
}

#[test]
fn the_order_of_outbound_addresses_means_nothing() {
    let mut present = body(&public_balancer(&["infra-pip-v4", "second"]), None);
    let list = present["properties"]["outboundRules"][0]["properties"]["frontendIPConfigurations"]
        .as_array_mut()
        .unwrap();
    list.reverse();
    assert_eq!(body(&public_balancer(&["infra-pip-v4", "second"]), Some(&present)), present);
}

#[test]
fn members_of_a_pool_are_machines() {
    let mut balancer = new(ResourceKind::LoadBalancer);
    let interface = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/master-0-nic/ipConfigurations/pipConfig";
    balancer["properties"]["backendAddressPools"][0]["properties"] =
        json!({"backendIPConfigurations": [{ "id": interface }]});
    let id = request(ResourceKind::LoadBalancer).id;
    let Some(Properties::LoadBalancer { backends, .. }) = decode(&id, ResourceKind::LoadBalancer, &balancer)
    else {
        panic!("no balancer")
    };
    let machine = id.sibling("Microsoft.Compute", "virtualMachines", "master-0");
    assert_eq!(backends, [LoadBalancerBackend { machine }]);
}

#[test]
fn a_security_group_keeps_the_rules_of_others() {
    let request = request(ResourceKind::SecurityGroup);
    let mut present = body(&request, None);
    let expect = json!({"name": "apiserver_in", "properties": {"protocol": "Tcp", "sourcePortRange": "*",
        "destinationPortRange": "6443", "sourceAddressPrefix": "*", "destinationAddressPrefix": "*", "access": "Allow",
        "priority": 120, "direction": "Inbound"}});
    assert_eq!(present["properties"]["securityRules"], json!([expect]));
    let theirs = json!({"name": "a1b2-TCP-80-Internet", "properties": {"priority": 500, "sourceAddressPrefixes": ["x"]}});
    present["properties"]["securityRules"].as_array_mut().unwrap().push(theirs.clone());
    // The API becomes private: the own rule goes, the others stay.
    let private =
        ResourceRequest { properties: Properties::SecurityGroup { rules: Vec::new() }, ..request.clone() };
    assert_eq!(body(&private, Some(&present))["properties"]["securityRules"], json!([theirs]));
    let Some(Properties::SecurityGroup { rules }) =
        decode(&request.id, ResourceKind::SecurityGroup, &present)
    else {
        panic!("no group")
    };
    let names: Vec<&str> = rules.iter().map(|it: &SecurityRule| it.name.as_str()).collect();
    assert_eq!(names, ["apiserver_in", "a1b2-TCP-80-Internet"]);
}

#[test]
fn a_subnet_loses_its_security_group_and_nothing_else() {
    let request = request(ResourceKind::Subnet);
    let mut present = body(&request, None);
    present["properties"]["addressPrefix"] = Value::Null;
    present["properties"]["addressPrefixes"] = json!(["10.0.0.0/24", "fd00::/64"]);
    let detached = Properties::Subnet {
        address_prefix: "10.0.0.0/24".to_owned(),
        security_group: None,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: false,
    };
    let changed = body(&ResourceRequest { properties: detached, ..request.clone() }, Some(&present));
    let mut expect = present.clone();
    expect["properties"].as_object_mut().unwrap().remove("networkSecurityGroup");
    assert_eq!(changed, expect);
    // An endpoint that has failed is neither reported nor kept as it is.
    present["properties"]["serviceEndpoints"] = json!([{"service": "microsoft.storage", "provisioningState": "Failed"}, {"service": "x", "provisioningState": "Succeeded"}]);
    let Some(Properties::Subnet { service_endpoints, .. }) =
        decode(&request.id, ResourceKind::Subnet, &present)
    else {
        panic!("no subnet")
    };
    assert_eq!(service_endpoints, ["x"]);
    let again = body(&request, Some(&present));
    assert_eq!(
        again["properties"]["serviceEndpoints"][0],
        json!({"service": "Microsoft.Storage", "locations": ["*"]})
    );
}

#[test]
fn each_kind_has_its_spelling() {
    let record = new(ResourceKind::DnsRecord);
    assert_eq!(record, json!({"properties": {"TTL": 300, "ARecords": [{"ipv4Address": "1.2.3.4"}]}}));
    let record = new(ResourceKind::PrivateDnsRecord);
    assert_eq!(record, json!({"properties": {"ttl": 300, "aRecords": [{"ipv4Address": "10.0.0.4"}]}}));
    for kind in [ResourceKind::DnsZone, ResourceKind::PrivateDnsZone, ResourceKind::PrivateDnsLink] {
        assert_eq!(new(kind)["location"], "global");
    }
    let service = new(ResourceKind::PrivateLinkService);
    let frontends = &service["properties"]["loadBalancerFrontendIpConfigurations"];
    assert!(frontends[0]["id"].as_str().unwrap().ends_with("/frontendIPConfigurations/internal-lb-ip-v4"));
    assert_eq!(service["properties"]["visibility"], json!({"subscriptions": ["s"]}));
    assert_eq!(service["properties"]["autoApproval"], json!({"subscriptions": ["s"]}));
    let endpoint = new(ResourceKind::PrivateEndpoint);
    let connection = &endpoint["properties"]["manualPrivateLinkServiceConnections"][0];
    assert!(connection["properties"]["privateLinkServiceId"].as_str().unwrap().ends_with("/infra-pls"));
    let address = new(ResourceKind::PublicIp);
    assert_eq!(
        address,
        json!({"location": "westeurope", "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static"}})
    );
    let lock = new(ResourceKind::Lock);
    assert_eq!(lock, json!({"properties": {"level": "CanNotDelete"}}));
    let subnet = new(ResourceKind::Subnet);
    assert_eq!(subnet.get("location"), None);
    assert_eq!(subnet["properties"]["privateLinkServiceNetworkPolicies"], "Disabled");
    assert_eq!(
        subnet["properties"]["serviceEndpoints"],
        json!([{"service": "Microsoft.Storage", "locations": ["*"]}])
    );
}

#[test]
fn an_account_is_closed_to_all_but_its_subnets() {
    let account = new(ResourceKind::StorageAccount);
    assert_eq!((&account["kind"], &account["sku"]["name"]), (&json!("StorageV2"), &json!("Standard_LRS")));
    let properties = &account["properties"];
    for (member, expect) in [
        ("allowBlobPublicAccess", json!(false)),
        ("allowCrossTenantReplication", json!(false)),
        ("supportsHttpsTrafficOnly", json!(true)),
        ("minimumTlsVersion", json!("TLS1_2")),
    ] {
        assert_eq!(properties[member], expect, "{member}");
    }
    assert_eq!(properties["encryption"]["requireInfrastructureEncryption"], true);
    assert_eq!(properties["encryption"]["keySource"], "Microsoft.Storage");
    let acls = &properties["networkAcls"];
    assert_eq!((&acls["bypass"], &acls["defaultAction"]), (&json!("AzureServices"), &json!("Deny")));
    let subnet = request(ResourceKind::Subnet).id;
    assert_eq!(acls["virtualNetworkRules"], json!([{"id": subnet, "action": "Allow"}]));
}

#[test]
fn a_machine_changes_its_size_and_nothing_that_cannot_change() {
    let machine = request(ResourceKind::Machine);
    let mut present = body(&machine, None);
    let properties = &present["properties"];
    assert_eq!(present["zones"], json!(["1"]));
    assert_eq!(properties["storageProfile"]["osDisk"]["name"], "master-0_OSDisk");
    assert_eq!(properties["storageProfile"]["osDisk"]["diskSizeGB"], 1024);
    let interface = &properties["networkProfile"]["networkInterfaces"][0];
    assert!(interface["id"].as_str().unwrap().ends_with("/networkInterfaces/master-0-nic"));
    assert_eq!(interface["properties"], json!({"primary": true, "deleteOption": "Delete"}));
    present["properties"]["instanceView"] = json!({"statuses": []});
    present["properties"]["vmId"] = json!("x");
    present["resources"] = json!([{"id": "extension"}]);
    let Properties::Machine { subnet, .. } = machine.properties.clone() else { panic!("no machine") };
    let larger = Properties::Machine {
        size: "Standard_D16s_v5".to_owned(),
        subnet,
        zone: Some("2".to_owned()),
        disk_size_gb: 1,
        address: None,
        running: true,
    };
    let changed = body(&ResourceRequest { properties: larger, ..machine.clone() }, Some(&present));
    let mut expect = body(&machine, None);
    expect["properties"]["hardwareProfile"]["vmSize"] = json!("Standard_D16s_v5");
    assert_eq!(changed, expect);
}

#[test]
fn states_are_read_without_case() {
    let of = |text: &str| state(&json!({"properties": {"provisioningState": text}}));
    assert_eq!((of("Succeeded"), of("")), (ResourceState::Succeeded, ResourceState::Succeeded));
    assert_eq!((of("DELETING"), of("Deprovisioning")), (ResourceState::Deleting, ResourceState::Deleting));
    assert_eq!((of("Accepted"), of("Updating")), (ResourceState::Creating, ResourceState::Updating));
    assert_eq!(of("SomethingNew"), ResourceState::Updating);
    assert!(matches!(of("Canceled"), ResourceState::Failed { .. }));
}
