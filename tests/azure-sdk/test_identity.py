"""Entra ID: credentials of azure-identity, and the errors that they report."""

import base64
import re
import time

import jwt
import pytest
import requests
from azure.core.exceptions import ClientAuthenticationError
from azure.identity import (
    CertificateCredential,
    ClientAssertionCredential,
    ManagedIdentityCredential,
    WorkloadIdentityCredential,
)
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import pkcs12

from conftest import token_claims
from environment import ARM_SCOPE

SUBJECT = "system:serviceaccount:openshift-ingress-operator:ingress-operator"


@pytest.fixture(scope="module")
def identity(cloud, clients):
    """A user-assigned identity."""
    return clients.msi.user_assigned_identities.create_or_update(
        cloud.group, "signer", {"location": cloud.location}
    )


def test_a_secret_gets_a_token_for_the_resource_manager(cloud, counted):
    credential = counted("identity", cloud.credential())
    token = credential.get_token(ARM_SCOPE)
    claims = token_claims(token.token)
    assert claims["tid"] == cloud.tenant
    assert claims["appid"] == cloud.client_id
    assert claims["aud"].rstrip("/") in ("https://management.azure.com", "https://management.core.windows.net")
    assert claims["oid"] and claims["iss"]
    assert time.time() + 600 < token.expires_on < time.time() + 100_000
    assert credential.get_token(ARM_SCOPE).token == token.token, "the SDK's cache answers the second time"
    assert credential.get_token_info(ARM_SCOPE).token_type == "Bearer"


@pytest.mark.parametrize(
    "scope",
    [
        "https://management.azure.com//.default",
        "https://management.core.windows.net/.default",
        "https://management.core.windows.net//.default",
        "https://vault.azure.net/.default",
        "https://storage.azure.com/.default",
    ],
)
def test_a_token_has_the_audience_of_its_scope(cloud, counted, scope):
    token = counted("identity", cloud.credential()).get_token(scope).token
    assert token_claims(token)["aud"].rstrip("/") == scope.removesuffix("/.default").rstrip("/")


def error_of(credential, scope=ARM_SCOPE):
    with pytest.raises(ClientAuthenticationError) as caught:
        credential.get_token(scope)
    return caught.value


def error_code(error):
    """The number in the description, such as 7000215. The SDK keeps nothing else of the response."""
    return int(re.search(r"AADSTS(\d+)", error.message).group(1))


def test_a_wrong_secret_is_rejected_with_its_code(cloud):
    assert error_code(error_of(cloud.credential(client_secret="wrong"))) == 7000215


def test_an_error_has_the_members_that_clients_read(cloud):
    """What the SDK leaves out of its exception: the status and the numeric codes."""
    form = {
        "grant_type": "client_credentials",
        "client_id": cloud.client_id,
        "client_secret": "wrong",
        "scope": ARM_SCOPE,
    }
    response = requests.post(f"{cloud.authority}/{cloud.tenant}/oauth2/v2.0/token", data=form, timeout=10)
    assert response.status_code == 401
    body = response.json()
    assert body["error"] == "invalid_client"
    assert body["error_codes"] == [7000215]
    assert {"error_description", "timestamp", "trace_id", "correlation_id"} <= body.keys()


def test_an_unknown_application_is_rejected_with_its_code(cloud):
    unknown = "9a4c5e0e-0000-4000-8000-000000000000"
    assert error_code(error_of(cloud.credential(client_id=unknown))) == 700016


def test_an_unknown_tenant_has_no_configuration(cloud):
    error = error_of(cloud.credential(tenant="9a4c5e0e-0000-4000-8000-00000000dead"))
    assert "Unable to get authority configuration" in error.message


def test_an_unknown_resource_is_rejected_with_its_code(cloud):
    assert error_code(error_of(cloud.credential(), "https://nothing.example/.default")) == 500011


