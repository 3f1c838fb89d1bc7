//! The actions that the client's calls need, for a role with the least privilege.
//!
//! A call needs the action of its method and type. Writes that refer to other resources need a right on those too. Every call is
//! compared with these lists in debug builds, and a test makes every call there is: no action is missing, and none is without use.

use std::sync::LazyLock;

use azure_core::http::Method;
use cloud::ResourceKind;
use serde_json::{Value, json};

use crate::permissions::matches;

/// Calls besides reading, writing and deleting the kinds of resources.
const FURTHER: &[&str] = &[
    // Approval of private endpoints.
    "Microsoft.Network/privateLinkServices/privateEndpointConnections/write",
    // Power of machines.
    "Microsoft.Compute/virtualMachines/deallocate/action",
    "Microsoft.Compute/virtualMachines/start/action",
    // What a subscription offers, and its limits.
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Features/providers/features/read",
    "Microsoft.Network/locations/usages/read",
    "Microsoft.Resources/subscriptions/providers/read",
    "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    // Containers of storage accounts.
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
    // The registry and its tokens.
    "Microsoft.ContainerRegistry/registries/generateCredentials/action",
    "Microsoft.ContainerRegistry/registries/read",
    "Microsoft.ContainerRegistry/registries/tokens/delete",
    "Microsoft.ContainerRegistry/registries/tokens/read",
    "Microsoft.ContainerRegistry/registries/tokens/write",
];

/// Rights on the resources that a written one refers to.
const LINKED: &[&str] = &[
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
];

/// Reads of long operations, at URLs that the services give.
const OPERATIONS: &[&str] = &[
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.ContainerRegistry/locations/operationResults/read",
    "Microsoft.Network/locations/operationResults/read",
    "Microsoft.Network/locations/operations/read",
    "Microsoft.Network/privateDnsOperationResults/read",
    "Microsoft.Network/privateDnsOperationStatuses/read",
    "Microsoft.Resources/subscriptions/operationresults/read",
];

/// Calls with which a subscription is prepared, by a person with more rights than the service has.
const PREPARATION: &[&str] = &[
    "*/register/action",
    "Microsoft.Authorization/locks/delete",
    "Microsoft.Authorization/locks/write",
    "Microsoft.Authorization/roleDefinitions/delete",
    "Microsoft.Authorization/roleDefinitions/write",
    "Microsoft.Features/providers/features/register/action",
];

/// Actions on the content of blobs and of the vault.
const DATA: &[&str] = &[
    "Microsoft.KeyVault/vaults/certificates/create/action",
    "Microsoft.KeyVault/vaults/certificates/delete",
    "Microsoft.KeyVault/vaults/certificates/purge/action",
    "Microsoft.KeyVault/vaults/certificates/read",
    "Microsoft.KeyVault/vaults/certificates/recover/action",
    "Microsoft.KeyVault/vaults/secrets/delete",
    "Microsoft.KeyVault/vaults/secrets/getSecret/action",
    "Microsoft.KeyVault/vaults/secrets/recover/action",
    "Microsoft.KeyVault/vaults/secrets/setSecret/action",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/delete",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read",
    "Microsoft.Storage/storageAccounts/blobServices/containers/blobs/write",
];

/// The calls of the instance provider, which a cluster's own identity makes.
const INSTANCE_CALLS: &[&str] = &[
    "Microsoft.Compute/availabilitySets/delete",
    "Microsoft.Compute/availabilitySets/read",
    "Microsoft.Compute/availabilitySets/write",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Network/applicationSecurityGroups/read",
    "Microsoft.Network/loadBalancers/read",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/virtualNetworks/subnets/read",
];

/// Rights of the same identity on what its machines refer to.
const INSTANCE_LINKED: &[&str] = &[
    "Microsoft.Compute/capacityReservationGroups/deploy/action",
    "Microsoft.Compute/diskEncryptionSets/read",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Compute/images/read",
    "Microsoft.ManagedIdentity/userAssignedIdentities/assign/action",
    "Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "Microsoft.Network/loadBalancers/inboundNatRules/join/action",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
];

/// The actions of the service's calls alone.
static CALLS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let of_kinds = ResourceKind::ALL.into_iter().flat_map(|kind| {
        let (namespace, types) =
            kind.provider().unwrap_or(("Microsoft.Resources", "subscriptions/resourceGroups"));
        ["delete", "read", "write"].map(|verb| format!("{namespace}/{types}/{verb}"))
    });
    let all = of_kinds.chain(FURTHER.iter().map(|it| (*it).to_owned()));
    all.filter(|it| !PREPARATION.contains(&it.as_str())).collect()
});

/// The actions on resources that the service needs, in order and without repetition.
pub fn required_actions() -> Vec<String> {
    let others = LINKED.iter().chain(OPERATIONS).map(|it| (*it).to_owned());
    let mut all: Vec<String> = CALLS.iter().cloned().chain(others).collect();
    all.sort();
    all.dedup();
    all
}

/// The actions that the identity of a cluster's machine controllers needs, in order and without repetition.
pub fn instance_actions() -> Vec<&'static str> {
    let mut all: Vec<&str> = INSTANCE_CALLS.iter().chain(INSTANCE_LINKED).copied().collect();
    all.sort_unstable();
    all
}

/// The actions that preparing a subscription needs besides those of the service.
pub fn preparation_actions() -> &'static [&'static str] {
    PREPARATION
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

/// Whether the lists have the action of a call.
pub(crate) fn is_listed(method: Method, path: &str) -> bool {
    let is_in = |action: &str| {
        CALLS.iter().any(|it| it.eq_ignore_ascii_case(action))
            || INSTANCE_CALLS.iter().any(|it| it.eq_ignore_ascii_case(action))
            || PREPARATION.iter().any(|it| matches(it, action))
    };
    action_of(method, path).is_some_and(|it| is_in(&it))
}

/// The action that a call needs: the types in its path, and the verb of its method or of its last segment.
fn action_of(method: Method, path: &str) -> Option<String> {
    let mut segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let verb = match method {
        Method::Get | Method::Head => "read".to_owned(),
        Method::Put | Method::Patch => "write".to_owned(),
        Method::Delete => "delete".to_owned(),
        Method::Post => format!("{}/action", segments.pop()?),
        _ => return None,
    };
    let types = |at: usize| segments[at..].iter().step_by(2).copied().collect::<Vec<_>>().join("/");
    let Some(at) = segments.iter().rposition(|it| it.eq_ignore_ascii_case("providers")) else {
        return Some(format!("Microsoft.Resources/{}/{verb}", types(0)));
    };
    let namespace = match segments.get(at + 1) {
        Some(namespace) => *namespace,
        None => return Some(format!("Microsoft.Resources/{}/{verb}", types(0))),
    };
    let of_feature = segments[..at].iter().any(|it| it.eq_ignore_ascii_case("Microsoft.Features"));
    Some(match types(at + 2).as_str() {
        types if of_feature => format!("Microsoft.Features/providers/{types}/{verb}"),
        "" => format!("{namespace}/{verb}"),
        types => format!("{namespace}/{types}/{verb}"),
    })
}

#[cfg(test)]
mod tests;
