"""Certificates of a vault: operations, versions, policies, the secret with the key, soft deletion and renewal."""

import base64
import datetime
import uuid

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.keyvault.certificates import (
    CertificateContentType,
    CertificatePolicy,
    CertificatePolicyAction,
    LifetimeAction,
    WellKnownIssuerNames,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from conftest import assign_role

CERTIFICATES_OFFICER = "a4417e6f-fecd-4de8-b567-7b0420556985"
SECRETS_USER = "4633458b-17de-408a-b874-0445c86b69e6"
ENCODING, PKCS8 = serialization.Encoding, serialization.PrivateFormat.PKCS8


@pytest.fixture
def name():
    return f"certificate-{uuid.uuid4().hex[:8]}"


def policy(**changes):
    """What the service asks of a vault for the serving certificate of a cluster."""
    return CertificatePolicy(
        **{
            "issuer_name": WellKnownIssuerNames.self,
            "subject": "CN=api.example.org",
            "san_dns_names": ["api.example.org", "*.apps.example.org"],
            "exportable": True,
            "key_type": "RSA",
            "key_size": 2048,
            "reuse_key": False,
            "content_type": CertificateContentType.pem,
            "enhanced_key_usage": ["1.3.6.1.5.5.7.3.1"],
            "key_usage": ["digitalSignature", "keyEncipherment"],
            "validity_in_months": 3,
            "lifetime_actions": [
                LifetimeAction(action=CertificatePolicyAction.auto_renew, days_before_expiry=30),
            ],
            **changes,
        }
    )


@pytest.fixture
def create(eventually):
    """Creates a certificate, and waits for it without the poller of the SDK, which asks every 5 s: the certificate, or its operation
    when it did not complete."""

    def wait(certificates, name, wanted=None, **options):
        certificates.begin_create_certificate(name, wanted or policy(), **options)
        operation = eventually(lambda: ended(certificates.get_certificate_operation(name)))
        return certificates.get_certificate(name) if operation.status == "completed" else operation

    def ended(operation):
        is_ended = operation.status != "inProgress" or operation.issuer_name == "Unknown"
        return operation if is_ended else None

    return wait


@pytest.fixture
def delete(eventually):
    """Deletes a certificate, and waits until it is shown as deleted."""

    def wait(certificates, name):
        certificates.begin_delete_certificate(name)
        return eventually(lambda: certificates.get_deleted_certificate(name))

    return wait


def inner_code(error):
    return error.error.error.innererror["code"]


def test_a_certificate_is_created_by_an_operation(vault, certificates, name, responses):
    # The option of the first call: the poller's calls do not carry it.
    poller = certificates.begin_create_certificate(name, policy(), tags={"a": "1"}, raw_response_hook=responses)
    made = poller.result()
    assert 202 in responses.statuses
    assert poller.status() == "completed"
    base = vault.properties["vaultUri"]
    version = made.properties.version
    assert made.id == f"{base}certificates/{name}/{version}"
    assert made.key_id == f"{base}keys/{name}/{version}"
    assert made.secret_id == f"{base}secrets/{name}/{version}"
    parsed = x509.load_der_x509_certificate(bytes(made.cer))
    assert parsed.subject.rfc4514_string() == "CN=api.example.org"
    names = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["api.example.org", "*.apps.example.org"]
    assert made.properties.x509_thumbprint == parsed.fingerprint(hashes.SHA1())
    assert made.properties.not_before == parsed.not_valid_before_utc
    assert made.properties.expires_on == parsed.not_valid_after_utc
    assert datetime.timedelta(days=88) < parsed.not_valid_after_utc - parsed.not_valid_before_utc < datetime.timedelta(days=93)
    assert parsed.issuer == parsed.subject
    usage = parsed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert [it.dotted_string for it in usage] == ["1.3.6.1.5.5.7.3.1"]
    assert made.properties.tags == {"a": "1"}
    assert made.policy.issuer_name == "Self"
    operation = certificates.get_certificate_operation(name)
    assert (operation.status, operation.issuer_name) == ("completed", "Self")
    assert operation.target.startswith(f"{base}certificates/{name}")
    request = x509.load_der_x509_csr(bytes(operation.csr))
    assert request.is_signature_valid
    assert request.public_key() == parsed.public_key()


def test_the_secret_of_a_certificate_is_key_and_chain_in_pem(certificates, secrets, name, create):
    made = create(certificates, name)
    secret = secrets.get_secret(name)
    assert secret.properties.content_type == CertificateContentType.pem
    assert secret.properties.version == made.properties.version
    assert secret.id == made.secret_id
    key = serialization.load_pem_private_key(secret.value.encode(), None)
    chain = x509.load_pem_x509_certificates(secret.value.encode())
    assert secret.value.index("PRIVATE KEY") < secret.value.index("CERTIFICATE"), "the key is first"
    assert chain[0].public_bytes(ENCODING.DER) == bytes(made.cer)
    assert isinstance(key, rsa.RSAPrivateKey) and key.key_size == 2048
    assert key.public_key() == chain[0].public_key()


def test_the_secret_of_a_certificate_is_pkcs12(certificates, secrets, name, create):
    made = create(certificates, name, policy(content_type=CertificateContentType.pkcs12))
    secret = secrets.get_secret(name)
    assert secret.properties.content_type == CertificateContentType.pkcs12
    key, leaf, _ = pkcs12.load_key_and_certificates(base64.b64decode(secret.value), None)
    assert leaf.public_bytes(ENCODING.DER) == bytes(made.cer)
    assert key.public_key() == leaf.public_key()


@pytest.mark.parametrize("content_type", list(CertificateContentType))
def test_a_key_that_is_not_exportable_is_not_in_the_secret(certificates, secrets, name, content_type, create):
    create(certificates, name, policy(exportable=False, content_type=content_type))
    value = secrets.get_secret(name).value
    if content_type == CertificateContentType.pem:
        assert "PRIVATE KEY" not in value and "BEGIN CERTIFICATE" in value
    else:
        key, leaf, others = pkcs12.load_key_and_certificates(base64.b64decode(value), None)
        assert key is None and (leaf or others)


@pytest.mark.parametrize("curve, size", [("P-256", 256), ("P-384", 384)])
def test_a_certificate_of_an_elliptic_curve(certificates, secrets, name, curve, size, create):
    create(certificates, name, policy(key_type="EC", key_size=None, key_curve_name=curve))
    key = serialization.load_pem_private_key(secrets.get_secret(name).value.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey) and key.curve.key_size == size
    assert certificates.get_certificate_policy(name).key_curve_name == curve


@pytest.mark.emulator
def test_another_issuer_signs_with_its_own_key(certificates, secrets, name, create):
    create(certificates, name, policy(issuer_name="authority", content_type=CertificateContentType.pkcs12))
    _, leaf, others = pkcs12.load_key_and_certificates(base64.b64decode(secrets.get_secret(name).value), None)
    assert leaf.issuer != leaf.subject
    assert len(others) == 1
    leaf.verify_directly_issued_by(others[0])


def test_each_creation_makes_a_version(certificates, secrets, name, create):
    first = create(certificates, name)
    second = create(certificates, name)
    versions = list(certificates.list_properties_of_certificate_versions(name))
    assert {it.version for it in versions} == {first.properties.version, second.properties.version}
    assert certificates.get_certificate(name).properties.version == second.properties.version
    older = certificates.get_certificate_version(name, first.properties.version)
    assert bytes(older.cer) == bytes(first.cer)
    assert secrets.get_secret(name, first.properties.version).id == first.secret_id
    with pytest.raises(ResourceNotFoundError):
        certificates.get_certificate_version(name, "0" * 32)


def test_a_key_is_reused_where_the_policy_says_so(certificates, secrets, name, create):
    def key():
        return serialization.load_pem_private_key(secrets.get_secret(name).value.encode(), None)

    wanted = policy(key_type="EC", key_size=None, key_curve_name="P-256", reuse_key=True)
    create(certificates, name, wanted)
    first = key().private_numbers()
    create(certificates, name, wanted)
    assert key().private_numbers() == first
    create(certificates, name, policy(key_type="EC", key_size=None, key_curve_name="P-256"))
    assert key().private_numbers() != first


def test_a_policy_is_read_and_changed(certificates, name, rejected, create):
    create(certificates, name)
    found = certificates.get_certificate_policy(name)
    assert found.subject == "CN=api.example.org"
    assert found.san_dns_names == ["api.example.org", "*.apps.example.org"]
    assert (found.key_type, found.key_size, found.exportable, found.reuse_key) == ("RSA", 2048, True, False)
    assert (found.content_type, found.validity_in_months) == ("application/x-pem-file", 3)
    assert [(it.action, it.days_before_expiry) for it in found.lifetime_actions] == [("AutoRenew", 30)]
    changed = certificates.update_certificate_policy(name, policy(issuer_name="Unknown", validity_in_months=6))
    assert (changed.issuer_name, changed.validity_in_months) == ("Unknown", 6)
    found = certificates.get_certificate_policy(name)
    assert (found.issuer_name, found.validity_in_months) == ("Unknown", 6)
    assert found.updated_on >= found.created_on
    with rejected(404, "CertificateNotFound"):
        certificates.get_certificate_policy("missing")


@pytest.mark.parametrize(
    "changes",
    [
        {"key_size": 1024},
        {"key_type": "EC", "key_size": None, "key_curve_name": "P-1"},
        {"subject": "api.example.org"},
        {"subject": "CN=" + "a" * 65},
        {"content_type": "text/plain"},
        {"validity_in_months": 0},
        {"lifetime_actions": [LifetimeAction(action="AutoRenew", days_before_expiry=90)]},
        {"lifetime_actions": [LifetimeAction(action="AutoRenew", lifetime_percentage=100)]},
    ],
)
def test_an_unusable_policy_is_rejected(certificates, name, rejected, changes):
    with rejected(400, "BadParameter"):
        certificates.begin_create_certificate(name, policy(**changes))
    with rejected(404, "CertificateNotFound"):
        certificates.get_certificate(name)


def test_properties_are_changed(certificates, secrets, name, rejected, create):
    made = create(certificates, name, tags={"a": "1"})
    changed = certificates.update_certificate_properties(
        name, made.properties.version, enabled=False, tags={"b": "2"}
    )
    assert (changed.properties.enabled, changed.properties.tags) == (False, {"b": "2"})
    assert changed.properties.expires_on == made.properties.expires_on
    with rejected(403, "Forbidden"):
        secrets.get_secret(name)


def test_certificates_are_listed_without_content(certificates, name, responses, create):
    made = create(certificates, name)
    found = {it.name: it for it in certificates.list_properties_of_certificates(raw_response_hook=responses)}
    assert found[name].x509_thumbprint == made.properties.x509_thumbprint
    assert all('"cer"' not in it.text() for it in responses.all)


def test_a_deleted_certificate_is_recovered(certificates, secrets, name, rejected, create):
    made = create(certificates, name)
    poller = certificates.begin_delete_certificate(name)
    deleted = poller.result()
    poller.wait()
    assert deleted.recovery_id.endswith(f"/deletedcertificates/{name}")
    assert bytes(certificates.get_deleted_certificate(name).cer) == bytes(made.cer)
    assert name in [it.name for it in certificates.list_deleted_certificates()]
    with rejected(404, "CertificateNotFound"):
        certificates.get_certificate(name)
    with rejected(404, "SecretNotFound"):
        secrets.get_secret(name)
    with rejected(409, "Conflict") as error:
        certificates.begin_create_certificate(name, policy())
    assert inner_code(error) == "ObjectIsDeletedButRecoverable"
    certificates.begin_recover_deleted_certificate(name).wait()
    assert certificates.get_certificate(name).properties.version == made.properties.version
    assert secrets.get_secret(name).id == made.secret_id


def test_a_purged_certificate_gives_its_name_back(certificates, name, rejected, eventually, create, delete):
    first = create(certificates, name)
    delete(certificates, name)
    certificates.purge_deleted_certificate(name)
    with rejected(404, "CertificateNotFound"):
        certificates.get_deleted_certificate(name)
    second = eventually(lambda: create(certificates, name))
    versions = [it.version for it in certificates.list_properties_of_certificate_versions(name)]
    assert versions == [second.properties.version] != [first.properties.version]


def test_absent_certificates_are_not_found(certificates, name, rejected):
    with rejected(404, "CertificateNotFound"):
        certificates.get_certificate(name)
    with rejected(404, "CertificateNotFound"):
        certificates.begin_delete_certificate(name)
    with rejected(404, "PendingCertificateNotFound"):
        certificates.get_certificate_operation(name)


def test_a_pending_operation_excludes_another(certificates, secrets, name, rejected, create):
    """The issuer Unknown never ends by itself, on real Azure too."""
    wanted = policy(issuer_name=WellKnownIssuerNames.unknown, lifetime_actions=[])
    operation = create(certificates, name, wanted)
    assert operation.status == "inProgress"
    assert operation.csr
    with rejected(409, "Conflict") as error:
        certificates.begin_create_certificate(name, wanted)
    assert "pending" in error.message
    shown = certificates.get_certificate(name)
    assert shown.properties.enabled is False and not shown.cer
    with rejected(404, "SecretNotFound"):
        secrets.get_secret(name)
    assert name not in [it.name for it in certificates.list_properties_of_certificates()]
    assert name in [it.name for it in certificates.list_properties_of_certificates(include_pending=True)]
    assert certificates.cancel_certificate_operation(name).status == "cancelled"
    assert certificates.get_certificate_operation(name).status == "cancelled"
    certificates.delete_certificate_operation(name)
    with rejected(404, "PendingCertificateNotFound"):
        certificates.get_certificate_operation(name)
    create(certificates, name)


def signed_elsewhere(request):
    """A certificate for a signing request by an authority of this test."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")]))
        .public_key(request.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=10))
    )
    return builder.sign(key, hashes.SHA256())


def test_a_certificate_that_was_signed_elsewhere_is_merged(certificates, secrets, name, rejected, create):
    wanted = policy(issuer_name=WellKnownIssuerNames.unknown, lifetime_actions=[])
    operation = create(certificates, name, wanted)
    other = ec.generate_private_key(ec.SECP256R1())
    foreign = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(other, hashes.SHA256())
    with rejected(400, "BadParameter"):
        certificates.merge_certificate(name, [signed_elsewhere(foreign).public_bytes(ENCODING.DER)])
    signed = signed_elsewhere(x509.load_der_x509_csr(bytes(operation.csr)))
    merged = certificates.merge_certificate(name, [signed.public_bytes(ENCODING.DER)])
    assert bytes(merged.cer) == signed.public_bytes(ENCODING.DER)
    assert merged.properties.expires_on == signed.not_valid_after_utc
    assert certificates.get_certificate_operation(name).status == "completed"
    key = serialization.load_pem_private_key(secrets.get_secret(name).value.encode(), None)
    assert key.public_key() == signed.public_key()


def test_a_certificate_is_imported(certificates, secrets, name, rejected):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "imported.example.org")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    leaf = signed_elsewhere(request)
    pem = key.private_bytes(ENCODING.PEM, PKCS8, serialization.NoEncryption()) + leaf.public_bytes(ENCODING.PEM)
    wanted = CertificatePolicy(issuer_name="Unknown", content_type=CertificateContentType.pem)
    made = certificates.import_certificate(name, pem, policy=wanted, tags={"a": "1"})
    assert bytes(made.cer) == leaf.public_bytes(ENCODING.DER)
    assert made.policy.subject == "CN=imported.example.org"
    stored = serialization.load_pem_private_key(secrets.get_secret(name).value.encode(), None)
    assert stored.private_numbers() == key.private_numbers()
    other = ec.generate_private_key(ec.SECP256R1())
    mixed = other.private_bytes(ENCODING.PEM, PKCS8, serialization.NoEncryption()) + leaf.public_bytes(ENCODING.PEM)
    with rejected(400, "BadParameter"):
        certificates.import_certificate(name, mixed, policy=wanted)


def test_a_secret_and_a_certificate_do_not_share_a_name(certificates, secrets, name, rejected, create):
    create(certificates, name)
    with rejected(409, "Conflict"):
        secrets.set_secret(name, "value")
    secrets.set_secret(f"{name}-2", "value")
    with rejected(409, "Conflict"):
        certificates.begin_create_certificate(f"{name}-2", policy())


def test_rights_are_those_of_roles(cloud, sim, vault, clients, certificates, certificates_of, secrets_of, name, rejected, create):
    create(certificates, name)
    client_id, principal, secret = sim.principal("certificates-officer", "byRoles")
    credential = cloud.credential(client_id, secret)
    officer = certificates_of(credential)
    with rejected(403, "Forbidden") as error:
        officer.get_certificate(name)
    assert inner_code(error) == "ForbiddenByRbac"
    assign_role(cloud, clients, vault.id, CERTIFICATES_OFFICER, principal)
    assert officer.get_certificate(name).name == name
    create(officer, f"{name}-2")
    # The key is a secret, which needs a role of its own.
    with rejected(403, "Forbidden"):
        secrets_of(credential).get_secret(name)
    assign_role(cloud, clients, vault.id, SECRETS_USER, principal)
    assert secrets_of(credential).get_secret(name).value


def test_the_operation_of_a_certificate_fails(sim, certificates, name, create):
    sim.fault("failsLater", verb="ensureCertificate", about=name, code="FailedCanRetry", message="The issuer is unavailable.")
    operation = create(certificates, name)
    assert operation.status == "failed"
    assert (operation.error.code, operation.error.message) == ("FailedCanRetry", "The issuer is unavailable.")
    assert not certificates.get_certificate(name).cer
    assert create(certificates, name).cer, "a failed operation does not prevent another"


def test_an_operation_that_never_ends_is_deleted(sim, certificates, name, rejected, create):
    create(certificates, name)
    sim.fault("operationHangs", verb="renewCertificate", about=name)
    # The poller waits in a thread of its own, which ends with the operation.
    poller = certificates.begin_create_certificate(name, policy())
    assert poller.status() == "inprogress"
    assert certificates.get_certificate_operation(name).status == "inProgress"
    assert certificates.get_certificate(name).cer, "the version before stays"
    certificates.delete_certificate_operation(name)
    assert len(list(certificates.list_properties_of_certificate_versions(name))) == 1


def test_faults_of_certificates(sim, certificates, certificates_of, name, rejected, eventually, create):
    create(certificates, name)
    client = certificates_of(retry_total=0)
    sim.fault("throttled", verb="certificate", about=name, afterSeconds=3)
    with rejected(429, "Throttled") as error:
        client.get_certificate(name)
    assert error.error.response.headers["Retry-After"] == "3"
    sim.fault("unavailable", verb="certificate", about=name, when="before")
    with rejected(503, "ServiceUnavailable"):
        client.get_certificate(name)
    sim.fault("tokenExpires", verb="certificate", about=name)
    assert client.get_certificate(name).name == name
    sim.fault("unavailable", verb="renewCertificate", about=name, when="after")
    with rejected(503, "ServiceUnavailable"):
        client.begin_create_certificate(name, policy())
    # The lost request had its effect: a client reads before it repeats.
    eventually(lambda: len(list(client.list_properties_of_certificate_versions(name))) == 2)