def test_a_changed_secret_replaces_the_old_one(cloud, sim):
    client_id, _, secret = sim.principal("rotated", "byRoles")
    assert cloud.credential(client_id, secret).get_token(ARM_SCOPE).token
    changed = sim.set("changeSecret", clientId=client_id)["secret"]
    assert error_code(error_of(cloud.credential(client_id, secret))) == 7000215
    assert cloud.credential(client_id, changed).get_token(ARM_SCOPE).token


def test_a_removed_principal_gets_no_token(cloud, sim):
    client_id, _, secret = sim.principal("removed", "byRoles")
    sim.set("deletePrincipal", clientId=client_id)
    assert error_code(error_of(cloud.credential(client_id, secret))) == 700016


def test_a_token_for_another_audience_is_rejected_by_the_resource_manager(clients_of, cloud):
    other = clients_of(credential_scopes=["https://vault.azure.net/.default"])
    with pytest.raises(ClientAuthenticationError) as caught:
        other.resource.resource_groups.get(cloud.group)
    assert caught.value.status_code == 401
    assert caught.value.error.code in ("InvalidAuthenticationToken", "InvalidAuthenticationTokenAudience", "AuthenticationFailed")
    assert "authorization_uri" in caught.value.response.headers["WWW-Authenticate"]


def identity_certificate(emulator, identity):
    """The certificate of an identity in PEM, from the data plane of managed identities, which has no SDK."""
    url = f"{emulator.endpoints['identityService']}?api-version=2024-01-01"
    ask = {"identityIds": [identity.id]}
    challenge = requests.post(url, json=ask, timeout=10)
    assert challenge.status_code == 401
    assert f'authorization="{emulator.authority}/{emulator.tenant}"' in challenge.headers["WWW-Authenticate"]
    token = emulator.credential().get_token(ARM_SCOPE).token
    response = requests.post(url, json=ask, headers={"Authorization": f"Bearer {token}"}, timeout=10)
    assert response.status_code == 200, response.text
    (explicit,) = response.json()["explicit_identities"]
    assert explicit["client_id"] == identity.client_id
    assert explicit["object_id"] == identity.principal_id
    assert explicit["resource_id"].lower() == identity.id.lower()
    assert {"not_before", "not_after", "renew_after", "cannot_renew_after", "client_secret_url"} <= explicit.keys()
    return explicit, base64.b64decode(explicit["client_secret"])


@pytest.mark.parametrize("with_chain", [False, True])
def test_a_certificate_gets_a_token(emulator, identity, counted, with_chain):
    explicit, pem = identity_certificate(emulator, identity)
    credential = CertificateCredential(
        identity.tenant_id,
        identity.client_id,
        certificate_data=pem,
        send_certificate_chain=with_chain,
        authority=explicit["authentication_endpoint"],
        disable_instance_discovery=True,
    )
    token = counted("identity.certificate", credential).get_token(ARM_SCOPE).token
    assert token_claims(token)["oid"] == identity.principal_id


def test_a_certificate_as_pkcs12_gets_a_token(emulator, identity, counted):
    _, pem = identity_certificate(emulator, identity)
    key = serialization.load_pem_private_key(pem, None)
    certificate, *chain = x509.load_pem_x509_certificates(pem)
    bundle = pkcs12.serialize_key_and_certificates(
        b"identity", key, certificate, chain, serialization.NoEncryption()
    )
    credential = CertificateCredential(
        identity.tenant_id, identity.client_id, certificate_data=bundle, **emulator.credential_options
    )
    assert counted("identity.certificate", credential).get_token(ARM_SCOPE).token


def test_a_certificate_of_another_identity_is_rejected(emulator, identity, clients):
    other = clients.msi.user_assigned_identities.create_or_update(
        emulator.group, "other-signer", {"location": emulator.location}
    )
    _, pem = identity_certificate(emulator, identity)
    credential = CertificateCredential(
        other.tenant_id, other.client_id, certificate_data=pem, **emulator.credential_options
    )
    assert error_code(error_of(credential)) == 700027


