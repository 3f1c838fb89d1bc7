"""Resource groups, generic resources, providers, features, locks, tags and subscriptions."""

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.mgmt.resource.locks.models import ManagementLockObject

NETWORK_VERSION = "2024-05-01"


@pytest.fixture
def own_group(cloud, clients):
    """A group of the test alone."""
    names = []

    def make(name, **members):
        full = f"{cloud.group}-{name}"
        names.append(full)
        return clients.resource.resource_groups.create_or_update(full, {"location": cloud.location, **members})

    yield make
    for name in names:
        if clients.resource.resource_groups.check_existence(name):
            clients.resource.resource_groups.begin_delete(name)


def test_a_group_is_created_read_changed_and_deleted(cloud, clients, own_group, responses):
    groups = clients.resource.resource_groups
    name = f"{cloud.group}-life"
    assert groups.check_existence(name) is False
    made = own_group("life", tags={"a": "1"})
    assert made.name == name
    assert made.location == cloud.location
    assert made.id == cloud.group_id(name)
    assert made.type.lower() == "microsoft.resources/resourcegroups"
    assert made.properties.provisioning_state == "Succeeded"
    assert groups.check_existence(name) is True
    again = groups.create_or_update(name, {"location": cloud.location, "tags": {"a": "2"}}, raw_response_hook=responses)
    assert responses.statuses == [200]
    assert again.tags == {"a": "2"}
    assert groups.update(name, {"tags": {"b": "3"}}).tags == {"b": "3"}
    assert groups.get(name).tags == {"b": "3"}
    assert groups.get(name.upper()).id.lower() == made.id.lower()
    assert groups.begin_delete(name).result() is None
    assert groups.check_existence(name) is False


def test_a_new_group_answers_201(cloud, clients, responses):
    groups = clients.resource.resource_groups
    name = f"{cloud.group}-created"
    groups.create_or_update(name, {"location": cloud.location}, raw_response_hook=responses)
    assert responses.statuses == [201]
    groups.begin_delete(name).result()


def test_groups_are_listed_with_a_filter(cloud, clients, own_group):
    own_group("tagged", tags={"suite": cloud.suffix})
    groups = clients.resource.resource_groups
    assert cloud.group in [it.name for it in groups.list()]
    found = [it.name for it in groups.list(filter=f"tagName eq 'suite' and tagValue eq '{cloud.suffix}'")]
    assert found == [f"{cloud.group}-tagged"]


def test_a_missing_group_is_an_error(clients, rejected):
    with rejected(404, "ResourceGroupNotFound"):
        clients.resource.resource_groups.get("shipshape-missing")
    with rejected(404, "ResourceGroupNotFound"):
        clients.resource.resource_groups.begin_delete("shipshape-missing").result()


def test_the_location_of_a_group_cannot_change(cloud, own_group, clients, rejected):
    own_group("fixed")
    with rejected(409, "InvalidResourceGroupLocation"):
        clients.resource.resource_groups.create_or_update(f"{cloud.group}-fixed", {"location": "northeurope"})


def test_a_group_is_deleted_with_what_it_contains(cloud, clients, own_group):
    own_group("full")
    name = f"{cloud.group}-full"
    network = clients.network.network_security_groups.begin_create_or_update(name, "nsg", {"location": cloud.location}).result()
    clients.resource.resource_groups.begin_delete(
        name, force_deletion_types="Microsoft.Compute/virtualMachines"
    ).result()
    with pytest.raises(ResourceNotFoundError):
        clients.resource.resources.get_by_id(network.id, api_version=NETWORK_VERSION)


