//! Role definitions: the built-in ones that matter here, and those that callers create.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::openshift_roles;
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{database, identities};

const ROLE_DEFINITION: &str = "role-definition";

/// Owner, the role of everybody who may do everything.
pub(crate) const OWNER: &str = "8e3af657-a8ff-443c-a75c-2fe8c4bcb635";

/// Built-in roles: guid, name, actions, excluded actions, data actions.
pub(super) type BuiltIn =
    (&'static str, &'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Contributor, which may do everything but give roles.
pub(crate) const CONTRIBUTOR: &str = "b24988ac-6180-42a0-ab88-20f7382dd24c";

/// The role of the controllers of OpenShift's machines.
pub(crate) const MACHINE_API_OPERATOR: &str = "0358943c-7e01-48ba-8889-02cc51d78637";

const BUILT_IN: [BuiltIn; 13] = [
    (OWNER, "Owner", &["*"], &[], &[]),
    (
        CONTRIBUTOR,
        "Contributor",
        &["*"],
        &[
            "Microsoft.Authorization/*/Delete",
            "Microsoft.Authorization/*/Write",
            "Microsoft.Authorization/elevateAccess/Action",
        ],
        &[],
    ),
    ("acdd72a7-3385-48ef-bd42-f606fba81ae7", "Reader", &["*/read"], &[], &[]),
    (
        "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",
        "User Access Administrator",
        &["*/read", "Microsoft.Authorization/*"],
        &[],
        &[],
    ),
    (
        "4d97b98b-1d4f-4787-a291-c67834d212e7",
        "Network Contributor",
        &["*/read", "Microsoft.Network/*", "Microsoft.Resources/deployments/*"],
        &[],
        &[],
    ),
    (
        "ba92f5b4-2d11-453d-a403-e96b0029c9fe",
        "Storage Blob Data Contributor",
        &[
            "Microsoft.Storage/storageAccounts/blobServices/containers/delete",
            "Microsoft.Storage/storageAccounts/blobServices/containers/read",
            "Microsoft.Storage/storageAccounts/blobServices/containers/write",
            "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
        ],
        &[],
        &["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/*"],
    ),
    (
        "b7e6dc6d-f1e8-4753-8033-0f276bb0955b",
        "Storage Blob Data Owner",
        &[
            "Microsoft.Storage/storageAccounts/blobServices/containers/*",
            "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
        ],
        &[],
        &["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/*"],
    ),
    (
        "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
        "Storage Blob Data Reader",
        &[
            "Microsoft.Storage/storageAccounts/blobServices/containers/read",
            "Microsoft.Storage/storageAccounts/blobServices/generateUserDelegationKey/action",
        ],
        &[],
        &["Microsoft.Storage/storageAccounts/blobServices/containers/blobs/read"],
    ),
    (
        "a4417e6f-fecd-4de8-b567-7b0420556985",
        "Key Vault Certificates Officer",
        &["Microsoft.KeyVault/*/read"],
        &[],
        &["Microsoft.KeyVault/vaults/certificates/*", "Microsoft.KeyVault/vaults/certificatecas/*"],
    ),
    (
        "b86a8fe4-44ce-4948-aee5-eccb2c155cd7",
        "Key Vault Secrets Officer",
        &["Microsoft.KeyVault/*/read"],
        &[],
        &["Microsoft.KeyVault/vaults/secrets/*"],
    ),
    (
        "4633458b-17de-408a-b874-0445c86b69e6",
        "Key Vault Secrets User",
        &[],
        &[],
        &[
            "Microsoft.KeyVault/vaults/secrets/getSecret/action",
            "Microsoft.KeyVault/vaults/secrets/readMetadata/action",
        ],
    ),
    (
        "00482a5a-887f-4fb3-b363-3b7fe8e74483",
        "Key Vault Administrator",
        &["Microsoft.KeyVault/*/read"],
        &[],
        &["Microsoft.KeyVault/vaults/*"],
    ),
    (
        "f1a07417-d97a-45cb-824c-7a7467783830",
        "Managed Identity Operator",
        &["*/read", "Microsoft.ManagedIdentity/userAssignedIdentities/*/assign/action"],
        &[],
        &[],
    ),
];

/// What one entry of a role allows.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PermissionSet {
    pub(crate) actions: Vec<String>,
    pub(crate) not_actions: Vec<String>,
    pub(crate) data_actions: Vec<String>,
    pub(crate) not_data_actions: Vec<String>,
}

