"""Networks: long operations, etags, paging, references and the order of deletion."""

import pytest
from azure.core.exceptions import ResourceNotFoundError

SUCCEEDED = "Succeeded"


@pytest.fixture(scope="module")
def location(cloud):
    return cloud.location


def ids(items):
    return [it.id.lower() for it in items]


def test_a_virtual_network_is_created_with_its_subnets(cloud, clients, location, responses):
    networks = clients.network.virtual_networks
    body = {
        "location": location,
        "tags": {"a": "1"},
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.1.0.0/16"]},
            "subnets": [{"name": "one", "properties": {"addressPrefix": "10.1.0.0/24"}}],
        },
    }
    poller = networks.begin_create_or_update(cloud.group, "vnet", body, raw_response_hook=responses)
    made = poller.result()
    assert responses.statuses[0] == 201
    assert "Azure-AsyncOperation" in responses.all[0].headers
    assert poller.done() and poller.status() == SUCCEEDED
    assert made.provisioning_state == SUCCEEDED
    assert made.etag.startswith('W/"')
    assert [it.name for it in made.subnets] == ["one"]
    assert made.subnets[0].id == f"{made.id}/subnets/one"
    assert networks.get(cloud.group, "vnet").address_space.address_prefixes == ["10.1.0.0/16"]
    assert made.id.lower() in ids(networks.list(cloud.group))
    assert made.id.lower() in ids(networks.list_all())
    assert networks.update_tags(cloud.group, "vnet", {"tags": {"b": "2"}}).tags == {"b": "2"}
    free = networks.check_ip_address_availability(cloud.group, "vnet", ip_address="10.1.0.10")
    assert free.available is True
    reserved = networks.check_ip_address_availability(cloud.group, "vnet", ip_address="10.1.0.1")
    assert reserved.available is False
    assert "10.1.0.4" in reserved.available_ip_addresses


def test_a_subnet_is_created_changed_listed_and_deleted(cloud, clients, network, location):
    subnets = clients.network.subnets
    group = clients.network.network_security_groups.begin_create_or_update(
        cloud.group, "subnet-nsg", {"location": location}
    ).result()
    table = clients.network.route_tables.begin_create_or_update(
        cloud.group, "subnet-routes", {"location": location}
    ).result()
    body = {
        "properties": {
            "addressPrefix": "10.0.2.0/24",
            "networkSecurityGroup": {"id": group.id},
            "routeTable": {"id": table.id},
            "serviceEndpoints": [{"service": "Microsoft.Storage", "locations": ["*"]}],
            "privateLinkServiceNetworkPolicies": "Disabled",
        }
    }
    made = subnets.begin_create_or_update(cloud.group, "shared-vnet", "second", body).result()
    assert made.provisioning_state == SUCCEEDED
    assert made.network_security_group.id.lower() == group.id.lower()
    assert made.route_table.id.lower() == table.id.lower()
    assert made.service_endpoints[0].provisioning_state == SUCCEEDED
    assert made.private_link_service_network_policies == "Disabled"
    assert subnets.get(cloud.group, "shared-vnet", "second", expand="ipConfigurations").name == "second"
    assert "second" in [it.name for it in subnets.list(cloud.group, "shared-vnet")]
    used = clients.network.network_security_groups.get(cloud.group, "subnet-nsg")
    assert made.id.lower() in ids(used.subnets)
    # A PUT replaces: what it leaves out is gone.
    replaced = subnets.begin_create_or_update(
        cloud.group, "shared-vnet", "second", {"properties": {"addressPrefix": "10.0.2.0/24"}}
    ).result()
    assert replaced.network_security_group is None
    subnets.begin_delete(cloud.group, "shared-vnet", "second").result()
    with pytest.raises(ResourceNotFoundError):
        subnets.get(cloud.group, "shared-vnet", "second")


def test_a_subnet_is_changed_only_under_its_etag(cloud, clients, network, rejected):
    subnets = clients.network.subnets
    place = (cloud.group, "shared-vnet", "etagged")
    body = {"properties": {"addressPrefix": "10.0.3.0/24"}}
    first = subnets.begin_create_or_update(*place, body).result()
    body["properties"]["serviceEndpoints"] = [{"service": "Microsoft.Storage", "locations": ["*"]}]
    second = subnets.begin_create_or_update(*place, body, headers={"If-Match": first.etag}).result()
    assert second.etag != first.etag
    with rejected(412, "PreconditionFailed") as error:
        subnets.begin_create_or_update(*place, body, headers={"If-Match": first.etag}).result()
    assert "PreconditionFailedEtagMismatch" in error.details
    assert subnets.get(*place).etag == second.etag


