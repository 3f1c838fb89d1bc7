//! Virtual machines: their disks and interfaces, their power, and what can be asked of them.

use std::collections::BTreeMap;
use std::time::Duration;

use cloud::ResourceId;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::body::{
    Body, default, hide_private, invalid, items, keep, keep_private, object, properties, reference, required,
    same, text,
};
use super::{boot, disks, interfaces, machine_actions, rows};
use crate::arm::{ActionOutcome, ArmError, ArmResource, Behaviour, Change, store};
use crate::call_context::CallContext;
use crate::failure::{Failure, conflict, not_found};
use crate::{identities, seed};

pub(crate) const MACHINE: &str = "Microsoft.Compute/virtualMachines";

/// The power of a machine: its state, the state on the way to it, and the time at which it is reached.
pub(super) const POWER: &str = "$power";

/// Whether a machine runs and its system does not answer.
const IMPAIRED: &str = "$impaired";

/// How long the interfaces of a deleted machine stay reserved at the pace of a real cloud.
const RESERVATION: Duration = Duration::from_secs(180);

pub(super) struct Machines;

impl Behaviour for Machines {
    fn prepare(
        &self,
        cx: &CallContext<'_>,
        id: &ResourceId,
        before: Option<&ArmResource>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        keep_private(before, body);
        keep(before, body, &["vmId", "timeCreated"]);
        keep(None, body, &["instanceView"]);
        body.remove("resources");
        default(body, POWER, json!({ "state": "running" }));
        if before.is_none() {
            boot::note_user_data(cx, id, body);
        }
        check_unchanged(before, body)?;
        let inner = properties(body);
        default(
            inner,
            "vmId",
            json!(seed::uuid(cx.seed, &["vm", &id.key(), &cx.now.to_string()]).to_string()),
        );
        default(inner, "timeCreated", json!(cx.now.to_string()));
        if object(inner, "hardwareProfile").get("vmSize").and_then(Value::as_str).is_none() {
            return Err(required("hardwareProfile.vmSize", id));
        }
        if inner.contains_key("osProfile") {
            let profile = object(inner, "osProfile");
            // They are never shown.
            profile.remove("adminPassword");
            profile.remove("customData");
            default(profile, "computerName", json!(id.name()));
            default(profile, "secrets", json!([]));
            default(profile, "allowExtensionOperations", json!(true));
            default(profile, "requireGuestProvisionSignal", json!(true));
        }
        fill_disks(cx, id, before, body)?;
        check_interfaces(cx, id, body)?;
        fill_identity(cx, id, body)
    }

    fn stored(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        for (disk, description) in disks_of(&resource.body) {
            disks::attach(cx, &disk, resource, disk_body(resource, &description))?;
        }
        Ok(())
    }

    fn show(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        expand: Option<&str>,
        body: &mut Body,
    ) -> Result<(), Failure> {
        hide_private(body);
        if expand.is_some_and(|it| same(it, "instanceView")) {
            properties(body).insert("instanceView".to_owned(), machine_actions::instance_view(cx, resource)?);
        }
        Ok(())
    }

    fn view(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        name: &str,
        _query: &[(String, String)],
    ) -> Result<Option<Value>, Failure> {
        same(name, "instanceView").then(|| machine_actions::instance_view(cx, resource)).transpose()
    }

    fn act(
        &self,
        cx: &CallContext<'_>,
        resource: &ArmResource,
        action: &str,
        _query: &[(String, String)],
        body: &Value,
    ) -> Result<Option<ActionOutcome>, Failure> {
        machine_actions::act(cx, resource, action, body)
    }

    fn deleted(&self, cx: &CallContext<'_>, resource: &ArmResource) -> Result<(), Failure> {
        for (disk, description) in disks_of(&resource.body) {
            match is_deleted_with_machine(&description) {
                true => {
                    disks::detach(cx, &disk)?;
                    rows::delete_at(cx, &disk, resource.settles)?;
                }
                false => disks::detach(cx, &disk)?,
            }
        }
        let reserved = RESERVATION.mul_f64(cx.pace.clamp(0.0, 1_000.0));
        let until = resource.settles.saturating_add(reserved).unwrap_or(Timestamp::MAX);
        for (interface, description) in interfaces_of(&resource.body) {
            match is_deleted_with_machine(description.get("properties").unwrap_or(&Value::Null)) {
                true => rows::delete_at(cx, &interface, resource.settles)?,
                false => interfaces::reserve(cx, &interface, until)?,
            }
        }
        Ok(())
    }