def test_resources_are_read_and_written_by_their_ids(cloud, clients, eventually):
    resources = clients.resource.resources
    resource_id = cloud.network_id("routeTables/generic")
    body = {"location": cloud.location, "properties": {"disableBgpRoutePropagation": True}}
    assert resources.check_existence_by_id(resource_id, api_version=NETWORK_VERSION) is False
    made = resources.begin_create_or_update_by_id(resource_id, body, api_version=NETWORK_VERSION).result()
    assert made.id.lower() == resource_id.lower()
    assert made.properties["provisioningState"] == "Succeeded"
    assert resources.check_existence_by_id(resource_id, api_version=NETWORK_VERSION) is True
    read = resources.get_by_id(resource_id, api_version=NETWORK_VERSION)
    assert read.properties["disableBgpRoutePropagation"] is True
    assert read.type == "Microsoft.Network/routeTables"

    def listed():
        found = resources.list_by_resource_group(cloud.group, filter="resourceType eq 'Microsoft.Network/routeTables'")
        return [it for it in found if it.name == "generic"]

    (entry,) = eventually(listed)
    assert entry.type == "Microsoft.Network/routeTables"
    assert entry.location == cloud.location
    changed = resources.begin_update_by_id(resource_id, {"tags": {"a": "1"}}, api_version=NETWORK_VERSION).result()
    assert changed.tags == {"a": "1"}
    resources.begin_delete_by_id(resource_id, api_version=NETWORK_VERSION).result()
    with pytest.raises(ResourceNotFoundError):
        resources.get_by_id(resource_id, api_version=NETWORK_VERSION)


def test_resources_are_read_and_written_by_their_names(cloud, clients):
    resources = clients.resource.resources
    place = (cloud.group, "Microsoft.Network", "", "routeTables", "named")
    made = resources.begin_create_or_update(*place, {"location": cloud.location}, api_version=NETWORK_VERSION).result()
    assert made.name == "named"
    assert resources.get(*place, api_version=NETWORK_VERSION).name == "named"
    resources.begin_delete(*place, api_version=NETWORK_VERSION).result()


def test_the_resources_of_a_subscription_are_listed(cloud, clients, eventually):
    clients.network.route_tables.begin_create_or_update(cloud.group, "listed", {"location": cloud.location}).result()

    def found():
        return [it for it in clients.resource.resources.list() if it.name == "listed"]

    assert eventually(found)[0].id.lower() == cloud.network_id("routeTables/listed").lower()


def test_a_resource_of_an_unknown_type_is_rejected(cloud, clients, rejected):
    resource_id = f"{cloud.group_id()}/providers/Microsoft.Network/sailingShips/a"
    with rejected(404, "InvalidResourceType"):
        clients.resource.resources.begin_create_or_update_by_id(
            resource_id, {"location": cloud.location}, api_version=NETWORK_VERSION
        ).result()


def test_tags_are_changed_at_a_scope(cloud, clients):
    tags = clients.resource.tags
    table = clients.network.route_tables.begin_create_or_update(cloud.group, "tagged", {"location": cloud.location}).result()
    tags.begin_create_or_update_at_scope(table.id, {"properties": {"tags": {"a": "1"}}}).result()
    merged = tags.begin_update_at_scope(table.id, {"operation": "Merge", "properties": {"tags": {"b": "2"}}}).result()
    assert merged.properties.tags == {"a": "1", "b": "2"}
    assert tags.get_at_scope(table.id).properties.tags == {"a": "1", "b": "2"}


def test_providers_are_listed_read_and_registered(clients):
    providers = clients.resource.providers
    found = {it.namespace.lower(): it for it in providers.list()}
    assert {"microsoft.network", "microsoft.compute", "microsoft.storage"} <= found.keys()
    network = providers.get("Microsoft.Network")
    assert network.registration_state in ("Registered", "Registering", "NotRegistered")
    types = {it.resource_type.lower() for it in network.resource_types}
    assert "virtualnetworks" in types
    assert providers.register("Microsoft.Network").registration_state in ("Registered", "Registering")


def test_a_write_to_an_unregistered_provider_is_rejected_and_registered_by_the_sdk(cloud, clients, sim, rejected, responses):
    subscription, namespace = cloud.subscription, "Microsoft.ManagedIdentity"
    sim.set_until_end("provider", {"registered": True}, subscription=subscription, namespace=namespace, registered=False)
    assert clients.resource.providers.get(namespace).registration_state == "NotRegistered"
    # The SDK registers the provider by itself and repeats a call that is no long operation.
    clients.msi.user_assigned_identities.create_or_update(
        cloud.group, "unregistered", {"location": cloud.location}, raw_response_hook=responses
    )
    assert responses.statuses[0] == 409
    assert responses.statuses[-1] in (200, 201)
    assert clients.resource.providers.get(namespace).registration_state == "Registered"


