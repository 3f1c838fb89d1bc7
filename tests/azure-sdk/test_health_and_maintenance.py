"""The health of resources, and the maintenance that the cloud plans for machines."""

from datetime import datetime, timedelta, timezone

import pytest

from machines import create_machine, power_state

MACHINE = ("Microsoft.Compute", "virtualMachines", "kept-vm")


@pytest.fixture(scope="module")
def machine(cloud, clients, network):
    return create_machine(cloud, clients, network, "kept-vm")


@pytest.fixture
def planned(sim, machine):
    """Plans a maintenance of the machine, which is withdrawn at the end of the test."""

    def plan(event_type, begins=None, status="Scheduled"):
        event = {
            "machine": "kept-vm",
            "id": "planned",
            "eventType": event_type,
            "status": status,
            "durationSeconds": 600,
        }
        if begins:
            event["notBefore"] = begins.isoformat()
        sim.set_until_end("scheduledEvent", {"status": None}, **event)

    return plan


def test_a_resource_is_available(cloud, clients, machine):
    statuses = clients.health.availability_statuses
    current = statuses.get_by_resource(machine.id)
    assert current.properties.availability_state == "Available"
    assert current.properties.summary
    assert [it.properties.availability_state for it in statuses.list(machine.id)][:1] == ["Available"]


def test_the_health_of_a_group_and_of_a_subscription_is_listed(cloud, clients, machine):
    statuses = clients.health.availability_statuses
    start = machine.id.lower() + "/"
    assert any(it.id.lower().startswith(start) for it in statuses.list_by_resource_group(cloud.group))
    assert any(it.id.lower().startswith(start) for it in statuses.list_by_subscription_id())


@pytest.mark.emulator
def test_a_stopped_machine_is_unavailable_because_its_owner_wants_it(cloud, clients, machine):
    machines = clients.compute.virtual_machines
    machines.begin_power_off(cloud.group, "kept-vm").result()
    try:
        current = clients.health.availability_statuses.get_by_resource(machine.id).properties
        assert current.availability_state == "Unavailable"
        assert current.reason_type == "Customer Initiated"
    finally:
        machines.begin_start(cloud.group, "kept-vm").result()
    current = clients.health.availability_statuses.get_by_resource(machine.id).properties
    assert current.availability_state == "Available"


def test_the_health_of_a_missing_resource_is_an_error(cloud, clients, rejected):
    missing = cloud.network_id("loadBalancers/missing")
    with rejected(404, "ResourceNotFound"):
        clients.health.availability_statuses.get_by_resource(missing)


def test_events_of_a_service_are_listed(clients, machine):
    assert list(clients.health.events.list_by_subscription_id()) is not None
    assert list(clients.health.events.list_by_single_resource(machine.id)) == []


def test_a_machine_has_no_pending_updates(cloud, clients, machine):
    assert list(clients.maintenance.updates.list(cloud.group, *MACHINE)) == []


def test_a_planned_maintenance_is_a_pending_update(cloud, clients, machine, planned):
    begins = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=3)
    planned("Redeploy", begins)
    (update,) = clients.maintenance.updates.list(cloud.group, *MACHINE)
    assert update.maintenance_scope == "Host"
    assert update.impact_type == "Redeploy"
    assert update.status == "Pending"
    assert update.impact_duration_in_sec == 600
    assert update.not_before == begins
    assert update.resource_id.lower() == machine.id.lower()


def test_the_instance_view_tells_the_windows_of_a_planned_maintenance(cloud, clients, machine, planned):
    begins = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=3)
    planned("Reboot", begins)
    status = clients.compute.virtual_machines.instance_view(cloud.group, "kept-vm").maintenance_redeploy_status
    assert status.is_customer_initiated_maintenance_allowed is True
    assert status.maintenance_window_start_time == begins
    assert status.maintenance_window_end_time == begins + timedelta(seconds=600)
    assert status.pre_maintenance_window_end_time == begins
    assert status.last_operation_result_code == "None"


def test_the_owner_of_a_machine_performs_a_planned_maintenance_early(cloud, clients, machine, planned):
    planned("Redeploy", datetime.now(timezone.utc) + timedelta(hours=3))
    machines = clients.compute.virtual_machines
    machines.begin_perform_maintenance(cloud.group, "kept-vm").result()
    assert power_state(clients, cloud, "kept-vm") == "running"
    assert machines.instance_view(cloud.group, "kept-vm").maintenance_redeploy_status is None
    assert list(clients.maintenance.updates.list(cloud.group, *MACHINE)) == []


def test_a_maintenance_that_has_started_is_in_progress(cloud, clients, machine, planned):
    planned("Freeze", status="Started")
    (update,) = clients.maintenance.updates.list(cloud.group, *MACHINE)
    assert (update.impact_type, update.status) == ("Freeze", "InProgress")


def test_a_maintenance_that_is_not_planned_cannot_be_performed(cloud, clients, machine, rejected):
    with rejected(409, "OperationNotAllowed"):
        clients.compute.virtual_machines.begin_perform_maintenance(cloud.group, "kept-vm").result()