def test_overlapping_and_foreign_ranges_are_rejected(cloud, clients, network, rejected):
    subnets = clients.network.subnets
    with rejected(400, "NetcfgSubnetRangesOverlap"):
        subnets.begin_create_or_update(
            cloud.group, "shared-vnet", "overlap", {"properties": {"addressPrefix": "10.0.0.128/25"}}
        ).result()
    with rejected(400, "NetcfgInvalidSubnet", "NetcfgSubnetRangeOutsideVnet"):
        subnets.begin_create_or_update(
            cloud.group, "shared-vnet", "foreign", {"properties": {"addressPrefix": "192.168.0.0/24"}}
        ).result()


def test_a_reference_to_something_missing_is_rejected(cloud, clients, network, rejected):
    missing = cloud.network_id("networkSecurityGroups/missing")
    body = {"properties": {"addressPrefix": "10.0.4.0/24", "networkSecurityGroup": {"id": missing}}}
    with rejected(400, "InvalidResourceReference"):
        clients.network.subnets.begin_create_or_update(cloud.group, "shared-vnet", "dangling", body).result()


def test_a_subnet_of_a_missing_network_is_rejected(cloud, clients, rejected):
    with rejected(404, "ParentResourceNotFound", "ResourceNotFound", "NotFound"):
        clients.network.subnets.begin_create_or_update(
            cloud.group, "missing-vnet", "a", {"properties": {"addressPrefix": "10.0.4.0/24"}}
        ).result()


def test_a_security_group_in_use_cannot_be_deleted(cloud, clients, network, location, rejected):
    groups = clients.network.network_security_groups
    used = groups.begin_create_or_update(cloud.group, "used-nsg", {"location": location}).result()
    place = (cloud.group, "shared-vnet", "guarded")
    body = {"properties": {"addressPrefix": "10.0.5.0/24", "networkSecurityGroup": {"id": used.id}}}
    clients.network.subnets.begin_create_or_update(*place, body).result()
    with rejected(400, "InUseNetworkSecurityGroupCannotBeDeleted"):
        groups.begin_delete(cloud.group, "used-nsg").result()
    clients.network.subnets.begin_delete(*place).result()
    groups.begin_delete(cloud.group, "used-nsg").result()


def test_a_security_group_and_its_rules(cloud, clients, location, responses):
    groups, rules = clients.network.network_security_groups, clients.network.security_rules
    rule = {
        "protocol": "Tcp",
        "sourcePortRange": "*",
        "destinationPortRange": "6443",
        "sourceAddressPrefix": "*",
        "destinationAddressPrefix": "*",
        "access": "Allow",
        "priority": 120,
        "direction": "Inbound",
    }
    body = {"location": location, "properties": {"securityRules": [{"name": "apiserver_in", "properties": rule}]}}
    made = groups.begin_create_or_update(cloud.group, "nsg", body, raw_response_hook=responses).result()
    assert responses.statuses[0] == 201
    assert [it.name for it in made.security_rules] == ["apiserver_in"]
    assert made.default_security_rules
    alone = rules.begin_create_or_update(
        cloud.group, "nsg", "ssh_in", {"properties": {**rule, "destinationPortRange": "22", "priority": 130}}
    ).result()
    assert alone.provisioning_state == SUCCEEDED
    assert rules.get(cloud.group, "nsg", "ssh_in").priority == 130
    assert {it.name for it in rules.list(cloud.group, "nsg")} == {"apiserver_in", "ssh_in"}
    rules.begin_delete(cloud.group, "nsg", "ssh_in").result()
    assert [it.name for it in groups.get(cloud.group, "nsg").security_rules] == ["apiserver_in"]
    assert made.id.lower() in ids(groups.list(cloud.group))
    assert made.id.lower() in ids(groups.list_all())
    groups.begin_delete(cloud.group, "nsg").result()
    assert groups.begin_delete(cloud.group, "nsg").result() is None, "what is absent is deleted already"


def test_two_rules_of_one_priority_are_rejected(cloud, clients, location, rejected):
    rule = {
        "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "1", "sourceAddressPrefix": "*",
        "destinationAddressPrefix": "*", "access": "Allow", "priority": 100, "direction": "Inbound",
    }  # fmt: skip
    body = {"location": location, "properties": {"securityRules": [{"name": n, "properties": rule} for n in "ab"]}}
    with rejected(400, "SecurityRuleConflict"):
        clients.network.network_security_groups.begin_create_or_update(cloud.group, "clash", body).result()


