"""Records what Microsoft's SDKs send for the resources of a cluster, and what the emulator answers.

    python record.py ENDPOINTS.json [instance]

With `instance`, only the exchanges about machines of machine controllers are recorded.
ENDPOINTS.json is the line that the example `emulator` of the crate `cloudsim` prints; start it with `--pace 0.05`, so that operations
take a moment. Needs the packages of tests/azure-sdk/requirements.txt. Writes one JSON file for each subject beside this script. Headers
that hold credentials are never kept.
"""

import json
import sys
from pathlib import Path

from azure.core.pipeline.policies import SansIOHTTPPolicy
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient, models as compute
from azure.mgmt.dns import DnsManagementClient, models as dns
from azure.mgmt.msi import ManagedServiceIdentityClient, models as msi
from azure.mgmt.network import NetworkManagementClient, models as network
from azure.mgmt.privatedns import PrivateDnsManagementClient, models as privatedns
from azure.mgmt.resource.resources import ResourceManagementClient, models as resources
from azure.mgmt.storage import StorageManagementClient, models as storage

SUBSCRIPTION = "11111111-1111-1111-1111-111111111111"
LOCATION = "westeurope"
KEPT_HEADERS = {"azure-asyncoperation", "location", "etag", "retry-after", "retry-after-ms", "if-match", "if-none-match"}
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/cluster"
NETWORK = f"{GROUP}/providers/Microsoft.Network"


class Recorder(SansIOHTTPPolicy):
    """Keeps requests and responses, with the public address in place of the emulator's."""

    def __init__(self, endpoints):
        self.addresses = {
            endpoints["resourceManager"]: "https://management.azure.com",
            endpoints["blob"]: "https://blob.core.windows.net",
        }
        self.exchanges = []

    def public(self, text):
        for address, public in self.addresses.items():
            text = text.replace(address, public)
        return text

    def headers(self, headers):
        return {name.lower(): self.public(value) for name, value in headers.items() if name.lower() in KEPT_HEADERS}

    def on_response(self, request, response):
        sent, received = request.http_request, response.http_response
        body = sent.body
        received.read()
        text = received.text()
        path, _, query = self.public(sent.url).removeprefix("https://management.azure.com").partition("?")
        exchange = {
            "request": {
                "method": sent.method,
                "path": path,
                "query": query,
                "headers": self.headers(sent.headers),
                "body": json.loads(body) if body else None,
            },
            "response": {
                "status": received.status_code,
                "headers": self.headers(received.headers),
                "body": json.loads(self.public(text)) if text else None,
            },
        }
        # Of polls with the same answer, one is kept.
        if not self.exchanges or self.exchanges[-1] != exchange:
            self.exchanges.append(exchange)