    /// Disks answer for themselves: an attached one is a conflict, not a bad request.
    fn references(&self, id: &ResourceId, body: &Body) -> Vec<ResourceId> {
        let mut used = crate::arm::references::in_properties(id, body);
        used.retain(|it| !it.key().contains("/microsoft.compute/disks/"));
        used
    }
}

/// Members that cannot change.
fn check_unchanged(before: Option<&ArmResource>, body: &mut Body) -> Result<(), Failure> {
    let Some(before) = before else { return Ok(()) };
    let changed = |member: &str| {
        let message = format!("Changing property '{member}' is not allowed.");
        Err(ArmError::conflict("PropertyChangeNotAllowed", message).with_target(member).into())
    };
    let (had, sent) = (before.body.get("zones"), body.get("zones"));
    if had.is_some() && sent.is_some() && had != sent {
        return changed("zones");
    }
    if let Some(zones) = had.cloned() {
        body.insert("zones".to_owned(), zones);
    }
    let image = |body: &Body| body.get("properties")?.get("storageProfile")?.get("imageReference").cloned();
    if let (Some(had), Some(sent)) = (image(&before.body), image(body))
        && had != sent
    {
        return changed("imageReference");
    }
    let name = |body: &Body| body.get("properties")?.get("osProfile")?.get("computerName").cloned();
    if let (Some(had), Some(sent)) = (name(&before.body), name(body))
        && had != sent
    {
        return changed("osProfile.computerName");
    }
    Ok(())
}

/// Fills in the names and ids of the disks.
fn fill_disks(
    cx: &CallContext<'_>,
    id: &ResourceId,
    before: Option<&ArmResource>,
    body: &mut Body,
) -> Result<(), Failure> {
    let had_disk = before
        .and_then(|it| it.property("storageProfile"))
        .and_then(|it| it.get("osDisk"))
        .and_then(|it| text(it, "name"))
        .map(str::to_owned);
    let suffix = seed::uuid(cx.seed, &["os-disk", &id.key()]).simple().to_string();
    let profile = object(properties(body), "storageProfile");
    let disk = object(profile, "osDisk");
    default(disk, "name", json!(had_disk.unwrap_or_else(|| format!("{}_OsDisk_1_{suffix}", id.name()))));
    default(disk, "createOption", json!("FromImage"));
    default(disk, "osType", json!("Linux"));
    default(disk, "caching", json!("ReadWrite"));
    default(disk, "deleteOption", json!("Detach"));
    default(disk, "diskSizeGB", json!(128));
    fill_disk(cx, id, disk)?;
    default(profile, "dataDisks", json!([]));
    for (number, disk) in
        profile.get_mut("dataDisks").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        let Value::Object(disk) = disk else {
            return Err(invalid("InvalidParameter", format!("A data disk of {id} is no object.")));
        };
        let attached = disk.get("managedDisk").and_then(|it| reference(Some(it)));
        let name = attached
            .map_or_else(|| format!("{}_disk{}_{suffix}", id.name(), number + 2), |it| it.name().to_owned());
        default(disk, "name", json!(name));
        default(disk, "lun", json!(number));
        default(disk, "createOption", json!("Empty"));
        default(disk, "deleteOption", json!("Detach"));
        fill_disk(cx, id, disk)?;
    }
    Ok(())
}

fn fill_disk(cx: &CallContext<'_>, id: &ResourceId, disk: &mut Body) -> Result<(), Failure> {
    let name = disk.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let is_attached = disk.get("createOption").and_then(Value::as_str).is_some_and(|it| same(it, "Attach"));
    let managed = object(disk, "managedDisk");
    default(managed, "id", json!(id.sibling("Microsoft.Compute", "disks", &name)));
    default(managed, "storageAccountType", json!("Premium_LRS"));
    let Some(used) = reference(Some(&Value::Object(managed.clone()))) else {
        return Err(invalid("InvalidParameter", format!("The disk '{name}' of {id} has no valid id.")));
    };
    if is_attached || rows::present(cx, &used)?.is_some() {
        disks::check_attachable(cx, &used, id)?;
    }
    Ok(())
}

