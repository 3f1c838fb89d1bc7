"""Role assignments and definitions, permissions and deny assignments, and what callers without rights meet."""

import time
import uuid

import pytest
from azure.core.exceptions import ResourceNotFoundError

CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
READER = "acdd72a7-3385-48ef-bd42-f606fba81ae7"
NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
AUTHORIZATION_VERSION = "2022-04-01"


@pytest.fixture(scope="module")
def assignments(clients):
    return clients.authorization.role_assignments


@pytest.fixture(scope="module")
def definitions(clients):
    return clients.authorization.role_definitions


@pytest.fixture
def identity(cloud, clients):
    """A managed identity without rights, new for each test."""
    name = f"holder-{uuid.uuid4().hex[:8]}"
    identities = clients.msi.user_assigned_identities
    yield identities.create_or_update(cloud.group, name, {"location": cloud.location, "tags": {"rights": "byRoles"}})
    identities.delete(cloud.group, name)


@pytest.fixture(scope="module")
def table(cloud, clients):
    """A resource to be a scope."""
    return clients.network.route_tables.begin_create_or_update(
        cloud.group, "scope", {"location": cloud.location}
    ).result()


@pytest.fixture
def stranger(sim, clients_of):
    """A principal without rights: its object id and its clients."""
    client_id, object_id, secret = sim.principal("stranger", "byRoles")
    yield object_id, clients_of(client_id, secret)
    sim.set("deletePrincipal", clientId=client_id)


def role_id(cloud, role):
    return f"/subscriptions/{cloud.subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}"


def assignment(cloud, role, principal, **properties):
    given = {"roleDefinitionId": role_id(cloud, role), "principalId": principal, **properties}
    return {"properties": {"principalType": "ServicePrincipal", **given}}


def test_a_role_is_assigned_and_revoked(cloud, assignments, identity, table, responses):
    name = str(uuid.uuid4())
    body = assignment(cloud, READER, identity.principal_id, description="reads")
    made = assignments.create(table.id, name, body, raw_response_hook=responses)
    assert responses.statuses == [201]
    assert made.name == name
    assert made.scope.lower() == table.id.lower()
    assert made.principal_id == identity.principal_id
    assert made.principal_type == "ServicePrincipal"
    assert made.role_definition_id.endswith(READER)
    assert made.description == "reads"
    assert assignments.get(table.id, name).id == made.id
    assert assignments.get_by_id(made.id).name == name
    assert assignments.delete(table.id, name, raw_response_hook=responses).name == name
    assert assignments.delete(table.id, name, raw_response_hook=responses) is None
    assert responses.statuses[-2:] == [200, 204]
    with pytest.raises(ResourceNotFoundError):
        assignments.get(table.id, name)


def test_a_role_is_assigned_by_id(cloud, assignments, identity, table):
    by_id = f"{table.id}/providers/Microsoft.Authorization/roleAssignments/{uuid.uuid4()}"
    made = assignments.create_by_id(by_id, assignment(cloud, READER, identity.principal_id))
    assert made.id.lower() == by_id.lower()
    assert assignments.delete_by_id(by_id).id.lower() == by_id.lower()


def test_the_same_assignment_again_changes_nothing(cloud, assignments, identity, table, responses):
    name, body = str(uuid.uuid4()), assignment(cloud, READER, identity.principal_id)
    first = assignments.create(table.id, name, body)
    again = assignments.create(table.id, name, body, raw_response_hook=responses)
    assert responses.statuses[0] in (200, 201)
    assert again.id == first.id


def test_the_same_triple_under_another_name_exists_already(cloud, assignments, identity, table, rejected):
    body = assignment(cloud, READER, identity.principal_id)
    assignments.create(table.id, str(uuid.uuid4()), body)
    with rejected(409, "RoleAssignmentExists"):
        assignments.create(table.id, str(uuid.uuid4()), body)


def test_the_content_of_an_assignment_cannot_change(cloud, assignments, identity, table, rejected):
    name = str(uuid.uuid4())
    assignments.create(table.id, name, assignment(cloud, READER, identity.principal_id))
    with rejected((400, 409), "RoleAssignmentUpdateNotPermitted"):
        assignments.create(table.id, name, assignment(cloud, NETWORK_CONTRIBUTOR, identity.principal_id))


def test_a_principal_that_the_directory_does_not_know_is_rejected_unless_its_type_is_given(
    cloud, assignments, table, rejected
):
    unknown = str(uuid.uuid4())
    without_type = {"properties": {"roleDefinitionId": role_id(cloud, READER), "principalId": unknown}}
    with rejected(400, "PrincipalNotFound"):
        assignments.create(table.id, str(uuid.uuid4()), without_type)


@pytest.mark.emulator
def test_the_type_of_a_principal_avoids_the_check_of_the_directory(cloud, assignments, table):
    name = str(uuid.uuid4())
    assignments.create(table.id, name, assignment(cloud, READER, str(uuid.uuid4())))
    assignments.delete(table.id, name)


