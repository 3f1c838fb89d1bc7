"""The cloud that the tests run on: the emulator, which is started here, or real Azure.

The difference is configuration only: addresses, the authority, the trusted certificate, and the credential.
"""

import json
import os
import secrets
import subprocess
import tempfile
from pathlib import Path

import requests
from azure.identity import ClientSecretCredential

# Seconds between two polls of a long operation when a response does not say. The SDK takes whole seconds.
POLLING_INTERVAL = 1
ARM_SCOPE = "https://management.azure.com/.default"


class Environment:
    """Addresses, ids and the credential of a cloud."""

    is_emulator = False

    def __init__(self, subscription, tenant, client_id, client_secret, location):
        self.subscription, self.tenant, self.location = subscription, tenant, location
        self.client_id, self.client_secret = client_id, client_secret
        self.authority = "https://login.microsoftonline.com"
        self.resource_manager = "https://management.azure.com"
        # Names of groups, accounts, vaults and zones are unique for each run: some are global in Azure, and some survive deletion.
        self.suffix = secrets.token_hex(4)
        self.group = f"shipshape-sdk-{self.suffix}"

    def credential(self, client_id=None, client_secret=None, **options):
        """A credential with a secret: of the principal that runs the tests, or of another."""
        return ClientSecretCredential(
            options.pop("tenant", self.tenant),
            client_id or self.client_id,
            client_secret or self.client_secret,
            **{**self.credential_options, **options},
        )

    @property
    def credential_options(self):
        return {"authority": self.authority}

    @property
    def client_options(self):
        """The options of every management client."""
        return {"base_url": self.resource_manager, "polling_interval": POLLING_INTERVAL}

    @property
    def vault_options(self):
        """The options of every client of a vault."""
        return {}

    def blob_url(self, account):
        return f"https://{account}.blob.core.windows.net"

    def group_id(self, name=None):
        return f"/subscriptions/{self.subscription}/resourceGroups/{name or self.group}"

    def network_id(self, kind_and_name):
        """The id of a resource of Microsoft.Network in the group of the tests, such as `subnets/a` below its parent."""
        return f"{self.group_id()}/providers/Microsoft.Network/{kind_and_name}"

    def close(self):
        pass


class Azure(Environment):
    """Real Azure, named by environment variables."""

    VARIABLES = ("SUBSCRIPTION", "TENANT", "CLIENT_ID", "CLIENT_SECRET")

    def __init__(self):
        values = [os.environ[f"SHIPSHAPE_AZURE_{name}"] for name in self.VARIABLES]
        super().__init__(*values, location=os.environ.get("SHIPSHAPE_AZURE_LOCATION", "westeurope"))

    @classmethod
    def is_configured(cls):
        """Whether the tests are to run on real Azure. A part of the variables is a mistake."""
        given = [name for name in cls.VARIABLES if os.environ.get(f"SHIPSHAPE_AZURE_{name}")]
        if given and len(given) < len(cls.VARIABLES):
            missing = [f"SHIPSHAPE_AZURE_{name}" for name in cls.VARIABLES if name not in given]
            raise RuntimeError(f"real Azure is configured in part: {', '.join(missing)} missing")
        return bool(given)


