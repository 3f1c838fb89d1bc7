"""The commands of `az` that are recorded, by subject.

A command is a line of words as one types it, without `az`. `{subscription}` and the like are values of the environment; `{name.member}` is
a member of what an earlier command printed, which was given the name `name`. `fails` names commands that are expected to fail.
"""

from dataclasses import dataclass


@dataclass
class Command:
    words: str
    name: str = ""
    fails: bool = False


def fails(words):
    return Command(words, fails=True)


def named(name, words):
    return Command(words, name=name)


LOCATION = "local"
GROUP = "--resource-group az"
CREATE_GROUP = f"group create --name az --location {LOCATION}"
NETWORK = f"{GROUP} --vnet-name net"
CREATE_NETWORK = [
    CREATE_GROUP,
    f"network vnet create {GROUP} --name net --location {LOCATION} --address-prefixes 10.0.0.0/22",
    f"network vnet subnet create {NETWORK} --name master --address-prefixes 10.0.0.0/23"
    " --private-link-service-network-policies Disabled",
    f"network vnet subnet create {NETWORK} --name worker --address-prefixes 10.0.2.0/23",
]
SUBNETS = "--vnet net --master-subnet master --worker-subnet worker"
CLUSTER = f"{GROUP} --name harbour"

SCENARIOS = {
    "account": [
        "account show",
        "account list --refresh",
        "account list-locations",
        "provider show --namespace Microsoft.Network",
        "provider unregister --namespace Microsoft.RedHatOpenShift",
        "provider show --namespace Microsoft.RedHatOpenShift",
        "provider register --namespace Microsoft.RedHatOpenShift --wait",
        "provider show --namespace Microsoft.RedHatOpenShift",
        fails("provider show --namespace Microsoft.Nothing"),
    ],
    "group": [
        f"{CREATE_GROUP} --tags team=blue",
        "group exists --name az",
        "group show --name az",
        "group list",
        "group list --tag team=blue",
        "group update --name az --set tags.env=test",
        "resource list --resource-group az",
        "lock create --name keep --lock-type CanNotDelete --resource-group az",
        "lock list --resource-group az",
        fails("group delete --name az --yes"),
        "lock delete --name keep --resource-group az",
        "group delete --name az --yes",
        "group exists --name az",
        fails("group show --name az"),
    ],
    "network": [
        CREATE_GROUP,
        f"network vnet create {GROUP} --name net --location {LOCATION} --address-prefixes 10.0.0.0/16"
        " --subnet-name first --subnet-prefixes 10.0.0.0/24 --tags team=blue",
        f"network vnet show {GROUP} --name net",
        f"network vnet list {GROUP}",
        f"network vnet subnet create {NETWORK} --name second --address-prefixes 10.0.1.0/24"
        " --service-endpoints Microsoft.Storage --private-link-service-network-policies Disabled",
        f"network vnet subnet show {NETWORK} --name second",
        f"network vnet subnet list {NETWORK}",
        f"network nsg create {GROUP} --name nsg --location {LOCATION}",
        f"network nsg rule create {GROUP} --nsg-name nsg --name api --priority 120 --access Allow --protocol Tcp"
        " --direction Inbound --destination-port-ranges 6443",
        f"network nsg rule list {GROUP} --nsg-name nsg",
        f"network vnet subnet update {NETWORK} --name second --network-security-group nsg",
        fails(f"network nsg delete {GROUP} --name nsg"),
        f"network vnet subnet update {NETWORK} --name second --network-security-group null",
        f"network nsg delete {GROUP} --name nsg",
        f"network vnet update {GROUP} --name net --set tags.env=test",
        fails(f"network vnet subnet create {NETWORK} --name third --address-prefixes 10.0.1.0/25"),
        f"network vnet subnet delete {NETWORK} --name second",
        f"network public-ip create {GROUP} --name address --location {LOCATION} --sku Standard",
        f"network public-ip show {GROUP} --name address",
        f"network public-ip delete {GROUP} --name address",
        f"network vnet delete {GROUP} --name net",
        fails(f"network vnet show {GROUP} --name net"),
    ],
    "identity": [
        *CREATE_NETWORK,
        named("identity", f"identity create {GROUP} --name operator --location {LOCATION}"),
        f"identity show {GROUP} --name operator",
        f"identity list {GROUP}",
        f"identity federated-credential create {GROUP} --identity-name operator --name api"
        " --issuer https://issuer.example --subject system:serviceaccount:ns:operator --audiences openshift",
        f"identity federated-credential list {GROUP} --identity-name operator",
        f"identity federated-credential delete {GROUP} --identity-name operator --name api --yes",
        named("network", f"network vnet show {GROUP} --name net"),
        "role definition list --name Reader",
        "role assignment create --assignee-object-id {identity.principalId} --assignee-principal-type ServicePrincipal"
        " --role 4d97b98b-1d4f-4787-a291-c67834d212e7 --scope {network.id}",
        "role assignment list --scope {network.id}",
        "role assignment list --assignee {identity.principalId} --scope {network.id}",
        "role assignment delete --assignee {identity.principalId} --scope {network.id}",
        f"identity delete {GROUP} --name operator",
        named("principal", "ad sp create-for-rbac --name customer --role Reader --scopes {network.id}"),
        "ad sp show --id {principal.appId}",
        "ad app list --display-name customer",
        "role assignment list --assignee {principal.appId} --scope {network.id}",
        "ad sp delete --id {principal.appId}",
        "ad app delete --id {principal.appId}",
    ],
    "keyvault": [
        CREATE_GROUP,
        f"keyvault create {GROUP} --name azcli-vault --location {LOCATION}",
        f"keyvault show {GROUP} --name azcli-vault",
        f"keyvault list {GROUP}",
        "keyvault secret set --vault-name azcli-vault --name greeting --value good-morning",
        "keyvault secret show --vault-name azcli-vault --name greeting",
        "keyvault secret list --vault-name azcli-vault",
        "keyvault secret set-attributes --vault-name azcli-vault --name greeting --tags team=blue",
        "keyvault secret delete --vault-name azcli-vault --name greeting",
        "keyvault secret list-deleted --vault-name azcli-vault",
        "keyvault secret purge --vault-name azcli-vault --name greeting",
        "keyvault certificate create --vault-name azcli-vault --name web --policy @{policy}",
        "keyvault certificate show --vault-name azcli-vault --name web",
        "keyvault certificate list --vault-name azcli-vault",
        "keyvault certificate delete --vault-name azcli-vault --name web",
        f"keyvault delete {GROUP} --name azcli-vault",
        "keyvault list-deleted --resource-type vault",
        "keyvault purge --name azcli-vault",
    ],
    "aro": [
        *CREATE_NETWORK,
        f"aro get-versions --location {LOCATION}",
        f"aro list {GROUP}",
        fails(f"aro show {CLUSTER}"),
        f"aro validate {CLUSTER} {SUBNETS} --location {LOCATION}",
        fails(f"aro create {CLUSTER} {SUBNETS} --location {LOCATION} --domain harbour --cluster-resource-group az"),
        fails(
            f"aro create {CLUSTER} {SUBNETS} --location {LOCATION} --domain harbour"
            " --cluster-resource-group harbour-managed --worker-vm-size Standard_A1"
        ),
        f"aro create {CLUSTER} {SUBNETS} --location {LOCATION} --domain harbour --cluster-resource-group harbour-managed"
        " --tags team=blue",
        f"aro show {CLUSTER}",
        f"aro list {GROUP}",
        "aro list",
        f"aro list-credentials {CLUSTER}",
        f"aro get-admin-kubeconfig {CLUSTER} --file {{scratch}}/kubeconfig",
        f"aro update {CLUSTER} --refresh-credentials",
        f"aro wait {CLUSTER} --created",
        f"aro delete {CLUSTER} --yes",
        f"aro list {GROUP}",
        fails(f"aro show {CLUSTER}"),
    ],
    "aro-identities": [
        *CREATE_NETWORK,
        f"aro identity get-required {GROUP} --location {LOCATION} --version 4.20.3 {SUBNETS}",
        f"aro identity create-required {GROUP} --location {LOCATION} --version 4.20.3 {SUBNETS} --yes",
        f"aro create {CLUSTER} {SUBNETS} --location {LOCATION} --domain harbour --cluster-resource-group harbour-managed"
        " --enable-managed-identity --version 4.20.3",
        f"aro show {CLUSTER}",
        f"aro delete {CLUSTER} --yes --delete-identities",
    ],
}

# The policy of a certificate: that of `az keyvault certificate get-default-policy`, with the emulator's issuer.
CERTIFICATE_POLICY = {
    "issuerParameters": {"name": "Self"},
    "keyProperties": {"exportable": True, "keySize": 2048, "keyType": "RSA", "reuseKey": True},
    "lifetimeActions": [{"action": {"actionType": "AutoRenew"}, "trigger": {"daysBeforeExpiry": 90}}],
    "secretProperties": {"contentType": "application/x-pem-file"},
    "x509CertificateProperties": {"subject": "CN=web.example", "validityInMonths": 12},
}