/// The disks of a machine with their descriptions.
fn disks_of(body: &Body) -> Vec<(ResourceId, Value)> {
    let Some(profile) = body.get("properties").and_then(|it| it.get("storageProfile")) else {
        return Vec::new();
    };
    let all = profile.get("osDisk").into_iter().chain(items(profile, "dataDisks"));
    all.filter_map(|it| Some((reference(it.get("managedDisk"))?, it.clone()))).collect()
}

/// The body of a disk that is created with a machine.
fn disk_body(machine: &ArmResource, description: &Value) -> Body {
    let managed = description.get("managedDisk").cloned().unwrap_or_default();
    let profile = machine.property("storageProfile").cloned().unwrap_or_default();
    let creation = match description.get("osType") {
        Some(_) => json!({ "createOption": "FromImage", "imageReference": profile.get("imageReference") }),
        None => json!({ "createOption": "Empty" }),
    };
    let mut body = Body::new();
    body.insert("sku".to_owned(), json!({ "name": managed.get("storageAccountType") }));
    let inner = properties(&mut body);
    inner.insert("creationData".to_owned(), creation);
    inner.insert("diskSizeGB".to_owned(), description.get("diskSizeGB").cloned().unwrap_or(json!(128)));
    if let Some(system) = description.get("osType") {
        inner.insert("osType".to_owned(), system.clone());
    }
    if let Some(set) = reference(managed.get("diskEncryptionSet")) {
        let encryption = json!({ "type": "EncryptionAtRestWithCustomerKey", "diskEncryptionSetId": set });
        inner.insert("encryption".to_owned(), encryption);
    }
    body
}

fn is_deleted_with_machine(description: &Value) -> bool {
    text(description, "deleteOption").is_some_and(|it| same(it, "Delete"))
}

/// The interfaces of a machine with their descriptions.
pub(super) fn interfaces_of(body: &Body) -> Vec<(ResourceId, Value)> {
    let Some(profile) = body.get("properties").and_then(|it| it.get("networkProfile")) else {
        return Vec::new();
    };
    items(profile, "networkInterfaces").filter_map(|it| Some((reference(Some(it))?, it.clone()))).collect()
}

fn check_interfaces(cx: &CallContext<'_>, id: &ResourceId, body: &Body) -> Result<(), Failure> {
    let used = interfaces_of(body);
    if used.is_empty() {
        return Err(required("networkProfile.networkInterfaces", id));
    }
    for (interface, _) in used {
        let Some(found) = rows::present(cx, &interface)? else { continue };
        if let Some(other) = interfaces::machine_of(cx, &found)?.filter(|it| it.id != *id) {
            let (code, message) = interfaces::Interfaces.in_use(&found, &other.id);
            return Err(invalid(&code, message));
        }
    }
    Ok(())
}

/// Fills in the principals of managed identities.
fn fill_identity(cx: &CallContext<'_>, id: &ResourceId, body: &mut Body) -> Result<(), Failure> {
    if !body.get("identity").is_some_and(Value::is_object) {
        return Ok(());
    }
    let identity = object(body, "identity");
    let kind = identity.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind.contains("SystemAssigned") {
        let principal = seed::uuid(cx.seed, &["principal", &id.key()]).to_string();
        identity.insert("principalId".to_owned(), json!(principal));
        identity.insert("tenantId".to_owned(), json!(identities::tenant(cx.seed)));
    }
    if let Some(Value::Object(assigned)) = identity.get_mut("userAssignedIdentities") {
        for (name, value) in assigned {
            let found =
                name.parse::<ResourceId>().ok().map(|it| rows::present(cx, &it)).transpose()?.flatten();
            let Some(found) = found else {
                let message = format!("The identity '{name}' of {id} was not found.");
                return Err(invalid("FailedIdentityOperation", message));
            };
            *value = json!({ "principalId": found.property("principalId"), "clientId": found.property("clientId") });
        }
    }
    Ok(())
}