class Emulator(Environment):
    """The emulator in a process of its own. It ends when its standard input is closed, also when this process is killed."""

    is_emulator = True

    def __init__(self, pace=0):
        """Starts it. The pace is the duration of operations relative to a real cloud; with 0 each is complete at once."""
        executable = os.environ.get("SHIPSHAPE_TEST_EMULATOR")
        if not executable:
            raise RuntimeError("SHIPSHAPE_TEST_EMULATOR is not set: build it with cargo build -p cloudsim --example emulator")
        self._scratch = tempfile.TemporaryDirectory(prefix="shipshape-sdk-")
        self.directory = Path(self._scratch.name) / "cloud"
        self._process = subprocess.Popen(
            [executable, str(self.directory), "--pace", str(pace)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the emulator ended with status {self._process.wait(10)} before it printed its endpoints")
        self.endpoints = json.loads(line)
        found = self.endpoints
        super().__init__(
            found["subscriptionId"],
            found["tenantId"],
            found["clientId"],
            Path(found["clientSecretFile"]).read_text(),
            "westeurope",
        )
        self.authority, self.resource_manager = found["authority"], found["resourceManager"]
        self.ca_file = found["caFile"]
        # The SDKs read both through `requests`; no proxy stands between a process and its own machine.
        self._trust_authority()
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
        self.token = (self.directory / "token").read_text().strip()

    def _trust_authority(self):
        """Adds the emulator's authority to those that are trusted, for as long as it runs."""
        self._trusted_before = os.environ.get("REQUESTS_CA_BUNDLE")
        bundle = Path(self._scratch.name) / "trusted.pem"
        files = [self.ca_file] + ([self._trusted_before] if self._trusted_before else [])
        bundle.write_text("".join(Path(it).read_text() for it in files))
        os.environ["REQUESTS_CA_BUNDLE"] = str(bundle)

    @property
    def credential_options(self):
        # Instance discovery would ask the public cloud whether it knows the emulator's host.
        return {"authority": self.authority, "disable_instance_discovery": True}

    @property
    def vault_options(self):
        # The address of a vault is on the loopback interface, not in the domain that its challenge names.
        return {"verify_challenge_resource": False}

    def blob_url(self, account):
        return f"{self.endpoints['blob']}/{account}"

    def post(self, path, body):
        """A request to the simulator's own path."""
        response = self._request("POST", path, json=body)
        return response.json() if response.content else None

    def get(self, path):
        return self._request("GET", path).json()

    def clear_faults(self):
        self._request("DELETE", "/sim/faults")

    def _request(self, method, path, **options):
        headers = {"Authorization": f"Bearer {self.token}"}
        url = self.resource_manager + path
        response = requests.request(method, url, headers=headers, timeout=10, **options)
        assert response.ok, f"{method} {path}: {response.status_code} {response.text}"
        return response

    def close(self):
        if self._trusted_before:
            os.environ["REQUESTS_CA_BUNDLE"] = self._trusted_before
        else:
            os.environ.pop("REQUESTS_CA_BUNDLE", None)
        self._process.stdin.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.stdout.close()
            self._scratch.cleanup()


class Simulator:
    """Faults and settings of the emulator, for one test."""

    def __init__(self, emulator):
        self._emulator = emulator
        self._undo = []

    def fault(self, kind, verb=None, about=None, times=1, **members):
        """Adds a fault for the next calls that match."""
        rule = {"trouble": {"kind": kind, **members}, "verb": verb, "about": about, "times": times}
        self._emulator.post("/sim/faults", {key: value for key, value in rule.items() if value is not None})

    def faults(self):
        """The rules that are not used up."""
        return self._emulator.get("/sim/faults")

    def set(self, setting, **members):
        """Changes a setting, as `crates/cloudsim/src/settings.rs` defines them."""
        return self._emulator.post("/sim/settings", {"set": setting, **members})

    def set_until_end(self, setting, undo, **members):
        """Changes a setting and reverts it at the end of the test by the members in `undo`."""
        self._undo.append((setting, {**members, **undo}))
        return self.set(setting, **members)

    def principal(self, name, rights):
        """A new principal: its client id, object id and secret. Rights are `everywhere` or `byRoles`."""
        made = self.set("createPrincipal", name=name, rights=rights)
        return made["principal"]["clientId"], made["principal"]["objectId"], made["secret"]

    def allow_at_end(self, scope):
        """Removes the denials at a scope at the end of the test."""
        self._undo.append(("allow", {"scope": scope}))

    def close(self):
        self._emulator.clear_faults()
        for setting, members in reversed(self._undo):
            self.set(setting, **members)
