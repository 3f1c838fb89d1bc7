"""What the SDKs do when the cloud fails: operations that fail, hang or vanish, throttling, conflicts, lost connections,
late visibility, expired tokens and policies."""

import time
import uuid

import pytest
from azure.core.credentials import AccessToken
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError

from environment import ARM_SCOPE
from machines import create_machine, interface, machine_body, power_state

CODE, MESSAGE = "AllocationFailed", "There is no capacity in the region."
# Without it the SDK waits for most of a second before it repeats a request by itself.
QUICK = {"retry_backoff_factor": 0.02, "retry_backoff_max": 0.1}


@pytest.fixture(scope="module")
def tables(clients):
    return clients.network.route_tables


@pytest.fixture(scope="module")
def group(cloud, clients):
    """A second group, for faults of groups."""
    name = f"{cloud.group}-faults"
    clients.resource.resource_groups.create_or_update(name, {"location": cloud.location})
    return name


def table(cloud, **tags):
    return {"location": cloud.location, "tags": tags}


def create(cloud, tables, name, **options):
    return tables.begin_create_or_update(cloud.group, name, table(cloud), **options).result()


def end_poller(sim, poller, first_response):
    """Ends the thread of a poller whose operation never ends: its next poll is denied."""
    url = first_response.headers.get("Azure-AsyncOperation") or first_response.headers["Location"]
    sim.fault("denied", verb="operation", about=url.split("?")[0].rsplit("/", 1)[1])
    with pytest.raises(HttpResponseError):
        poller.result(5)


def states(responses):
    """The values of `status` that the polls of an operation returned."""
    bodies = [it.json() for it in responses.all if "/operations/" in it.request.url]
    return [it["status"] for it in bodies]


def test_an_operation_that_fails_ends_with_its_code(cloud, tables, sim, responses):
    sim.fault("failsLater", verb="put", about="routeTables/failing", code=CODE, message=MESSAGE)
    poller = tables.begin_create_or_update(cloud.group, "failing", table(cloud), raw_response_hook=responses)
    with pytest.raises(HttpResponseError) as caught:
        poller.result()
    assert caught.value.error.code == CODE
    assert MESSAGE in caught.value.message
    assert poller.status() == "Failed"
    assert responses.statuses[0] == 201
    assert states(responses)[-1] == "Failed"
    assert tables.get(cloud.group, "failing").provisioning_state == "Failed"
    # The same PUT again repairs it.
    assert create(cloud, tables, "failing").provisioning_state == "Succeeded"


def test_a_machine_that_fails_says_why_in_its_instance_view(cloud, clients, network, sim):
    sim.fault("failsLater", verb="put", about="virtualMachines/failing-vm", code=CODE, message=MESSAGE)
    with pytest.raises(HttpResponseError) as caught:
        create_machine(cloud, clients, network, "failing-vm")
    assert caught.value.error.code == CODE
    view = clients.compute.virtual_machines.instance_view(cloud.group, "failing-vm")
    assert [it.code for it in view.statuses] == [f"ProvisioningState/failed/{CODE}"]
    assert view.statuses[0].message == MESSAGE
    clients.compute.virtual_machines.begin_delete(cloud.group, "failing-vm").result()


def test_an_action_that_fails_ends_with_its_code(cloud, clients, network, sim):
    create_machine(cloud, clients, network, "acting-vm")
    sim.fault("failsLater", verb="put", about="virtualMachines/acting-vm", code=CODE, message=MESSAGE)
    with pytest.raises(HttpResponseError) as caught:
        clients.compute.virtual_machines.begin_restart(cloud.group, "acting-vm").result()
    assert caught.value.error.code == CODE
    clients.compute.virtual_machines.begin_delete(cloud.group, "acting-vm").result()


def test_a_deletion_that_fails_leaves_the_resource(cloud, tables, sim):
    create(cloud, tables, "staying")
    sim.fault("failsLater", verb="delete", about="routeTables/staying", code="Conflict", message="It is busy.")
    with pytest.raises(HttpResponseError) as caught:
        tables.begin_delete(cloud.group, "staying").result()
    assert caught.value.error.code == "Conflict"
    assert tables.get(cloud.group, "staying").provisioning_state == "Failed"
    tables.begin_delete(cloud.group, "staying").result()
    with pytest.raises(ResourceNotFoundError):
        tables.get(cloud.group, "staying")


