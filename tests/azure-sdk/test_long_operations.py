"""Long operations of each style, on an emulator that takes its time. What takes long is in progress when it is first asked
for."""

import pytest

from conftest import Clients
from environment import Emulator
from machines import create_machine, interface, machine_body, power_state

# A virtual machine takes a minute in a real cloud and about a second here, its start a quarter of one at least.
PACE = 0.015

pytestmark = pytest.mark.emulator


@pytest.fixture(scope="module")
def slow(emulator):
    """A second emulator with one group."""
    environment = Emulator(PACE)
    try:
        clients = Clients(environment, environment.credential())
        clients.resource.resource_groups.create_or_update(environment.group, {"location": environment.location})
        yield environment
    finally:
        environment.close()


@pytest.fixture(scope="module")
def slow_clients(slow):
    return Clients(slow, slow.credential())


@pytest.fixture(scope="module")
def network(slow, slow_clients):
    body = {
        "location": slow.location,
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
            "subnets": [{"name": "machines", "properties": {"addressPrefix": "10.0.0.0/24"}}],
        },
    }
    networks = slow_clients.network.virtual_networks
    return networks.begin_create_or_update(slow.group, "vnet", body).result().id


@pytest.fixture(scope="module")
def machine(slow, slow_clients, network):
    """A machine that the tests change one after the other; the last deletes it."""
    return create_machine(slow, slow_clients, network, "vm", disk_option="Detach")


def polls(responses, word):
    """Status and body of each poll of an operation."""
    found = [it for it in responses.all if f"/{word.lower()}/" in it.request.url.lower()]
    return [(it.status_code, it.json() if it.text() else None) for it in found]


def assert_in_progress_first(responses):
    states = [body["status"] for _, body in polls(responses, "operations")]
    assert states[0] == "InProgress"
    assert states[-1] == "Succeeded"
    assert responses.all[0].headers["retry-after-ms"], "the pace of the polls; without it the SDK waits for 30 s"


def test_a_put_is_followed_by_its_operation(slow, slow_clients, network, responses):
    made = interface(slow, slow_clients, network, "created-nic")
    machines = slow_clients.compute.virtual_machines
    body = machine_body(slow, made.id, "created")
    poller = machines.begin_create_or_update(slow.group, "created", body, raw_response_hook=responses)
    assert poller.status() == "InProgress"
    assert machines.get(slow.group, "created").provisioning_state == "Creating"
    view = machines.instance_view(slow.group, "created")
    assert [it.code for it in view.statuses] == ["ProvisioningState/creating"]
    assert poller.result().provisioning_state == "Succeeded"
    assert responses.statuses[0] == 201
    assert_in_progress_first(responses)
    # The result is read from the resource itself, not from the operation.
    assert responses.requests[-1] == ("GET", responses.requests[0][1])


def test_an_update_keeps_the_resource_readable(slow, slow_clients, machine, responses):
    machines = slow_clients.compute.virtual_machines
    body = machine_body(slow, machine.network_profile.network_interfaces[0].id, "vm", disk_option="Detach")
    body["tags"] = {"a": "1"}
    poller = machines.begin_create_or_update(slow.group, "vm", body, raw_response_hook=responses)
    assert machines.get(slow.group, "vm").provisioning_state == "Updating"
    assert poller.result().tags == {"a": "1"}
    assert responses.statuses[0] == 200
    assert_in_progress_first(responses)


def test_a_put_that_is_accepted_has_both_addresses(slow, slow_clients, responses):
    body = {"location": slow.location, "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    poller = slow_clients.compute.disks.begin_create_or_update(slow.group, "disk", body, raw_response_hook=responses)
    assert poller.result().provisioning_state == "Succeeded"
    assert responses.statuses[0] == 202
    assert {"Azure-AsyncOperation", "Location"} <= responses.all[0].headers.keys()


def test_an_action_passes_through_the_states_of_power(slow, slow_clients, machine, responses):
    machines = slow_clients.compute.virtual_machines
    poller = machines.begin_deallocate(slow.group, "vm", raw_response_hook=responses)
    assert power_state(slow_clients, slow, "vm") == "deallocating"
    poller.result()
    assert power_state(slow_clients, slow, "vm") == "deallocated"
    assert_in_progress_first(responses)
    poller = machines.begin_start(slow.group, "vm")
    assert power_state(slow_clients, slow, "vm") == "starting"
    poller.result()
    assert power_state(slow_clients, slow, "vm") == "running"


def test_the_result_of_an_action_is_at_its_location_once_it_has_succeeded(slow, slow_clients, machine, responses):
    command = {"commandId": "RunShellScript", "script": ["uptime"]}
    machines = slow_clients.compute.virtual_machines
    result = machines.begin_run_command(slow.group, "vm", command, raw_response_hook=responses).result()
    assert result.value[0].message
    # The SDK reads it once, after the operation: a 202 there would be taken for no result.
    assert [status for status, _ in polls(responses, "operationResults")] == [200]


def test_a_location_returns_202_until_its_end(slow, slow_clients, responses):
    groups, name = slow_clients.resource.resource_groups, f"{slow.group}-located"
    groups.create_or_update(name, {"location": slow.location})
    account = {"location": slow.location, "kind": "StorageV2", "sku": {"name": "Standard_LRS"}}
    slow_clients.storage.storage_accounts.begin_create(name, f"located{slow.suffix}", account).result()
    poller = groups.begin_delete(name, raw_response_hook=responses)
    assert groups.get(name).properties.provisioning_state == "Deleting"
    poller.result()
    statuses = [status for status, _ in polls(responses, "operationresults")]
    assert statuses[0] == 202
    assert statuses[-1] == 200
    assert groups.check_existence(name) is False


def test_a_deletion_is_followed_by_its_operation(slow, slow_clients, machine, responses, rejected):
    machines = slow_clients.compute.virtual_machines
    poller = machines.begin_delete(slow.group, "vm", raw_response_hook=responses)
    assert machines.get(slow.group, "vm").provisioning_state == "Deleting"
    assert poller.result() is None
    assert responses.statuses[0] == 202
    assert_in_progress_first(responses)
    assert "vm" not in [it.name for it in machines.list(slow.group)]
    # Its interface stays reserved for three minutes, here for some seconds.
    with rejected(400, "NicReservedForAnotherVm"):
        slow_clients.network.network_interfaces.begin_delete(slow.group, "vm-nic").result()
