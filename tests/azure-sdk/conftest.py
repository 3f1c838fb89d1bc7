"""One cloud for the whole session, and the SDK clients of it."""

import os
import time
import uuid
from contextlib import contextmanager
from functools import cached_property

import jwt
import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.keyvault.certificates import CertificateClient
from azure.keyvault.secrets import SecretClient
from azure.mgmt.authorization import AuthorizationManagementClient
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.containerregistry import ContainerRegistryManagementClient
from azure.mgmt.dns import DnsManagementClient
from azure.mgmt.maintenance import MaintenanceManagementClient
from azure.mgmt.msi import ManagedServiceIdentityClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.privatedns import PrivateDnsManagementClient
from azure.mgmt.resource.deployments import DeploymentsMgmtClient
from azure.mgmt.resource.features import FeatureClient
from azure.mgmt.resource.locks import ManagementLockClient
from azure.mgmt.resource.resources import ResourceManagementClient
from azure.mgmt.resource.subscriptions import SubscriptionClient
from azure.mgmt.resourcehealth import ResourceHealthMgmtClient
from azure.mgmt.storage import StorageManagementClient

from calls import CallLog
from environment import Azure, Emulator, Simulator

# The number of different SDK operations that a run on the emulator calls at least.
DISTINCT_CALLS_MIN = 120
# Seconds for one test on real Azure, where a virtual machine takes minutes.
AZURE_TIMEOUT = 1800

CALLS = CallLog()


def pytest_configure(config):
    try:
        Azure.is_configured()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(config, items):
    real = Azure.is_configured()
    unfit = [it for it in items if (_needs_emulator(it) if real else it.get_closest_marker("azure"))]
    if unfit:
        config.hook.pytest_deselected(items=unfit)
        items[:] = [it for it in items if it not in unfit]
    if real:
        for item in items:
            item.add_marker(pytest.mark.timeout(AZURE_TIMEOUT))
    config.stash[WHOLE_SUITE] = not config.option.keyword and not any("::" in it or it.endswith(".py") for it in config.args)


WHOLE_SUITE = pytest.StashKey()


def _needs_emulator(item):
    # The fixtures `sim` and `emulator` exist only on the emulator.
    return bool(item.get_closest_marker("emulator")) or bool({"sim", "emulator"} & set(item.fixturenames))


def pytest_terminal_summary(terminalreporter, config):
    terminalreporter.write_line(f"SDK calls: {CALLS.distinct} distinct, {CALLS.total} in all")
    if os.environ.get("SHIPSHAPE_TEST_SDK_CALLS"):
        for name, count in sorted(CALLS.counts.items()):
            terminalreporter.write_line(f"  {count:5} {name}")


def pytest_sessionfinish(session, exitstatus):
    # A part of the suite, chosen on the command line, calls fewer.
    whole = session.config.stash.get(WHOLE_SUITE, False) and not Azure.is_configured()
    if whole and exitstatus == 0 and CALLS.distinct < DISTINCT_CALLS_MIN:
        print(f"\nonly {CALLS.distinct} distinct SDK calls were made; at least {DISTINCT_CALLS_MIN} are expected")
        session.exitstatus = 1


@pytest.fixture(scope="session")
def cloud():
    """The cloud, with one group in which everything is made."""
    environment = Azure() if Azure.is_configured() else Emulator()
    try:
        groups = ResourceManagementClient(
            environment.credential(), environment.subscription, **environment.client_options
        ).resource_groups
        groups.create_or_update(environment.group, {"location": environment.location, "tags": {"purpose": "azure-sdk"}})
        yield environment
        if not environment.is_emulator:
            for group in groups.list():
                if group.name.startswith(environment.group):
                    groups.begin_delete(group.name)
    finally:
        environment.close()


@pytest.fixture(scope="session")
def emulator(cloud):
    assert cloud.is_emulator
    return cloud


@pytest.fixture
def sim(emulator):
    """Faults and settings, which end with the test."""
    simulator = Simulator(emulator)
    yield simulator
    simulator.close()