def test_a_long_operation_of_an_unregistered_provider_is_rejected(cloud, clients, sim, rejected):
    sim.set_until_end(
        "provider", {"registered": True}, subscription=cloud.subscription, namespace="Microsoft.Network", registered=False
    )
    with rejected(409, "MissingSubscriptionRegistration"):
        clients.resource.resources.begin_create_or_update_by_id(
            cloud.network_id("routeTables/unregistered"), {"location": cloud.location}, api_version=NETWORK_VERSION
        ).result()


def test_features_are_read_listed_and_registered(cloud, clients, sim, rejected):
    feature = "Microsoft.Compute/EncryptionAtHost"
    sim.set_until_end("feature", {"registered": None}, subscription=cloud.subscription, feature=feature, registered=False)
    features = clients.features.features
    assert features.get("Microsoft.Compute", "EncryptionAtHost").properties.state == "NotRegistered"
    assert features.register("Microsoft.Compute", "EncryptionAtHost").properties.state in ("Registered", "Registering", "Pending")
    sim.set("feature", subscription=cloud.subscription, feature=feature, registered=True)
    assert features.get("Microsoft.Compute", "EncryptionAtHost").properties.state == "Registered"
    assert feature in [it.name for it in features.list("Microsoft.Compute")]
    assert feature in [it.name for it in features.list_all()]


def test_an_unknown_feature_is_an_error(clients, rejected):
    with rejected(404):
        clients.features.features.get("Microsoft.Network", "SailingShips")


def test_a_lock_prevents_deletion(cloud, clients, own_group, rejected):
    own_group("locked")
    name = f"{cloud.group}-locked"
    locks = clients.locks.management_locks
    lock = locks.create_or_update_at_resource_group_level(
        name, "keep", ManagementLockObject(level="CanNotDelete", notes="keep it")
    )
    assert lock.level == "CanNotDelete"
    try:
        with rejected(409, "ScopeLocked"):
            clients.resource.resource_groups.begin_delete(name).result()
        assert clients.resource.resource_groups.update(name, {"tags": {"a": "1"}}).tags == {"a": "1"}
        assert locks.get_at_resource_group_level(name, "keep").notes == "keep it"
        assert [it.name for it in locks.list_at_resource_group_level(name)] == ["keep"]
    finally:
        locks.delete_at_resource_group_level(name, "keep")
    clients.resource.resource_groups.begin_delete(name).result()


def test_a_read_only_lock_prevents_changes(cloud, clients, rejected, eventually):
    table = clients.network.route_tables.begin_create_or_update(cloud.group, "frozen", {"location": cloud.location}).result()
    locks = clients.locks.management_locks
    lock = locks.create_or_update_by_scope(table.id, "freeze", ManagementLockObject(level="ReadOnly"))
    assert lock.level == "ReadOnly"
    try:
        assert locks.get_by_scope(table.id, "freeze").name == "freeze"
        assert "freeze" in [it.name for it in locks.list_by_scope(table.id)]
        with rejected(409, "ScopeLocked"):
            clients.network.route_tables.begin_delete(cloud.group, "frozen").result()
        with rejected(409, "ScopeLocked"):
            clients.network.route_tables.begin_create_or_update(
                cloud.group, "frozen", {"location": cloud.location, "tags": {"a": "1"}}
            ).result()
    finally:
        locks.delete_by_scope(table.id, "freeze")
    clients.network.route_tables.begin_delete(cloud.group, "frozen").result()


def test_subscriptions_and_tenants_are_listed(cloud, clients):
    subscriptions = clients.subscription.subscriptions
    assert subscriptions.get(cloud.subscription).subscription_id == cloud.subscription
    assert subscriptions.get(cloud.subscription).state == "Enabled"
    assert cloud.subscription in [it.subscription_id for it in subscriptions.list()]
    assert cloud.location in [it.name for it in subscriptions.list_locations(cloud.subscription)]
    assert cloud.tenant in [it.tenant_id for it in clients.subscription.tenants.list()]
