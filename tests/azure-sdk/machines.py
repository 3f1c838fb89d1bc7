"""Virtual machines for the tests that need one."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

SIZE = "Standard_D2s_v5"
IMAGE = {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"}
USER = "tester"


def interface(cloud, clients, network, name):
    """A network interface in the subnet of machines."""
    configuration = {"name": "ip", "properties": {"subnet": {"id": f"{network}/subnets/machines"}, "primary": True}}
    body = {"location": cloud.location, "properties": {"ipConfigurations": [configuration]}}
    return clients.network.network_interfaces.begin_create_or_update(cloud.group, name, body).result()


def machine_body(cloud, interface_id, name, size=SIZE, disk_option="Delete", **properties):
    """The body of a machine that nobody can sign in to: the key of its user is thrown away."""
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    public = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    keys = [{"path": f"/home/{USER}/.ssh/authorized_keys", "keyData": public}]
    return {
        "location": cloud.location,
        "properties": {
            "hardwareProfile": {"vmSize": size},
            "storageProfile": {
                "imageReference": IMAGE,
                "osDisk": {
                    "name": f"{name}-os",
                    "createOption": "FromImage",
                    "deleteOption": disk_option,
                    "managedDisk": {"storageAccountType": "Premium_LRS"},
                },
            },
            "osProfile": {
                "computerName": name,
                "adminUsername": USER,
                "linuxConfiguration": {"disablePasswordAuthentication": True, "ssh": {"publicKeys": keys}},
            },
            "networkProfile": {
                "networkInterfaces": [
                    {"id": interface_id, "properties": {"primary": True, "deleteOption": disk_option}}
                ]
            },
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
            **properties,
        },
    }


def create_machine(cloud, clients, network, name, **options):
    """A machine with an interface of its own."""
    made = interface(cloud, clients, network, f"{name}-nic")
    body = machine_body(cloud, made.id, name, **options)
    return clients.compute.virtual_machines.begin_create_or_update(cloud.group, name, body).result()


def power_state(clients, cloud, name):
    """The power state of a machine, such as `running`."""
    view = clients.compute.virtual_machines.instance_view(cloud.group, name)
    states = [it.code.split("/")[1] for it in view.statuses if it.code.startswith("PowerState/")]
    return states[0] if states else None
