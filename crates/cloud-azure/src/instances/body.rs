//! The bodies of what is created for a machine.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cloud::{InstanceError, ResourceId};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::names::Names;
use super::spec::{DataDisk, ManagedDisk, ProviderSpec};
use super::validate::{CONFIDENTIAL, TRUSTED, ULTRA_SSD, max_price, reservation_group};
use crate::json::set;

/// The account of new machines, which OpenShift's images do not use: their users come with the user data.
const ACCOUNT: &str = "capi";

/// What a machine is created from.
pub(super) struct NewMachine<'a> {
    pub(super) spec: &'a ProviderSpec,
    pub(super) names: &'a Names,
    pub(super) tags: &'a BTreeMap<String, String>,
    pub(super) user_data: Option<&'a [u8]>,
    pub(super) availability_set: Option<&'a ResourceId>,
    /// The names of data disks that are there already, and are attached.
    pub(super) present_disks: &'a [ResourceId],
}

/// The members of a virtual machine. Parts that are made with it and belong to it go with it.
pub(super) fn machine(new: &NewMachine<'_>) -> Result<Value, InstanceError> {
    let NewMachine { spec, names, tags, .. } = new;
    let id = names.machine();
    let mut body = json!({
        "location": spec.location,
        "tags": tags,
        "properties": {
            "hardwareProfile": { "vmSize": spec.vm_size },
            "storageProfile": {
                "imageReference": image(spec, &id),
                "osDisk": os_disk(spec, names),
            },
            "osProfile": os_profile(new)?,
            "networkProfile": { "networkInterfaces": [
                { "id": names.interface(), "properties": { "primary": true, "deleteOption": "Delete" } }
            ] },
        },
    });
    let disks: Vec<Value> = spec.data_disks.iter().map(|it| data_disk(it, new)).collect();
    if !disks.is_empty() {
        set(&mut body, &["properties", "storageProfile", "dataDisks"], json!(disks));
    }
    if !spec.zone.is_empty() {
        set(&mut body, &["zones"], json!([spec.zone]));
    }
    if let Some(availability_set) = new.availability_set {
        set(&mut body, &["properties", "availabilitySet", "id"], json!(availability_set));
    }
    if let Some(plan) = plan(spec) {
        set(&mut body, &["plan"], plan);
    }
    if !spec.managed_identity.is_empty() {
        let id = names.identity(&spec.managed_identity).to_string();
        let assigned = Value::Object(Map::from_iter([(id, json!({}))]));
        set(&mut body, &["identity"], json!({ "type": "UserAssigned", "userAssignedIdentities": assigned }));
    }
    if spec.spot.is_some() {
        // A single machine can only be deallocated; the controllers delete it then.
        set(&mut body, &["properties", "priority"], json!("Spot"));
        set(&mut body, &["properties", "evictionPolicy"], json!("Deallocate"));
        if let Some(price) = max_price(spec)? {
            set(&mut body, &["properties", "billingProfile", "maxPrice"], json!(price));
        }
    }
    if let Some(profile) = security_profile(spec) {
        set(&mut body, &["properties", "securityProfile"], profile);
    }
    if let Some(enabled) = ultra_ssd(spec) {
        set(&mut body, &["properties", "additionalCapabilities", "ultraSSDEnabled"], json!(enabled));
    }
    if let Some(group) = reservation_group(spec) {
        set(
            &mut body,
            &["properties", "capacityReservation", "capacityReservationGroup", "id"],
            json!(group),
        );
    }
    if let Some(boot) = &spec.diagnostics.boot {
        let mut diagnostics = json!({ "enabled": true });
        if let Some(managed) = &boot.customer_managed {
            set(&mut diagnostics, &["storageUri"], json!(managed.storage_account_uri));
        }
        set(&mut body, &["properties", "diagnosticsProfile", "bootDiagnostics"], diagnostics);
    }
    Ok(body)
}

fn image(spec: &ProviderSpec, machine: &ResourceId) -> Value {
    let image = &spec.image;
    if image.resource_id.is_empty() {
        let (publisher, offer, sku, version) = (&image.publisher, &image.offer, &image.sku, &image.version);
        return json!({ "publisher": publisher, "offer": offer, "sku": sku, "version": version });
    }
    // In OpenShift's form the subscription is left out.
    let is_whole = image.resource_id.to_lowercase().starts_with("/subscriptions/");
    match is_whole {
        true => json!({ "id": image.resource_id }),
        false => json!({ "id": format!("/subscriptions/{}{}", machine.subscription(), image.resource_id) }),
    }
}

