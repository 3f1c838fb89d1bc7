"""A cluster from nothing and back, through the public SDK azure-mgmt-redhatopenshift as it comes from PyPI.

While `shipshape up` runs:

    pip install -r examples/python/requirements.txt
    shipshape cloud prepare quay -o json > quay.json
    python examples/python/cluster.py quay quay.json

The SDK speaks with Shipshape as it speaks with Azure. Two things differ: the address, and how each side shows who it
is. `up` has a certificate authority of its own, so the SDK is configured to trust that one, and authenticates with the client certificate
that `up` made. The SDK insists on a bearer token besides; Shipshape looks at tokens only where an issuer is configured.
"""

import argparse
import json
import time
import tomllib
from pathlib import Path

from azure.core.credentials import AccessToken
from azure.mgmt.redhatopenshift import AzureRedHatOpenShiftClient
from azure.mgmt.redhatopenshift.models import (
    APIServerProfile,
    ClusterProfile,
    IngressProfile,
    MasterProfile,
    NetworkProfile,
    OpenShiftCluster,
    OpenShiftClusterProperties,
    OpenShiftClusterUpdate,
    ServicePrincipalProfile,
    WorkerProfile,
)


class FixedToken:
    """A credential that always gives the same token."""

    def get_token(self, *scopes, **options):
        return AccessToken("none", int(time.time()) + 3600)


def connect(data_dir: Path, subscription: str) -> AzureRedHatOpenShiftClient:
    context = tomllib.loads((data_dir / "context.toml").read_text())
    pki = data_dir / "pki"
    return AzureRedHatOpenShiftClient(
        FixedToken(),
        subscription,
        base_url=context["server"],
        connection_verify=str(pki / "ca.crt"),
        connection_cert=(str(pki / "operator.crt"), str(pki / "operator.key")),
    )


def wanted(name: str, location: str, brought: dict) -> OpenShiftCluster:
    return OpenShiftCluster(
        location=location,
        tags={"made-by": "sdk"},
        properties=OpenShiftClusterProperties(
            cluster_profile=ClusterProfile(
                domain=name, resource_group_id=f"{brought['group']}-{name}-managed", fips_validated_modules="Disabled"
            ),
            service_principal_profile=ServicePrincipalProfile(
                client_id=brought["clientId"], client_secret=Path(brought["clientSecretFile"]).read_text().strip()
            ),
            network_profile=NetworkProfile(pod_cidr="10.128.0.0/14", service_cidr="172.30.0.0/16"),
            master_profile=MasterProfile(
                vm_size="Standard_D8s_v5", subnet_id=brought["masterSubnet"], encryption_at_host="Disabled"
            ),
            worker_profiles=[
                WorkerProfile(
                    name="worker",
                    vm_size="Standard_D4s_v5",
                    disk_size_gb=128,
                    subnet_id=brought["workerSubnet"],
                    count=3,
                    encryption_at_host="Disabled",
                )
            ],
            apiserver_profile=APIServerProfile(visibility="Public"),
            ingress_profiles=[IngressProfile(name="default", visibility="Public")],
        ),
    )


def main():
    options = argparse.ArgumentParser(description="Makes, changes and removes a cluster with the public SDK.")
    options.add_argument("name", help="what to call the cluster")
    options.add_argument("brought", type=Path, help="what `shipshape cloud prepare NAME -o json` printed")
    options.add_argument("--data-dir", type=Path, default=Path.home() / ".local/share/shipshape")
    options.add_argument("--location", default="local")
    options = options.parse_args()
    brought = json.loads(options.brought.read_text())
    _, _, subscription, _, group = brought["group"].split("/")
    name = options.name

    clusters = connect(options.data_dir, subscription).open_shift_clusters
    making = clusters.begin_create_or_update(group, name, wanted(name, options.location, brought))
    print("making", name)
    made = making.result()
    print("made", made.id, made.properties.provisioning_state)
    print("version", made.properties.cluster_profile.version)
    print("listed", sorted(it.name for it in clusters.list_by_resource_group(group)))
    print("in the subscription", sorted(it.name for it in clusters.list()))
    found = clusters.get(group, name)
    print("API server", found.properties.apiserver_profile.url)
    print("user", clusters.list_credentials(group, name).kubeadmin_username)
    print("kubeconfig of", len(clusters.list_admin_credentials(group, name).kubeconfig), "characters")
    changed = clusters.begin_update(group, name, OpenShiftClusterUpdate(tags={"env": "test"})).result()
    print("tags", dict(changed.tags))
    clusters.begin_delete(group, name).result()
    print("gone", name not in [it.name for it in clusters.list_by_resource_group(group)])


if __name__ == "__main__":
    main()
