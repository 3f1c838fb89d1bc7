//! Managed disks and disk encryption sets.

use cloud::ResourceId;
use serde_json::{Value, json};

use super::body::{
    Body, default, hide_private, invalid, keep, keep_private, object, properties, required, same, text,
};
use super::rows;
use crate::arm::{ArmError, ArmResource, Behaviour};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{identities, seed};

pub(super) const DISK: &str = "Microsoft.Compute/disks";

/// The machine that a disk is attached to.
const MACHINE: &str = "$machine";

pub(super) struct Disks;

impl Behaviour for Disks {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep_private(before, body);
        body.remove("managedBy");
        keep(before, body, &["uniqueId", "timeCreated"]);
        keep(None, body, &["diskState", "diskSizeBytes"]);
        fill(cx, id, body);
        let inner = Value::Object(properties(body).clone());
        let creation = inner.get("creationData").cloned().unwrap_or_default();
        let Some(option) = text(&creation, "createOption") else {
            return Err(required("creationData.createOption", id));
        };
        let size = inner.get("diskSizeGB").and_then(Value::as_u64);
        if same(option, "Empty") && size.is_none_or(|it| it == 0) {
            return Err(required("diskSizeGB", id));
        }
        let had = before.and_then(|it| it.property("diskSizeGB")).and_then(Value::as_u64);
        if let (Some(had), Some(size)) = (had, size)
            && size < had
        {
            let message =
                format!("New disk size should not be less than existing size: disk {id} has {had} GiB.");
            return Err(ArmError::conflict("OperationNotAllowed", message).into());
        }
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        _expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        let machine = attached_to(cx, resource)?;
        if let Some(machine) = &machine {
            body.insert("managedBy".to_owned(), json!(machine));
        }
        let bytes = resource.property("diskSizeGB").and_then(Value::as_u64).unwrap_or(0) << 30;
        let shown = properties(body);
        shown
            .insert("diskState".to_owned(), json!(if machine.is_some() { "Attached" } else { "Unattached" }));
        shown.insert("diskSizeBytes".to_owned(), json!(bytes));
        Ok(())
    }

    fn may_delete(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        match attached_to(cx, resource)? {
            Some(machine) => {
                let message = format!("Disk {} is attached to VM {machine}.", resource.id.name());
                Err(ArmError::conflict("OperationNotAllowed", message).into())
            }
            None => Ok(()),
        }
    }
}

fn fill(cx: &CallContext<'_>, id: &ResourceId, body: &mut Body) {
    let sku = object(body, "sku");
    default(sku, "name", json!("Premium_LRS"));
    let tier = if sku.get("name").and_then(Value::as_str).is_some_and(|it| it.starts_with("Premium")) {
        "Premium"
    } else {
        "Standard"
    };
    sku.insert("tier".to_owned(), json!(tier));
    let properties = properties(body);
    default(properties, "uniqueId", json!(seed::uuid(cx.seed, &["disk", &id.key()]).to_string()));
    default(properties, "timeCreated", json!(cx.now.to_string()));
    default(properties, "encryption", json!({ "type": "EncryptionAtRestWithPlatformKey" }));
    default(properties, "networkAccessPolicy", json!("AllowAll"));
    default(properties, "publicNetworkAccess", json!("Enabled"));
}

/// The machine that a disk is attached to, while that machine is there.
fn attached_to(cx: &CallContext<'_>, disk: &ArmResource) -> Result<Option<ResourceId>, Failure> {
    let machine = disk.body.get(MACHINE).and_then(Value::as_str).and_then(|it| it.parse::<ResourceId>().ok());
    let Some(machine) = machine else { return Ok(None) };
    Ok(crate::arm::store::find(cx.db, &machine.key())?.map(|it| it.id))
}

/// Requires a disk that a machine can have.
pub(super) fn check_attachable(
    cx: &CallContext<'_>,
    disk: &ResourceId,
    machine: &ResourceId,
) -> Result<(), Failure> {
    let Some(found) = rows::present(cx, disk)? else {
        let message = format!("Disk {disk} is not found.");
        return Err(ArmError::not_found("NotFound", message).into());
    };
    match attached_to(cx, &found)? {
        Some(other) if other != *machine => {
            let message = format!(
                "Disk '{}' cannot be attached as the disk is already owned by VM '{other}'.",
                disk.name()
            );
            Err(ArmError::conflict("ConflictingUserInput", message).into())
        }
        _ => Ok(()),
    }
}

/// Creates a disk of a machine unless it exists, and attaches it.
pub(super) fn attach(
    cx: &CallContext<'_>,
    disk: &ResourceId,
    machine: &ArmResource,
    mut body: Body,
) -> Result<(), Failure> {
    if let Some(mut found) = rows::present(cx, disk)? {
        found.body.insert(MACHINE.to_owned(), json!(machine.id));
        return rows::replace(cx, &found);
    }
    body.insert("location".to_owned(), json!(machine.location()));
    for member in ["zones", "tags"] {
        if let Some(value) = machine.body.get(member) {
            body.insert(member.to_owned(), value.clone());
        }
    }
    body.insert(MACHINE.to_owned(), json!(machine.id));
    fill(cx, disk, &mut body);
    // The disk of a machine that fails is sound.
    rows::write(cx, disk, DISK, body, &ArmResource { fault: None, ..machine.clone() })
}

/// Detaches the disk of a machine that is deleted.
pub(super) fn detach(cx: &CallContext<'_>, disk: &ResourceId) -> Result<(), Failure> {
    match rows::present(cx, disk)? {
        Some(mut found) => {
            found.body.remove(MACHINE);
            rows::replace(cx, &found)
        }
        None => Ok(()),
    }
}

pub(super) struct EncryptionSets;

impl Behaviour for EncryptionSets {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        _before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        default(properties(body), "encryptionType", json!("EncryptionAtRestWithCustomerKey"));
        default(properties(body), "rotationToLatestKeyVersionEnabled", json!(false));
        if properties(body).get("activeKey").and_then(|it| it.get("keyUrl")).is_none() {
            return Err(invalid(
                "InvalidParameter",
                format!("Required parameter 'activeKey' of {id} is missing."),
            ));
        }
        let identity = object(body, "identity");
        default(identity, "type", json!("SystemAssigned"));
        let principal = seed::uuid(cx.seed, &["principal", &id.key()]).to_string();
        default(identity, "principalId", json!(principal));
        default(identity, "tenantId", json!(identities::tenant(cx.seed)));
        Ok(())
    }

    /// The key's vault is no resource that has to stay.
    fn references(&self, _id: &ResourceId, _body: &Body) -> Vec<ResourceId> {
        Vec::new()
    }
}
