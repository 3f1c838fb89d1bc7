//! What a providerSpec must satisfy before anything is created. The webhook refuses the same; a Machine may be older than the webhook.

use std::collections::BTreeSet;

use cloud::{InstanceError, ResourceId};
use serde_json::Value;

use super::names::Names;
use super::spec::{DataDisk, OsDisk, ProviderSpec};

/// Tags besides the owner's, which Azure and the cluster's own share of fifty leave.
const USER_TAGS_MAX: usize = 45;
const DISK_NAME_MAX: usize = 80;
const OS_DISK_GB_MAX: i64 = 32_767;
const DATA_DISK_GB_MIN: i64 = 4;
const LUN_MAX: i64 = 63;

fn invalid(why: impl std::fmt::Display) -> InstanceError {
    InstanceError::InvalidConfiguration(format!("providerSpec.value.{why}"))
}

type Check = Result<(), InstanceError>;

/// Checks every member; the first wrong one is the error.
pub(super) fn validate(spec: &ProviderSpec, names: &Names, user_tags: usize) -> Check {
    required("vmSize", &spec.vm_size, "the name of a size, such as Standard_D4s_v5")?;
    required("location", &spec.location, "the name of a location, such as westeurope")?;
    required("vnet", &spec.vnet, "the name of a virtual network in networkResourceGroup")?;
    required("subnet", &spec.subnet, "the name of a subnet of vnet")?;
    image(spec)?;
    os_disk(&spec.os_disk)?;
    data_disks(spec, names)?;
    one_of("ultraSSDCapability", &spec.ultra_ssd, &["", "Enabled", "Disabled"])?;
    security(spec)?;
    diagnostics(spec)?;
    capacity_reservation(spec)?;
    if spec.public_ip && names.public_address().is_none() {
        return Err(invalid(
            "publicIP is true, but the name CLUSTER-MACHINE of the address would be longer than 63 characters",
        ));
    }
    if spec.nat_rule.is_some_and(|it| it < 0) {
        return Err(invalid("natRule is negative; expected the index of a rule of publicLoadBalancer"));
    }
    tags(spec, user_tags)?;
    max_price(spec).map(drop)
}

/// Checks that members which become parts of a path are names.
pub(super) fn check_names(spec: &ProviderSpec) -> Check {
    let plain = [
        ("resourceGroup", &spec.resource_group),
        ("networkResourceGroup", &spec.network_resource_group),
        ("vnet", &spec.vnet),
        ("subnet", &spec.subnet),
        ("securityGroup", &spec.security_group),
        ("publicLoadBalancer", &spec.public_load_balancer),
        ("internalLoadBalancer", &spec.internal_load_balancer),
        ("availabilitySet", &spec.availability_set),
        ("managedIdentity", &spec.managed_identity),
    ];
    let groups = spec.application_security_groups.iter().map(|it| ("applicationSecurityGroups", it));
    let disks = spec.data_disks.iter().map(|it| ("dataDisks.nameSuffix", &it.name_suffix));
    for (member, name) in plain.into_iter().chain(groups).chain(disks) {
        if !is_name(name) {
            let expected = "a name of letters, digits, '-', '_', '.', '(' and ')'";
            return Err(invalid(format!("{member} is '{name}'; expected {expected}")));
        }
    }
    required("resourceGroup", &spec.resource_group, "the name of a resource group")?;
    required("networkResourceGroup", &spec.network_resource_group, "the name of a resource group")
}

pub(super) fn is_name(name: &str) -> bool {
    let is_allowed = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | '(' | ')');
    name.chars().all(is_allowed) && name != "." && name != ".."
}

fn required(member: &str, value: &str, expected: &str) -> Check {
    if value.trim().is_empty() {
        return Err(invalid(format!("{member} is empty; expected {expected}")));
    }
    Ok(())
}

fn one_of(member: &str, value: &str, accepted: &[&str]) -> Check {
    if accepted.contains(&value) {
        return Ok(());
    }
    let accepted: Vec<&str> = accepted.iter().copied().filter(|it| !it.is_empty()).collect();
    Err(invalid(format!("{member} is '{value}'; accepted are {}", accepted.join(", "))))
}

fn image(spec: &ProviderSpec) -> Check {
    let image = &spec.image;
    let marketplace = [&image.publisher, &image.offer, &image.sku, &image.version];
    let count = marketplace.iter().filter(|it| !it.is_empty()).count();
    one_of("image.type", &image.image_type, &["", "ID", "MarketplaceNoPlan", "MarketplaceWithPlan"])?;
    match (image.resource_id.is_empty(), count) {
        (true, 4) => Ok(()),
        (false, 0) if image.resource_id.starts_with('/') => Ok(()),
        (false, 0) => Err(invalid(format!(
            "image.resourceID is '{}'; expected /resourceGroups/… or /subscriptions/…",
            image.resource_id
        ))),
        _ => Err(invalid("image needs either resourceID alone, or all of publisher, offer, sku and version")),
    }
}

