"""Secrets of a vault: the challenge, versions, soft deletion, rights and faults."""

import datetime
import uuid

import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.keyvault.secrets import SecretClient

from conftest import assign_role

SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"


@pytest.fixture
def name():
    return f"secret-{uuid.uuid4().hex[:8]}"


def test_a_request_without_a_token_is_challenged(cloud, vault):
    """The SDKs send their first request to a vault like this: without token and body."""
    url = f"{vault.properties['vaultUri']}secrets/any?api-version=7.6"
    response = requests.put(url, timeout=10)
    assert response.status_code == 401
    challenge = response.headers["WWW-Authenticate"]
    assert challenge.startswith("Bearer ")
    assert f'authorization="{cloud.authority}/{cloud.tenant}"' in challenge
    assert "resource=" in challenge or "scope=" in challenge
    assert response.json()["error"]["code"] == "Unauthorized"


def test_a_secret_is_set_and_read(vault, secrets, name):
    expires = datetime.datetime(2040, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    begins = datetime.datetime(2020, 1, 2, 3, 4, 5, tzinfo=datetime.timezone.utc)
    made = secrets.set_secret(
        name, "värde\n\"2\"", content_type="text/plain", tags={"a": "1"}, expires_on=expires, not_before=begins
    )
    found = secrets.get_secret(name)
    assert found.value == made.value == "värde\n\"2\""
    assert found.id == made.id == f"{vault.properties['vaultUri']}secrets/{name}/{made.properties.version}"
    assert len(made.properties.version) == 32 and int(made.properties.version, 16)
    shown = found.properties
    assert (shown.content_type, shown.tags, shown.enabled) == ("text/plain", {"a": "1"}, True)
    assert (shown.expires_on, shown.not_before) == (expires, begins)
    assert shown.created_on and shown.updated_on
    assert shown.recoverable_days == 7


def test_a_secret_has_versions(secrets, name):
    first = secrets.set_secret(name, "one")
    second = secrets.set_secret(name, "two")
    assert first.properties.version != second.properties.version
    assert secrets.get_secret(name).value == "two"
    assert secrets.get_secret(name, first.properties.version).value == "one"
    versions = list(secrets.list_properties_of_secret_versions(name))
    assert {it.version for it in versions} == {first.properties.version, second.properties.version}
    with pytest.raises(ResourceNotFoundError):
        secrets.get_secret(name, "0" * 32)


def test_properties_are_changed_and_a_disabled_secret_is_not_read(secrets, name, rejected):
    secrets.set_secret(name, "one", content_type="a", tags={"a": "1"})
    changed = secrets.update_secret_properties(name, content_type="b", tags={"b": "2"}, enabled=False)
    assert (changed.content_type, changed.tags, changed.enabled) == ("b", {"b": "2"}, False)
    with rejected(403, "Forbidden"):
        secrets.get_secret(name)
    secrets.update_secret_properties(name, enabled=True)
    assert secrets.get_secret(name).value == "one"


def test_a_list_has_several_pages_and_no_values(secrets, responses):
    names = {f"page-{number:02}-{uuid.uuid4().hex[:4]}" for number in range(7)}
    for name in names:
        secrets.set_secret(name, "hidden-value")
    found = list(secrets.list_properties_of_secrets(max_page_size=3, raw_response_hook=responses))
    assert names <= {it.name for it in found}
    assert len(responses.all) > 2
    assert all("hidden-value" not in it.text() for it in responses.all)
    assert len({it.name for it in found}) == len(found)


def test_an_absent_secret_is_not_found(secrets, rejected, name):
    with rejected(404, "SecretNotFound"):
        secrets.get_secret(name)
    with rejected(404, "SecretNotFound"):
        secrets.begin_delete_secret(name)
    with rejected(404, "SecretNotFound"):
        secrets.update_secret_properties(name, enabled=True)
    assert list(secrets.list_properties_of_secret_versions(name)) == []


def test_a_name_with_other_characters_is_rejected(secrets, rejected):
    with rejected(400, "BadParameter"):
        secrets.set_secret("under_score", "value")


def test_a_value_has_a_limit(secrets, rejected, name):
    secrets.set_secret(name, "a" * 25_000)
    with rejected(400, "BadParameter"):
        secrets.set_secret(name, "a" * 25_601)


def test_a_deleted_secret_is_recovered(secrets, rejected, name):
    secrets.set_secret(name, "one")
    secrets.set_secret(name, "two")
    poller = secrets.begin_delete_secret(name)
    deleted = poller.result()
    assert deleted.recovery_id.endswith(f"/deletedsecrets/{name}")
    assert deleted.scheduled_purge_date - deleted.deleted_date == datetime.timedelta(days=7)
    poller.wait()
    with rejected(404, "SecretNotFound"):
        secrets.get_secret(name)
    assert secrets.get_deleted_secret(name).name == name
    assert name in [it.name for it in secrets.list_deleted_secrets()]
    with rejected(409, "Conflict") as error:
        secrets.set_secret(name, "three")
    assert inner_code(error) == "ObjectIsDeletedButRecoverable"
    recovering = secrets.begin_recover_deleted_secret(name)
    recovering.wait()
    assert secrets.get_secret(name).value == "two"
    assert len(list(secrets.list_properties_of_secret_versions(name))) == 2
    with rejected(404, "SecretNotFound"):
        secrets.get_deleted_secret(name)


def inner_code(error):
    return error.error.error.innererror["code"]


def test_a_purged_secret_gives_its_name_back(secrets, rejected, name, eventually):
    secrets.set_secret(name, "one")
    secrets.begin_delete_secret(name).wait()
    secrets.purge_deleted_secret(name)
    eventually(lambda: secrets.set_secret(name, "two"))
    assert len(list(secrets.list_properties_of_secret_versions(name))) == 1
    with rejected(404, "SecretNotFound"):
        secrets.purge_deleted_secret(name)


def test_a_deletion_takes_a_while_and_its_poller_waits(sim, secrets, rejected, name):
    secrets.set_secret(name, "one")
    sim.fault("unseen", verb="deleteSecret", about=name, millis=1500)
    poller = secrets.begin_delete_secret(name)
    assert poller.status() == "polling"
    with rejected(404, "SecretNotFound"):
        secrets.get_deleted_secret(name)
    with rejected(404, "SecretNotFound"):
        secrets.get_secret(name)
    with rejected(409, "Conflict") as error:
        secrets.set_secret(name, "two")
    assert inner_code(error) == "ObjectIsBeingDeleted"
    poller.wait()
    assert secrets.get_deleted_secret(name).name == name


def test_rights_are_those_of_roles(cloud, sim, vault, clients, secrets, secrets_of, rejected, name):
    secrets.set_secret(name, "value")
    client_id, principal, secret = sim.principal("vault-reader", "byRoles")
    reader = secrets_of(cloud.credential(client_id, secret))
    with rejected(403, "Forbidden") as error:
        reader.get_secret(name)
    assert inner_code(error) == "ForbiddenByRbac"
    assign_role(cloud, clients, vault.id, SECRETS_USER, principal)
    assert reader.get_secret(name).value == "value"
    for refused in (
        lambda: reader.set_secret(name, "other"),
        lambda: reader.begin_delete_secret(name),
        lambda: reader.purge_deleted_secret(name),
    ):
        with rejected(403, "Forbidden"):
            refused()


def test_an_owner_of_the_group_has_no_right_to_data(cloud, sim, clients, secrets_of, rejected):
    client_id, principal, secret = sim.principal("group-owner", "byRoles")
    assign_role(cloud, clients, cloud.group_id(), "8e3af657-a8ff-443c-a75c-2fe8c4bcb635", principal)
    with rejected(403, "Forbidden"):
        list(secrets_of(cloud.credential(client_id, secret)).list_properties_of_secrets())


def test_access_policies_count_where_roles_do_not(cloud, sim, clients, counted, rejected, name):
    client_id, principal, secret = sim.principal("policy-reader", "byRoles")
    policy = {"tenantId": cloud.tenant, "objectId": principal, "permissions": {"secrets": ["get", "set"]}}
    made = clients.resource.resources.begin_create_or_update_by_id(
        f"{cloud.group_id()}/providers/Microsoft.KeyVault/vaults/pol-{cloud.suffix}",
        {
            "location": cloud.location,
            "properties": {
                "tenantId": cloud.tenant,
                "sku": {"family": "A", "name": "standard"},
                "accessPolicies": [policy],
            },
        },
        api_version="2023-07-01",
    ).result()
    url, credential = made.properties["vaultUri"], cloud.credential(client_id, secret)
    client = counted("secrets", SecretClient(url, credential, **cloud.vault_options))
    client.set_secret(name, "value")
    assert client.get_secret(name).value == "value"
    with rejected(403, "Forbidden") as error:
        client.begin_delete_secret(name)
    assert inner_code(error) == "ForbiddenByPolicy"


def test_a_token_for_something_else_is_challenged(cloud, vault):
    token = cloud.credential().get_token("https://management.azure.com/.default").token
    url = f"{vault.properties['vaultUri']}secrets?api-version=7.4"
    response = requests.get(url, headers={"Authorization": f"Bearer {token}"}, timeout=10)
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"].startswith("Bearer ")
    assert response.json()["error"]["code"] == "Unauthorized"


def test_the_address_of_the_challenge_is_verified(emulator, vault):
    strict = SecretClient(vault.properties["vaultUri"], emulator.credential())
    with pytest.raises(ValueError, match="challenge resource"):
        strict.get_secret("any")


def test_throttling_is_waited_for(sim, secrets, responses, name):
    secrets.set_secret(name, "value")
    sim.fault("throttled", verb="secret", about=name, afterSeconds=1)
    assert secrets.get_secret(name, raw_response_hook=responses).value == "value"
    assert responses.all[-1].status_code == 200
    assert sim_is_used_up(sim)


def sim_is_used_up(sim):
    """Whether every rule was met as often as it said."""
    return sim.faults() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_unavailable_vault_is_asked_again(sim, secrets_of, name, when):
    client = secrets_of(retry_backoff_factor=0.1)
    sim.fault("unavailable", verb="putSecret", about=name, when=when)
    client.set_secret(name, "value")
    assert client.get_secret(name).value == "value"
    # A repeated set is a further version: it is not idempotent.
    count = len(list(client.list_properties_of_secret_versions(name)))
    assert count == (1 if when == "before" else 2)


def test_without_repetition_the_error_is_shown(sim, secrets_of, rejected, name):
    client = secrets_of(retry_total=0)
    sim.fault("throttled", verb="secret", about=name, afterSeconds=7)
    with rejected(429, "Throttled") as error:
        client.get_secret(name)
    assert error.error.response.headers["Retry-After"] == "7"
    sim.fault("unavailable", verb="secret", about=name, when="before")
    with rejected(503, "ServiceUnavailable"):
        client.get_secret(name)
    sim.fault("denied", verb="secret", about=name)
    with rejected(403, "Forbidden"):
        client.get_secret(name)


def test_an_expired_token_is_challenged_and_replaced(sim, secrets, name):
    secrets.set_secret(name, "value")
    sim.fault("tokenExpires", verb="secret", about=name)
    assert secrets.get_secret(name).value == "value"
    assert sim_is_used_up(sim)
    # A token that is rejected again is an error of authentication, not a loop.
    sim.fault("tokenExpires", verb="secret", about=name, times=2)
    with pytest.raises(ClientAuthenticationError):
        secrets.get_secret(name)


def test_a_claims_challenge_is_answered(sim, secrets, name):
    secrets.set_secret(name, "value")
    sim.fault("claims", verb="secret", about=name)
    assert secrets.get_secret(name).value == "value"
    assert sim_is_used_up(sim)


def test_a_lost_response_is_an_error_of_the_connection(sim, secrets_of, name):
    client = secrets_of(retry_total=0)
    sim.fault("reset", verb="putSecret", about=name, when="after")
    with pytest.raises(Exception) as caught:
        client.set_secret(name, "value")
    assert not isinstance(caught.value, HttpResponseError) or caught.value.response is None
    assert client.get_secret(name).value == "value", "the request had its effect"