impl PermissionSet {
    /// Whether an action of the resource manager is allowed.
    pub(crate) fn allows(&self, action: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|it| identities::matches(it, action));
        any(&self.actions) && !any(&self.not_actions)
    }

    /// Whether an action on data is allowed.
    pub(crate) fn allows_data(&self, action: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|it| identities::matches(it, action));
        any(&self.data_actions) && !any(&self.not_data_actions)
    }
}

/// A role definition.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RoleDefinition {
    pub(crate) name: String,
    /// The scope at which it was created; empty for built-in ones.
    #[serde(default)]
    pub(crate) scope: String,
    pub(crate) role_name: String,
    pub(crate) role_type: String,
    #[serde(default)]
    pub(crate) description: String,
    pub(crate) permissions: Vec<PermissionSet>,
    pub(crate) assignable_scopes: Vec<String>,
}

impl RoleDefinition {
    pub(crate) fn shown(&self, scope: &str) -> Value {
        let scope = if self.scope.is_empty() { subscription_scope(scope) } else { &self.scope };
        json!({
            "id": format!("{scope}/providers/Microsoft.Authorization/roleDefinitions/{}", self.name),
            "name": self.name,
            "type": "Microsoft.Authorization/roleDefinitions",
            "properties": {
                "roleName": self.role_name,
                "type": self.role_type,
                "description": self.description,
                "permissions": self.permissions,
                "assignableScopes": self.assignable_scopes,
            },
        })
    }
}

/// Built-in definitions are shown below the subscription, or below the tenant.
fn subscription_scope(scope: &str) -> &str {
    let end = scope.match_indices('/').nth(2).map_or(scope.len(), |(at, _)| at);
    &scope[..end]
}

fn built_in() -> impl Iterator<Item = RoleDefinition> {
    let owned = |texts: &[&str]| texts.iter().map(|it| (*it).to_owned()).collect::<Vec<String>>();
    BUILT_IN.iter().chain(&openshift_roles::BUILT_IN).map(
        move |(name, role_name, actions, not_actions, data_actions)| RoleDefinition {
            name: (*name).to_owned(),
            scope: String::new(),
            role_name: (*role_name).to_owned(),
            role_type: "BuiltInRole".to_owned(),
            description: String::new(),
            permissions: vec![PermissionSet {
                actions: owned(actions),
                not_actions: owned(not_actions),
                data_actions: owned(data_actions),
                not_data_actions: Vec::new(),
            }],
            assignable_scopes: vec!["/".to_owned()],
        },
    )
}

/// All definitions.
pub(crate) fn all(cx: &CallContext<'_>) -> Result<Vec<RoleDefinition>, Failure> {
    let custom: Vec<RoleDefinition> = database::records(cx.db, ROLE_DEFINITION)?;
    Ok(built_in().chain(custom).collect())
}

/// A definition by its guid.
pub(crate) fn find(cx: &CallContext<'_>, name: &str) -> Result<Option<RoleDefinition>, Failure> {
    match built_in().find(|it| it.name.eq_ignore_ascii_case(name)) {
        Some(found) => Ok(Some(found)),
        None => database::record(cx.db, ROLE_DEFINITION, &name.to_lowercase()),
    }
}

pub(crate) fn keep(cx: &CallContext<'_>, definition: &RoleDefinition) -> Result<(), Failure> {
    database::write(cx.db, ROLE_DEFINITION, &definition.name.to_lowercase(), definition)
}

pub(crate) fn remove(cx: &CallContext<'_>, name: &str) -> Result<bool, Failure> {
    database::delete(cx.db, ROLE_DEFINITION, &name.to_lowercase())
}
