"""Storage accounts and their containers, by the resource manager."""

import datetime

import pytest
from azure.core.exceptions import ResourceNotFoundError

SUCCEEDED = "Succeeded"


def account_name(cloud, name):
    return f"{name}{cloud.suffix}"


def account_body(cloud, **properties):
    return {
        "location": cloud.location,
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS"},
        "properties": {"allowBlobPublicAccess": False, "minimumTlsVersion": "TLS1_2", **properties},
    }


def create(cloud, clients, name, **properties):
    name = account_name(cloud, name)
    return clients.storage.storage_accounts.begin_create(cloud.group, name, account_body(cloud, **properties)).result()


@pytest.fixture(scope="module")
def account(cloud, clients):
    return create(cloud, clients, "managed")


def test_an_account_is_created_by_a_location(cloud, clients, responses):
    accounts, name = clients.storage.storage_accounts, account_name(cloud, "created")
    poller = accounts.begin_create(cloud.group, name, account_body(cloud), raw_response_hook=responses)
    made = poller.result()
    assert responses.statuses[0] in (200, 202), "the SDK rejects any other"
    assert (made.name, made.kind, made.sku.name, made.sku.tier) == (name, "StorageV2", "Standard_LRS", "Standard")
    assert made.properties.provisioning_state == SUCCEEDED
    assert made.properties.primary_endpoints.blob.startswith("https://")
    assert name in made.properties.primary_endpoints.blob
    assert made.properties.encryption.key_source == "Microsoft.Storage"
    assert accounts.get_properties(cloud.group, name).id == made.id
    assert accounts.begin_create(cloud.group, name, account_body(cloud)).result().id == made.id
    accounts.delete(cloud.group, name)
    with pytest.raises(ResourceNotFoundError):
        accounts.get_properties(cloud.group, name)
    accounts.delete(cloud.group, name)


def test_an_account_keeps_what_an_installer_sends(cloud, clients, network):
    made = create(
        cloud,
        clients,
        "cluster",
        allowCrossTenantReplication=False,
        allowSharedKeyAccess=False,
        supportsHttpsTrafficOnly=True,
        sasPolicy={"sasExpirationPeriod": "0.01:00:00", "expirationAction": "Log"},
        networkAcls={
            "bypass": "AzureServices",
            "defaultAction": "Deny",
            "virtualNetworkRules": [{"id": f"{network}/subnets/machines", "action": "Allow"}],
        },
        encryption={"requireInfrastructureEncryption": True, "keySource": "Microsoft.Storage"},
    )
    found = clients.storage.storage_accounts.get_properties(cloud.group, made.name).properties
    assert found.allow_shared_key_access is False
    assert found.sas_policy.sas_expiration_period == "0.01:00:00"
    assert found.network_rule_set.default_action == "Deny"
    rule = found.network_rule_set.virtual_network_rules[0]
    assert rule.virtual_network_resource_id.lower() == f"{network}/subnets/machines".lower()
    assert found.encryption.require_infrastructure_encryption is True


def test_an_account_is_updated_and_listed(cloud, clients, account):
    accounts = clients.storage.storage_accounts
    changed = accounts.update(
        cloud.group, account.name, {"tags": {"a": "1"}, "properties": {"minimumTlsVersion": "TLS1_3"}}
    )
    assert changed.tags == {"a": "1"}
    assert changed.properties.minimum_tls_version == "TLS1_3"
    assert changed.properties.allow_blob_public_access is False, "what is left out stays"
    assert account.id in [it.id for it in accounts.list_by_resource_group(cloud.group)]
    assert account.id in [it.id for it in accounts.list()]


def test_names_are_global(cloud, clients, clients_of, account, rejected):
    accounts = clients.storage.storage_accounts
    taken = accounts.check_name_availability({"name": account.name, "type": "Microsoft.Storage/storageAccounts"})
    assert (taken.name_available, taken.reason) == (False, "AlreadyExists")
    invalid = accounts.check_name_availability({"name": "Not Valid", "type": "Microsoft.Storage/storageAccounts"})
    assert (invalid.name_available, invalid.reason) == (False, "AccountNameInvalid")
    free = accounts.check_name_availability(
        {"name": account_name(cloud, "free"), "type": "Microsoft.Storage/storageAccounts"}
    )
    assert free.name_available is True
    other = f"{cloud.group}-accounts"
    clients.resource.resource_groups.create_or_update(other, {"location": cloud.location})
    with rejected(409, "StorageAccountAlreadyTaken"):
        accounts.begin_create(other, account.name, account_body(cloud)).result()
    with rejected(400, "AccountNameInvalid"):
        accounts.begin_create(cloud.group, "Not-Valid", account_body(cloud)).result()