def test_an_unknown_role_is_rejected(cloud, assignments, identity, table, rejected):
    with rejected((400, 404), "RoleDefinitionDoesNotExist"):
        assignments.create(table.id, str(uuid.uuid4()), assignment(cloud, str(uuid.uuid4()), identity.principal_id))


def test_a_name_that_is_no_guid_is_rejected(cloud, assignments, identity, table, rejected):
    with rejected(400, "InvalidRoleAssignmentId"):
        assignments.create(table.id, "reader", assignment(cloud, READER, identity.principal_id))


def test_an_assignment_at_something_missing_is_rejected(cloud, assignments, identity, rejected):
    missing = cloud.network_id("routeTables/missing")
    with rejected(404, "ResourceNotFound"):
        assignments.create(missing, str(uuid.uuid4()), assignment(cloud, READER, identity.principal_id))


def test_lists_include_what_is_inherited_and_what_is_below(cloud, assignments, identity, table):
    at_group = assignments.create(cloud.group_id(), str(uuid.uuid4()), assignment(cloud, READER, identity.principal_id))
    at_table = assignments.create(
        table.id, str(uuid.uuid4()), assignment(cloud, NETWORK_CONTRIBUTOR, identity.principal_id)
    )
    mine = f"principalId eq '{identity.principal_id}'"

    def names(found):
        return {it.name for it in found}

    both = {at_group.name, at_table.name}
    assert names(assignments.list_for_scope(table.id, filter=mine)) == both
    assert names(assignments.list_for_scope(cloud.group_id(), filter=mine)) == both
    assert at_table.name not in names(assignments.list_for_scope(cloud.group_id(), filter="atScope()"))
    assert at_group.name in names(assignments.list_for_scope(table.id, filter="atScope()"))
    assert names(assignments.list_for_resource_group(cloud.group, filter=mine)) == both
    assert names(assignments.list_for_subscription(filter=mine)) == both
    assigned = assignments.list_for_scope(table.id, filter=f"assignedTo('{identity.principal_id}')")
    assert names(assigned) == both
    listed = assignments.list_for_resource(cloud.group, "Microsoft.Network", "routeTables", table.name, filter=mine)
    assert names(listed) == both
    for it in (at_group, at_table):
        assignments.delete_by_id(it.id)


def test_built_in_roles_are_listed_and_read(cloud, definitions):
    scope = f"/subscriptions/{cloud.subscription}"
    found = {it.name: it for it in definitions.list(scope)}
    assert {CONTRIBUTOR, READER, NETWORK_CONTRIBUTOR} <= found.keys()
    (by_name,) = definitions.list(scope, filter="roleName eq 'Contributor'")
    assert by_name.name == CONTRIBUTOR
    contributor = definitions.get(scope, CONTRIBUTOR)
    assert contributor.role_name == "Contributor"
    assert contributor.role_type == "BuiltInRole"
    assert "*" in contributor.permissions[0].actions
    assert "Microsoft.Authorization/*/Write" in contributor.permissions[0].not_actions
    assert definitions.get_by_id(f"/providers/Microsoft.Authorization/roleDefinitions/{READER}").role_name == "Reader"


def test_a_custom_role_is_created_with_201_only(cloud, definitions, responses):
    scope, name = cloud.group_id(), str(uuid.uuid4())
    body = {
        "properties": {
            "roleName": f"reads-tables-{cloud.suffix}",
            "description": "Reads route tables.",
            "type": "CustomRole",
            "permissions": [{"actions": ["Microsoft.Network/routeTables/read"], "notActions": []}],
            "assignableScopes": [scope],
        }
    }
    made = definitions.create_or_update(scope, name, body, raw_response_hook=responses)
    assert made.role_type == "CustomRole"
    assert made.assignable_scopes == [scope]
    body["properties"]["description"] = "Reads route tables and nothing else."
    changed = definitions.create_or_update(scope, name, body, raw_response_hook=responses)
    assert responses.statuses == [201, 201]
    assert changed.description == "Reads route tables and nothing else."
    assert definitions.get(scope, name).permissions[0].actions == ["Microsoft.Network/routeTables/read"]
    assert definitions.delete(scope, name).name == name
    assert definitions.delete(scope, name) is None


def test_two_custom_roles_of_one_name_are_rejected(cloud, definitions, rejected):
    scope, first = cloud.group_id(), str(uuid.uuid4())
    body = {
        "properties": {
            "roleName": f"twice-{cloud.suffix}",
            "permissions": [{"actions": ["*/read"]}],
            "assignableScopes": [scope],
        }
    }
    definitions.create_or_update(scope, first, body)
    with rejected(409, "RoleDefinitionWithSameNameExists"):
        definitions.create_or_update(scope, str(uuid.uuid4()), body)
    definitions.delete(scope, first)