/// The purchase plan of an image that has one.
fn plan(spec: &ProviderSpec) -> Option<Value> {
    let image = &spec.image;
    let has_plan = image.image_type == "MarketplaceWithPlan" && !image.publisher.is_empty();
    has_plan.then(|| json!({ "name": image.sku, "publisher": image.publisher, "product": image.offer }))
}

fn os_disk(spec: &ProviderSpec, names: &Names) -> Value {
    let disk = &spec.os_disk;
    let mut body = json!({
        "name": names.os_disk().name(),
        "createOption": "FromImage",
        "deleteOption": "Delete",
        "diskSizeGB": disk.disk_size_gb,
        "managedDisk": managed_disk(&disk.managed_disk),
    });
    if !disk.os_type.is_empty() {
        set(&mut body, &["osType"], json!(disk.os_type));
    }
    if !disk.caching_type.is_empty() {
        set(&mut body, &["caching"], json!(disk.caching_type));
    }
    if disk.disk_settings.ephemeral_storage_location == "Local" {
        set(&mut body, &["diffDiskSettings", "option"], json!("Local"));
    }
    body
}

fn data_disk(disk: &DataDisk, new: &NewMachine<'_>) -> Value {
    let id = new.names.data_disk(disk);
    let mut body = json!({
        "lun": disk.lun,
        "name": id.name(),
        "deleteOption": disk.deletion_policy,
    });
    if !disk.caching_type.is_empty() {
        set(&mut body, &["caching"], json!(disk.caching_type));
    }
    if new.present_disks.contains(&id) {
        set(&mut body, &["createOption"], json!("Attach"));
        set(&mut body, &["managedDisk", "id"], json!(id));
        return body;
    }
    set(&mut body, &["createOption"], json!("Empty"));
    set(&mut body, &["diskSizeGB"], json!(disk.disk_size_gb));
    set(&mut body, &["managedDisk"], managed_disk(&disk.managed_disk));
    body
}

fn managed_disk(disk: &ManagedDisk) -> Value {
    let mut body = json!({});
    if !disk.storage_account_type.is_empty() {
        set(&mut body, &["storageAccountType"], json!(disk.storage_account_type));
    }
    if !disk.disk_encryption_set.id.is_empty() {
        set(&mut body, &["diskEncryptionSet", "id"], json!(disk.disk_encryption_set.id));
    }
    let security = &disk.security_profile;
    if !security.security_encryption_type.is_empty() {
        set(
            &mut body,
            &["securityProfile", "securityEncryptionType"],
            json!(security.security_encryption_type),
        );
        if !security.disk_encryption_set.id.is_empty() {
            let id = json!(security.disk_encryption_set.id);
            set(&mut body, &["securityProfile", "diskEncryptionSet", "id"], id);
        }
    }
    body
}

