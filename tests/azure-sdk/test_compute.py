"""Virtual machines and disks, sizes and quotas."""

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError

from machines import IMAGE, SIZE, create_machine, interface, machine_body, power_state

SUCCEEDED = "Succeeded"


@pytest.fixture(scope="module")
def machine(cloud, clients, network):
    """A machine that the tests of this file share. It runs before and after each."""
    return create_machine(cloud, clients, network, "shared-vm")


@pytest.fixture(scope="module")
def machines(clients):
    return clients.compute.virtual_machines


def test_a_machine_is_created_by_a_long_operation(cloud, clients, machines, network, responses):
    made_interface = interface(cloud, clients, network, "created-vm-nic")
    body = machine_body(cloud, made_interface.id, "created-vm")
    poller = machines.begin_create_or_update(cloud.group, "created-vm", body, raw_response_hook=responses)
    made = poller.result()
    assert responses.statuses[0] == 201
    assert "Azure-AsyncOperation" in responses.all[0].headers
    assert made.provisioning_state == SUCCEEDED
    assert made.vm_id
    assert made.hardware_profile.vm_size == SIZE
    assert made.os_profile.admin_password is None and made.os_profile.custom_data is None
    used = clients.network.network_interfaces.get(cloud.group, "created-vm-nic")
    assert used.virtual_machine.id.lower() == made.id.lower()
    assert machines.begin_delete(cloud.group, "created-vm").result() is None
    with pytest.raises(ResourceNotFoundError):
        machines.get(cloud.group, "created-vm")
    with pytest.raises(ResourceNotFoundError):
        clients.compute.disks.get(cloud.group, "created-vm-os")
    assert machines.begin_delete(cloud.group, "created-vm").result() is None, "what is absent is deleted already"


def test_a_machine_is_read_and_listed(cloud, machines, machine):
    assert machines.get(cloud.group, "shared-vm").instance_view is None
    view = machines.get(cloud.group, "shared-vm", expand="instanceView").instance_view
    assert {it.code for it in view.statuses} == {"ProvisioningState/succeeded", "PowerState/running"}
    assert machine.id.lower() in [it.id.lower() for it in machines.list(cloud.group)]
    assert machine.id.lower() in [it.id.lower() for it in machines.list_all()]


def test_the_instance_view_has_no_maintenance_unless_one_is_planned(cloud, machines, machine):
    view = machines.instance_view(cloud.group, "shared-vm")
    assert view.maintenance_redeploy_status is None
    assert view.computer_name == "shared-vm"


def test_a_machine_is_deallocated_and_started(cloud, clients, machines, machine, responses):
    machines.begin_deallocate(cloud.group, "shared-vm", raw_response_hook=responses).result()
    assert responses.statuses[0] == 202
    assert {"Azure-AsyncOperation", "Location"} <= responses.all[0].headers.keys()
    assert power_state(clients, cloud, "shared-vm") == "deallocated"
    machines.begin_start(cloud.group, "shared-vm").result()
    assert power_state(clients, cloud, "shared-vm") == "running"


def test_a_machine_is_powered_off_and_started(cloud, clients, machines, machine):
    machines.begin_power_off(cloud.group, "shared-vm", skip_shutdown=True).result()
    assert power_state(clients, cloud, "shared-vm") == "stopped"
    machines.begin_start(cloud.group, "shared-vm").result()
    assert power_state(clients, cloud, "shared-vm") == "running"


@pytest.mark.parametrize("action", ["begin_restart", "begin_redeploy", "begin_reapply"])
def test_a_machine_runs_after_an_action(cloud, clients, machines, machine, action):
    getattr(machines, action)(cloud.group, "shared-vm").result()
    assert power_state(clients, cloud, "shared-vm") == "running"


def test_a_deallocated_machine_cannot_be_restarted(cloud, machines, machine, rejected):
    machines.begin_deallocate(cloud.group, "shared-vm").result()
    try:
        with rejected(409, "OperationNotAllowed"):
            machines.begin_restart(cloud.group, "shared-vm").result()
    finally:
        machines.begin_start(cloud.group, "shared-vm").result()