def public_address(cloud, clients, name, **properties):
    body = {
        "location": cloud.location,
        "sku": {"name": "Standard"},
        "properties": {"publicIPAllocationMethod": "Static", **properties},
    }
    return clients.network.public_ip_addresses.begin_create_or_update(cloud.group, name, body).result()


def test_public_addresses_are_listed(cloud, clients):
    addresses = clients.network.public_ip_addresses
    made = public_address(cloud, clients, "pip-list")
    assert made.ip_address
    assert made.sku.name == "Standard"
    assert addresses.get(cloud.group, "pip-list").ip_address == made.ip_address
    assert made.id.lower() in ids(addresses.list(cloud.group))
    assert made.id.lower() in ids(addresses.list_all())
    assert addresses.update_tags(cloud.group, "pip-list", {"tags": {"a": "1"}}).tags == {"a": "1"}
    addresses.begin_delete(cloud.group, "pip-list").result()


def test_a_list_of_many_has_several_pages(cloud, clients, sim):
    sim.set_until_end("pageSize", {"items": 100}, items=10)
    tables = clients.network.route_tables
    created = {f"page-{number:02}" for number in range(25)}
    for name in created:
        tables.begin_create_or_update(cloud.group, name, {"location": cloud.location}, polling=False)
    pages = [list(page) for page in tables.list(cloud.group).by_page()]
    assert len(pages) >= 3
    assert all(len(page) <= 10 for page in pages)
    names = [it.name for page in pages for it in page]
    assert len(names) == len(set(names))
    assert created <= set(names)
    for name in created:
        tables.begin_delete(cloud.group, name, polling=False)


def test_a_load_balancer_with_everything(cloud, clients, location):
    balancers = clients.network.load_balancers
    address = public_address(cloud, clients, "lb-pip")
    name = "lb"
    base = cloud.network_id(f"loadBalancers/{name}")
    frontend = {"id": f"{base}/frontendIPConfigurations/public-lb-ip-v4"}
    pool = {"id": f"{base}/backendAddressPools/pool"}
    body = {
        "location": location,
        "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [
                {"name": "public-lb-ip-v4", "properties": {"publicIPAddress": {"id": address.id}}}
            ],
            "backendAddressPools": [{"name": "pool"}],
            "probes": [
                {
                    "name": "api-internal-probe",
                    "properties": {
                        "protocol": "Https",
                        "port": 6443,
                        "requestPath": "/readyz",
                        "intervalInSeconds": 5,
                        "numberOfProbes": 2,
                    },
                }
            ],
            "loadBalancingRules": [
                {
                    "name": "api-internal-v4",
                    "properties": {
                        "frontendIPConfiguration": frontend,
                        "backendAddressPool": pool,
                        "probe": {"id": f"{base}/probes/api-internal-probe"},
                        "protocol": "Tcp",
                        "frontendPort": 6443,
                        "backendPort": 6443,
                        "idleTimeoutInMinutes": 30,
                        "loadDistribution": "Default",
                        "disableOutboundSnat": True,
                    },
                }
            ],
            "outboundRules": [
                {
                    "name": "outbound-rule-v4",
                    "properties": {
                        "frontendIPConfigurations": [frontend],
                        "backendAddressPool": pool,
                        "protocol": "All",
                        "idleTimeoutInMinutes": 30,
                    },
                }
            ],
        },
    }
    made = balancers.begin_create_or_update(cloud.group, name, body).result()
    assert made.provisioning_state == SUCCEEDED
    read = balancers.get(cloud.group, name)
    front = read.frontend_ip_configurations[0]
    assert ids(front.load_balancing_rules) == [f"{base}/loadBalancingRules/api-internal-v4".lower()]
    assert ids(front.outbound_rules) == [f"{base}/outboundRules/outbound-rule-v4".lower()]
    assert read.probes[0].request_path == "/readyz"
    network = clients.network
    assert network.load_balancer_frontend_ip_configurations.get(cloud.group, name, front.name).id == front.id
    assert [it.name for it in network.load_balancer_backend_address_pools.list(cloud.group, name)] == ["pool"]
    assert [it.name for it in network.load_balancer_probes.list(cloud.group, name)] == ["api-internal-probe"]
    rules = network.load_balancer_load_balancing_rules
    assert [it.name for it in rules.list(cloud.group, name)] == ["api-internal-v4"]
    assert network.load_balancer_outbound_rules.get(cloud.group, name, "outbound-rule-v4").protocol == "All"
    assert made.id.lower() in ids(balancers.list(cloud.group))
    assert made.id.lower() in ids(balancers.list_all())
    used = network.public_ip_addresses.get(cloud.group, "lb-pip")
    assert used.ip_configuration.id.lower() == front.id.lower()