def test_an_operation_that_hangs_stays_in_progress(cloud, tables, sim, responses):
    sim.fault("operationHangs", verb="put", about="routeTables/hanging")
    poller = tables.begin_create_or_update(cloud.group, "hanging", table(cloud), raw_response_hook=responses)
    poller.wait(0.3)
    assert poller.done() is False
    assert set(states(responses)) == {"InProgress"}
    assert tables.get(cloud.group, "hanging").provisioning_state == "Creating"
    end_poller(sim, poller, responses.all[0])
    # What hangs can be replaced and deleted.
    create(cloud, tables, "hanging")
    tables.begin_delete(cloud.group, "hanging").result()


def test_an_operation_that_vanishes_leaves_the_resource(cloud, tables, sim):
    sim.fault("operationLost", verb="put", about="routeTables/vanishing")
    with pytest.raises(HttpResponseError) as caught:
        create(cloud, tables, "vanishing")
    assert caught.value.status_code == 404
    assert tables.get(cloud.group, "vanishing").provisioning_state in ("Creating", "Succeeded")


@pytest.mark.parametrize("verb, call", [("put", "begin_create_or_update"), ("get", "get"), ("delete", "begin_delete")])
def test_a_throttled_call_is_repeated_after_its_seconds(cloud, tables, sim, responses, verb, call):
    create(cloud, tables, f"throttled-{verb}")
    arguments = [table(cloud)] if verb == "put" else []
    sim.fault("throttled", verb=verb, about=f"throttled-{verb}", afterSeconds=1)
    begun = time.monotonic()
    getattr(tables, call)(cloud.group, f"throttled-{verb}", *arguments, raw_response_hook=responses)
    assert time.monotonic() - begun >= 1
    assert responses.statuses[0] == 429
    assert responses.all[0].headers["Retry-After"] == "1"
    assert responses.statuses[1] < 300


def test_a_throttled_call_is_repeated_after_its_milliseconds(cloud, tables, sim, responses):
    create(cloud, tables, "brief")
    sim.fault("throttledBriefly", verb="get", about="routeTables/brief", times=2, afterMillis=30)
    tables.get(cloud.group, "brief", raw_response_hook=responses)
    assert responses.statuses == [429, 429, 200]
    assert responses.all[0].headers["retry-after-ms"] == "30"


def test_a_call_that_is_throttled_without_end_fails_with_its_code(cloud, tables, sim):
    create(cloud, tables, "storm")
    sim.fault("throttledBriefly", verb="get", about="routeTables/storm", times=50, afterMillis=1)
    with pytest.raises(HttpResponseError) as caught:
        tables.get(cloud.group, "storm", retry_total=3)
    assert caught.value.status_code == 429
    assert caught.value.error.code == "SubscriptionRequestsThrottled"


def test_a_throttled_poll_is_repeated(cloud, tables, sim, responses):
    sim.fault("throttledBriefly", verb="operation", times=2, afterMillis=20)
    tables.begin_create_or_update(cloud.group, "polled", table(cloud), raw_response_hook=responses).result()
    assert responses.statuses.count(429) == 2


def test_a_conflict_that_asks_to_retry_later_is_retried(cloud, tables, sim, responses, rejected):
    sim.fault("conflict", verb="put", about="routeTables/busy", times=2, afterSeconds=1)
    with rejected(409, "AnotherOperationInProgress") as error:
        create(cloud, tables, "busy", retry_total=0)
    assert "retry later" in error.message
    tables.begin_create_or_update(cloud.group, "busy", table(cloud), raw_response_hook=responses).result()
    assert responses.statuses[:2] == [409, 201]


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unavailable_service_is_asked_again(cloud, clients_of, sim, responses, when):
    tables = clients_of(**QUICK).network.route_tables
    sim.fault("unavailable", verb="put", about=f"routeTables/unavailable-{when}", when=when)
    made = tables.begin_create_or_update(
        cloud.group, f"unavailable-{when}", table(cloud), raw_response_hook=responses
    ).result()
    assert made.provisioning_state == "Succeeded"
    # After its effect the PUT that the client repeats finds the resource there.
    assert responses.statuses[:2] == [503, 201 if when == "before" else 200]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reset_connection_is_made_again(cloud, clients_of, sim, when):
    tables = clients_of(**QUICK).network.route_tables
    name = f"reset-{when}"
    sim.fault("reset", verb="put", about=f"routeTables/{name}", when=when)
    assert create(cloud, tables, name).provisioning_state == "Succeeded"
    sim.fault("reset", verb="get", about=f"routeTables/{name}", times=2, when=when)
    assert tables.get(cloud.group, name).name == name
    assert [it.name for it in tables.list(cloud.group)].count(name) == 1


