"""Blobs: containers and block blobs with a token, a key of the account, signatures, and without any."""

import base64
import datetime
import os
import uuid

import pytest
import requests
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError, ServiceResponseError
from azure.storage.blob import (
    AccountSasPermissions,
    BlobBlock,
    BlobPrefix,
    BlobSasPermissions,
    BlobServiceClient,
    ContainerSasPermissions,
    ContentSettings,
    ExponentialRetry,
    ResourceTypes,
    generate_account_sas,
    generate_blob_sas,
    generate_container_sas,
)

from conftest import assign_role, token_claims

BLOB_CONTRIBUTOR = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
BLOB_READER = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
BLOB_OWNER = "b7e6dc6d-f1e8-4753-8033-0f276bb0955b"
OWNER = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635"


def now():
    return datetime.datetime.now(datetime.timezone.utc)


def hours(count):
    return datetime.timedelta(hours=count)


class Account:
    """A storage account of the tests, and the clients of its blobs."""

    def __init__(self, cloud, clients, counted, name, **properties):
        self.cloud, self.counted, self.name = cloud, counted, f"{name}{cloud.suffix}"
        body = {
            "location": cloud.location,
            "kind": "StorageV2",
            "sku": {"name": "Standard_LRS"},
            "properties": {"allowBlobPublicAccess": True, **properties},
        }
        accounts = clients.storage.storage_accounts
        self.id = accounts.begin_create(cloud.group, self.name, body).result().id
        self.keys = [it.value for it in accounts.list_keys(cloud.group, self.name).keys_property]

    def client(self, credential=None, **options):
        # The default of the SDK waits 15 s before it repeats a request.
        options = {"retry_policy": ExponentialRetry(initial_backoff=0.1, increment_base=0, random_jitter_range=0), **options}
        url = self.cloud.blob_url(self.name)
        return self.counted("blob", BlobServiceClient(url, credential=credential, **options))

    def shared_key(self, key=None, **options):
        return self.client({"account_name": self.name, "account_key": key or self.keys[0]}, **options)


@pytest.fixture(scope="module")
def account(cloud, clients, counted, object_id):
    made = Account(cloud, clients, counted, "blobs")
    assign_role(cloud, clients, made.id, BLOB_CONTRIBUTOR, object_id)
    return made


@pytest.fixture(scope="module")
def service(cloud, account, eventually):
    """A client with a token of the principal that runs the tests."""
    client = account.client(cloud.credential())
    # On real Azure the role takes a while to spread.
    eventually(lambda: list(client.list_containers()) is not None)
    return client


@pytest.fixture
def container(service):
    """A new container."""
    client = service.get_container_client(f"c-{uuid.uuid4().hex[:12]}")
    client.create_container()
    return client


def error_code(error):
    """Storage names its code in a header, which decides where a response has no body."""
    return error.error.error_code


@pytest.fixture
def refused(rejected):
    """A context that expects a status and a code of storage."""
    from contextlib import contextmanager

    @contextmanager
    def expect(status, *codes):
        with rejected(status) as error:
            yield error
        assert error_code(error) in codes, f"{error_code(error)}: {error.message}"

    return expect


@pytest.fixture(params=["token", "key", "account signature"])
def everywhere(request, cloud, account, service):
    """A client with each kind of credential that may do everything."""
    if request.param == "token":
        return service
    if request.param == "key":
        return account.shared_key()
    return account.client(
        generate_account_sas(
            account.name,
            account.keys[0],
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True),
            now() + hours(1),
        )
    )


