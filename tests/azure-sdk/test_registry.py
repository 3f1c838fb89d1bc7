"""A container registry with its scope maps, tokens and their passwords."""

from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import ResourceNotFoundError

SUCCEEDED = "Succeeded"


@pytest.fixture(scope="module")
def registry(cloud, clients):
    """A registry. Only the largest kind has tokens in Azure."""
    return clients.registry.registries.begin_create(
        cloud.group, f"sdk{cloud.suffix}", {"location": cloud.location, "sku": {"name": "Premium"}}
    ).result()


@pytest.fixture(scope="module")
def tokens(clients):
    return clients.registry.tokens


def token_body(registry, scope_map="_repositories_pull", status="enabled"):
    return {"properties": {"scopeMapId": f"{registry.id}/scopeMaps/{scope_map}", "status": status}}


def test_a_registry_is_created_read_changed_and_listed(cloud, clients, registry):
    registries = clients.registry.registries
    assert registry.provisioning_state == SUCCEEDED
    assert registry.login_server == f"{registry.name}.azurecr.io"
    assert registries.get(cloud.group, registry.name).sku.name == "Premium"
    assert registries.begin_update(cloud.group, registry.name, {"tags": {"a": "1"}}).result().tags == {"a": "1"}
    assert registry.name in [it.name for it in registries.list_by_resource_group(cloud.group)]
    assert registry.name in [it.name for it in registries.list()]


def test_a_name_of_a_registry_is_taken_once(cloud, clients, registry):
    asked = {"name": registry.name, "type": "Microsoft.ContainerRegistry/registries"}
    found = clients.registry.registries.check_name_availability(asked)
    assert found.name_available is False
    assert found.message
    asked["name"] = f"free{cloud.suffix}"
    assert clients.registry.registries.check_name_availability(asked).name_available is True


def test_a_token_is_created_read_changed_and_deleted(cloud, registry, tokens, responses):
    place = (cloud.group, registry.name, "token-life")
    made = tokens.begin_create(*place, token_body(registry), raw_response_hook=responses).result()
    assert responses.statuses[0] in (200, 201)
    assert "Azure-AsyncOperation" in responses.all[0].headers
    assert made.provisioning_state == SUCCEEDED
    assert made.status == "enabled"
    assert made.scope_map_id.endswith("/_repositories_pull")
    assert made.creation_date
    read = tokens.get(*place)
    assert not read.credentials.passwords
    assert "token-life" in [it.name for it in tokens.list(cloud.group, registry.name)]
    changed = tokens.begin_update(*place, {"properties": {"status": "disabled"}}).result()
    assert changed.status == "disabled"
    assert tokens.begin_delete(*place).result() is None
    with pytest.raises(ResourceNotFoundError):
        tokens.get(*place)
    assert tokens.begin_delete(*place).result() is None, "what is absent is deleted already"


def test_a_password_is_shown_once(cloud, clients, registry, tokens, responses):
    place = (cloud.group, registry.name, "token-password")
    token = tokens.begin_create(*place, token_body(registry)).result()
    expiry = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(days=180)
    asked = {"tokenId": token.id, "name": "password1", "expiry": expiry.isoformat()}
    result = clients.registry.registries.begin_generate_credentials(
        cloud.group, registry.name, asked, raw_response_hook=responses
    ).result()
    assert responses.statuses[0] in (200, 202)
    assert result.username == "token-password"
    (password,) = result.passwords
    assert password.name == "password1"
    assert len(password.value) >= 20
    assert password.expiry == expiry
    (shown,) = tokens.get(*place).credentials.passwords
    assert shown.name == "password1"
    assert shown.creation_time
    assert shown.value is None


def test_a_second_password_stays_beside_the_first_and_a_repetition_replaces_one(cloud, clients, registry, tokens):
    token = tokens.begin_create(cloud.group, registry.name, "token-rotated", token_body(registry)).result()

    def issue(name):
        asked = {"tokenId": token.id, "name": name}
        generated = clients.registry.registries.begin_generate_credentials(cloud.group, registry.name, asked).result()
        return {it.name: it.value for it in generated.passwords}

    first, second = issue("password1"), issue("password2")
    assert first["password1"] != second["password2"]
    again = issue("password1")
    assert again["password1"] != first["password1"]
    names = [it.name for it in tokens.get(cloud.group, registry.name, "token-rotated").credentials.passwords]
    assert sorted(names) == ["password1", "password2"]


def test_a_password_of_a_missing_token_is_rejected(cloud, clients, registry, rejected):
    missing = {"tokenId": f"{registry.id}/tokens/missing", "name": "password1"}
    with rejected((400, 404)):
        clients.registry.registries.begin_generate_credentials(cloud.group, registry.name, missing).result()


def test_a_scope_map_is_created_used_and_deleted(cloud, clients, registry, tokens):
    maps = clients.registry.scope_maps
    body = {"properties": {"description": "pulls one repository", "actions": ["repositories/one/content/read"]}}
    made = maps.begin_create(cloud.group, registry.name, "one-pull", body).result()
    assert made.actions == ["repositories/one/content/read"]
    assert maps.get(cloud.group, registry.name, "one-pull").provisioning_state == SUCCEEDED
    assert "one-pull" in [it.name for it in maps.list(cloud.group, registry.name)]
    token = tokens.begin_create(cloud.group, registry.name, "token-mapped", token_body(registry, "one-pull")).result()
    assert token.scope_map_id.lower() == made.id.lower()
    widened = {"properties": {"actions": ["repositories/one/content/read", "repositories/two/content/read"]}}
    assert len(maps.begin_update(cloud.group, registry.name, "one-pull", widened).result().actions) == 2
    tokens.begin_delete(cloud.group, registry.name, "token-mapped").result()
    maps.begin_delete(cloud.group, registry.name, "one-pull").result()
    with pytest.raises(ResourceNotFoundError):
        maps.get(cloud.group, registry.name, "one-pull")


def test_a_token_needs_a_scope_map_that_exists(cloud, registry, tokens, rejected):
    with rejected((400, 404)):
        tokens.begin_create(cloud.group, registry.name, "token-lost", token_body(registry, "missing")).result()


def test_every_registry_has_the_scope_maps_of_the_system(cloud, clients, registry, rejected):
    names = {it.name for it in clients.registry.scope_maps.list(cloud.group, registry.name)}
    assert {"_repositories_pull", "_repositories_push"} <= names
    pull = clients.registry.scope_maps.get(cloud.group, registry.name, "_repositories_pull")
    assert "repositories/*/content/read" in pull.actions
    with rejected(400):
        clients.registry.scope_maps.begin_delete(cloud.group, registry.name, "_repositories_pull").result()