def test_a_command_is_run(cloud, machines, machine):
    command = {"commandId": "RunShellScript", "script": ["uname -r"]}
    result = machines.begin_run_command(cloud.group, "shared-vm", command).result()
    assert result.value[0].code in ("ComponentStatus/StdOut/succeeded", "ProvisioningState/succeeded")
    assert result.value[0].message


def test_boot_diagnostics_have_addresses_with_signatures(cloud, machines, machine):
    data = machines.retrieve_boot_diagnostics_data(cloud.group, "shared-vm", sas_uri_expiration_time_in_minutes=5)
    for uri in (data.serial_console_log_blob_uri, data.console_screenshot_blob_uri):
        assert "sig=" in uri


def test_a_machine_is_changed(cloud, machines, machine):
    changed = machines.begin_update(cloud.group, "shared-vm", {"tags": {"a": "1"}}).result()
    assert changed.tags == {"a": "1"}
    assert changed.vm_id == machine.vm_id


def test_a_machine_is_changed_only_under_its_etag(cloud, machines, machine):
    stale = machines.get(cloud.group, "shared-vm").etag
    assert stale
    machines.begin_update(cloud.group, "shared-vm", {"tags": {"b": "2"}}).result()
    with pytest.raises(ResourceModifiedError) as caught:
        machines.begin_update(
            cloud.group, "shared-vm", {"tags": {}}, etag=stale, match_condition=MatchConditions.IfNotModified
        ).result()
    assert caught.value.status_code == 412
    assert machines.get(cloud.group, "shared-vm").tags == {"b": "2"}


def test_the_image_of_a_machine_cannot_change(cloud, machines, machine, rejected):
    body = machine_body(cloud, machine.network_profile.network_interfaces[0].id, "shared-vm")
    body["properties"]["storageProfile"]["imageReference"] = {**IMAGE, "sku": "minimal"}
    with rejected(409, "PropertyChangeNotAllowed"):
        machines.begin_create_or_update(cloud.group, "shared-vm", body).result()


def test_an_interface_belongs_to_one_machine(cloud, machines, machine, rejected):
    body = machine_body(cloud, machine.network_profile.network_interfaces[0].id, "rival-vm")
    with rejected(400, "NicInUse"):
        machines.begin_create_or_update(cloud.group, "rival-vm", body).result()


def test_an_interface_of_a_machine_cannot_be_deleted(cloud, clients, machine, rejected):
    with rejected(400, "NicInUse"):
        clients.network.network_interfaces.begin_delete(cloud.group, "shared-vm-nic").result()


def test_a_machine_without_its_interface_is_rejected(cloud, machines, rejected):
    missing = cloud.network_id("networkInterfaces/missing")
    with rejected(404, "NotFound"):
        machines.begin_create_or_update(cloud.group, "lost-vm", machine_body(cloud, missing, "lost-vm")).result()


def test_an_unknown_size_is_rejected(cloud, clients, machines, network, rejected):
    made = interface(cloud, clients, network, "sized-vm-nic")
    body = machine_body(cloud, made.id, "sized-vm", size="Standard_Sailing_v1")
    with rejected(400, "InvalidParameter") as error:
        machines.begin_create_or_update(cloud.group, "sized-vm", body).result()
    assert error.target == "vmSize"


def test_disks_and_interfaces_stay_unless_they_are_to_be_deleted(cloud, clients, machines, network, eventually):
    create_machine(cloud, clients, network, "leaving-vm", disk_option="Detach")
    machines.begin_delete(cloud.group, "leaving-vm", force_deletion=True).result()
    assert clients.compute.disks.get(cloud.group, "leaving-vm-os").disk_state == "Unattached"
    assert clients.network.network_interfaces.get(cloud.group, "leaving-vm-nic").virtual_machine is None
    clients.compute.disks.begin_delete(cloud.group, "leaving-vm-os").result()
    # An interface stays reserved for its machine for three minutes: until then, 400 NicReservedForAnotherVm.
    interfaces = clients.network.network_interfaces
    eventually(lambda: interfaces.begin_delete(cloud.group, "leaving-vm-nic").result() is None)