def test_containers_and_blobs_with_each_credential(everywhere):
    name = f"all-{uuid.uuid4().hex[:8]}"
    container = everywhere.get_container_client(name)
    assert container.exists() is False
    container.create_container(metadata={"a": "1", "b_2": "2", "a_b": "3"})
    assert container.exists() is True
    with pytest.raises(ResourceExistsError):
        container.create_container()
    shown = container.get_container_properties()
    assert shown.metadata == {"a": "1", "b_2": "2", "a_b": "3"}
    assert shown.etag and shown.last_modified and shown.public_access is None
    blob = container.get_blob_client("folder/näme with spaces & #?.txt")
    assert blob.exists() is False
    written = blob.upload_blob(b"content", metadata={"m": "1"}, content_settings=ContentSettings(content_type="text/plain"))
    assert written["etag"] and written["last_modified"]
    assert blob.exists() is True
    assert blob.download_blob().readall() == b"content"
    shown = blob.get_blob_properties()
    assert (shown.size, shown.content_settings.content_type, shown.metadata) == (7, "text/plain", {"m": "1"})
    assert shown.blob_type == "BlockBlob" and shown.server_encrypted is True
    assert [it.name for it in container.list_blobs()] == ["folder/näme with spaces & #?.txt"]
    assert name in [it.name for it in everywhere.list_containers(name_starts_with="all-")]
    with pytest.raises(ResourceExistsError):
        blob.upload_blob(b"other")
    blob.upload_blob(b"other", overwrite=True)
    assert blob.download_blob().readall() == b"other"
    blob.delete_blob()
    with pytest.raises(ResourceNotFoundError) as caught:
        blob.delete_blob()
    assert caught.value.error_code == "BlobNotFound"
    container.delete_container()
    with pytest.raises(ResourceNotFoundError) as caught:
        blob.download_blob()
    assert caught.value.error_code == "ContainerNotFound"
    assert container.exists() is False


def test_a_download_is_partial_content(container, responses):
    blob = container.get_blob_client("ten")
    blob.upload_blob(b"0123456789")
    assert blob.download_blob(raw_response_hook=responses).readall() == b"0123456789"
    assert responses.statuses == [206]
    assert responses.all[0].headers["Content-Range"] == "bytes 0-9/10"
    assert blob.download_blob(offset=3, length=4).readall() == b"3456"
    assert blob.download_blob(offset=8).readall() == b"89"
    assert blob.download_blob(validate_content=True).readall() == b"0123456789"


def test_an_empty_blob_is_read(container, refused):
    blob = container.get_blob_client("empty")
    blob.upload_blob(b"")
    assert blob.download_blob().readall() == b""
    assert blob.get_blob_properties().size == 0
    with refused(416, "InvalidRange"):
        blob.download_blob(offset=0, length=1)


def test_a_large_blob_is_made_of_blocks(account, cloud):
    options = {"max_single_put_size": 1024, "max_block_size": 256 * 1024, "max_single_get_size": 300_000, "max_chunk_get_size": 200_000}
    container = account.client(cloud.credential(), **options).get_container_client(f"large-{uuid.uuid4().hex[:8]}")
    container.create_container()
    content = os.urandom(3 * 1024 * 1024 + 17)
    blob = container.get_blob_client("large")
    blob.upload_blob(content, max_concurrency=2, validate_content=True)
    assert blob.download_blob(max_concurrency=2).readall() == content
    committed, uncommitted = blob.get_block_list("all")
    assert len(committed) == 13 and uncommitted == []
    assert sum(it.size for it in committed) == len(content)


def test_blocks_are_staged_and_committed(container, refused):
    blob = container.get_blob_client("blocks")
    blob.stage_block("00", b"one ")
    blob.stage_block("01", b"two ")
    with refused(404, "BlobNotFound"):
        blob.download_blob()
    assert [it.name for it in container.list_blobs()] == []
    committed, uncommitted = blob.get_block_list("all")
    assert committed == [] and len(uncommitted) == 2
    blob.commit_block_list([BlobBlock("01"), BlobBlock("00")], metadata={"m": "1"})
    assert blob.download_blob().readall() == b"two one "
    assert blob.get_blob_properties().metadata == {"m": "1"}
    blob.stage_block("02", b"three")
    blob.commit_block_list([BlobBlock("00"), BlobBlock("02")])
    assert blob.download_blob().readall() == b"one three"
    with refused(400, "InvalidBlockList"):
        blob.commit_block_list([BlobBlock("99")])