class Issuer:
    """An issuer of tokens of service accounts, as a cluster is one."""

    def __init__(self, url):
        self.url = url
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def token(self, subject=SUBJECT, audience="openshift", seconds=600, **claims):
        now = int(time.time())
        body = {"iss": self.url, "sub": subject, "aud": [audience], "iat": now, "nbf": now, "exp": now + seconds}
        return jwt.encode({**body, **claims}, self._key, algorithm="RS256", headers={"kid": "a"})


@pytest.fixture(scope="module")
def issuer(cloud, clients, identity):
    issuer = Issuer(f"https://oidc.example/{cloud.suffix}")
    clients.msi.federated_identity_credentials.create_or_update(
        cloud.group,
        identity.name,
        "ingress",
        {"properties": {"issuer": issuer.url, "subject": SUBJECT, "audiences": ["openshift"]}},
    )
    return issuer


def test_a_workload_identity_gets_a_token(emulator, identity, issuer, counted, tmp_path):
    file = tmp_path / "token"
    file.write_text(issuer.token())
    credential = WorkloadIdentityCredential(
        tenant_id=identity.tenant_id,
        client_id=identity.client_id,
        token_file_path=str(file),
        **emulator.credential_options,
    )
    token = counted("identity.workload", credential).get_token(ARM_SCOPE).token
    assert token_claims(token)["oid"] == identity.principal_id


def assertion_credential(emulator, identity, token):
    return ClientAssertionCredential(
        identity.tenant_id, identity.client_id, lambda: token, **emulator.credential_options
    )


def test_an_assertion_gets_a_token(emulator, identity, issuer, counted):
    credential = counted("identity.assertion", assertion_credential(emulator, identity, issuer.token()))
    assert token_claims(credential.get_token(ARM_SCOPE).token)["appid"] == identity.client_id


@pytest.mark.parametrize(
    "changed", [{"subject": SUBJECT.upper()}, {"audience": "api://AzureADTokenExchange"}, {"iss": "https://other.example"}]
)
def test_an_assertion_without_a_federated_credential_is_rejected(emulator, identity, issuer, changed):
    error = error_of(assertion_credential(emulator, identity, issuer.token(**changed)))
    assert error_code(error) in {70021, 700211, 700212, 700213, 7002137, 7002138}


def test_an_assertion_outside_its_time_is_rejected(emulator, identity, issuer):
    now = int(time.time())
    expired = issuer.token(iat=now - 7200, nbf=now - 7200, exp=now - 3600)
    assert error_code(error_of(assertion_credential(emulator, identity, expired))) == 700024


def test_a_managed_identity_gets_a_token_from_the_metadata_service(emulator, identity, counted, monkeypatch):
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", emulator.endpoints["metadata"])
    credential = counted("identity.managed", ManagedIdentityCredential(client_id=identity.client_id))
    assert token_claims(credential.get_token(ARM_SCOPE).token)["oid"] == identity.principal_id
    by_id = ManagedIdentityCredential(identity_config={"resource_id": identity.id})
    assert token_claims(by_id.get_token("https://vault.azure.net/.default").token)["oid"] == identity.principal_id


def test_the_token_of_an_identity_is_accepted_by_the_resource_manager(emulator, identity, clients_of, monkeypatch):
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", emulator.endpoints["metadata"])
    its_clients = clients_of(credential=ManagedIdentityCredential(client_id=identity.client_id))
    assert its_clients.resource.resource_groups.get(emulator.group).name == emulator.group


def test_a_claims_challenge_is_answered_with_a_new_token(cloud, clients_of, sim, responses):
    sim.fault("claims", verb="get", about=cloud.group)
    fresh = clients_of()
    group = fresh.resource.resource_groups.get(cloud.group, raw_response_hook=responses)
    assert group.name == cloud.group
    assert responses.statuses == [401, 200]
    assert "claims=" in responses.all[0].headers["WWW-Authenticate"]