def test_a_disk_is_created_with_202_only(cloud, clients, responses):
    disks = clients.compute.disks
    body = {
        "location": cloud.location,
        "sku": {"name": "Premium_LRS"},
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 32},
    }
    made = disks.begin_create_or_update(cloud.group, "disk", body, raw_response_hook=responses).result()
    assert responses.statuses[0] == 202
    assert made.provisioning_state == SUCCEEDED
    assert made.disk_state == "Unattached"
    assert disks.get(cloud.group, "disk").disk_size_gb == 32
    assert disks.begin_update(cloud.group, "disk", {"properties": {"diskSizeGB": 64}}).result().disk_size_gb == 64
    assert made.id.lower() in [it.id.lower() for it in disks.list_by_resource_group(cloud.group)]
    assert made.id.lower() in [it.id.lower() for it in disks.list()]
    disks.begin_delete(cloud.group, "disk").result()
    with pytest.raises(ResourceNotFoundError):
        disks.get(cloud.group, "disk")
    assert disks.begin_delete(cloud.group, "disk").result() is None


def test_an_attached_disk_cannot_be_deleted(cloud, clients, machine, rejected):
    disk = clients.compute.disks.get(cloud.group, "shared-vm-os")
    assert disk.disk_state == "Attached"
    assert disk.managed_by.lower() == machine.id.lower()
    with rejected(409, "OperationNotAllowed"):
        clients.compute.disks.begin_delete(cloud.group, "shared-vm-os").result()