def test_a_list_has_prefixes_and_pages(container):
    names = ["a", "b/1", "b/2", "b/c/1", "b-1", "d/1", "é"]
    for name in names:
        container.upload_blob(name, name.encode())
    assert [it.name for it in container.list_blobs()] == sorted(names, key=str.encode)
    assert [it.name for it in container.list_blobs(name_starts_with="b/")] == ["b/1", "b/2", "b/c/1"]
    pages = list(container.list_blobs(results_per_page=3).by_page())
    assert [len(list(it)) for it in pages] == [3, 3, 1]
    # The SDK puts the prefixes of a page first.
    walked = list(container.walk_blobs(delimiter="/"))
    assert [it.name for it in walked if isinstance(it, BlobPrefix)] == ["b/", "d/"]
    assert [it.name for it in walked if not isinstance(it, BlobPrefix)] == ["a", "b-1", "é"]
    assert [it.name for it in container.walk_blobs(name_starts_with="b/", delimiter="/")] == ["b/c/", "b/1", "b/2"]
    pages = [[it.name for it in page] for page in container.walk_blobs(delimiter="/", results_per_page=2).by_page()]
    assert pages == [["a", "b-1"], ["b/", "d/"], ["é"]]
    container.upload_blob("tagged", b"x", metadata={"m": "1"})
    found = {it.name: it for it in container.list_blobs(include=["metadata"])}
    assert found["tagged"].metadata == {"m": "1"}
    assert found["tagged"].size == 1 and found["tagged"].etag


def test_properties_and_metadata_are_changed(container):
    blob = container.get_blob_client("described")
    blob.upload_blob(b"x", content_settings=ContentSettings(content_type="a/b", cache_control="no-store"))
    first = blob.get_blob_properties()
    assert first.content_settings.cache_control == "no-store"
    blob.set_http_headers(ContentSettings(content_type="c/d", content_disposition="attachment", content_language="en"))
    blob.set_blob_metadata({"m": "2"})
    shown = blob.get_blob_properties()
    assert (shown.content_settings.content_type, shown.content_settings.content_language) == ("c/d", "en")
    assert shown.content_settings.cache_control is None
    assert shown.metadata == {"m": "2"}
    assert shown.etag != first.etag and shown.creation_time == first.creation_time
    container.set_container_metadata({"c": "1"})
    assert container.get_container_properties().metadata == {"c": "1"}


def test_a_write_under_an_etag_does_not_overwrite(container, refused):
    blob = container.get_blob_client("graph")
    first = blob.upload_blob(b"one")["etag"]
    blob.upload_blob(b"two", overwrite=True, etag=first, match_condition=MatchConditions.IfNotModified)
    with pytest.raises(ResourceModifiedError) as caught:
        blob.upload_blob(b"three", overwrite=True, etag=first, match_condition=MatchConditions.IfNotModified)
    assert caught.value.error_code == "ConditionNotMet"
    assert blob.download_blob().readall() == b"two"
    with refused(412, "ConditionNotMet"):
        blob.delete_blob(etag=first, match_condition=MatchConditions.IfNotModified)
    current = blob.get_blob_properties().etag
    with refused(304, "ConditionNotMet"):
        blob.download_blob(etag=current, match_condition=MatchConditions.IfModified)
    with refused(412, "ConditionNotMet"):
        container.get_blob_client("new").upload_blob(b"x", overwrite=True, match_condition=MatchConditions.IfPresent)
    with refused(304, "ConditionNotMet"):
        blob.get_blob_properties(if_modified_since=now() + hours(1))
    blob.delete_blob(etag=current, match_condition=MatchConditions.IfNotModified)


def test_a_damaged_content_is_rejected(account, container):
    blob = container.get_blob_client("damaged")
    blob.upload_blob(b"x")
    url = f"{account.client().get_container_client(container.container_name).url}/damaged"
    sas = blob_sas(account, container, "damaged", "w")
    headers = {"x-ms-blob-type": "BlockBlob", "Content-MD5": base64.b64encode(b"0" * 16).decode()}
    response = requests.put(f"{url}?{sas}", data=b"y", headers=headers, timeout=10)
    assert (response.status_code, response.headers["x-ms-error-code"]) == (400, "Md5Mismatch")


def test_names_are_checked(service, container, refused):
    for name in ("UPPER", "a", "a--b", "-ab"):
        with refused(400, "InvalidResourceName"):
            service.create_container(name)
    with refused(400, "InvalidMetadata"):
        container.set_container_metadata({"1digit": "x"})
    with refused(400, "InvalidHeaderValue"):
        container.get_blob_client("page").create_page_blob(512)


