"""A proxy between `az` and the emulated Azure.

`az aro` and the data planes of vaults go to Azure's public host names, whatever cloud is registered. With HTTPS_PROXY set to this proxy,
`az` reaches the emulator under these names, and nothing of `az` has to be changed. The proxy has a certificate authority of its own, which
`az` trusts by REQUESTS_CA_BUNDLE; no request leaves this machine.

Run with the Python of `az`:

    shipshape cloud endpoints -o json > endpoints.json
    python tests/azure-cli/proxy.py endpoints.json        # prints the variables to set, and serves until Ctrl-C
"""

import argparse
import datetime
import http.client
import http.server
import ipaddress
import json
import ssl
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Headers that belong to one connection.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "content-length"}
UPSTREAM_TIMEOUT_SECONDS = 120


class Authority:
    """A certificate authority with the certificates that it issued, each in a file of `directory`."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.lock = threading.Lock()
        self.contexts = {}
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Proxy of the emulated Azure")])
        builder = self._builder(self.name, self.key)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate = builder.sign(self.key, hashes.SHA256())
        self.file = self.directory / "proxy-ca.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject, key):
        now = datetime.datetime.now(datetime.timezone.utc)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=7))
        )

    def context(self, host):
        """The TLS settings of a server with this name."""
        with self.lock:
            if host not in self.contexts:
                self.contexts[host] = self._issue(host)
            return self.contexts[host]

    def _issue(self, host):
        try:
            name = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
        builder = self._builder(subject, key).add_extension(x509.SubjectAlternativeName([name]), critical=False)
        file = self.directory / f"{host}.pem"
        file.touch(mode=0o600)
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context


class Routes:
    """Which address of the emulator stands for a host name."""

    def __init__(self, endpoints):
        self.endpoints = endpoints

    def upstream(self, host, port):
        """The base URL for a host and port, or none when the emulator has nothing in its place."""
        fixed = {
            "management.azure.com": self.endpoints["resourceManager"],
            "login.microsoftonline.com": self.endpoints["authority"],
            "graph.microsoft.com": self.endpoints["authority"],
        }
        if host in fixed:
            return fixed[host]
        name, _, domain = host.partition(".")
        if domain == "vault.azure.net":
            return self._vaults().get(name.lower())
        return f"https://{host}:{port}" if host in ("127.0.0.1", "localhost") else None

    def _vaults(self):
        # The file has the vaults that were created since the emulator started.
        file = Path(self.endpoints["caFile"]).with_name("endpoints.json")
        return json.loads(file.read_text())["vaults"] if file.exists() else self.endpoints["vaults"]


class Tunnel(http.server.BaseHTTPRequestHandler):
    """The requests of one connection through the proxy."""

    protocol_version = "HTTP/1.1"
    host = None
    port = None

    def do_CONNECT(self):
        host, _, port = self.path.rpartition(":")
        self.send_response(200, "Connection Established")
        self.end_headers()
        context = self.server.authority.context(host)
        try:
            secured = context.wrap_socket(self.connection, server_side=True)
        except (ssl.SSLError, OSError):
            self.close_connection = True
            return
        handler = type("Request", (Request,), {"host": host, "port": int(port)})
        handler(secured, self.client_address, self.server)
        self.close_connection = True

    def log_message(self, *arguments):
        """Says nothing: the exchanges are what counts."""


class Request(Tunnel):
    """The requests inside of a tunnel."""

    def forward(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        base = self.server.routes.upstream(self.host, self.port)
        if base is None:
            return self.answer(502, {}, b"The emulator has nothing in place of this host.\n", None, body)
        split = urlsplit(base)
        context = ssl.create_default_context(cafile=self.server.routes.endpoints["caFile"])
        upstream = http.client.HTTPSConnection(
            split.hostname, split.port, context=context, timeout=UPSTREAM_TIMEOUT_SECONDS
        )
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        # The emulator's addresses are those that the caller uses.
        headers["Content-Length"] = str(len(body))
        try:
            upstream.request(self.command, self.path, body=body, headers=headers)
            response = upstream.getresponse()
            content = response.read()
        finally:
            upstream.close()
        kept = {name: value for name, value in response.getheaders() if name.lower() not in HOP_BY_HOP}
        return self.answer(response.status, kept, content, base, body)

    def answer(self, status, headers, content, base, sent):
        observe = self.server.observe
        if observe is not None:
            observe(self, base, sent, status, headers, content)
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = forward


class Proxy(http.server.ThreadingHTTPServer):
    """The proxy on a loopback port of its own; `observe` is called with every exchange."""

    daemon_threads = True

    def __init__(self, endpoints, directory, observe=None):
        super().__init__(("127.0.0.1", 0), Tunnel)
        self.routes = Routes(endpoints)
        self.authority = Authority(directory)
        self.observe = observe

    def variables(self):
        """The environment in which `az` uses the proxy."""
        return {
            "HTTPS_PROXY": f"http://127.0.0.1:{self.server_address[1]}",
            "NO_PROXY": "",
            "REQUESTS_CA_BUNDLE": str(self.authority.file),
        }

    def handle_error(self, request, client_address):
        """A client that leaves is no error."""


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("endpoints", type=Path, help="what `shipshape cloud endpoints -o json` printed")
    endpoints = json.loads(options.parse_args().endpoints.read_text())
    with tempfile.TemporaryDirectory(prefix="az-proxy-") as directory:
        proxy = Proxy(endpoints, directory)
        for name, value in proxy.variables().items():
            print(f"export {name}={value}", flush=True)
        try:
            proxy.serve_forever()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
