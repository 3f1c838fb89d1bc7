//! Rules of the machines of a cluster.

use super::super::names::{disk_encryption_set_id, subnet_id};
use super::super::sizes::SMALL;
use super::super::wrong::shown;
use super::super::{PoolRole, WorkerProfile, Wrong, find_size};
use super::cluster_profile::is_at_least;
use super::{Draft, DraftProperties, Ground, SWITCH, given, one_of};

const WORKERS: std::ops::RangeInclusive<i64> = 2..=50;
const DISK_GB_MIN: i64 = 128;

const SUBNET_FORM: &str = "it must have the form /subscriptions/ID/resourceGroups/NAME/providers/Microsoft.Network/\
                           virtualNetworks/NAME/subnets/NAME";
const SET_FORM: &str = "it must have the form /subscriptions/ID/resourceGroups/NAME/providers/Microsoft.Compute/\
                        diskEncryptionSets/NAME";

pub(super) fn master(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    ground: &Ground<'_>,
) -> Result<(), Wrong> {
    let profile = properties.master.ok_or_else(|| Wrong::required("properties.masterProfile"))?;
    let target = |member: &str| format!("properties.masterProfile.{member}");
    size(profile.vm_size.as_deref(), PoolRole::Master, properties, ground, &target("vmSize"))?;
    let id = given(profile.subnet_id.as_deref()).ok_or_else(|| Wrong::required(target("subnetId")))?;
    let subnet = subnet_id(id).ok_or_else(|| bad_subnet(id, &target("subnetId"), SUBNET_FORM))?;
    if !subnet.group.subscription.eq_ignore_ascii_case(ground.subscription()) {
        return Err(bad_subnet(id, &target("subnetId"), "it must be in the cluster's own subscription"));
    }
    one_of(profile.encryption_at_host.as_deref(), &SWITCH, &target("encryptionAtHost"))?;
    disks(profile.disk_encryption_set_id.as_deref(), ground, &target("diskEncryptionSetId"))
}

fn bad_subnet(id: &str, target: &str, why: &str) -> Wrong {
    Wrong::parameter(target, format!("The provided subnet {} is invalid: {why}.", shown(id)))
}

fn size(
    name: Option<&str>,
    role: PoolRole,
    properties: &DraftProperties<'_>,
    ground: &Ground<'_>,
    target: &str,
) -> Result<(), Wrong> {
    let name = given(name).ok_or_else(|| Wrong::required(target))?;
    let refused = |kind: &str| {
        let message = format!("The provided VM size {} is not supported for {kind}.", shown(name));
        Err(Wrong::parameter(target, message))
    };
    if role == PoolRole::Worker && ground.small_workers {
        return if SMALL.contains(&name) {
            Ok(())
        } else {
            refused("role 'worker' where small ones are required")
        };
    }
    let Some(size) = find_size(name).filter(|size| size.fits(role)) else {
        return refused(&format!("role '{}'", role.as_str()));
    };
    match &size.least_version {
        Some(least) if !is_at_least(properties.version, least) => {
            refused(&format!("version {}", shown(properties.version.unwrap_or_default())))
        }
        _ => Ok(()),
    }
}

fn disks(id: Option<&str>, ground: &Ground<'_>, target: &str) -> Result<(), Wrong> {
    let Some(id) = given(id) else { return Ok(()) };
    let refused = |why: &str| {
        let message = format!("The provided disk encryption set {} is invalid: {why}.", shown(id));
        Err(Wrong::parameter(target, message))
    };
    match disk_encryption_set_id(id) {
        None => refused(SET_FORM),
        Some(group) if !group.subscription.eq_ignore_ascii_case(ground.subscription()) => {
            refused("it must be in the cluster's own subscription")
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn workers(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    ground: &Ground<'_>,
) -> Result<(), Wrong> {
    const TARGET: &str = "properties.workerProfiles";
    let profiles = properties.workers.ok_or_else(|| Wrong::required(TARGET))?;
    if ground.is_create() && profiles.len() != 1 {
        return Err(Wrong::parameter(TARGET, "There should be exactly one worker profile."));
    }
    profiles.iter().try_for_each(|profile| worker(profile, properties, ground))
}

fn worker(
    profile: &WorkerProfile,
    properties: &DraftProperties<'_>,
    ground: &Ground<'_>,
) -> Result<(), Wrong> {
    let name = profile.name.as_deref().unwrap_or_default();
    let target = |member: &str| format!("properties.workerProfiles['{name}'].{member}");
    if name != "worker" {
        let message = format!("The provided worker name {} is invalid: it must be worker.", shown(name));
        return Err(Wrong::parameter(target("name"), message));
    }
    size(profile.vm_size.as_deref(), PoolRole::Worker, properties, ground, &target("vmSize"))?;
    let disk = profile.disk_size_gb.ok_or_else(|| Wrong::required(target("diskSizeGB")))?;
    if disk < DISK_GB_MIN || u32::try_from(disk).is_err() {
        let message = format!("The provided disk size {disk} is invalid: it must be {DISK_GB_MIN} or more.");
        return Err(Wrong::parameter(target("diskSizeGB"), message));
    }
    subnet(profile, properties, &target("subnetId"))?;
    let count = profile.count.ok_or_else(|| Wrong::required(target("count")))?;
    if !WORKERS.contains(&count) {
        let message = format!(
            "The provided worker count {count} is invalid: it must be from {} to {}.",
            WORKERS.start(),
            WORKERS.end()
        );
        return Err(Wrong::parameter(target("count"), message));
    }
    one_of(profile.encryption_at_host.as_deref(), &SWITCH, &target("encryptionAtHost"))?;
    let set = given(profile.disk_encryption_set_id.as_deref());
    disks(set, ground, &target("diskEncryptionSetId"))?;
    let of_masters = given(properties.master.and_then(|it| it.disk_encryption_set_id.as_deref()));
    if !set.unwrap_or_default().eq_ignore_ascii_case(of_masters.unwrap_or_default()) {
        let message = "The disk encryption sets of workers and control plane must be the same.";
        return Err(Wrong::parameter(target("diskEncryptionSetId"), message));
    }
    Ok(())
}

fn subnet(profile: &WorkerProfile, properties: &DraftProperties<'_>, target: &str) -> Result<(), Wrong> {
    let id = given(profile.subnet_id.as_deref()).ok_or_else(|| Wrong::required(target))?;
    let subnet = subnet_id(id).ok_or_else(|| bad_subnet(id, target, SUBNET_FORM))?;
    let Some(of_masters) = properties.master.and_then(|it| subnet_id(it.subnet_id.as_deref()?)) else {
        return Ok(());
    };
    if !subnet.is_in_network_of(&of_masters) {
        return Err(bad_subnet(id, target, "it must be in the same virtual network as the control plane's"));
    }
    if subnet.name.eq_ignore_ascii_case(of_masters.name) {
        return Err(bad_subnet(id, target, "it must be another than the control plane's"));
    }
    Ok(())
}

pub(super) fn workers_status(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    ground: &Ground<'_>,
) -> Result<(), Wrong> {
    if ground.is_create() && properties.workers_status.is_some_and(|it| !it.is_empty()) {
        let message = "The status of workers is read-only and must be absent.";
        return Err(Wrong::parameter("properties.workerProfilesStatus", message));
    }
    Ok(())
}
