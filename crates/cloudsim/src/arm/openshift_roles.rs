//! The built-in roles of Azure Red Hat OpenShift's identities. `az aro identity create-required` finds in their actions the scopes at which
//! it assigns them: a subnet, the network, a route table and so on. No wildcard may stand in for such an action.

use super::roles::{BuiltIn, MACHINE_API_OPERATOR};

/// The roles, with the actions that Azure lists for them where they concern networks; for machines and storage with a wildcard.
pub(super) const BUILT_IN: [BuiltIn; 10] = [
    (
        "ef318e2a-8334-4a05-9e4a-295a196c6a6e",
        "Azure Red Hat OpenShift Federated Credential",
        &[
            "Microsoft.ManagedIdentity/userAssignedIdentities/read",
            "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/*",
        ],
        &[],
        &[],
    ),
    // The role of the resource provider over a customer's network; `az aro` knows it by its id only.
    (
        "42f3c60f-e7b1-46d7-ba56-6de681664342",
        "Azure Red Hat OpenShift First Party Network",
        &["*/read", "Microsoft.Network/*"],
        &[],
        &[],
    ),
    (
        "4436bae4-7702-4c84-919b-c4069ff25ee2",
        "Azure Red Hat OpenShift Service Operator",
        &[
            "Microsoft.Network/natGateways/join/action",
            "Microsoft.Network/networkIntentPolicies/join/action",
            "Microsoft.Network/networkManagers/ipamPools/associateResourcesToPool/action",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Network/routeTables/join/action",
            "Microsoft.Network/serviceEndpointPolicies/join/action",
            "Microsoft.Network/virtualNetworks/subnets/read",
            "Microsoft.Network/virtualNetworks/subnets/write",
            "Microsoft.Storage/storageAccounts/listKeys/action",
            "Microsoft.Storage/storageAccounts/read",
        ],
        &[],
        &[],
    ),
    (
        "a1f96423-95ce-4224-ab27-4e3dc72facd4",
        "Azure Red Hat OpenShift Cloud Controller Manager",
        &[
            "Microsoft.Compute/virtualMachines/read",
            "Microsoft.Network/loadBalancers/*",
            "Microsoft.Network/networkInterfaces/read",
            "Microsoft.Network/networkInterfaces/write",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Network/networkSecurityGroups/read",
            "Microsoft.Network/networkSecurityGroups/write",
            "Microsoft.Network/publicIPAddresses/*",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
            "Microsoft.Network/virtualNetworks/subnets/read",
        ],
        &[],
        &[],
    ),
    (
        "0336e1d3-7a87-462b-b6db-342b63f7802c",
        "Azure Red Hat OpenShift Cluster Ingress Operator",
        &[
            "Microsoft.Network/dnsZones/A/delete",
            "Microsoft.Network/dnsZones/A/write",
            "Microsoft.Network/privateDnsZones/A/delete",
            "Microsoft.Network/privateDnsZones/A/write",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
            "Microsoft.Network/virtualNetworks/subnets/read",
        ],
        &[],
        &[],
    ),
    (
        "5b7237c5-45e1-49d6-bc18-a1f62f400748",
        "Azure Red Hat OpenShift Disk Storage Operator",
        &[
            "Microsoft.Compute/diskEncryptionSets/read",
            "Microsoft.Compute/disks/*",
            "Microsoft.Compute/locations/*/read",
            "Microsoft.Compute/snapshots/*",
            "Microsoft.Compute/virtualMachines/read",
            "Microsoft.Compute/virtualMachines/write",
            "Microsoft.Resources/subscriptions/resourceGroups/read",
        ],
        &[],
        &[],
    ),
    (
        "0d7aedc0-15fd-4a67-a412-efad370c947e",
        "Azure Red Hat OpenShift File Storage Operator",
        &[
            "Microsoft.Network/natGateways/join/action",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Network/privateDnsZones/*",
            "Microsoft.Network/privateEndpoints/*",
            "Microsoft.Network/routeTables/join/action",
            "Microsoft.Network/virtualNetworks/join/action",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
            "Microsoft.Network/virtualNetworks/subnets/read",
            "Microsoft.Network/virtualNetworks/subnets/write",
            "Microsoft.Storage/*",
        ],
        &[],
        &[],
    ),
    (
        "8b32b316-c2f5-4ddf-b05b-83dacd2d08b5",
        "Azure Red Hat OpenShift Image Registry Operator",
        &[
            "Microsoft.Network/networkInterfaces/read",
            "Microsoft.Network/privateDnsZones/*",
            "Microsoft.Network/privateEndpoints/*",
            "Microsoft.Network/virtualNetworks/join/action",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
            "Microsoft.Network/virtualNetworks/subnets/read",
            "Microsoft.Resources/tags/write",
            "Microsoft.Storage/*",
        ],
        &[],
        &["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/*"],
    ),
    (
        MACHINE_API_OPERATOR,
        "Azure Red Hat OpenShift Machine API Operator",
        &[
            "Microsoft.Compute/availabilitySets/*",
            "Microsoft.Compute/diskEncryptionSets/read",
            "Microsoft.Compute/disks/delete",
            "Microsoft.Compute/galleries/images/versions/read",
            "Microsoft.Compute/skus/read",
            "Microsoft.Compute/virtualMachines/*",
            "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
            "Microsoft.Network/loadBalancers/*",
            "Microsoft.Network/networkInterfaces/*",
            "Microsoft.Network/networkSecurityGroups/read",
            "Microsoft.Network/networkSecurityGroups/write",
            "Microsoft.Network/publicIPAddresses/*",
            "Microsoft.Network/routeTables/read",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
            "Microsoft.Network/virtualNetworks/subnets/read",
        ],
        &[],
        &[],
    ),
    (
        "be7a6435-15ae-4171-8f30-4a343eff9e8f",
        "Azure Red Hat OpenShift Network Operator",
        &[
            "Microsoft.Compute/virtualMachines/read",
            "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
            "Microsoft.Network/networkInterfaces/read",
            "Microsoft.Network/networkInterfaces/write",
            "Microsoft.Network/virtualNetworks/read",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
        ],
        &[],
        &[],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_wildcard_covers_the_actions_by_which_az_finds_scopes() {
        // Without the role of the resource provider itself, whose scope `az` knows.
        for (guid, name, actions, ..) in BUILT_IN.iter().filter(|it| !it.0.starts_with("42f3c60f")) {
            let covers =
                |it: &&str| crate::identities::matches(it, "Microsoft.Network/virtualNetworks/subnets/x");
            assert!(!actions.iter().any(|it| it.contains('*') && covers(it)), "{guid} {name}");
        }
    }
}