class Clients:
    """The management clients of a principal. Each is made when it is first used."""

    def __init__(self, cloud, credential, **options):
        self.cloud, self.credential = cloud, credential
        self._options = {**cloud.client_options, **options}

    def make(self, name, kind, **options):
        """A client of a kind, for a test that needs options of its own."""
        client = kind(self.credential, self.cloud.subscription, **{**self._options, **options})
        return CALLS.wrap(name, client)

    @cached_property
    def resource(self):
        return self.make("resource", ResourceManagementClient)

    @cached_property
    def subscription(self):
        return CALLS.wrap("subscription", SubscriptionClient(self.credential, **self._options))

    @cached_property
    def locks(self):
        return self.make("locks", ManagementLockClient)

    @cached_property
    def features(self):
        return self.make("features", FeatureClient)

    @cached_property
    def deployments(self):
        return self.make("deployments", DeploymentsMgmtClient)

    @cached_property
    def network(self):
        return self.make("network", NetworkManagementClient)

    @cached_property
    def compute(self):
        return self.make("compute", ComputeManagementClient)

    @cached_property
    def storage(self):
        return self.make("storage", StorageManagementClient)

    @cached_property
    def dns(self):
        return self.make("dns", DnsManagementClient)

    @cached_property
    def privatedns(self):
        return self.make("privatedns", PrivateDnsManagementClient)

    @cached_property
    def authorization(self):
        return self.make("authorization", AuthorizationManagementClient)

    @cached_property
    def msi(self):
        return self.make("msi", ManagedServiceIdentityClient)

    @cached_property
    def registry(self):
        return self.make("registry", ContainerRegistryManagementClient)

    @cached_property
    def maintenance(self):
        return self.make("maintenance", MaintenanceManagementClient)

    @cached_property
    def health(self):
        return self.make("health", ResourceHealthMgmtClient)


@pytest.fixture(scope="session")
def clients(cloud):
    """The clients of the principal that runs the tests."""
    return Clients(cloud, cloud.credential())


@pytest.fixture(scope="session")
def clients_of(cloud):
    """The clients of another principal, or with other options."""

    def make(client_id=None, client_secret=None, credential=None, **options):
        return Clients(cloud, credential or cloud.credential(client_id, client_secret), **options)

    return make


@pytest.fixture(scope="session")
def counted():
    """Wraps a client of a data plane, so that its calls are counted."""
    return CALLS.wrap


@pytest.fixture(scope="session")
def object_id(cloud):
    """The object id of the principal that runs the tests, by its token."""
    return token_claims(cloud.credential().get_token("https://management.azure.com/.default").token)["oid"]


def token_claims(token):
    """The claims of a token, unverified."""
    return jwt.decode(token, options={"verify_signature": False})


class ResponseLog:
    """The responses of the calls that got it as `raw_response_hook`, a public option of every operation."""

    def __init__(self):
        self.all = []

    def __call__(self, pipeline_response):
        self.all.append(pipeline_response.http_response)

    @property
    def statuses(self):
        return [it.status_code for it in self.all]

    @property
    def requests(self):
        return [(it.request.method, it.request.url) for it in self.all]


@pytest.fixture
def responses():
    return ResponseLog()


class CaughtError:
    """The error that a block ended in: its status and Azure's code."""

    def __init__(self):
        self.error = None

    @property
    def status(self):
        return self.error.status_code

    @property
    def code(self):
        return self.error.error.code if self.error.error else None

    @property
    def message(self):
        return self.error.message

    @property
    def target(self):
        return self.error.error.target

    @property
    def details(self):
        return [it.code for it in (self.error.error.details or [])]


@pytest.fixture
def rejected():
    """A context that expects an HTTP error with a status (or one of several) and a code."""

    @contextmanager
    def expect(status, *codes):
        statuses = status if isinstance(status, tuple) else (status,)
        caught_error = CaughtError()
        with pytest.raises(HttpResponseError) as caught:
            yield caught_error
        caught_error.error = caught.value
        assert caught_error.status in statuses, f"{caught_error.status} {caught_error.code}: {caught_error.message}"
        if codes:
            assert caught_error.code in codes, f"{caught_error.code}: {caught_error.message}"

    return expect