const CACHING: [&str; 4] = ["", "None", "ReadOnly", "ReadWrite"];

fn os_disk(disk: &OsDisk) -> Check {
    if !(1..=OS_DISK_GB_MAX).contains(&disk.disk_size_gb) {
        let size = disk.disk_size_gb;
        return Err(invalid(format!("osDisk.diskSizeGB is {size}; expected from 1 to {OS_DISK_GB_MAX}")));
    }
    one_of("osDisk.cachingType", &disk.caching_type, &CACHING)?;
    let location = &disk.disk_settings.ephemeral_storage_location;
    one_of("osDisk.diskSettings.ephemeralStorageLocation", location, &["", "Local"])?;
    if location == "Local" && disk.caching_type != "ReadOnly" {
        return Err(invalid(format!(
            "osDisk.cachingType is '{}'; a local disk needs ReadOnly",
            disk.caching_type
        )));
    }
    Ok(())
}

fn data_disks(spec: &ProviderSpec, names: &Names) -> Check {
    let (mut suffixes, mut luns) = (BTreeSet::new(), BTreeSet::new());
    for (index, disk) in spec.data_disks.iter().enumerate() {
        let wrong = |why: String| invalid(format!("dataDisks[{index}].{why}"));
        data_disk(disk, &wrong)?;
        if names.data_disk(disk).name().len() > DISK_NAME_MAX {
            return Err(wrong(format!("nameSuffix makes a name of more than {DISK_NAME_MAX} characters")));
        }
        if !suffixes.insert(disk.name_suffix.to_lowercase()) {
            return Err(wrong(format!("nameSuffix '{}' occurs twice", disk.name_suffix)));
        }
        if !luns.insert(disk.lun) {
            return Err(wrong(format!("lun {} occurs twice", disk.lun)));
        }
    }
    Ok(())
}

fn data_disk(disk: &DataDisk, wrong: &dyn Fn(String) -> InstanceError) -> Check {
    let suffix = &disk.name_suffix;
    let is_end = |it: Option<char>| it.is_some_and(|it| it.is_ascii_alphanumeric());
    let is_inner = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '.' | '-');
    if !is_end(suffix.chars().next()) || !is_end(suffix.chars().last()) || !suffix.chars().all(is_inner) {
        let expected = "letters, digits, '_', '.' and '-' between letters or digits";
        return Err(wrong(format!("nameSuffix is '{suffix}'; expected {expected}")));
    }
    if disk.disk_size_gb < DATA_DISK_GB_MIN {
        return Err(wrong(format!(
            "diskSizeGB is {}; expected at least {DATA_DISK_GB_MIN}",
            disk.disk_size_gb
        )));
    }
    if !(0..=LUN_MAX).contains(&disk.lun) {
        return Err(wrong(format!("lun is {}; expected from 0 to {LUN_MAX}", disk.lun)));
    }
    if !matches!(disk.deletion_policy.as_str(), "Delete" | "Detach") {
        return Err(wrong(format!(
            "deletionPolicy is '{}'; accepted are Delete, Detach",
            disk.deletion_policy
        )));
    }
    if !CACHING.contains(&disk.caching_type.as_str()) {
        return Err(wrong(format!(
            "cachingType is '{}'; accepted are None, ReadOnly, ReadWrite",
            disk.caching_type
        )));
    }
    let is_ultra = disk.managed_disk.storage_account_type == ULTRA_SSD;
    if is_ultra && !matches!(disk.caching_type.as_str(), "" | "None") {
        return Err(wrong(format!("cachingType is '{}'; {ULTRA_SSD} needs None", disk.caching_type)));
    }
    Ok(())
}

/// The type of disks that need a capability of the machine.
pub(super) const ULTRA_SSD: &str = "UltraSSD_LRS";

/// The security type of machines whose memory is encrypted.
pub(super) const CONFIDENTIAL: &str = "ConfidentialVM";
/// The security type of machines with a verified boot.
pub(super) const TRUSTED: &str = "TrustedLaunch";

