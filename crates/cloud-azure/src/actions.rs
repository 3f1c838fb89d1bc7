//! The actions that the client's calls need, for a role with the least privilege.

use cloud::ResourceKind;
use serde_json::{Value, json};

/// Actions besides reading, writing and deleting the kinds of resources.
const FURTHER: &[&str] = &[
    // References to resources of others: subnets, security groups, addresses, gateways, pools.
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "Microsoft.Network/loadBalancers/frontendIPConfigurations/join/action",
    "Microsoft.Network/natGateways/join/action",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/routeTables/join/action",
    "Microsoft.Network/virtualNetworks/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/virtualNetworks/subnets/joinViaServiceEndpoint/action",
    // Private endpoints to the API servers of clusters.
    "Microsoft.Network/privateLinkServices/privateEndpointConnections/delete",
    "Microsoft.Network/privateLinkServices/privateEndpointConnections/read",
    "Microsoft.Network/privateLinkServices/privateEndpointConnections/write",
    // Machines.
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/virtualMachines/start/action",
    // What a subscription offers, and its limits.
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Features/providers/features/read",
    "Microsoft.Features/providers/features/register/action",
    "Microsoft.Network/locations/usages/read",
    "Microsoft.Resources/subscriptions/providers/read",
    "*/register/action",
    // Long operations are read at the level of the subscription.
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Network/locations/operationResults/read",
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Resources/subscriptions/operationresults/read",
    "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    // Containers of the installer.
    "Microsoft.Storage/storageAccounts/blobServices/containers/delete",
    "Microsoft.Storage/storageAccounts/blobServices/containers/read",
    "Microsoft.Storage/storageAccounts/blobServices/containers/write",
    // Rights of clusters.
    "Microsoft.Authorization/denyAssignments/read",
    "Microsoft.Authorization/permissions/read",
    "Microsoft.Authorization/roleAssignments/delete",
    "Microsoft.Authorization/roleAssignments/read",
    "Microsoft.Authorization/roleAssignments/write",
    "Microsoft.Authorization/roleDefinitions/read",
    // Credentials of clusters' identities.
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/delete",
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/read",
    "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials/write",
    // Tokens of the registry.
    "Microsoft.ContainerRegistry/registries/generateCredentials/action",
    "Microsoft.ContainerRegistry/registries/read",
    "Microsoft.ContainerRegistry/registries/tokens/delete",
    "Microsoft.ContainerRegistry/registries/tokens/read",
    "Microsoft.ContainerRegistry/registries/tokens/write",
];

/// Actions on the content of blobs.
const DATA: &[&str] = &[
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
];

/// The actions on resources, in order and without repetition.
pub fn required_actions() -> Vec<String> {
    let of_kinds = ResourceKind::ALL.into_iter().flat_map(|kind| {
        let (namespace, types) =
            kind.provider().unwrap_or(("Microsoft.Resources", "subscriptions/resourceGroups"));
        ["delete", "read", "write"].map(|verb| format!("{namespace}/{types}/{verb}"))
    });
    let mut all: Vec<String> = of_kinds.chain(FURTHER.iter().map(|it| (*it).to_owned())).collect();
    all.sort();
    all.dedup();
    all
}

/// The definition of a role that allows just what the client's calls need, as `az role definition create` takes it.
pub fn role_definition(name: &str, scopes: &[String]) -> Value {
    json!({
        "Name": name,
        "IsCustom": true,
        "Description": "What Shipshape needs to create, maintain and delete clusters.",
        "Actions": required_actions(),
        "NotActions": [],
        "DataActions": DATA,
        "NotDataActions": [],
        "AssignableScopes": scopes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_has_every_kind_of_resource_and_nothing_twice() {
        let actions = required_actions();
        assert!(actions.contains(&"Microsoft.Network/virtualNetworks/subnets/write".to_owned()));
        assert!(actions.contains(&"Microsoft.Resources/subscriptions/resourceGroups/delete".to_owned()));
        assert!(actions.windows(2).all(|pair| pair[0] < pair[1]));
        // A role that may do everything has no use for a list.
        assert!(!actions.iter().any(|it| it == "*" || it == "*/write"));
    }

    #[test]
    fn the_definition_has_the_members_that_az_reads() {
        let role = role_definition("Shipshape", &["/subscriptions/s".to_owned()]);
        assert_eq!(role["AssignableScopes"], json!(["/subscriptions/s"]));
        assert_eq!(role["IsCustom"], json!(true));
        assert_eq!(role["Actions"].as_array().unwrap().len(), required_actions().len());
    }
}
