"""Managed identities and their federated credentials."""

import uuid

import pytest
from azure.core.exceptions import ResourceNotFoundError

SUBJECT = "system:serviceaccount:openshift-ingress-operator:ingress-operator"
CREDENTIALS_MAX = 20


@pytest.fixture(scope="module")
def identities(clients):
    return clients.msi.user_assigned_identities


@pytest.fixture(scope="module")
def credentials(clients):
    return clients.msi.federated_identity_credentials


@pytest.fixture
def identity(cloud, identities):
    """An identity, new for each test."""
    name = f"holder-{uuid.uuid4().hex[:8]}"
    yield identities.create_or_update(cloud.group, name, {"location": cloud.location})
    identities.delete(cloud.group, name)


def credential(cloud, subject=SUBJECT, issuer=None, audiences=("openshift",)):
    issuer = issuer or f"https://oidc.example/{cloud.suffix}"
    return {"properties": {"issuer": issuer, "subject": subject, "audiences": list(audiences)}}


def test_an_identity_is_created_read_changed_and_deleted(cloud, identities, responses):
    made = identities.create_or_update(cloud.group, "life", {"location": cloud.location}, raw_response_hook=responses)
    for value in (made.client_id, made.principal_id, made.tenant_id):
        assert uuid.UUID(value)
    assert made.tenant_id == cloud.tenant
    assert made.client_id != made.principal_id
    again = identities.create_or_update(cloud.group, "life", {"location": cloud.location}, raw_response_hook=responses)
    assert responses.statuses == [201, 200]
    assert again.principal_id == made.principal_id
    assert identities.update(cloud.group, "life", {"tags": {"a": "1"}}).tags == {"a": "1"}
    assert identities.get(cloud.group, "life").client_id == made.client_id
    assert made.id.lower() in [it.id.lower() for it in identities.list_by_resource_group(cloud.group)]
    assert made.id.lower() in [it.id.lower() for it in identities.list_by_subscription()]
    identities.delete(cloud.group, "life", raw_response_hook=responses)
    identities.delete(cloud.group, "life", raw_response_hook=responses)
    assert responses.statuses[-2:] == [200, 204]
    with pytest.raises(ResourceNotFoundError):
        identities.get(cloud.group, "life")


def test_a_federated_credential_is_created_read_changed_and_deleted(cloud, credentials, identity, responses):
    place = (cloud.group, identity.name, "ingress")
    made = credentials.create_or_update(*place, credential(cloud), raw_response_hook=responses)
    assert responses.statuses == [201]
    assert made.subject == SUBJECT
    assert made.audiences == ["openshift"]
    changed = credentials.create_or_update(
        *place, credential(cloud, subject=f"{SUBJECT}-2"), raw_response_hook=responses
    )
    assert responses.statuses == [201, 200]
    assert changed.subject == f"{SUBJECT}-2"
    assert credentials.get(*place).issuer == f"https://oidc.example/{cloud.suffix}"
    assert [it.name for it in credentials.list(cloud.group, identity.name)] == ["ingress"]
    credentials.delete(*place, raw_response_hook=responses)
    credentials.delete(*place, raw_response_hook=responses)
    assert responses.statuses[-2:] == [200, 204]
    with pytest.raises(ResourceNotFoundError):
        credentials.get(*place)


def test_issuer_and_subject_are_unique_per_identity(cloud, credentials, identity, rejected):
    credentials.create_or_update(cloud.group, identity.name, "first", credential(cloud))
    with rejected(409):
        credentials.create_or_update(cloud.group, identity.name, "second", credential(cloud))
    # Subjects are compared with case.
    credentials.create_or_update(cloud.group, identity.name, "second", credential(cloud, subject=SUBJECT.upper()))


def test_an_identity_has_twenty_federated_credentials_at_most(cloud, credentials, identity, rejected):
    for number in range(CREDENTIALS_MAX):
        credentials.create_or_update(
            cloud.group, identity.name, f"number-{number}", credential(cloud, subject=f"{SUBJECT}-{number}")
        )
    assert len(list(credentials.list(cloud.group, identity.name))) == CREDENTIALS_MAX
    with rejected((400, 409)):
        credentials.create_or_update(cloud.group, identity.name, "too-many", credential(cloud, subject="one-more"))
    # One that exists can still be changed.
    credentials.create_or_update(cloud.group, identity.name, "number-0", credential(cloud, subject="changed"))


def test_one_credential_is_written_at_a_time(cloud, credentials, identity, sim, rejected):
    sim.fault("operationHangs", verb="put", about="federatedIdentityCredentials/slow")
    credentials.create_or_update(cloud.group, identity.name, "slow", credential(cloud))
    with rejected(409, "ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity"):
        credentials.create_or_update(cloud.group, identity.name, "hasty", credential(cloud, subject="another"))


def test_credentials_of_different_identities_do_not_conflict(cloud, credentials, identities, identity):
    other = identities.create_or_update(cloud.group, f"{identity.name}-2", {"location": cloud.location})
    credentials.create_or_update(cloud.group, identity.name, "same", credential(cloud))
    credentials.create_or_update(cloud.group, other.name, "same", credential(cloud))
    identities.delete(cloud.group, other.name)


@pytest.mark.parametrize(
    "wrong",
    [{"issuer": "http://oidc.example"}, {"audiences": ()}, {"subject": ""}],
    ids=["issuer", "audiences", "subject"],
)
def test_a_credential_that_cannot_work_is_rejected(cloud, credentials, identity, rejected, wrong):
    with rejected(400):
        credentials.create_or_update(cloud.group, identity.name, "wrong", credential(cloud, **wrong))


def test_a_credential_of_a_missing_identity_is_rejected(cloud, credentials, rejected):
    with rejected(404, "ParentResourceNotFound", "ResourceNotFound"):
        credentials.create_or_update(cloud.group, "missing", "ingress", credential(cloud))


def test_the_credentials_of_an_identity_go_with_it(cloud, identities, credentials):
    identities.create_or_update(cloud.group, "gone", {"location": cloud.location})
    credentials.create_or_update(cloud.group, "gone", "ingress", credential(cloud))
    identities.delete(cloud.group, "gone")
    identities.create_or_update(cloud.group, "gone", {"location": cloud.location})
    assert list(credentials.list(cloud.group, "gone")) == []
    identities.delete(cloud.group, "gone")


def test_identities_are_listed_in_pages(cloud, identities, sim):
    sim.set_until_end("pageSize", {"items": 100}, items=2)
    for number in range(5):
        identities.create_or_update(cloud.group, f"page-{number}", {"location": cloud.location})
    pages = [list(page) for page in identities.list_by_resource_group(cloud.group).by_page()]
    assert len(pages) >= 3
    names = [it.name for page in pages for it in page]
    assert len(names) == len(set(names))
    assert {f"page-{number}" for number in range(5)} <= set(names)