def test_an_address_of_a_frontend_cannot_be_deleted(cloud, clients, location, rejected):
    address = public_address(cloud, clients, "kept-pip")
    body = {
        "location": location,
        "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [{"name": "front", "properties": {"publicIPAddress": {"id": address.id}}}]
        },
    }
    clients.network.load_balancers.begin_create_or_update(cloud.group, "keeps", body).result()
    with rejected(400, "PublicIPAddressCannotBeDeleted"):
        clients.network.public_ip_addresses.begin_delete(cloud.group, "kept-pip").result()
    clients.network.load_balancers.begin_delete(cloud.group, "keeps").result()
    clients.network.public_ip_addresses.begin_delete(cloud.group, "kept-pip").result()


def test_the_health_of_a_rule_is_read_by_a_long_operation(cloud, clients, network, location):
    name = "health-lb"
    base = cloud.network_id(f"loadBalancers/{name}")
    body = {
        "location": location,
        "sku": {"name": "Standard"},
        "properties": {
            "frontendIPConfigurations": [
                {"name": "front", "properties": {"subnet": {"id": f"{network}/subnets/machines"}}}
            ],
            "backendAddressPools": [{"name": "pool"}],
            "probes": [{"name": "probe", "properties": {"protocol": "Tcp", "port": 22, "intervalInSeconds": 5}}],
            "loadBalancingRules": [
                {
                    "name": "rule",
                    "properties": {
                        "frontendIPConfiguration": {"id": f"{base}/frontendIPConfigurations/front"},
                        "backendAddressPool": {"id": f"{base}/backendAddressPools/pool"},
                        "probe": {"id": f"{base}/probes/probe"},
                        "protocol": "Tcp",
                        "frontendPort": 22,
                        "backendPort": 22,
                    },
                }
            ],
        },
    }
    made = clients.network.load_balancers.begin_create_or_update(cloud.group, name, body).result()
    assert made.frontend_ip_configurations[0].private_ip_address.startswith("10.0.0.")
    health = clients.network.load_balancer_load_balancing_rules.begin_health(cloud.group, name, "rule").result()
    assert health.up == 0
    assert health.down == 0


@pytest.fixture(scope="module")
def link_service(cloud, clients, network):
    """A private link service before an internal load balancer."""
    front = {"name": "front", "properties": {"subnet": {"id": f"{network}/subnets/links"}}}
    balancer = clients.network.load_balancers.begin_create_or_update(
        cloud.group,
        "link-lb",
        {
            "location": cloud.location,
            "sku": {"name": "Standard"},
            "properties": {"frontendIPConfigurations": [front], "backendAddressPools": [{"name": "pool"}]},
        },
    ).result()
    return clients.network.private_link_services.begin_create_or_update(
        cloud.group,
        "link",
        {
            "location": cloud.location,
            "properties": {
                "loadBalancerFrontendIpConfigurations": [{"id": balancer.frontend_ip_configurations[0].id}],
                "ipConfigurations": [{"name": "ip", "properties": {"subnet": {"id": f"{network}/subnets/links"}}}],
                "visibility": {"subscriptions": [cloud.subscription]},
                "autoApproval": {"subscriptions": []},
            },
        },
    ).result()


def test_a_private_endpoint_is_approved(cloud, clients, network, link_service, responses):
    services, endpoints = clients.network.private_link_services, clients.network.private_endpoints
    assert link_service.alias
    assert services.get(cloud.group, "link").provisioning_state == SUCCEEDED
    assert link_service.id.lower() in ids(services.list(cloud.group))
    connection = {"name": "link", "properties": {"privateLinkServiceId": link_service.id}}
    body = {
        "location": cloud.location,
        "properties": {
            "subnet": {"id": f"{network}/subnets/links"},
            "manualPrivateLinkServiceConnections": [connection],
        },
    }
    made = endpoints.begin_create_or_update(cloud.group, "endpoint", body).result()
    state = made.manual_private_link_service_connections[0].private_link_service_connection_state
    assert state.status == "Pending"
    read = endpoints.get(cloud.group, "endpoint", expand="networkInterfaces")
    address = read.network_interfaces[0].ip_configurations[0].private_ip_address
    assert address.startswith("10.0.1.")
    assert made.id.lower() in ids(endpoints.list(cloud.group))
    (waiting,) = services.list_private_endpoint_connections(cloud.group, "link")
    assert waiting.private_endpoint.id.lower() == made.id.lower()
    approved = services.update_private_endpoint_connection(
        cloud.group,
        "link",
        waiting.name,
        {
            "name": waiting.name,
            "properties": {"privateLinkServiceConnectionState": {"status": "Approved", "description": "ours"}},
        },
        raw_response_hook=responses,
    )
    assert responses.statuses == [200]
    assert approved.private_link_service_connection_state.status == "Approved"
    assert approved.link_identifier
    found = services.get_private_endpoint_connection(cloud.group, "link", waiting.name)
    assert found.private_link_service_connection_state.status == "Approved"
    state = endpoints.get(cloud.group, "endpoint").manual_private_link_service_connections[0]
    assert state.private_link_service_connection_state.status == "Approved"