def test_containers_of_both_planes_are_the_same(cloud, clients, account, service, eventually):
    containers = clients.storage.blob_containers
    name = f"both-{uuid.uuid4().hex[:8]}"
    containers.create(cloud.group, account.name, name, {})
    client = service.get_container_client(name)
    client.upload_blob("a", b"x")
    assert containers.get(cloud.group, account.name, name).name == name
    containers.delete(cloud.group, account.name, name)
    assert client.exists() is False
    name = f"{name}-2"
    client = service.get_container_client(name)
    client.create_container(metadata={"a": "1"}, public_access="blob")
    found = containers.get(cloud.group, account.name, name).container_properties
    assert (found.metadata, found.public_access) == ({"a": "1"}, "Blob")
    client.upload_blob("a", b"x")
    client.delete_container()
    # Its name is free after a while; a container of the same name is another one.
    eventually(lambda: service.create_container(name))
    assert list(client.list_blobs()) == []


def test_an_account_tells_what_it_is(service):
    found = service.get_account_information()
    assert (found["sku_name"], found["account_kind"]) == ("Standard_LRS", "StorageV2")


def test_a_missing_account_has_no_blobs(emulator, refused):
    client = BlobServiceClient(emulator.blob_url("missingaccount"), credential=emulator.credential(), retry_total=0)
    with refused(404, "ResourceNotFound"):
        list(client.list_containers())


# Rights of principals.


def test_a_principal_needs_a_role_for_data(cloud, sim, clients, account, container, refused):
    container.upload_blob("a", b"x")
    client_id, principal, secret = sim.principal("blob-nobody", "byRoles")
    other = account.client(cloud.credential(client_id, secret)).get_container_client(container.container_name)
    for attempt in (
        lambda: other.download_blob("a"),
        lambda: other.upload_blob("b", b"x"),
        lambda: other.delete_blob("a"),
        lambda: list(other.list_blobs()),
        lambda: other.get_container_properties(),
        lambda: other.delete_container(),
    ):
        with refused(403, "AuthorizationPermissionMismatch"):
            attempt()
    assign_role(cloud, clients, account.id, BLOB_READER, principal)
    assert other.download_blob("a").readall() == b"x"
    assert [it.name for it in other.list_blobs()] == ["a"]
    with refused(403, "AuthorizationPermissionMismatch"):
        other.upload_blob("a", b"y", overwrite=True)
    with refused(403, "AuthorizationPermissionMismatch"):
        other.delete_blob("a")


def test_a_role_at_a_container_is_for_it_alone(cloud, sim, clients, account, service, container, refused):
    client_id, principal, secret = sim.principal("blob-writer", "byRoles")
    scope = f"{account.id}/blobServices/default/containers/{container.container_name}"
    assign_role(cloud, clients, scope, BLOB_OWNER, principal)
    other = account.client(cloud.credential(client_id, secret))
    other.get_container_client(container.container_name).upload_blob("a", b"x")
    foreign = f"foreign-{uuid.uuid4().hex[:8]}"
    service.create_container(foreign)
    with refused(403, "AuthorizationPermissionMismatch"):
        other.get_container_client(foreign).upload_blob("a", b"x")


def test_an_owner_has_no_right_to_data(cloud, sim, clients, account, container, refused):
    client_id, principal, secret = sim.principal("account-owner", "byRoles")
    assign_role(cloud, clients, account.id, OWNER, principal)
    other = account.client(cloud.credential(client_id, secret)).get_container_client(container.container_name)
    # Containers are a matter of the resource manager too.
    assert other.exists()
    with refused(403, "AuthorizationPermissionMismatch"):
        other.upload_blob("a", b"x")


def test_a_token_for_something_else_is_challenged(cloud, account, container):
    token = cloud.credential().get_token("https://management.azure.com/.default").token
    response = requests.get(
        f"{cloud.blob_url(account.name)}/{container.container_name}/a",
        headers={"Authorization": f"Bearer {token}", "x-ms-version": "2024-11-04"},
        timeout=10,
    )
    assert response.status_code == 401
    assert response.headers["x-ms-error-code"] == "InvalidAuthenticationInfo"
    assert "resource_id=https://storage.azure.com" in response.headers["WWW-Authenticate"]


# Keys and signatures.


def test_a_wrong_key_is_rejected(cloud, clients, account, container, refused):
    wrong = base64.b64encode(os.urandom(64)).decode()
    with refused(403, "AuthenticationFailed"):
        account.shared_key(wrong).get_container_client(container.container_name).get_container_properties()
    # Both keys are good, until one is replaced.
    second = account.shared_key(account.keys[1]).get_container_client(container.container_name)
    second.upload_blob("a", b"x")
    clients.storage.storage_accounts.regenerate_key(cloud.group, account.name, {"keyName": "key2"})
    with refused(403, "AuthenticationFailed"):
        second.download_blob("a")
    assert account.shared_key().get_container_client(container.container_name).exists()