@pytest.fixture(scope="session")
def network(cloud, clients):
    """A virtual network with two subnets that other resources may use."""
    name, location = "shared-vnet", cloud.location
    clients.network.virtual_networks.begin_create_or_update(
        cloud.group,
        name,
        {
            "location": location,
            "properties": {
                "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]},
                "subnets": [
                    {"name": "machines", "properties": {"addressPrefix": "10.0.0.0/24"}},
                    {
                        "name": "links",
                        "properties": {
                            "addressPrefix": "10.0.1.0/24",
                            "privateLinkServiceNetworkPolicies": "Disabled",
                            "privateEndpointNetworkPolicies": "Disabled",
                        },
                    },
                ],
            },
        },
    ).result()
    return cloud.network_id(f"virtualNetworks/{name}")


VAULT_API_VERSION = "2023-07-01"
# Key Vault Administrator: every action on secrets and certificates.
VAULT_ADMINISTRATOR = "00482a5a-887f-4fb3-b363-3b7fe8e74483"


@pytest.fixture(scope="session")
def vault(cloud, clients, object_id):
    """A vault with roles, which the principal that runs the tests administers: the resource."""
    made = clients.resource.resources.begin_create_or_update_by_id(
        f"{cloud.group_id()}/providers/Microsoft.KeyVault/vaults/sdk-{cloud.suffix}",
        {
            "location": cloud.location,
            "properties": {
                "tenantId": cloud.tenant,
                "sku": {"family": "A", "name": "standard"},
                "enableRbacAuthorization": True,
                "softDeleteRetentionInDays": 7,
            },
        },
        api_version=VAULT_API_VERSION,
    ).result()
    assign_role(cloud, clients, made.id, VAULT_ADMINISTRATOR, object_id)
    return made


def assign_role(cloud, clients, scope, role, principal):
    """Gives a principal a built-in role at a scope."""
    clients.authorization.role_assignments.create(
        scope,
        str(uuid.uuid4()),
        {
            "properties": {
                "roleDefinitionId": f"/subscriptions/{cloud.subscription}/providers/Microsoft.Authorization/roleDefinitions/{role}",
                "principalId": principal,
                "principalType": "ServicePrincipal",
            }
        },
    )


@pytest.fixture(scope="session")
def secrets_of(cloud, vault, counted):
    """A client of the secrets of the vault, with the credential of a principal."""

    def make(credential=None, **options):
        credential = credential or cloud.credential()
        url = vault.properties["vaultUri"]
        return counted("secrets", SecretClient(url, credential, **{**cloud.vault_options, **options}))

    return make


@pytest.fixture(scope="session")
def certificates_of(cloud, vault, counted):
    """A client of the certificates of the vault, with the credential of a principal."""

    def make(credential=None, **options):
        credential = credential or cloud.credential()
        url = vault.properties["vaultUri"]
        return counted("certificates", CertificateClient(url, credential, **{**cloud.vault_options, **options}))

    return make


@pytest.fixture(scope="session")
def secrets(secrets_of, eventually):
    client = secrets_of()
    # On real Azure the role takes a while to spread.
    eventually(lambda: list(client.list_properties_of_secrets()) is not None)
    return client


@pytest.fixture(scope="session")
def certificates(certificates_of, eventually):
    client = certificates_of()
    eventually(lambda: list(client.list_properties_of_certificates()) is not None)
    return client


@pytest.fixture(scope="session")
def eventually(cloud):
    """Repeats a check until it holds. Real Azure shows some changes late; the emulator at once, unless a fault says otherwise."""

    def wait(check, seconds=5, azure_seconds=600, interval=0.1, azure_interval=10):
        limit = seconds if cloud.is_emulator else azure_seconds
        until = time.monotonic() + limit
        while True:
            try:
                found = check()
                if found:
                    return found
                problem = "it does not hold"
            except (HttpResponseError, ResourceNotFoundError) as error:
                problem = error
            if time.monotonic() > until:
                raise AssertionError(f"not within {limit} s: {problem}")
            time.sleep(interval if cloud.is_emulator else azure_interval)

    return wait