def record_instance(client):
    """A machine with every member that the instance provider sends."""
    client(ResourceManagementClient).resource_groups.create_or_update("cluster", resources.ResourceGroup(location=LOCATION))
    networks, machines = client(NetworkManagementClient), client(ComputeManagementClient)
    tags = {"kubernetes.io_cluster.infra": "owned"}
    space = network.AddressSpace(address_prefixes=["10.0.0.0/16", "fd00::/48"])
    subnet = network.Subnet(name="worker", address_prefixes=["10.0.0.0/24", "fd00::/64"])
    networks.virtual_networks.begin_create_or_update(
        "cluster", "net", network.VirtualNetwork(location=LOCATION, address_space=space, subnets=[subnet])
    ).result()
    networks.subnets.get("cluster", "net", "worker")
    networks.network_security_groups.begin_create_or_update("cluster", "nsg", network.NetworkSecurityGroup(location=LOCATION)).result()
    networks.application_security_groups.begin_create_or_update(
        "cluster", "asg", network.ApplicationSecurityGroup(location=LOCATION)
    ).result()
    networks.application_security_groups.get("cluster", "asg")
    own = f"{NETWORK}/loadBalancers/infra"
    internal = network.FrontendIPConfiguration(
        name="front", subnet=network.Subnet(id=f"{NETWORK}/virtualNetworks/net/subnets/worker"), private_ip_allocation_method="Dynamic"
    )
    rule = network.InboundNatRule(
        name="ssh", protocol="Tcp", frontend_port=2200, backend_port=22,
        frontend_ip_configuration=network.SubResource(id=f"{own}/frontendIPConfigurations/front"),
    )
    balancer = network.LoadBalancer(
        location=LOCATION, sku=network.LoadBalancerSku(name="Standard"), frontend_ip_configurations=[internal],
        backend_address_pools=[network.BackendAddressPool(name="infra")], inbound_nat_rules=[rule],
    )
    networks.load_balancers.begin_create_or_update("cluster", "infra", balancer).result()
    msi_client = client(ManagedServiceIdentityClient)
    identity = msi_client.user_assigned_identities.create_or_update("cluster", "identity", msi.Identity(location=LOCATION))
    key = compute.KeyForDiskEncryptionSet(key_url="https://keys.vault.azure.net/keys/disks/1")
    encryption = compute.DiskEncryptionSet(
        location=LOCATION, identity=compute.EncryptionSetIdentity(type="SystemAssigned"),
        encryption_type="EncryptionAtRestWithCustomerKey", active_key=key,
    )
    encryption = machines.disk_encryption_sets.begin_create_or_update("cluster", "keys", encryption).result()

    address = network.PublicIPAddress(
        location=LOCATION, tags=tags, zones=["2"], sku=network.PublicIPAddressSku(name="Standard"), public_ip_allocation_method="Static"
    )
    networks.public_ip_addresses.begin_create_or_update("cluster", "infra-worker", address).result()
    place = compute.AvailabilitySet(
        location=LOCATION, tags=tags, sku=compute.Sku(name="Aligned"), platform_fault_domain_count=2, platform_update_domain_count=5
    )
    machines.availability_sets.create_or_update("cluster", "worker-as", place)
    subnet = network.Subnet(id=f"{NETWORK}/virtualNetworks/net/subnets/worker")
    nic = network.NetworkInterface(
        location=LOCATION,
        tags=tags,
        enable_accelerated_networking=True,
        network_security_group=network.NetworkSecurityGroup(id=f"{NETWORK}/networkSecurityGroups/nsg"),
        ip_configurations=[
            network.NetworkInterfaceIPConfiguration(
                name="pipConfig", primary=True, subnet=subnet, private_ip_allocation_method="Dynamic",
                load_balancer_backend_address_pools=[network.BackendAddressPool(id=f"{own}/backendAddressPools/infra")],
                load_balancer_inbound_nat_rules=[network.InboundNatRule(id=f"{own}/inboundNatRules/ssh")],
                public_ip_address=network.PublicIPAddress(id=f"{NETWORK}/publicIPAddresses/infra-worker"),
                application_security_groups=[network.ApplicationSecurityGroup(id=f"{NETWORK}/applicationSecurityGroups/asg")],
            ),
            network.NetworkInterfaceIPConfiguration(
                name="pipConfig-v6", subnet=subnet, private_ip_allocation_method="Dynamic", private_ip_address_version="IPv6"
            ),
        ],
    )
    networks.network_interfaces.begin_create_or_update("cluster", "worker-nic", nic).result()

    keys = compute.DiskEncryptionSetParameters(id=encryption.id)
    group = f"{GROUP}/providers/Microsoft.Compute"
    machine = compute.VirtualMachine(
        location=LOCATION,
        tags=tags,
        zones=["2"],
        plan=compute.Plan(name="k", publisher="p", product="o"),
        identity=compute.VirtualMachineIdentity(
            type="UserAssigned", user_assigned_identities={identity.id: compute.UserAssignedIdentitiesValue()}
        ),
        hardware_profile=compute.HardwareProfile(vm_size="Standard_D4s_v5"),
        storage_profile=compute.StorageProfile(
            image_reference=compute.ImageReference(publisher="p", offer="o", sku="k", version="1.0"),
            os_disk=compute.OSDisk(
                name="worker_OSDisk", create_option="FromImage", caching="ReadOnly", disk_size_gb=128, os_type="Linux",
                diff_disk_settings=compute.DiffDiskSettings(option="Local"), delete_option="Delete",
                managed_disk=compute.ManagedDiskParameters(
                    storage_account_type="Premium_LRS", disk_encryption_set=keys,
                    security_profile=compute.VMDiskSecurityProfile(
                        security_encryption_type="VMGuestStateOnly", disk_encryption_set=keys
                    ),
                ),
            ),
            data_disks=[
                compute.DataDisk(
                    lun=0, name="worker_a", create_option="Empty", caching="None", disk_size_gb=4, delete_option="Delete",
                    managed_disk=compute.ManagedDiskParameters(storage_account_type="UltraSSD_LRS"),
                )
            ],
        ),
        os_profile=compute.OSProfile(
            computer_name="worker", admin_username="capi", custom_data="e30=",
            linux_configuration=compute.LinuxConfiguration(
                disable_password_authentication=True,
                ssh=compute.SshConfiguration(
                    public_keys=[compute.SshPublicKey(path="/home/capi/.ssh/authorized_keys", key_data="ssh-rsa AAAA")]
                ),
            ),
        ),
        network_profile=compute.NetworkProfile(
            network_interfaces=[
                compute.NetworkInterfaceReference(id=f"{NETWORK}/networkInterfaces/worker-nic", primary=True, delete_option="Delete")
            ]
        ),
        priority="Spot",
        eviction_policy="Deallocate",
        billing_profile=compute.BillingProfile(max_price=0.5),
        security_profile=compute.SecurityProfile(
            encryption_at_host=True, security_type="ConfidentialVM",
            uefi_settings=compute.UefiSettings(secure_boot_enabled=False, v_tpm_enabled=True),
        ),
        additional_capabilities=compute.AdditionalCapabilities(ultra_ssd_enabled=True),
        availability_set=compute.SubResource(id=f"{group}/availabilitySets/worker-as"),
        capacity_reservation=compute.CapacityReservationProfile(
            capacity_reservation_group=compute.SubResource(id=f"{group}/capacityReservationGroups/c")
        ),
        diagnostics_profile=compute.DiagnosticsProfile(
            boot_diagnostics=compute.BootDiagnostics(enabled=True, storage_uri="https://a.blob")
        ),
    )
    machines.virtual_machines.begin_create_or_update("cluster", "worker", machine).result()
    machines.virtual_machines.get("cluster", "worker", expand="instanceView")
    machines.virtual_machines.begin_update(
        "cluster", "worker", compute.VirtualMachineUpdate(tags={**tags, "team": "a"})
    ).result()
    machines.availability_sets.get("cluster", "worker-as")
    machines.virtual_machines.begin_delete("cluster", "worker").result()
    machines.availability_sets.delete("cluster", "worker-as")