def test_an_account_without_shared_keys_accepts_none(cloud, clients, counted, object_id, refused, eventually):
    account = Account(cloud, clients, counted, "keyless2", allowSharedKeyAccess=False)
    assign_role(cloud, clients, account.id, BLOB_CONTRIBUTOR, object_id)
    with refused(403, "KeyBasedAuthenticationNotPermitted"):
        account.shared_key().create_container("any")
    sas = generate_account_sas(account.name, account.keys[0], ResourceTypes(container=True), "w", now() + hours(1))
    with refused(403, "KeyBasedAuthenticationNotPermitted"):
        account.client(sas).create_container("any")
    eventually(lambda: account.client(cloud.credential()).create_container("any"))


def blob_sas(account, container, blob, permission, expiry=None, key=None, **options):
    return generate_blob_sas(
        account.name,
        container.container_name,
        blob,
        account_key=None if "user_delegation_key" in options else key or account.keys[0],
        permission=permission,
        expiry=expiry or now() + hours(1),
        **options,
    )


def with_sas(account, container, sas):
    return account.client(sas).get_container_client(container.container_name)


def test_a_signature_for_a_blob(account, container, refused):
    container.upload_blob("a", b"x")
    container.upload_blob("b", b"x")
    reader = with_sas(account, container, blob_sas(account, container, "a", BlobSasPermissions(read=True)))
    assert reader.download_blob("a").readall() == b"x"
    with refused(403, "AuthenticationFailed"):
        reader.download_blob("b")
    with refused(403, "AuthorizationPermissionMismatch"):
        reader.upload_blob("a", b"y", overwrite=True)
    with refused(403, "AuthenticationFailed"):
        list(reader.list_blobs())
    creator = with_sas(account, container, blob_sas(account, container, "new", BlobSasPermissions(create=True)))
    creator.upload_blob("new", b"1")
    with refused(403, "AuthorizationPermissionMismatch"):
        creator.upload_blob("new", b"2", overwrite=True)


def test_a_signature_sets_the_headers_of_a_download(account, container):
    container.upload_blob("a", b"x")
    sas = blob_sas(account, container, "a", "r", content_type="text/x", content_disposition="attachment")
    shown = with_sas(account, container, sas).get_blob_client("a").get_blob_properties()
    assert (shown.content_settings.content_type, shown.content_settings.content_disposition) == ("text/x", "attachment")


def test_a_signature_for_a_container(account, container, refused):
    container.upload_blob("a", b"x")
    permission = ContainerSasPermissions(read=True, list=True)
    sas = generate_container_sas(
        account.name, container.container_name, account_key=account.keys[0], permission=permission, expiry=now() + hours(1)
    )
    client = with_sas(account, container, sas)
    assert [it.name for it in client.list_blobs()] == ["a"]
    assert client.download_blob("a").readall() == b"x"
    for attempt in (lambda: client.delete_blob("a"), lambda: client.delete_container(), lambda: client.upload_blob("b", b"x")):
        with refused(403, "AuthorizationPermissionMismatch"):
            attempt()


@pytest.mark.parametrize(
    "options",
    [
        {"expiry": now() - hours(1)},
        {"start": now() + hours(1), "expiry": now() + hours(2)},
        {"key": base64.b64encode(b"0" * 64).decode()},
    ],
    ids=["expired", "not started", "wrong key"],
)
def test_a_signature_that_is_not_good_is_rejected(account, container, refused, options):
    container.upload_blob("a", b"x")
    client = with_sas(account, container, blob_sas(account, container, "a", "r", **options))
    with refused(403, "AuthenticationFailed"):
        client.download_blob("a")


def test_a_changed_signature_is_rejected(account, container, refused):
    container.upload_blob("a", b"x")
    sas = blob_sas(account, container, "a", "r")
    with refused(403, "AuthenticationFailed"):
        with_sas(account, container, sas.replace("sp=r", "sp=rwd")).download_blob("a")


def test_a_signature_for_another_address_is_rejected(account, container, refused):
    container.upload_blob("a", b"x")
    client = with_sas(account, container, blob_sas(account, container, "a", "r", ip="10.0.0.1-10.0.0.9"))
    with refused(403, "AuthorizationSourceIPMismatch"):
        client.download_blob("a")


