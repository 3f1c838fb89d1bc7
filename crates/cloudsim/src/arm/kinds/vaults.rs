//! Key vaults as resources. Names of deleted vaults stay reserved until they are recovered or purged.

use cloud::ResourceId;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::body::{Body, default, invalid, properties, required, same, text};
use crate::arm::{ArmError, ArmResource, Behaviour, store};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{database, identities, keyvault};

pub(crate) const VAULT: &str = "Microsoft.KeyVault/vaults";

/// The kind of the records of deleted vaults, by name.
const DELETED: &str = "deleted-vault";

/// Days for which a deleted vault can be recovered.
const RETENTION_DAYS: i64 = 90;

/// A vault whose name is still reserved.
#[derive(Serialize, Deserialize)]
struct DeletedVault {
    id: ResourceId,
    location: String,
    deleted: Timestamp,
}

pub(super) struct Vaults;

impl Behaviour for Vaults {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let name = id.name();
        let sound = (3..=24).contains(&name.len())
            && name.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
            && name.starts_with(|it: char| it.is_ascii_alphabetic())
            && !name.ends_with('-');
        if !sound {
            let message =
                format!("The vault name '{name}' is invalid: it has 3 to 24 letters, digits and hyphens.");
            return Err(invalid("VaultNameNotValid", message));
        }
        let inner = properties(body);
        inner.remove("vaultUri");
        let recovers =
            inner.remove("createMode").is_some_and(|it| it.as_str().is_some_and(|it| same(it, "recover")));
        default(inner, "tenantId", json!(identities::tenant(cx.seed)));
        default(inner, "accessPolicies", json!([]));
        default(inner, "enableSoftDelete", json!(true));
        default(inner, "softDeleteRetentionInDays", json!(90));
        default(inner, "enableRbacAuthorization", json!(false));
        default(inner, "publicNetworkAccess", json!("Enabled"));
        if !recovers && inner.get("sku").and_then(|it| text(it, "name")).is_none() {
            return Err(required("sku.name", id));
        }
        default(inner, "sku", json!({ "family": "A", "name": "standard" }));
        if before.is_some() {
            return Ok(());
        }
        if store::of_type_anywhere(cx.db, VAULT)?.iter().any(|it| same(it.id.name(), name)) {
            let message = format!("The vault name '{name}' is already in use.");
            return Err(ArmError::conflict("VaultAlreadyExists", message).into());
        }
        let is_deleted = database::record::<DeletedVault>(cx.db, DELETED, &name.to_lowercase())?.is_some();
        if is_deleted && !recovers {
            let message = "A vault with the same name already exists in deleted state. You need to either recover or purge \
                           existing key vault.";
            return Err(ArmError::conflict("ConflictError", message).into());
        }
        Ok(())
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        database::delete(cx.db, DELETED, &resource.id.name().to_lowercase()).map(drop)
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        let name = resource.id.name().to_lowercase();
        let url = cx.endpoints.vaults.get(&name).cloned();
        let url = url.unwrap_or_else(|| format!("https://{name}.vault.azure.net"));
        properties(body).insert("vaultUri".to_owned(), json!(format!("{}/", url.trim_end_matches('/'))));
        Ok(())
    }

    fn deleted(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        let location = resource.location().to_owned();
        let record = DeletedVault { id: resource.id.clone(), location, deleted: cx.now };
        database::write(cx.db, DELETED, &resource.id.name().to_lowercase(), &record)
    }

    /// Subnets that may reach a vault do not wait for it.
    fn references(&self, _id: &ResourceId, _body: &Body) -> Vec<ResourceId> {
        Vec::new()
    }
}

impl DeletedVault {
    fn shown(&self) -> Value {
        let DeletedVault { id, location, deleted } = self;
        let purged = deleted.saturating_add(SignedDuration::from_hours(24 * RETENTION_DAYS));
        let (subscription, name) = (id.subscription(), id.name());
        json!({
            "id": format!("/subscriptions/{subscription}/providers/Microsoft.KeyVault/locations/{location}/deletedVaults/{name}"),
            "name": name,
            "type": "Microsoft.KeyVault/deletedVaults",
            "properties": {
                "vaultId": id,
                "location": location,
                "tags": {},
                "deletionDate": deleted.to_string(),
                "scheduledPurgeDate": purged.unwrap_or(Timestamp::MAX).to_string(),
                "purgeProtectionEnabled": false,
            },
        })
    }
}

/// The deleted vaults of a subscription, as `GET …/Microsoft.KeyVault/deletedVaults` lists them.
pub(crate) fn deleted(cx: &CallContext<'_>, subscription: &str) -> Result<Value, Failure> {
    let vaults: Vec<DeletedVault> = database::records(cx.db, DELETED)?;
    let of_subscription = vaults.iter().filter(|it| same(it.id.subscription(), subscription));
    Ok(json!({ "value": of_subscription.map(DeletedVault::shown).collect::<Vec<Value>>() }))
}

/// A deleted vault, as `GET …/Microsoft.KeyVault/locations/{location}/deletedVaults/{name}` shows it.
pub(crate) fn find_deleted(cx: &CallContext<'_>, name: &str) -> Result<Value, Failure> {
    let found: Option<DeletedVault> = database::record(cx.db, DELETED, &name.to_lowercase())?;
    found.map(|it| it.shown()).ok_or_else(|| not_deleted(name))
}

fn not_deleted(name: &str) -> Failure {
    let message = format!("The deleted vault '{name}' was not found.");
    ArmError::not_found("DeletedVaultNotFound", message).into()
}

/// Gives the name of a deleted vault back, and removes what the vault held.
pub(crate) fn purge(cx: &CallContext<'_>, name: &str) -> Result<(), Failure> {
    match database::delete(cx.db, DELETED, &name.to_lowercase())? {
        true => keyvault::purge(cx, name),
        false => Err(not_deleted(name)),
    }
}