def test_what_was_created_is_visible_late(cloud, clients, tables, sim, eventually):
    sim.fault("unseen", verb="put", about="routeTables/late", millis=500)
    tables.begin_create_or_update(cloud.group, "late", table(cloud), polling=False)
    with pytest.raises(ResourceNotFoundError):
        tables.get(cloud.group, "late")
    assert "late" not in [it.name for it in tables.list(cloud.group)]
    assert "late" not in [it.name for it in clients.resource.resources.list_by_resource_group(cloud.group)]
    subnet = {
        "properties": {"addressPrefix": "10.7.0.0/24", "routeTable": {"id": cloud.network_id("routeTables/late")}}
    }
    clients.network.virtual_networks.begin_create_or_update(
        cloud.group,
        "late-vnet",
        {"location": cloud.location, "properties": {"addressSpace": {"addressPrefixes": ["10.7.0.0/16"]}}},
    ).result()
    with pytest.raises(HttpResponseError) as caught:
        clients.network.subnets.begin_create_or_update(cloud.group, "late-vnet", "a", subnet).result()
    assert caught.value.error.code == "InvalidResourceReference"
    eventually(lambda: tables.get(cloud.group, "late"))
    clients.network.subnets.begin_create_or_update(cloud.group, "late-vnet", "a", subnet).result()


def test_a_denied_call_fails_with_its_code(cloud, tables, sim, rejected):
    sim.fault("denied", verb="get", about="routeTables/denied")
    with rejected(403, "AuthorizationFailed"):
        tables.get(cloud.group, "denied")


def test_a_denial_at_a_scope_lasts_until_it_is_lifted(cloud, clients, tables, sim, rejected):
    create(cloud, tables, "guarded")
    scope = cloud.network_id("routeTables/guarded")
    sim.allow_at_end(scope)
    sim.set("deny", who=cloud.client_id, action="Microsoft.Network/routeTables/delete", scope=scope)
    with rejected(403, "DenyAssignmentAuthorizationFailed"):
        tables.begin_delete(cloud.group, "guarded").result()
    assert tables.get(cloud.group, "guarded").name == "guarded"


def test_a_rejected_token_without_claims_is_an_error(cloud, clients_of, sim):
    fresh = clients_of()
    sim.fault("tokenExpires", verb="get", about=cloud.group)
    with pytest.raises(ClientAuthenticationError) as caught:
        fresh.resource.resource_groups.get(cloud.group)
    assert caught.value.status_code == 401
    assert caught.value.error.code == "ExpiredAuthenticationToken"
    assert fresh.resource.resource_groups.get(cloud.group).name == cloud.group


class OneToken:
    """A credential that returns the same token for ever, as a client does that ignores its expiry."""

    def __init__(self, token):
        self._token = token

    def get_token(self, *_scopes, **_options):
        return AccessToken(self._token.token, int(time.time()) + 3600)


def test_an_expired_token_is_rejected(cloud, clients_of, sim, eventually):
    sim.set_until_end("tokenLifetime", {"seconds": None}, seconds=2)
    token = cloud.credential().get_token(ARM_SCOPE)
    its_clients = clients_of(credential=OneToken(token))
    assert its_clients.resource.resource_groups.get(cloud.group).name == cloud.group

    def is_rejected():
        try:
            its_clients.resource.resource_groups.get(cloud.group)
        except ClientAuthenticationError as error:
            return error.error.code == "ExpiredAuthenticationToken"
        return False

    assert eventually(is_rejected)


def test_a_token_that_expires_soon_is_renewed_by_the_sdk(cloud, clients_of, sim, responses):
    sim.set_until_end("tokenLifetime", {"seconds": None}, seconds=2)
    its_clients = clients_of()
    for _ in range(2):
        its_clients.resource.resource_groups.get(cloud.group, raw_response_hook=responses)
    first, second = [it.request.headers["Authorization"] for it in responses.all]
    assert first != second