def account_sas(account, types, permission, expiry=None):
    return generate_account_sas(account.name, account.keys[0], types, permission, expiry or now() + hours(1))


def test_a_signature_for_the_account_is_for_types_of_resources(account, container, refused):
    container.upload_blob("a", b"x")
    objects = with_sas(account, container, account_sas(account, ResourceTypes(object=True), AccountSasPermissions(read=True)))
    assert objects.download_blob("a").readall() == b"x"
    with refused(403, "AuthorizationResourceTypeMismatch"):
        list(objects.list_blobs())
    with refused(403, "AuthorizationPermissionMismatch"):
        objects.delete_blob("a")
    expired = account_sas(account, ResourceTypes(object=True), AccountSasPermissions(read=True), now() - hours(1))
    with refused(403, "AuthenticationFailed"):
        with_sas(account, container, expired).download_blob("a")


def test_a_signature_of_the_resource_manager_reads_and_deletes(cloud, clients, account, container, refused):
    container.upload_blob("a", b"x")

    def client(types, permission):
        parameters = {
            "signedServices": "b",
            "signedResourceTypes": types,
            "signedPermission": permission,
            "signedProtocol": "https",
            "signedStart": (now() - datetime.timedelta(minutes=5)).isoformat(),
            "signedExpiry": (now() + hours(24)).isoformat(),
        }
        made = clients.storage.storage_accounts.list_account_sas(cloud.group, account.name, parameters)
        return with_sas(account, container, made.account_sas_token)

    assert client("o", "r").download_blob("a").readall() == b"x"
    with refused(403, "AuthorizationPermissionMismatch"):
        client("o", "r").delete_blob("a")
    client("c", "d").delete_container()
    assert container.exists() is False


def test_a_user_delegation_key_signs_what_roles_allow(cloud, sim, clients, account, service, container, refused):
    container.upload_blob("a", b"x")
    key = service.get_user_delegation_key(now() - datetime.timedelta(minutes=5), now() + hours(1))
    assert key.signed_oid == token_claims(cloud.credential().get_token("https://storage.azure.com/.default").token)["oid"]
    assert (key.signed_tid, key.signed_service) == (cloud.tenant, "b")
    sas = blob_sas(account, container, "a", BlobSasPermissions(read=True), user_delegation_key=key)
    client = with_sas(account, container, sas)
    assert client.download_blob("a").readall() == b"x"
    with refused(403, "AuthorizationPermissionMismatch"):
        client.delete_blob("a")
    key.value = base64.b64encode(os.urandom(32)).decode()
    with refused(403, "AuthenticationFailed"):
        with_sas(account, container, blob_sas(account, container, "a", "r", user_delegation_key=key)).download_blob("a")
    # A signature cannot do more than the principal that had the key.
    client_id, principal, secret = sim.principal("delegating-reader", "byRoles")
    reader = account.client(cloud.credential(client_id, secret))
    with refused(403, "AuthorizationPermissionMismatch"):
        reader.get_user_delegation_key(now(), now() + hours(1))
    assign_role(cloud, clients, account.id, BLOB_READER, principal)
    key = reader.get_user_delegation_key(now() - datetime.timedelta(minutes=5), now() + hours(1))
    client = with_sas(account, container, blob_sas(account, container, "a", "rd", user_delegation_key=key))
    assert client.download_blob("a").readall() == b"x"
    with refused(403, "AuthorizationPermissionMismatch"):
        client.delete_blob("a")


def test_a_user_delegation_key_has_a_limit_and_a_principal(account, service, refused):
    with refused(400, "InvalidXmlNodeValue"):
        service.get_user_delegation_key(now(), now() + datetime.timedelta(days=8))
    with refused(403, "AuthenticationFailed"):
        account.shared_key().get_user_delegation_key(now(), now() + hours(1))


# Public access.


def test_a_public_container_is_read_by_everybody(account, service, refused):
    name = f"public-{uuid.uuid4().hex[:8]}"
    service.create_container(name, public_access="blob").upload_blob("a", b"x")
    anonymous = account.client().get_container_client(name)
    assert anonymous.download_blob("a").readall() == b"x"
    with refused(404, "ResourceNotFound"):
        list(anonymous.list_blobs())
    with refused(401, "NoAuthenticationInformation"):
        anonymous.upload_blob("b", b"x")
    listed = f"{name}-2"
    service.create_container(listed, public_access="container").upload_blob("a", b"x")
    assert [it.name for it in account.client().get_container_client(listed).list_blobs()] == ["a"]