def test_what_is_missing_is_named(cloud, clients, rejected):
    accounts = clients.storage.storage_accounts
    with rejected(404, "ResourceNotFound"):
        accounts.get_properties(cloud.group, "missingaccount")
    body = account_body(cloud)
    del body["sku"]
    with rejected(400):
        accounts.begin_create(cloud.group, account_name(cloud, "nosku"), body).result()


def test_keys_are_listed_and_regenerated(cloud, clients, account):
    accounts = clients.storage.storage_accounts

    def keys(found):
        return {it.key_name: it.value for it in found.keys_property}

    before = keys(accounts.list_keys(cloud.group, account.name))
    assert set(before) == {"key1", "key2"} and before["key1"] != before["key2"]
    after = keys(accounts.regenerate_key(cloud.group, account.name, {"keyName": "key2"}))
    assert after["key1"] == before["key1"] and after["key2"] != before["key2"]
    assert keys(accounts.list_keys(cloud.group, account.name)) == after


def sas_parameters(**changes):
    now = datetime.datetime.now(datetime.timezone.utc)
    return {
        "signedServices": "b",
        "signedResourceTypes": "o",
        "signedPermission": "r",
        "signedProtocol": "https",
        "signedStart": (now - datetime.timedelta(minutes=5)).isoformat(),
        "signedExpiry": (now + datetime.timedelta(hours=24)).isoformat(),
        **changes,
    }


def test_a_signature_for_the_account_is_made(cloud, clients, account, rejected):
    accounts = clients.storage.storage_accounts
    token = accounts.list_account_sas(cloud.group, account.name, sas_parameters()).account_sas_token
    assert "sig=" in token and "sp=r" in token and "ss=b" in token
    with rejected(400):
        accounts.list_account_sas(cloud.group, account.name, sas_parameters(signedPermission=""))


def test_an_account_without_shared_keys_makes_no_signature(cloud, clients, rejected):
    made = create(cloud, clients, "keyless", allowSharedKeyAccess=False)
    with rejected(403, "KeyBasedAuthenticationNotPermitted"):
        clients.storage.storage_accounts.list_account_sas(cloud.group, made.name, sas_parameters())


def test_containers_are_managed(cloud, clients, account, rejected, responses):
    containers = clients.storage.blob_containers
    place = (cloud.group, account.name, "ignition")
    containers.create(*place, {}, raw_response_hook=responses)
    assert responses.statuses == [201]
    again = containers.create(*place, {}, raw_response_hook=responses)
    assert responses.statuses[-1] in (200, 201)
    assert again.id.endswith("/blobServices/default/containers/ignition")
    found = containers.get(*place)
    assert (found.name, found.container_properties.public_access) == ("ignition", "None")
    assert "ignition" in [it.name for it in containers.list(cloud.group, account.name)]
    changed = containers.update(*place, {"properties": {"metadata": {"a": "1"}}})
    assert changed.container_properties.metadata == {"a": "1"}
    containers.delete(*place)
    with rejected(404):
        containers.get(*place)
    containers.delete(*place)
    with rejected(400):
        containers.create(cloud.group, account.name, "Not_Valid", {})


def test_a_container_of_a_missing_account_is_rejected(cloud, clients, rejected):
    with rejected(404):
        clients.storage.blob_containers.create(cloud.group, "missingaccount", "a", {})


def test_faults_of_accounts(sim, cloud, clients, account, rejected):
    accounts = clients.storage.storage_accounts
    sim.fault("throttled", verb="get", about=account.name, afterSeconds=1)
    assert accounts.get_properties(cloud.group, account.name).id == account.id
    sim.fault("failsLater", verb="put", about="failed", code="StorageFailure", message="It failed.")
    name = account_name(cloud, "failed")
    with rejected(409) as error:
        accounts.begin_create(cloud.group, name, account_body(cloud)).result()
    assert error.code == "StorageFailure"