def test_a_disk_cannot_shrink(cloud, clients, rejected):
    disks = clients.compute.disks
    body = {"location": cloud.location, "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8}}
    disks.begin_create_or_update(cloud.group, "shrinking", body).result()
    with rejected((400, 409)):
        disks.begin_update(cloud.group, "shrinking", {"properties": {"diskSizeGB": 4}}).result()
    disks.begin_delete(cloud.group, "shrinking").result()


@pytest.mark.emulator
def test_a_disk_encryption_set_is_used_by_a_disk(cloud, clients, responses):
    """Only on the emulator: Azure checks that the key exists and that the set may use it."""
    sets = clients.compute.disk_encryption_sets
    body = {
        "location": cloud.location,
        "identity": {"type": "SystemAssigned"},
        "properties": {"activeKey": {"keyUrl": "https://keys.vault.azure.net/keys/disks/1"}},
    }
    made = sets.begin_create_or_update(cloud.group, "encryption", body, raw_response_hook=responses).result()
    assert responses.statuses[0] == 202
    assert made.identity.principal_id
    assert sets.get(cloud.group, "encryption").encryption_type == "EncryptionAtRestWithCustomerKey"
    assert made.id.lower() in [it.id.lower() for it in sets.list_by_resource_group(cloud.group)]
    encryption = {"type": "EncryptionAtRestWithCustomerKey", "diskEncryptionSetId": made.id}
    disk = {
        "location": cloud.location,
        "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 8, "encryption": encryption},
    }
    encrypted = clients.compute.disks.begin_create_or_update(cloud.group, "encrypted", disk).result()
    assert encrypted.encryption.disk_encryption_set_id.lower() == made.id.lower()
    clients.compute.disks.begin_delete(cloud.group, "encrypted").result()
    sets.begin_delete(cloud.group, "encryption").result()
    with pytest.raises(ResourceNotFoundError):
        sets.get(cloud.group, "encryption")


def test_sizes_are_listed_with_a_filter(cloud, clients):
    skus = list(clients.compute.resource_skus.list(filter=f"location eq '{cloud.location}'"))
    assert {location.lower() for it in skus for location in it.locations} == {cloud.location}
    size = next(it for it in skus if it.resource_type == "virtualMachines" and it.name == SIZE)
    assert size.family
    assert size.location_info[0].zones
    capabilities = {it.name: it.value for it in size.capabilities}
    assert capabilities["vCPUs"] == "2"
    assert capabilities["PremiumIO"] == "True"
    assert "EncryptionAtHostSupported" in capabilities


def test_a_restricted_size_says_why(cloud, clients, sim, network, rejected):
    place = {"subscription": cloud.subscription, "location": cloud.location, "size": SIZE}
    sim.set_until_end("restrict", {"reason": None}, reason="NotAvailableForSubscription", **place)
    skus = clients.compute.resource_skus.list(filter=f"location eq '{cloud.location}'")
    (restriction,) = next(it for it in skus if it.name == SIZE).restrictions
    assert restriction.type == "Location"
    assert restriction.reason_code == "NotAvailableForSubscription"
    made = interface(cloud, clients, network, "restricted-vm-nic")
    with rejected(409, "SkuNotAvailable"):
        clients.compute.virtual_machines.begin_create_or_update(
            cloud.group, "restricted-vm", machine_body(cloud, made.id, "restricted-vm")
        ).result()


def test_usages_count_machines_and_cores(cloud, clients, machine):
    usages = {it.name.value.lower(): it for it in clients.compute.usage.list(cloud.location)}
    assert usages["virtualmachines"].current_value >= 1
    assert usages["cores"].current_value >= 2
    assert usages["cores"].limit >= usages["cores"].current_value
    skus = clients.compute.resource_skus.list(filter=f"location eq '{cloud.location}'")
    family = next(it.family for it in skus if it.name == SIZE)
    assert usages[family.lower()].current_value >= 2


@pytest.mark.parametrize("quota", ["cores", "virtualMachines"])
def test_a_quota_is_enforced(cloud, clients, sim, network, rejected, quota):
    usual = next(it.limit for it in clients.compute.usage.list(cloud.location) if it.name.value == quota)
    place = {"subscription": cloud.subscription, "location": cloud.location, "quota": quota}
    sim.set_until_end("quota", {"limit": usual}, limit=0, **place)
    made = interface(cloud, clients, network, f"{quota}-vm-nic")
    with rejected(409, "OperationNotAllowed", "QuotaExceeded") as error:
        clients.compute.virtual_machines.begin_create_or_update(
            cloud.group, f"{quota}-vm", machine_body(cloud, made.id, f"{quota}-vm")
        ).result()
    assert "quota" in error.message.lower()


def test_images_of_the_marketplace_have_versions(cloud, clients):
    images = clients.compute.virtual_machine_images
    place = (cloud.location, IMAGE["publisher"], IMAGE["offer"], IMAGE["sku"])
    versions = images.list(*place)
    assert versions
    assert images.get(*place, versions[0].name).name == versions[0].name


def test_a_machine_that_exists_is_not_created_over(cloud, machine, machines):
    body = machine_body(cloud, machine.network_profile.network_interfaces[0].id, "shared-vm")
    with pytest.raises(ResourceExistsError):
        machines.begin_create_or_update(cloud.group, "shared-vm", body, match_condition=MatchConditions.IfMissing)


def test_an_availability_set_is_created_and_deleted_at_once(cloud, clients):
    sets = clients.compute.availability_sets
    domains = {"platformFaultDomainCount": 2, "platformUpdateDomainCount": 5}
    body = {"location": cloud.location, "sku": {"name": "Aligned"}, "properties": domains}
    created = sets.create_or_update(cloud.group, "pair-as", body)
    assert created.sku.name == "Aligned" and not created.virtual_machines
    assert sets.get(cloud.group, "pair-as").platform_update_domain_count == 5
    sets.delete(cloud.group, "pair-as")
    with pytest.raises(ResourceNotFoundError):
        sets.get(cloud.group, "pair-as")


def test_an_application_security_group_is_created_and_deleted(cloud, clients):
    groups = clients.network.application_security_groups
    made = groups.begin_create_or_update(cloud.group, "asg", {"location": cloud.location}).result()
    assert made.provisioning_state == SUCCEEDED
    assert groups.get(cloud.group, "asg").name == "asg"
    groups.begin_delete(cloud.group, "asg").result()