fn os_profile(new: &NewMachine<'_>) -> Result<Value, InstanceError> {
    let mut profile = json!({ "computerName": new.names.machine().name(), "adminUsername": ACCOUNT });
    if new.spec.ssh_public_key.is_empty() {
        // Azure demands a key or a password. Nobody knows this one.
        let password = format!("{}-{}aA1!", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        set(&mut profile, &["adminPassword"], json!(password));
    } else {
        let key = STANDARD.decode(new.spec.ssh_public_key.trim()).ok();
        let key = key.and_then(|it| String::from_utf8(it).ok()).ok_or_else(|| {
            InstanceError::InvalidConfiguration(
                "providerSpec.value.sshPublicKey is no base64; expected the base64 of a public key"
                    .to_owned(),
            )
        })?;
        let path = format!("/home/{ACCOUNT}/.ssh/authorized_keys");
        set(&mut profile, &["linuxConfiguration", "disablePasswordAuthentication"], json!(true));
        let keys = json!([{ "path": path, "keyData": key.trim() }]);
        set(&mut profile, &["linuxConfiguration", "ssh", "publicKeys"], keys);
    }
    if let Some(data) = new.user_data {
        set(&mut profile, &["customData"], json!(STANDARD.encode(data)));
    }
    Ok(profile)
}

fn security_profile(spec: &ProviderSpec) -> Option<Value> {
    let profile = spec.security_profile.as_ref()?;
    let mut body = json!({});
    if let Some(encrypted) = profile.encryption_at_host {
        set(&mut body, &["encryptionAtHost"], json!(encrypted));
    }
    let uefi = match profile.settings.security_type.as_str() {
        CONFIDENTIAL => profile.settings.confidential_vm.as_ref().map(|it| (it.secure_boot(), it.vtpm())),
        TRUSTED => profile.settings.trusted_launch.as_ref().map(|it| (it.secure_boot(), it.vtpm())),
        _ => None,
    };
    if let Some((secure_boot, vtpm)) = uefi {
        set(&mut body, &["securityType"], json!(profile.settings.security_type));
        set(&mut body, &["uefiSettings"], json!({ "secureBootEnabled": secure_boot, "vTpmEnabled": vtpm }));
    }
    Some(body)
}

/// Whether disks of the fastest type can be attached; `None` leaves it to Azure.
fn ultra_ssd(spec: &ProviderSpec) -> Option<bool> {
    match spec.ultra_ssd.as_str() {
        "Enabled" => Some(true),
        "Disabled" => Some(false),
        _ => {
            let is_ultra = |it: &DataDisk| it.managed_disk.storage_account_type == ULTRA_SSD;
            spec.data_disks.iter().any(is_ultra).then_some(true)
        }
    }
}

/// What an interface refers to, by ids that were found.
#[derive(Debug, Default)]
pub(super) struct InterfaceParts {
    pub(super) subnet: Option<ResourceId>,
    pub(super) has_ipv6: bool,
    pub(super) pools: Vec<String>,
    pub(super) nat_rule: Option<String>,
    pub(super) public_address: Option<ResourceId>,
    pub(super) security_group: Option<ResourceId>,
    pub(super) application_groups: Vec<ResourceId>,
}

pub(super) fn interface(
    spec: &ProviderSpec,
    tags: &BTreeMap<String, String>,
    parts: &InterfaceParts,
) -> Value {
    let reference = |id: &dyn std::fmt::Display| json!({ "id": id.to_string() });
    let references =
        |ids: &[String]| Value::Array(ids.iter().map(|it| reference(it)).collect::<Vec<Value>>());
    let mut main = json!({
        "subnet": parts.subnet.as_ref().map(|it| reference(it)),
        "primary": true,
        "privateIPAllocationMethod": "Dynamic",
    });
    if !parts.pools.is_empty() {
        set(&mut main, &["loadBalancerBackendAddressPools"], references(&parts.pools));
    }
    if let Some(rule) = &parts.nat_rule {
        set(&mut main, &["loadBalancerInboundNatRules"], json!([reference(rule)]));
    }
    if let Some(address) = &parts.public_address {
        set(&mut main, &["publicIPAddress"], reference(address));
    }
    if !parts.application_groups.is_empty() {
        let groups: Vec<String> = parts.application_groups.iter().map(ToString::to_string).collect();
        set(&mut main, &["applicationSecurityGroups"], references(&groups));
    }
    let mut configurations = vec![json!({ "name": "pipConfig", "properties": main })];
    if parts.has_ipv6 {
        let second = json!({
            "subnet": parts.subnet.as_ref().map(|it| reference(it)),
            "privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": "IPv6",
        });
        configurations.push(json!({ "name": "pipConfig-v6", "properties": second }));
    }
    let mut body = json!({
        "location": spec.location,
        "tags": tags,
        "properties": { "ipConfigurations": configurations },
    });
    if spec.accelerated_networking {
        set(&mut body, &["properties", "enableAcceleratedNetworking"], json!(true));
    }
    if let Some(group) = &parts.security_group {
        set(&mut body, &["properties", "networkSecurityGroup"], reference(group));
    }
    body
}

/// A public address, in the zone of its machine.
pub(super) fn public_address(spec: &ProviderSpec, tags: &BTreeMap<String, String>) -> Value {
    let mut body = json!({
        "location": spec.location,
        "tags": tags,
        "sku": { "name": "Standard" },
        "properties": { "publicIPAllocationMethod": "Static" },
    });
    if !spec.zone.is_empty() {
        set(&mut body, &["zones"], json!([spec.zone]));
    }
    body
}

/// An availability set for managed disks, with as many domains as every location has.
pub(super) fn availability_set(spec: &ProviderSpec, tags: &BTreeMap<String, String>) -> Value {
    json!({
        "location": spec.location,
        "tags": tags,
        "sku": { "name": "Aligned" },
        "properties": { "platformFaultDomainCount": 2, "platformUpdateDomainCount": 5 },
    })
}