def test_the_permissions_of_the_caller_are_listed(cloud, clients, table, responses):
    permissions = clients.authorization.permissions
    in_group = list(permissions.list_for_resource_group(cloud.group))
    assert any("*" in it.actions for it in in_group)
    # A resource without a parent: the SDK leaves an empty segment in the path.
    on_table = list(
        permissions.list_for_resource(
            cloud.group, "Microsoft.Network", "", "routeTables", table.name, raw_response_hook=responses
        )
    )
    assert "//routeTables/" in responses.requests[0][1]
    assert any("*" in it.actions for it in on_table)


def test_permissions_follow_from_roles(cloud, assignments, table, stranger, rejected):
    object_id, its_clients = stranger
    permissions = its_clients.authorization.permissions
    assert list(permissions.list_for_resource_group(cloud.group)) == []
    assignments.create(cloud.group_id(), str(uuid.uuid4()), assignment(cloud, READER, object_id))
    (reading,) = permissions.list_for_resource_group(cloud.group)
    assert reading.actions == ["*/read"]
    assert its_clients.network.route_tables.get(cloud.group, table.name).name == table.name
    with rejected(403, "AuthorizationFailed") as error:
        its_clients.network.route_tables.begin_delete(cloud.group, table.name).result()
    assert "Microsoft.Network/routeTables/delete" in error.message
    assert object_id in error.message


def test_a_caller_without_rights_is_denied(cloud, stranger, rejected):
    _, its_clients = stranger
    with rejected(403, "AuthorizationFailed"):
        its_clients.resource.resource_groups.get(cloud.group)
    with rejected(403, "AuthorizationFailed"):
        its_clients.network.route_tables.begin_create_or_update(
            cloud.group, "denied", {"location": cloud.location}
        ).result()


def test_a_role_spreads_late(cloud, assignments, stranger, sim, rejected, eventually):
    object_id, its_clients = stranger
    with rejected(403, "AuthorizationFailed"):
        its_clients.resource.resource_groups.get(cloud.group)
    sim.fault("spreadsLate", verb="assignRole", millis=2000)
    # However slow the machine is, the role is not in force earlier than this after its assignment began.
    started = time.monotonic()
    assignments.create(cloud.group_id(), str(uuid.uuid4()), assignment(cloud, READER, object_id))
    found = eventually(lambda: its_clients.resource.resource_groups.get(cloud.group), seconds=20)
    assert found.name == cloud.group
    assert time.monotonic() - started >= 2


@pytest.fixture
def deny_assignment(cloud, clients, emulator):
    """A deny assignment of the group. Customers of Azure cannot create one; the emulator lets them."""
    name = str(uuid.uuid4())
    by_id = f"{cloud.group_id()}/providers/Microsoft.Authorization/denyAssignments/{name}"
    resources = clients.resource.resources

    def create(principal, actions):
        everything = {"notActions": [], "dataActions": [], "notDataActions": []}
        body = {
            "properties": {
                "denyAssignmentName": name,
                "permissions": [{"actions": actions, **everything}],
                "principals": [{"id": principal, "type": "ServicePrincipal"}],
                "excludePrincipals": [],
                "isSystemProtected": True,
            }
        }
        resources.begin_create_or_update_by_id(by_id, body, api_version=AUTHORIZATION_VERSION).result()
        return name

    yield create
    resources.begin_delete_by_id(by_id, api_version=AUTHORIZATION_VERSION).result()


def test_deny_assignments_are_listed(cloud, clients):
    denials = clients.authorization.deny_assignments
    assert list(denials.list_for_resource_group(cloud.group, filter="atScope()")) == []


def test_a_deny_assignment_forbids_what_a_role_allows(cloud, clients, assignments, stranger, deny_assignment, rejected):
    object_id, its_clients = stranger
    assignments.create(cloud.group_id(), str(uuid.uuid4()), assignment(cloud, CONTRIBUTOR, object_id))
    name = deny_assignment(object_id, ["*/write"])
    denials = clients.authorization.deny_assignments
    assert name in [it.name for it in denials.list_for_resource_group(cloud.group)]
    assert name in [it.name for it in denials.list_for_scope(cloud.group_id())]
    assert name in [it.name for it in denials.list()]
    found = denials.get(cloud.group_id(), name)
    assert found.principals[0].id == object_id
    assert found.permissions[0].actions == ["*/write"]
    assert its_clients.resource.resource_groups.get(cloud.group).name == cloud.group
    with rejected(403, "DenyAssignmentAuthorizationFailed"):
        its_clients.network.route_tables.begin_create_or_update(
            cloud.group, "denied", {"location": cloud.location}
        ).result()
    # The permissions API leaves denials out.
    assert any("*" in it.actions for it in its_clients.authorization.permissions.list_for_resource_group(cloud.group))
