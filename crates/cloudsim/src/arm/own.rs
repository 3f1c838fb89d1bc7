//! The resources that the emulator has from the start: a group with a container registry and a vault.

use std::collections::BTreeSet;

use cloud::ResourceId;
use serde_json::{Map, Value, json};

use super::kind::find_kind;
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

fn own_group(subscription: &str) -> ResourceId {
    ResourceId::group(subscription, NAME)
}

/// The emulator's container registry.
pub(crate) fn own_registry(subscription: &str) -> ResourceId {
    own_group(subscription).sibling("Microsoft.ContainerRegistry", "registries", NAME)
}

/// Creates the emulator's own resources at the first start, and the role assignments of its principals.
pub(crate) fn prepare(cx: &CallContext<'_>) -> Result<(), Failure> {
    identities::ensure_owners(cx)?;
    if database::record::<bool>(cx.db, META, PREPARED)?.is_some() {
        return Ok(());
    }
    let group = own_group(&cx.endpoints.subscription_id);
    let object = |value: Value| match value {
        Value::Object(members) => members,
        _ => Map::new(),
    };
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
    for (type_name, id, body) in [(REGISTRY_TYPE, &registry, registry_body), (VAULT_TYPE, &vault, vault_body)]
    {
        if let Some(kind) = find_kind(type_name) {
            let mut written = resources::write(cx, kind, id, object(body))?.resource;
            written.settles = cx.now;
            store::keep(cx.db, &written)?;
        }
    }
    database::write(cx.db, META, PREPARED, &true)
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