def test_a_load_balancer_with_a_private_link_service_cannot_be_deleted(cloud, clients, link_service, rejected):
    with rejected(400, "CannotDeleteLoadBalancerWithPrivateLinkService"):
        clients.network.load_balancers.begin_delete(cloud.group, "link-lb").result()


def test_a_subnet_in_use_cannot_be_deleted(cloud, clients, link_service, rejected):
    with rejected(400, "InUseSubnetCannotBeDeleted"):
        clients.network.subnets.begin_delete(cloud.group, "shared-vnet", "links").result()


def test_a_nat_gateway(cloud, clients, location):
    gateways = clients.network.nat_gateways
    address = public_address(cloud, clients, "nat-pip")
    body = {
        "location": location,
        "sku": {"name": "Standard"},
        "properties": {"publicIpAddresses": [{"id": address.id}], "idleTimeoutInMinutes": 10},
    }
    made = gateways.begin_create_or_update(cloud.group, "nat", body).result()
    assert made.provisioning_state == SUCCEEDED
    assert gateways.get(cloud.group, "nat").idle_timeout_in_minutes == 10
    assert made.id.lower() in ids(gateways.list(cloud.group))
    gateways.begin_delete(cloud.group, "nat").result()
    clients.network.public_ip_addresses.begin_delete(cloud.group, "nat-pip").result()


def test_a_route_table_and_its_routes(cloud, clients, location):
    tables, routes = clients.network.route_tables, clients.network.routes
    made = tables.begin_create_or_update(cloud.group, "routes", {"location": location}).result()
    route = {"properties": {"addressPrefix": "10.9.0.0/16", "nextHopType": "None"}}
    assert routes.begin_create_or_update(cloud.group, "routes", "drop", route).result().next_hop_type == "None"
    assert routes.get(cloud.group, "routes", "drop").address_prefix == "10.9.0.0/16"
    assert [it.name for it in tables.get(cloud.group, "routes").routes] == ["drop"]
    routes.begin_delete(cloud.group, "routes", "drop").result()
    assert not list(routes.list(cloud.group, "routes"))
    assert made.id.lower() in ids(tables.list_all())
    tables.begin_delete(cloud.group, "routes").result()


def test_a_network_interface(cloud, clients, network, location):
    interfaces = clients.network.network_interfaces
    configuration = {"name": "ip", "properties": {"subnet": {"id": f"{network}/subnets/machines"}, "primary": True}}
    body = {"location": location, "properties": {"ipConfigurations": [configuration]}}
    made = interfaces.begin_create_or_update(cloud.group, "nic", body).result()
    assert made.ip_configurations[0].private_ip_address.startswith("10.0.0.")
    assert interfaces.get(cloud.group, "nic").virtual_machine is None
    assert made.id.lower() in ids(interfaces.list(cloud.group))
    assert made.id.lower() in ids(interfaces.list_all())
    subnet = clients.network.subnets.get(cloud.group, "shared-vnet", "machines")
    assert made.ip_configurations[0].id.lower() in ids(subnet.ip_configurations)
    interfaces.begin_delete(cloud.group, "nic").result()


def test_usages_name_current_values_and_limits(cloud, clients):
    usages = {it.name.value: it for it in clients.network.usages.list(cloud.location)}
    assert usages["PublicIPAddresses"].limit > 0
    assert usages["PublicIPAddresses"].current_value >= 0


def test_the_limit_of_public_addresses_is_enforced(cloud, clients, sim, rejected):
    limits = {"subscription": cloud.subscription, "location": cloud.location, "quota": "PublicIPAddresses"}
    usual = next(it.limit for it in clients.network.usages.list(cloud.location) if it.name.value == "PublicIPAddresses")
    sim.set_until_end("quota", {"limit": usual}, limit=0, **limits)
    with rejected(400, "PublicIPCountLimitReached"):
        public_address(cloud, clients, "too-many")