/// The power state at a time.
pub(super) fn power(resource: &ArmResource, now: Timestamp) -> String {
    let power = resource.body.get(POWER).cloned().unwrap_or_default();
    let at = text(&power, "at").and_then(|it| it.parse::<Timestamp>().ok());
    let on_the_way = at.is_some_and(|at| now < at).then(|| text(&power, "from")).flatten();
    on_the_way.or(text(&power, "state")).unwrap_or("running").to_owned()
}

/// Whether a machine runs.
pub(crate) fn is_running(resource: &ArmResource, now: Timestamp) -> bool {
    let usable = matches!(resource.provisioning_state(now), "Succeeded" | "Updating");
    usable && power(resource, now) == "running"
}

/// The machines of a group by key, and whether the system of each answers. Machines that are being deleted are left out.
pub(crate) fn machines_of_group(
    cx: &CallContext<'_>,
    group: &ResourceId,
) -> Result<BTreeMap<String, bool>, Failure> {
    let found = store::of_type_in_group(cx.db, group, MACHINE)?;
    let present = found.into_iter().filter(|it| it.change != Change::Deleting);
    let answers = |it: &ArmResource| {
        matches!(power(it, cx.now).as_str(), "starting" | "running") && !it.body.contains_key(IMPAIRED)
    };
    Ok(present.map(|it| (it.id.key(), answers(&it))).collect())
}

/// The next time at which the power of a machine of a group changes by itself.
pub(crate) fn next_power_change(
    cx: &CallContext<'_>,
    group: &ResourceId,
) -> Result<Option<Timestamp>, Failure> {
    let found = store::of_type_in_group(cx.db, group, MACHINE)?;
    let changes = found.iter().filter_map(|it| text(it.body.get(POWER)?, "at")?.parse::<Timestamp>().ok());
    Ok(changes.filter(|at| cx.now < *at).min())
}

/// Lets the system of a machine hang, or answer again.
pub(crate) fn set_impaired(cx: &CallContext<'_>, id: &ResourceId, is_impaired: bool) -> Result<(), Failure> {
    let found = rows::present(cx, id)?.filter(|it| same(&it.type_name, MACHINE));
    let mut machine = found.ok_or_else(|| not_found(id))?;
    match is_impaired {
        true => machine.body.insert(IMPAIRED.to_owned(), json!(true)),
        false => machine.body.remove(IMPAIRED),
    };
    rows::replace(cx, &machine)
}

/// Whether the system of a machine hangs.
pub(crate) fn is_impaired(resource: &ArmResource) -> bool {
    resource.body.contains_key(IMPAIRED)
}

/// Whether a machine can be taken back by the cloud; the error says why not.
pub(crate) fn check_interruptible(cx: &CallContext<'_>, id: &ResourceId) -> Result<(), Failure> {
    let found = rows::present(cx, id)?.filter(|it| same(&it.type_name, MACHINE));
    let machine = found.ok_or_else(|| not_found(id))?;
    let priority = machine.property("priority").and_then(Value::as_str).unwrap_or("Regular");
    if !same(priority, "Spot") {
        return Err(conflict(
            id.name(),
            format!("its priority is {priority}; only Spot machines are interrupted"),
        ));
    }
    match power(&machine, cx.now).as_str() {
        "running" => Ok(()),
        other => Err(conflict(id.name(), format!("it is {other}; only running machines are interrupted"))),
    }
}

/// Evicts the machines of a name at a time, as a cloud evicts spot machines: they are deallocated. `None` withdraws it.
pub(crate) fn preempt(cx: &CallContext<'_>, name: &str, at: Option<Timestamp>) -> Result<(), Failure> {
    for mut machine in store::of_type_everywhere(cx.db, MACHINE)? {
        let is_meant = same(machine.id.name(), name) && machine.change != Change::Deleting;
        if !is_meant || power(&machine, cx.now) != "running" {
            continue;
        }
        let power = match at {
            Some(at) => json!({ "state": "deallocated", "from": "running", "at": at.to_string() }),
            None => json!({ "state": "running" }),
        };
        machine.body.insert(POWER.to_owned(), power);
        rows::replace(cx, &machine)?;
    }
    Ok(())
}
