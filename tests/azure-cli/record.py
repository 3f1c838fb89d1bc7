"""Records what `az` sends to the emulated Azure and to the API of `shipshape up`, and what it gets.

    python tests/azure-cli/record.py --shipshape target/debug/shipshape            # every scenario
    python tests/azure-cli/record.py --shipshape target/debug/shipshape group      # one

Run with the Python of `az` (`pip install azure-cli`). Each scenario of scenarios.py runs on an `up` of its own, as a cloud registered with
`az cloud register`, and becomes a file of recordings/, which the tests of the executable replay. A recording has no tokens and no secrets:
what only one run has is replaced by a name in `<<>>`, by which a replay knows it again.
"""

import argparse
import base64
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from urllib.parse import parse_qsl

from proxy import Proxy
from scenarios import CERTIFICATE_POLICY, SCENARIOS, Command

HERE = Path(__file__).parent
RECORDINGS = HERE / "recordings"
AZ = Path(sys.executable).with_name("az")

# Headers of a request that have a meaning for the server, besides the bearer token.
SENT_HEADERS = {"accept", "content-type", "if-match", "if-none-match", "x-ms-return-client-request-id"}
# Headers of a response that `az` and its SDKs read.
READ_HEADERS = {"azure-asyncoperation", "location", "retry-after", "www-authenticate"}

