//! The resources that the emulator has from the start: a group with a container registry, a vault, and a storage account for the documents
//! of clusters' token issuers.

use std::collections::BTreeSet;

use cloud::ResourceId;
use serde_json::{Map, Value, json};

use super::kind::{ArmResource, find_kind};
use super::kinds::storage;
use super::{groups, resources, store};
use crate::call_context::CallContext;
use crate::endpoints::OWN_NAME as NAME;
use crate::failure::Failure;
use crate::{database, identities};

/// The type of vaults.
pub(crate) const VAULT_TYPE: &str = "Microsoft.KeyVault/vaults";
const REGISTRY_TYPE: &str = "Microsoft.ContainerRegistry/registries";

const LOCATION: &str = "eastus";

const META: &str = "meta";
const PREPARED: &str = "ownResources";
const ISSUERS_PREPARED: &str = "ownIssuerAccount";
/// The container of the account's website.
const WEBSITE: &str = "$web";

fn own_group(subscription: &str) -> ResourceId {
    ResourceId::group(subscription, NAME)
}

/// The emulator's container registry.
pub(crate) fn own_registry(subscription: &str) -> ResourceId {
    own_group(subscription).sibling("Microsoft.ContainerRegistry", "registries", NAME)
}

/// The emulator's storage account for the documents of token issuers.
pub(crate) fn own_issuer_account(subscription: &str) -> ResourceId {
    own_group(subscription).sibling("Microsoft.Storage", "storageAccounts", NAME)
}

/// The URL at which everybody reads the website of that account, below the URL of the blob service.
pub(crate) fn own_issuer_url(blob: &str) -> String {
    format!("{blob}/{NAME}/{WEBSITE}")
}

/// Creates the emulator's own resources at the first start, and the role assignments of its principals.
pub(crate) fn prepare(cx: &CallContext<'_>) -> Result<(), Failure> {
    identities::ensure_owners(cx)?;
    if database::record::<bool>(cx.db, META, PREPARED)?.is_none() {
        prepare_group(cx)?;
        database::write(cx.db, META, PREPARED, &true)?;
    }
    // Later than the others, so that the database of an earlier release lacks it.
    if database::record::<bool>(cx.db, META, ISSUERS_PREPARED)?.is_none() {
        prepare_issuer_account(cx)?;
        database::write(cx.db, META, ISSUERS_PREPARED, &true)?;
    }
    Ok(())
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

fn prepare_issuer_account(cx: &CallContext<'_>) -> Result<(), Failure> {
    let group = own_group(&cx.endpoints.subscription_id);
    if store::visible(cx, &group)?.is_none() {
        groups::write(cx, &group, &object(json!({ "location": LOCATION })))?;
    }
    let id = own_issuer_account(&cx.endpoints.subscription_id);
    let body = json!({
        "location": LOCATION,
        "kind": "StorageV2",
        "sku": { "name": "Standard_LRS" },
        "properties": { "allowSharedKeyAccess": false },
    });
    if let Some(account) = create(cx, storage::ACCOUNT, &id, body)? {
        storage::create_container(cx, &account, WEBSITE, Map::new())?;
    }
    Ok(())
}

/// Creates a resource that is ready at once.
fn create(
    cx: &CallContext<'_>,
    type_name: &str,
    id: &ResourceId,
    body: Value,
) -> Result<Option<ArmResource>, Failure> {
    let Some(kind) = find_kind(type_name) else { return Ok(None) };
    let mut written = resources::write(cx, kind, id, object(body))?.resource;
    written.settles = cx.now;
    store::keep(cx.db, &written)?;
    Ok(Some(written))
}

fn prepare_group(cx: &CallContext<'_>) -> Result<(), Failure> {
    let group = own_group(&cx.endpoints.subscription_id);
    groups::write(cx, &group, &object(json!({ "location": LOCATION })))?;
    let registry = own_registry(&cx.endpoints.subscription_id);
    let vault = group.sibling("Microsoft.KeyVault", "vaults", NAME);
    let registry_body = json!({ "location": LOCATION, "sku": { "name": "Premium" }, "properties": {} });
    let vault_body = json!({
        "location": LOCATION,
        "properties": {
            "tenantId": cx.endpoints.tenant_id,
            "sku": { "family": "A", "name": "standard" },
            "enableRbacAuthorization": true,
            "accessPolicies": [],
        },
    });
    create(cx, REGISTRY_TYPE, &registry, registry_body)?;
    create(cx, VAULT_TYPE, &vault, vault_body)?;
    Ok(())
}

/// The names of all vaults.
pub(crate) fn vault_names(cx: &CallContext<'_>) -> Result<BTreeSet<String>, Failure> {
    let vaults = store::of_type_anywhere(cx.db, VAULT_TYPE)?;
    let names = vaults.iter().map(|it| it.id.name().to_lowercase());
    Ok(names.chain([NAME.to_owned()]).collect())
}

/// Whether a vault may have this name: 3 to 24 letters, digits and dashes, starting with a letter.
pub(crate) fn is_vault_name(name: &str) -> bool {
    (3..=24).contains(&name.len())
        && name.starts_with(|it: char| it.is_ascii_alphabetic())
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-')
}
