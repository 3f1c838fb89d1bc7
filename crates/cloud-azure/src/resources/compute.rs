//! Machines with their interfaces and disks.

use cloud::{Properties, ResourceId};
use serde_json::{Value, json};

use crate::json::{id_at, items, optional_text, set, text};
use crate::settings::MachineSettings;

/// The name of a machine's interface.
pub(crate) fn nic_name(machine: &str) -> String {
    format!("{machine}-nic")
}

/// The name of a machine's disk.
pub(crate) fn os_disk_name(machine: &str) -> String {
    format!("{machine}_OSDisk")
}

pub(super) fn apply_machine(
    body: &mut Value,
    id: &ResourceId,
    machine: &Properties,
    settings: &MachineSettings,
    is_new: bool,
) {
    let Properties::Machine { size, zone, disk_size_gb, .. } = machine else { return };
    if !is_new {
        // Image, zone and account of a machine never change; what the cloud reports is not sent back.
        for reported in ["instanceView", "vmId", "timeCreated"] {
            set(body, &["properties", reported], Value::Null);
        }
        set(body, &["resources"], Value::Null);
        if !text(body, "/properties/hardwareProfile/vmSize").eq_ignore_ascii_case(size) {
            set(body, &["properties", "hardwareProfile", "vmSize"], json!(size));
        }
        return;
    }
    if let Some(zone) = zone {
        set(body, &["zones"], json!([zone]));
    }
    let MachineSettings { publisher, offer, sku, version, user, ssh_public_key } = settings;
    let nic = id.sibling("Microsoft.Network", "networkInterfaces", &nic_name(id.name()));
    let ssh = ssh_public_key.as_ref().map_or(
        Value::Null,
        |key| json!({"publicKeys": [{"path": format!("/home/{user}/.ssh/authorized_keys"), "keyData": key}]}),
    );
    let mut linux = json!({ "disablePasswordAuthentication": true });
    set(&mut linux, &["ssh"], ssh);
    set(
        body,
        &["properties"],
        json!({
            "hardwareProfile": {"vmSize": size},
            "storageProfile": {
                "imageReference": {"publisher": publisher, "offer": offer, "sku": sku, "version": version},
                "osDisk": {
                    "name": os_disk_name(id.name()),
                    "createOption": "FromImage",
                    "caching": "ReadWrite",
                    "diskSizeGB": disk_size_gb,
                    "managedDisk": {"storageAccountType": "Premium_LRS"},
                    "deleteOption": "Delete",
                },
            },
            "osProfile": {"computerName": id.name(), "adminUsername": user, "linuxConfiguration": linux},
            "networkProfile": {"networkInterfaces": [{"id": nic, "properties": {"primary": true, "deleteOption": "Delete"}}]},
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": true}},
        }),
    );
}

/// Whether a machine is started or about to be. A machine without a reported power state counts as started: it is being made.
pub(crate) fn running(body: &Value) -> bool {
    !matches!(power(body).as_str(), "stopping" | "stopped" | "deallocating" | "deallocated")
}

/// Whether the power state is changing.
pub(crate) fn power_change(body: &Value) -> bool {
    matches!(power(body).as_str(), "starting" | "stopping" | "deallocating")
}

fn power(body: &Value) -> String {
    let statuses =
        ["/properties/instanceView/statuses", "/statuses"].into_iter().flat_map(|it| items(body, it));
    let power = statuses.filter_map(|it| text(it, "/code").strip_prefix("PowerState/")).next();
    power.unwrap_or_default().to_lowercase()
}

pub(super) fn machine(body: &Value, interface: Option<&Value>) -> Properties {
    let configuration = interface.and_then(|it| items(it, "/properties/ipConfigurations").first());
    let subnet = configuration.and_then(|it| id_at(it, "/properties/subnet/id"));
    let size = body
        .pointer("/properties/storageProfile/osDisk/diskSizeGB")
        .and_then(Value::as_u64)
        .unwrap_or_default();
    Properties::Machine {
        size: text(body, "/properties/hardwareProfile/vmSize").to_owned(),
        subnet: subnet.unwrap_or_else(|| ResourceId::group("unknown", "unknown")),
        zone: items(body, "/zones").first().and_then(Value::as_str).map(str::to_owned),
        disk_size_gb: size.try_into().unwrap_or(u32::MAX),
        address: configuration.and_then(|it| optional_text(it, "/properties/privateIPAddress")),
        running: running(body),
    }
}

pub(super) fn apply_disk(body: &mut Value, size_gb: u32, is_new: bool) {
    if is_new {
        set(body, &["sku", "name"], json!("Premium_LRS"));
        set(body, &["properties", "creationData", "createOption"], json!("Empty"));
    }
    set(body, &["properties", "diskSizeGB"], json!(size_gb));
}

pub(super) fn disk(body: &Value) -> Properties {
    let size = body.pointer("/properties/diskSizeGB").and_then(Value::as_u64).unwrap_or_default();
    Properties::Disk { size_gb: size.try_into().unwrap_or(u32::MAX) }
}

/// A new encryption set has an identity of its own. Its key is the customer's, so that Azure may ask for one.
pub(super) fn apply_encryption_set(body: &mut Value, is_new: bool) {
    if is_new {
        set(body, &["identity", "type"], json!("SystemAssigned"));
        set(body, &["properties", "encryptionType"], json!("EncryptionAtRestWithCustomerKey"));
    }
}