def main():
    endpoints = json.loads(Path(sys.argv[1]).read_text())
    recorder = Recorder(endpoints)
    credential = ClientSecretCredential(
        endpoints["tenantId"],
        endpoints["clientId"],
        Path(endpoints["clientSecretFile"]).read_text().strip(),
        authority=endpoints["authority"],
        disable_instance_discovery=True,
        connection_verify=endpoints["caFile"],
    )
    options = {
        "base_url": endpoints["resourceManager"],
        "polling_interval": 1,
        "connection_verify": endpoints["caFile"],
        "per_retry_policies": [recorder],
    }

    def client(kind):
        return kind(credential, SUBSCRIPTION, **options)

    def save(subject):
        lines = ",\n".join(json.dumps(it, sort_keys=True) for it in recorder.exchanges)
        Path(__file__).with_name(f"{subject}.json").write_text(f"[\n{lines}\n]\n")
        recorder.exchanges = []

    if sys.argv[2:] == ["instance"]:
        record_instance(client)
        return save("instance")
    groups, networks, machines = client(ResourceManagementClient), client(NetworkManagementClient), client(ComputeManagementClient)
    groups.resource_groups.create_or_update("cluster", resources.ResourceGroup(location=LOCATION, managed_by="/the/cluster"))
    save("resource-group")

    rule = network.SecurityRule(
        name="apiserver_in", protocol="Tcp", source_port_range="*", destination_port_range="6443",
        source_address_prefix="*", destination_address_prefix="*", access="Allow", priority=120, direction="Inbound",
    )
    group = network.NetworkSecurityGroup(location=LOCATION, security_rules=[rule])
    networks.network_security_groups.begin_create_or_update("cluster", "infra-nsg", group).result()
    save("security-group")

    route = network.Route(name="0-0-0-0-0", address_prefix="0.0.0.0/0", next_hop_type="VirtualAppliance", next_hop_ip_address="10.0.9.4")
    networks.route_tables.begin_create_or_update("cluster", "routes", network.RouteTable(location=LOCATION, routes=[route])).result()
    save("route-table")
    gateway = network.NatGateway(location=LOCATION, sku=network.NatGatewaySku(name="Standard"))
    networks.nat_gateways.begin_create_or_update("cluster", "nat", gateway).result()
    save("nat-gateway")

    space = network.AddressSpace(address_prefixes=["10.0.0.0/16"])
    networks.virtual_networks.begin_create_or_update("cluster", "net", network.VirtualNetwork(location=LOCATION, address_space=space)).result()
    save("virtual-network")

    subnet = network.Subnet(
        address_prefix="10.0.0.0/24",
        network_security_group=network.NetworkSecurityGroup(id=f"{NETWORK}/networkSecurityGroups/infra-nsg"),
        route_table=network.RouteTable(id=f"{NETWORK}/routeTables/routes"),
        nat_gateway=network.SubResource(id=f"{NETWORK}/natGateways/nat"),
        service_endpoints=[network.ServiceEndpointPropertiesFormat(service="Microsoft.Storage", locations=["*"])],
        private_link_service_network_policies="Disabled",
    )
    networks.subnets.begin_create_or_update("cluster", "net", "master", subnet).result()
    read = networks.subnets.get("cluster", "net", "master")
    read.service_endpoints.append(network.ServiceEndpointPropertiesFormat(service="Microsoft.ContainerRegistry", locations=["*"]))
    networks.subnets.begin_create_or_update("cluster", "net", "master", read, headers={"If-Match": read.etag}).result()
    try:
        networks.subnets.begin_create_or_update("cluster", "net", "master", read, headers={"If-Match": read.etag}).result()
        raise SystemExit("an outdated etag was accepted")
    except Exception as error:
        assert "Precondition" in str(error), error
    save("subnet")

    for name in ["infra-pip-v4", "second"]:
        address = network.PublicIPAddress(
            location=LOCATION, sku=network.PublicIPAddressSku(name="Standard"), public_ip_allocation_method="Static"
        )
        networks.public_ip_addresses.begin_create_or_update("cluster", name, address).result()
    save("public-address")

    def balancer(name, frontend, rules, outbound=()):
        own = f"{NETWORK}/loadBalancers/{name}"
        part = lambda kind, part: network.SubResource(id=f"{own}/{kind}/{part}")
        pools = ["infra"] + [pool for _, _, _, pool, _, _, _ in rules if pool != "infra"]
        probes = {}
        for _, _, port, _, probe, path, _ in rules:
            probes[probe] = network.Probe(
                name=probe, protocol="Https" if path else "Tcp", port=port, request_path=path,
                interval_in_seconds=5, number_of_probes=2,
            )
        frontends = [frontend] + [
            network.FrontendIPConfiguration(name=it, public_ip_address=network.PublicIPAddress(id=f"{NETWORK}/publicIPAddresses/{it}"))
            for it in outbound[1:]
        ]
        body = network.LoadBalancer(
            location=LOCATION,
            sku=network.LoadBalancerSku(name="Standard"),
            frontend_ip_configurations=frontends,
            backend_address_pools=[network.BackendAddressPool(name=it) for it in pools],
            probes=list(probes.values()),
            load_balancing_rules=[
                network.LoadBalancingRule(
                    name=rule, frontend_ip_configuration=part("frontendIPConfigurations", frontend.name),
                    backend_address_pool=part("backendAddressPools", pool), probe=part("probes", probe), protocol="Tcp",
                    frontend_port=port, backend_port=backend, idle_timeout_in_minutes=30, load_distribution="Default",
                    disable_outbound_snat=no_snat,
                )
                for rule, port, backend, pool, probe, _, no_snat in rules
            ],
            outbound_rules=[
                network.OutboundRule(
                    name="outbound-rule-v4", protocol="All", idle_timeout_in_minutes=30,
                    backend_address_pool=part("backendAddressPools", "infra"),
                    frontend_ip_configurations=[part("frontendIPConfigurations", it.name) for it in frontends],
                )
            ]
            if outbound
            else [],
        )
        networks.load_balancers.begin_create_or_update("cluster", name, body).result()

    api = ("api-internal-v4", 6443, 6443, "infra", "api-internal-probe", "/readyz", True)
    internal = network.FrontendIPConfiguration(
        name="internal-lb-ip-v4", subnet=network.Subnet(id=f"{NETWORK}/virtualNetworks/net/subnets/master"),
        private_ip_allocation_method="Dynamic",
    )
    balancer("infra-internal", internal, [
        api,
        ("sint-v4", 22623, 22623, "infra", "sint-probe", "/healthz", False),
        ("ssh-0", 2200, 22, "ssh-0", "ssh", None, True),
    ])
    public = network.FrontendIPConfiguration(
        name="public-lb-ip-v4", public_ip_address=network.PublicIPAddress(id=f"{NETWORK}/publicIPAddresses/infra-pip-v4")
    )
    balancer("infra", public, [api], ["infra-pip-v4", "second"])
    save("load-balancer")

    link = network.PrivateLinkService(
        location=LOCATION,
        load_balancer_frontend_ip_configurations=[
            network.FrontendIPConfiguration(id=f"{NETWORK}/loadBalancers/infra-internal/frontendIPConfigurations/internal-lb-ip-v4")
        ],
        ip_configurations=[
            network.PrivateLinkServiceIpConfiguration(
                name="infra-pls-nic", subnet=network.Subnet(id=f"{NETWORK}/virtualNetworks/net/subnets/master")
            )
        ],
        visibility=network.PrivateLinkServicePropertiesVisibility(subscriptions=[SUBSCRIPTION]),
        auto_approval=network.PrivateLinkServicePropertiesAutoApproval(subscriptions=[SUBSCRIPTION]),
    )
    networks.private_link_services.begin_create_or_update("cluster", "infra-pls", link).result()
    endpoint = network.PrivateEndpoint(
        location=LOCATION,
        subnet=network.Subnet(id=f"{NETWORK}/virtualNetworks/net/subnets/master"),
        manual_private_link_service_connections=[
            network.PrivateLinkServiceConnection(
                name="rp-pe-connection", private_link_service_id=f"{NETWORK}/privateLinkServices/infra-pls"
            )
        ],
    )
    networks.private_endpoints.begin_create_or_update("cluster", "rp-pe", endpoint).result()
    save("private-link")

    nic = network.NetworkInterface(
        location=LOCATION,
        ip_configurations=[
            network.NetworkInterfaceIPConfiguration(
                name="pipConfig", primary=True, subnet=network.Subnet(id=f"{NETWORK}/virtualNetworks/net/subnets/master"),
                load_balancer_backend_address_pools=[
                    network.BackendAddressPool(id=f"{NETWORK}/loadBalancers/infra-internal/backendAddressPools/infra")
                ],
            )
        ],
    )
    networks.network_interfaces.begin_create_or_update("cluster", "infra-master-0-nic", nic).result()
    save("network-interface")

    machine = compute.VirtualMachine(
        location=LOCATION,
        zones=["1"],
        hardware_profile=compute.HardwareProfile(vm_size="Standard_D8s_v5"),
        storage_profile=compute.StorageProfile(
            image_reference=compute.ImageReference(publisher="azureopenshift", offer="aro4", sku="aro_417", version="latest"),
            os_disk=compute.OSDisk(
                name="infra-master-0_OSDisk", create_option="FromImage", caching="ReadWrite", disk_size_gb=1024,
                managed_disk=compute.ManagedDiskParameters(storage_account_type="Premium_LRS"), delete_option="Delete",
            ),
        ),
        os_profile=compute.OSProfile(
            computer_name="infra-master-0", admin_username="core",
            linux_configuration=compute.LinuxConfiguration(
                disable_password_authentication=True,
                ssh=compute.SshConfiguration(
                    public_keys=[compute.SshPublicKey(path="/home/core/.ssh/authorized_keys", key_data="ssh-rsa AAAA")]
                ),
            ),
        ),
        network_profile=compute.NetworkProfile(
            network_interfaces=[
                compute.NetworkInterfaceReference(
                    id=f"{NETWORK}/networkInterfaces/infra-master-0-nic", primary=True, delete_option="Delete"
                )
            ]
        ),
        diagnostics_profile=compute.DiagnosticsProfile(boot_diagnostics=compute.BootDiagnostics(enabled=True)),
    )
    machines.virtual_machines.begin_create_or_update("cluster", "infra-master-0", machine).result()
    machines.virtual_machines.get("cluster", "infra-master-0", expand="instanceView")
    machines.virtual_machines.begin_deallocate("cluster", "infra-master-0").result()
    machines.virtual_machines.get("cluster", "infra-master-0", expand="instanceView")
    machines.virtual_machines.begin_delete("cluster", "infra-master-0").result()
    save("machine")

    disk = compute.Disk(
        location=LOCATION, sku=compute.DiskSku(name="Premium_LRS"),
        creation_data=compute.CreationData(create_option="Empty"), disk_size_gb=10,
    )
    machines.disks.begin_create_or_update("cluster", "data", disk).result()
    save("disk")

    zones = client(DnsManagementClient)
    zones.zones.create_or_update("cluster", "example.org", dns.Zone(location="global"))
    record = dns.RecordSet(ttl=300, a_records=[dns.ARecord(ipv4_address="1.2.3.4")], metadata={"cluster": "own"})
    zones.record_sets.create_or_update("cluster", "example.org", "api.c", "A", record, if_none_match="*")
    save("dns")
    private_zones = client(PrivateDnsManagementClient)
    private_zones.private_zones.begin_create_or_update("cluster", "c.org", privatedns.PrivateZone(location="global")).result()
    link = privatedns.VirtualNetworkLink(
        location="global", virtual_network=privatedns.SubResource(id=f"{NETWORK}/virtualNetworks/net"), registration_enabled=False
    )
    private_zones.virtual_network_links.begin_create_or_update("cluster", "c.org", "net", link).result()
    record = privatedns.RecordSet(ttl=300, a_records=[privatedns.ARecord(ipv4_address="10.0.0.4")])
    private_zones.record_sets.create_or_update("cluster", "c.org", "A", "api", record)
    save("private-dns")

    accounts = client(StorageManagementClient)
    account = storage.StorageAccountCreateParameters(
        kind="StorageV2", sku=storage.Sku(name="Standard_LRS"), location=LOCATION,
        allow_blob_public_access=False, allow_cross_tenant_replication=False, enable_https_traffic_only=True,
        minimum_tls_version="TLS1_2",
        encryption=storage.Encryption(
            require_infrastructure_encryption=True, key_source="Microsoft.Storage",
            services=storage.EncryptionServices(
                blob=storage.EncryptionService(key_type="Account", enabled=True),
                file=storage.EncryptionService(key_type="Account", enabled=True),
            ),
        ),
        network_rule_set=storage.NetworkRuleSet(
            bypass="AzureServices", default_action="Deny",
            virtual_network_rules=[
                storage.VirtualNetworkRule(virtual_network_resource_id=f"{NETWORK}/virtualNetworks/net/subnets/master", action="Allow")
            ],
        ),
    )
    accounts.storage_accounts.begin_create("cluster", "clusterabc123", account).result()
    save("storage-account")

    identities = client(ManagedServiceIdentityClient)
    identities.user_assigned_identities.create_or_update("cluster", "operator", msi.Identity(location=LOCATION))
    credential = msi.FederatedIdentityCredential(
        issuer="https://issuer.example", subject="system:serviceaccount:ns:operator", audiences=["openshift"]
    )
    identities.federated_identity_credentials.create_or_update("cluster", "operator", "fic-operator", credential)
    save("identity")


main()