fn security(spec: &ProviderSpec) -> Check {
    let encryption = spec.os_disk.managed_disk.security_profile.security_encryption_type.as_str();
    let encryption_member = "osDisk.managedDisk.securityProfile.securityEncryptionType";
    one_of(encryption_member, encryption, &["", "VMGuestStateOnly", "DiskWithVMGuestState"])?;
    let profile = spec.security_profile.clone().unwrap_or_default();
    let (kind, settings) = (profile.settings.security_type.as_str(), &profile.settings);
    one_of("securityProfile.settings.securityType", kind, &["", CONFIDENTIAL, TRUSTED])?;
    let wrong = |why: &str| Err(invalid(format!("securityProfile.{why}")));
    match kind {
        CONFIDENTIAL => {
            if encryption.is_empty() {
                return Err(invalid(format!("{encryption_member} is empty; {CONFIDENTIAL} needs one")));
            }
            let Some(uefi) = settings.confidential_vm.as_ref().filter(|it| it.vtpm()) else {
                return wrong(
                    "settings.confidentialVM.uefiSettings.virtualizedTrustedPlatformModule must be Enabled for ConfidentialVM",
                );
            };
            if encryption == "DiskWithVMGuestState" {
                if profile.encryption_at_host == Some(true) {
                    return wrong("encryptionAtHost is true; DiskWithVMGuestState forbids it");
                }
                if !uefi.secure_boot() {
                    return wrong(
                        "settings.confidentialVM.uefiSettings.secureBoot must be Enabled for DiskWithVMGuestState",
                    );
                }
            }
            Ok(())
        }
        _ if !encryption.is_empty() => Err(invalid(format!(
            "{encryption_member} is '{encryption}'; it needs securityType {CONFIDENTIAL}"
        ))),
        TRUSTED if settings.trusted_launch.is_none() => {
            wrong("settings.trustedLaunch is missing; TrustedLaunch needs it")
        }
        "" if settings.trusted_launch.as_ref().is_some_and(|it| it.secure_boot() || it.vtpm()) => {
            wrong("settings.securityType is empty; enabled settings of trustedLaunch need TrustedLaunch")
        }
        _ => Ok(()),
    }
}

fn diagnostics(spec: &ProviderSpec) -> Check {
    let Some(boot) = &spec.diagnostics.boot else { return Ok(()) };
    let has_uri = boot.customer_managed.as_ref().is_some_and(|it| !it.storage_account_uri.is_empty());
    match boot.storage_account_type.as_str() {
        "AzureManaged" if boot.customer_managed.is_some() => Err(invalid(
            "diagnostics.boot.customerManaged is set; storageAccountType AzureManaged forbids it",
        )),
        "AzureManaged" => Ok(()),
        "CustomerManaged" if has_uri => Ok(()),
        "CustomerManaged" => Err(invalid(
            "diagnostics.boot.customerManaged.storageAccountURI is empty; storageAccountType CustomerManaged needs it",
        )),
        other => Err(invalid(format!(
            "diagnostics.boot.storageAccountType is '{other}'; accepted are AzureManaged, CustomerManaged"
        ))),
    }
}

/// The group of a capacity reservation; `None` when there is none.
pub(super) fn reservation_group(spec: &ProviderSpec) -> Option<&str> {
    let id = spec.capacity_reservation_group.as_str();
    Some(id.strip_prefix("azure://").unwrap_or(id)).filter(|it| !it.is_empty())
}

fn capacity_reservation(spec: &ProviderSpec) -> Check {
    let Some(id) = reservation_group(spec) else { return Ok(()) };
    let kind = |it: &ResourceId| it.as_str().split('/').nth(7).map(str::to_lowercase);
    let parsed =
        id.parse::<ResourceId>().ok().filter(|it| kind(it).as_deref() == Some("capacityreservationgroups"));
    match parsed {
        Some(_) => Ok(()),
        None => Err(invalid(format!(
            "capacityReservationGroupID is '{id}'; expected /subscriptions/…/providers/Microsoft.Compute/capacityReservationGroups/NAME"
        ))),
    }
}

fn tags(spec: &ProviderSpec, user_tags: usize) -> Check {
    let mut seen = BTreeSet::new();
    if let Some(name) = spec.tags.keys().find(|it| !seen.insert(it.to_lowercase())) {
        return Err(invalid(format!("tags has '{name}' twice; names of tags differ in more than case")));
    }
    if user_tags > USER_TAGS_MAX {
        return Err(invalid(format!(
            "tags and the cluster's resource tags are {user_tags} together; at most {USER_TAGS_MAX} are possible"
        )));
    }
    Ok(())
}

/// The highest price of a spot machine in dollars an hour; -1 and `None` mean the usual price.
pub(super) fn max_price(spec: &ProviderSpec) -> Result<Option<f64>, InstanceError> {
    let Some(price) = spec.spot.as_ref().and_then(|it| it.max_price.as_ref()) else { return Ok(None) };
    let text = match price {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.is_empty() {
        return Ok(None);
    }
    let (number, scale) = match text.char_indices().last() {
        Some((at, 'm')) => (&text[..at], 1e-3),
        Some((at, 'u')) => (&text[..at], 1e-6),
        Some((at, 'n')) => (&text[..at], 1e-9),
        Some((at, 'k')) => (&text[..at], 1e3),
        _ => (text.as_str(), 1.0),
    };
    let parsed = number.parse::<f64>().ok().map(|it| it * scale);
    #[expect(clippy::float_cmp, reason = "the literal -1 stands for no limit")]
    let is_price = |it: &f64| it.is_finite() && (*it > 0.0 || *it == -1.0);
    match parsed.filter(is_price) {
        Some(price) => Ok(Some(price)),
        None => Err(invalid(format!(
            "spotVMOptions.maxPrice is '{text}'; expected a price above 0 in dollars, or -1 for the usual price"
        ))),
    }
}