def test_a_private_container_is_read_by_nobody(account, container, refused):
    container.upload_blob("a", b"x")
    with refused(404, "ResourceNotFound"):
        account.client().get_container_client(container.container_name).download_blob("a")


def test_an_account_may_forbid_public_access(cloud, clients, counted, refused):
    account = Account(cloud, clients, counted, "private", allowBlobPublicAccess=False)
    client = account.shared_key()
    with refused(409, "PublicAccessNotPermitted"):
        client.create_container("any", public_access="blob")
    client.create_container("any").upload_blob("a", b"x")
    with refused(409, "PublicAccessNotPermitted"):
        account.client().get_container_client("any").download_blob("a")


@pytest.mark.emulator
def test_documents_of_a_website_are_read_by_everybody(cloud, clients, counted):
    """The OpenID Connect documents of a cluster. On real Azure they have an address of their own."""
    account = Account(cloud, clients, counted, "website", allowBlobPublicAccess=False)
    container = account.shared_key().create_container("$web")
    path = f"{cloud.tenant}/cluster/.well-known/openid-configuration"
    container.upload_blob(path, b"{}", content_settings=ContentSettings(content_type="application/json"))
    response = requests.get(f"{cloud.blob_url(account.name)}/$web/{path}", timeout=10)
    assert (response.status_code, response.text) == (200, "{}")
    assert response.headers["Content-Type"] == "application/json"


# Faults.


def test_faults_are_repeated(sim, cloud, account, container):
    place = (container.container_name, "a")
    blob = account.client(cloud.credential()).get_blob_client(*place)
    sim.fault("throttled", verb="putBlob", about=place[0], afterSeconds=1)
    blob.upload_blob(b"x", overwrite=True)
    sim.fault("unavailable", verb="blob", about=place[0], when="before")
    assert blob.download_blob().readall() == b"x"
    # A write that had its effect is repeated without harm.
    sim.fault("unavailable", verb="putBlob", about=place[0], when="after")
    blob.upload_blob(b"y", overwrite=True)
    assert blob.download_blob().readall() == b"y"
    sim.fault("reset", verb="putBlob", about=place[0], when="after")
    blob.upload_blob(b"z", overwrite=True)
    assert blob.download_blob().readall() == b"z"
    assert sim.faults() == []


def test_faults_without_repetition(sim, cloud, account, container, refused):
    name = container.container_name
    blob = account.client(cloud.credential(), retry_policy=ExponentialRetry(retry_total=0)).get_blob_client(name, "a")
    blob.upload_blob(b"x")
    sim.fault("throttled", verb="blob", about=name, afterSeconds=7)
    # Storage throttles with 503, which alone its SDK repeats.
    with refused(503, "ServerBusy") as error:
        blob.download_blob()
    assert error.error.response.headers["Retry-After"] == "7"
    sim.fault("unavailable", verb="deleteBlob", about=name, when="after")
    with refused(503, "ServerBusy"):
        blob.delete_blob()
    assert blob.exists() is False, "the lost request had its effect"
    sim.fault("denied", verb="putBlob", about=name)
    with refused(403, "AuthorizationPermissionMismatch"):
        blob.upload_blob(b"x")
    sim.fault("reset", verb="putBlob", about=name, when="before")
    with pytest.raises(ServiceResponseError):
        blob.upload_blob(b"x")
    assert blob.exists() is False


def test_an_expired_token_is_challenged_and_replaced(sim, container, responses):
    name = container.container_name
    sim.fault("tokenExpires", verb="putBlob", about=name)
    container.upload_blob("a", b"x")
    assert container.download_blob("a").readall() == b"x"
    assert sim.faults() == []


def test_faults_of_containers(sim, service):
    name = f"faulty-{uuid.uuid4().hex[:8]}"
    sim.fault("unavailable", verb="ensureContainer", about=name, when="after")
    # The repeated request finds the container that the first one made.
    with pytest.raises(ResourceExistsError):
        service.create_container(name)
    sim.fault("unavailable", verb="deleteContainer", about=name, when="before")
    service.delete_container(name)
    assert service.get_container_client(name).exists() is False