# Members with another value in each run that no pattern finds.
VOLATILE_MEMBERS = {"x5t", "cer", "csr", "hint"}
# Members whose values are secrets, whatever they are.
SECRET_MEMBERS = {"access_token", "secretText", "kubeadminPassword", "kubeconfig", "client_secret", "clientSecret"}

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
# Larger numbers are times.
SECONDS_OF_A_TIME = 1_000_000_000
# What only one run has, with the kind of its name. The order counts: the first that matches wins.
PATTERNS = [
    ("secret", re.compile(r"(?<=Bearer )[A-Za-z0-9_.-]{40,}")),
    ("url", re.compile(r"https://127\.0\.0\.1:\d+")),
    ("time", re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")),
    ("uuid", re.compile(UUID, re.IGNORECASE)),
    ("hex", re.compile(r"(?<![0-9a-fA-F])[0-9a-fA-F]{32,64}(?![0-9a-fA-F])")),
    ("text", re.compile(r"[A-Za-z0-9+/_=-]{100,}")),
    ("address", re.compile(r"198\.18\.\d+\.\d+")),
    # The names of a cluster's infrastructure and of its workers end with five random characters.
    ("suffix", re.compile(r"(?:(?<=harbour-)|(?<=-local\d-))[a-z0-9]{5}(?![a-z0-9])")),
]


class Recorder:
    """The exchanges between `az` and the servers, in their order."""

    def __init__(self):
        self.exchanges = []

    def observe(self, request, base, sent, status, headers, content):
        self.exchanges.append(
            {
                "service": base,
                "method": request.command,
                "path": request.path,
                "headers": {name.lower(): value for name, value in request.headers.items()},
                "body": sent,
                "status": status,
                "answered": {name.lower(): value for name, value in headers.items()},
                "content": content,
            }
        )

    def take(self):
        taken, self.exchanges = self.exchanges, []
        return taken


def parsed(content, kind):
    """A body as a value: JSON, the pairs of a form, or text."""
    if not content:
        return None
    text = content.decode(errors="replace")
    if "json" in (kind or ""):
        try:
            return json.loads(text)
        except ValueError:
            return text
    if "x-www-form-urlencoded" in (kind or ""):
        return {"form": dict(parse_qsl(text))}
    return text


def audience(header):
    """The audience of a bearer token: a replay gets a token of its own."""
    if not header or not header.lower().startswith("bearer "):
        return None
    payload = header.split(" ", 1)[1].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["aud"]


class Names:
    """Names for the values that only one run has. Values that `az` chose stay as they are, so that a replay sends the same."""

    def __init__(self, known):
        self.known = dict(known)
        self.chosen = set()
        self.counts = {}

    def choose(self, value):
        """Marks the values in a request that no response had before."""
        for text in strings(value):
            for kind, pattern in PATTERNS:
                for found in pattern.findall(text):
                    if kind != "url" and found.lower() not in self.known:
                        self.chosen.add(found.lower())

    def name(self, value, member=""):
        if isinstance(value, dict):
            return {key: self.name(it, key) for key, it in value.items()}
        if isinstance(value, list):
            return [self.name(it, member) for it in value]
        if isinstance(value, int) and value > SECONDS_OF_A_TIME:
            return "<<number>>"
        if not isinstance(value, str):
            return value
        if member in VOLATILE_MEMBERS:
            return "<<text>>"
        # The emulator answers with the host name that it was called by; a replay calls it by its address.
        value = value.replace("https://management.azure.com/subscriptions", "<<resourceManager>>/subscriptions")
        if member in SECRET_MEMBERS and value and not value.lower() in self.known:
            return self._new(value, "secret")
        for known in sorted(self.known, key=len, reverse=True):
            if known in value.lower():
                value = re.sub(re.escape(known), lambda _: f"<<{self.known[known]}>>", value, flags=re.IGNORECASE)
        for kind, pattern in PATTERNS:
            value = pattern.sub(lambda found: self._named(found.group(0), kind), value)
        return value

    def _named(self, value, kind):
        return value if value.lower() in self.chosen else self._new(value, kind)

    def _new(self, value, kind):
        if kind in ("time", "text"):
            # Nobody sends these back.
            return f"<<{kind}>>"
        if value.lower() not in self.known:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.known[value.lower()] = f"{kind}{self.counts[kind]}"
        return f"<<{self.known[value.lower()]}>>"


def strings(value):
    if isinstance(value, dict):
        for it in value.values():
            yield from strings(it)
    elif isinstance(value, list):
        for it in value:
            yield from strings(it)
    elif isinstance(value, str):
        yield value


def fixture_exchange(raw, names):
    """One exchange as the recording has it."""
    headers, answered = raw["headers"], raw["answered"]
    sent = parsed(raw["body"], headers.get("content-type"))
    request = {"service": raw["service"], "method": raw["method"], "path": raw["path"]}
    bearer = audience(headers.get("authorization"))
    if bearer:
        request["audience"] = bearer
    request["headers"] = {name: value for name, value in sorted(headers.items()) if name in SENT_HEADERS}
    if sent is not None:
        request["body"] = sent
    names.choose(request)
    request = names.name(request)
    response = {
        "status": raw["status"],
        "headers": {name: value for name, value in sorted(answered.items()) if name in READ_HEADERS},
    }
    content = parsed(raw["content"], answered.get("content-type"))
    if content is not None:
        response["body"] = content
    return {"request": request, "response": names.name(response)}


def is_poll(exchange):
    path = exchange["request"]["path"].lower()
    words = ("/operations/", "/operationresults/", "/operationsstatus/", "/pending", "/deletedsecrets/")
    return exchange["request"]["method"] == "GET" and any(it in path for it in words)


def with_polls(exchanges):
    """Repeated polls as one: how often a client polls depends on the run."""
    kept = []
    for exchange in exchanges:
        if kept and kept[-1]["request"] == exchange["request"] and exchange["request"]["method"] == "GET":
            kept.pop()
            exchange["poll"] = True
        elif is_poll(exchange):
            exchange["poll"] = True
        kept.append(exchange)
    return kept


class Server:
    """`shipshape up` in a directory of its own."""

    def __init__(self, shipshape, directory):
        self.shipshape = shipshape
        self.environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SHIPSHAPE_", "XDG_", "AZURE_", "OTEL_"))
        }
        self.environment["HOME"] = str(directory)
        ports = ["--health", "127.0.0.1:0", "--api", "127.0.0.1:0", "--portal", "127.0.0.1:0"]
        at_once = ["--set", "cloud.pace=0", "--set", "frontend.retry_after_seconds=1"]
        self.process = subprocess.Popen(
            [shipshape, "up", *ports, *at_once],
            env=self.environment,
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=(Path(directory) / "log").open("w"),
            text=True,
        )
        for line in self.process.stdout:
            if "shipshape plan" in line:
                break
        else:
            raise SystemExit("shipshape up did not start; its log: " + (Path(directory) / "log").read_text())

    def endpoints(self):
        done = subprocess.run(
            [self.shipshape, "cloud", "endpoints", "-o", "json"],
            env=self.environment,
            capture_output=True,
            check=True,
            text=True,
        )
        return json.loads(done.stdout)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def azure(words, environment):
    done = subprocess.run([AZ, *words], env=environment, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def record(name, options):
    with tempfile.TemporaryDirectory(prefix="az-record-") as directory:
        server = Server(options.shipshape.absolute(), directory)
        try:
            return run(name, server, Path(directory), options)
        finally:
            server.stop()


def run(name, server, directory, options):
    endpoints = server.endpoints()
    recorder = Recorder()
    proxy = Proxy(endpoints, directory, recorder.observe)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    environment = {
        **server.environment,
        **proxy.variables(),
        "AZURE_CONFIG_DIR": str(directory / "azure"),
        "AZURE_CORE_COLLECT_TELEMETRY": "0",
        "AZURE_CORE_NO_COLOR": "1",
        "AZURE_CORE_OUTPUT": "json",
    }
    secret = Path(endpoints["clientSecretFile"]).read_text().strip()
    known = {
        endpoints["resourceManager"]: "resourceManager",
        endpoints["resourceManager"].removeprefix("https://"): "resourceManagerHost",
        endpoints["tenantId"]: "tenantId",
        endpoints["subscriptionId"]: "subscriptionId",
        endpoints["clientId"]: "clientId",
        secret: "clientSecret",
    }
    known.update({url: f"vaults.{vault}" for vault, url in endpoints["vaults"].items()})
    names = Names({value.lower(): it for value, it in known.items()})
    policy = directory / "policy.json"
    policy.write_text(json.dumps(CERTIFICATE_POLICY))
    values = {"policy": str(policy), "scratch": str(directory)}
    values.update(endpoints, clientSecret=secret)
    login = [
        "cloud register --name Emulated --endpoint-resource-manager {resourceManager}",
        "cloud set --name Emulated",
        "login --service-principal --username {clientId} --password {clientSecret} --tenant {tenantId}",
    ]
    commands = []
    for step in [*login, *SCENARIOS[name]]:
        command = step if isinstance(step, Command) else Command(step)
        words = shlex.split(command.words.format_map(Members(values)))
        code, printed, said = azure(words, environment)
        shown = "az " + command.words
        print(f"{code:3} {shown}", flush=True)
        if options.verbose or (code != 0) != command.fails:
            print(said, printed, flush=True)
            if options.verbose:
                for it in recorder.exchanges:
                    print("   ", it["method"], it["service"], it["path"], it["status"], flush=True)
        if (code != 0) != command.fails and not options.go_on:
            raise SystemExit(f"`{shown}` ended with {code}")
        if command.name:
            values[command.name] = json.loads(printed)
        # What `az` looks up elsewhere, such as its newest version, has no upstream.
        taken = [it for it in recorder.take() if it["service"]]
        exchanges = [fixture_exchange(it, names) for it in taken]
        if step in login and name != "account":
            continue
        commands.append({"command": shown, "exitCode": code, "exchanges": with_polls(exchanges)})
    return commands


class Members(dict):
    """Values for the words of commands; a dictionary's members are attributes."""

    def __getitem__(self, key):
        value = super().__getitem__(key)
        return argparse.Namespace(**value) if isinstance(value, dict) else value


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--shipshape", type=Path, required=True, help="the executable that is recorded")
    options.add_argument("--go-on", action="store_true", help="go on after a command with an unexpected result")
    options.add_argument("--verbose", action="store_true", help="print what az says, and each request")
    options.add_argument("scenarios", nargs="*", default=list(SCENARIOS), help="the scenarios; all by default")
    options = options.parse_args()
    version = json.loads(azure(["version"], dict(os.environ))[1])["azure-cli"]
    RECORDINGS.mkdir(exist_ok=True)
    for name in options.scenarios:
        commands = record(name, options)
        recording = {"azureCli": version, "commands": commands}
        file = RECORDINGS / f"{name}.json"
        file.write_text(json.dumps(recording, indent=1, ensure_ascii=False) + "\n")
        print(f"{file}: {sum(len(it['exchanges']) for it in commands)} exchanges", flush=True)


if __name__ == "__main__":
    main()