@pytest.mark.parametrize("by", ["setting", "fault"])
def test_a_policy_denies_and_says_which(cloud, tables, sim, rejected, by):
    about = f"policed-by-{by}"
    if by == "setting":
        scope = cloud.network_id(f"routeTables/{about}")
        sim.set_until_end("policy", {"deny": None}, name="no-tables", scope=scope, deny="Microsoft.Network/routeTables")
    else:
        sim.fault("policy", verb="put", about=about, name="no-tables")
    with rejected(403, "RequestDisallowedByPolicy") as error:
        create(cloud, tables, about)
    (violation,) = error.error.error.additional_info
    assert violation.type == "PolicyViolation"
    assert violation.info["policyDefinitionName"] == "no-tables"
    assert violation.info["policyAssignmentName"] == "no-tables"
    with pytest.raises(ResourceNotFoundError):
        tables.get(cloud.group, about)


def test_a_quota_that_is_used_up_is_named(cloud, clients, network, sim, rejected):
    made = interface(cloud, clients, network, "quota-vm-nic")
    sim.fault("quota", verb="put", about="virtualMachines/quota-vm", quota="cores")
    with rejected(409, "OperationNotAllowed", "QuotaExceeded") as error:
        clients.compute.virtual_machines.begin_create_or_update(
            cloud.group, "quota-vm", machine_body(cloud, made.id, "quota-vm")
        ).result()
    assert "quota" in error.message.lower()


def test_a_group_that_is_being_deleted_takes_no_writes(cloud, clients, group, sim, rejected, responses):
    groups = clients.resource.resource_groups
    sim.fault("operationHangs", verb="delete", about=group)
    poller = groups.begin_delete(group, raw_response_hook=responses)
    poller.wait(0.2)
    assert poller.done() is False
    end_poller(sim, poller, responses.all[0])
    assert groups.get(group).properties.provisioning_state == "Deleting"
    with rejected(409, "ResourceGroupBeingDeleted"):
        clients.network.route_tables.begin_create_or_update(group, "refused", table(cloud)).result()
    with rejected(409, "ResourceGroupBeingDeleted"):
        groups.create_or_update(group, {"location": cloud.location})
    groups.begin_delete(group).result()
    assert groups.check_existence(group) is False


def test_a_group_whose_resources_are_used_elsewhere_is_not_deleted(cloud, clients, rejected):
    groups, name = clients.resource.resource_groups, f"{cloud.group}-used"
    groups.create_or_update(name, {"location": cloud.location})
    security = clients.network.network_security_groups.begin_create_or_update(
        name, "used", {"location": cloud.location}
    ).result()
    network = {
        "location": cloud.location,
        "properties": {
            "addressSpace": {"addressPrefixes": ["10.8.0.0/16"]},
            "subnets": [
                {
                    "name": "a",
                    "properties": {"addressPrefix": "10.8.0.0/24", "networkSecurityGroup": {"id": security.id}},
                }
            ],
        },
    }
    clients.network.virtual_networks.begin_create_or_update(cloud.group, "using", network).result()
    with rejected(409, "ResourceGroupDeletionBlocked"):
        groups.begin_delete(name).result()
    assert clients.network.network_security_groups.get(name, "used").provisioning_state == "Succeeded"
    clients.network.virtual_networks.begin_delete(cloud.group, "using").result()
    groups.begin_delete(name).result()


def test_a_machine_survives_a_storm(cloud, clients_of, network, sim):
    """Every call may be throttled or cut; the SDK repeats them, and the machine exists once."""
    stormy = clients_of(retry_total=20, retry_status=20, retry_read=20, retry_connect=20, **QUICK)
    for _ in range(3):
        sim.fault("throttledBriefly", about="storm-vm", times=2, afterMillis=5)
        sim.fault("unavailable", about="storm-vm", when="after")
        sim.fault("reset", about="storm-vm", when="before")
    made = create_machine(cloud, stormy, network, "storm-vm")
    assert made.provisioning_state == "Succeeded"
    assert power_state(stormy, cloud, "storm-vm") == "running"
    machines = stormy.compute.virtual_machines
    assert [it.name for it in machines.list(cloud.group)].count("storm-vm") == 1
    machines.begin_delete(cloud.group, "storm-vm").result()


def test_every_response_can_be_correlated(cloud, tables, responses):
    create(cloud, tables, "correlated")
    correlation = {"x-ms-correlation-request-id": str(uuid.uuid4())}
    tables.get(cloud.group, "correlated", raw_response_hook=responses, headers=correlation)
    (response,) = responses.all
    assert response.headers["x-ms-request-id"]
    assert correlation.items() <= response.headers.items()
    assert int(response.headers["x-ms-ratelimit-remaining-subscription-reads"]) > 0
