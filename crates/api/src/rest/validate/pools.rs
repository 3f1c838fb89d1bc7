//! Rules of the machines of a cluster.

use super::super::field_error::shown;
use super::super::names::{disk_encryption_set_id, subnet_id};
use super::super::sizes::SMALL;
use super::super::{FieldError, PoolRole, WorkerProfile, find_size};
use super::cluster_profile::is_at_least;
use super::{Draft, DraftProperties, SWITCH, ValidationContext, given, one_of};

const WORKERS: std::ops::RangeInclusive<i64> = 2..=50;
const DISK_GB_MIN: i64 = 128;

const SUBNET_FORM: &str = "it must have the form /subscriptions/ID/resourceGroups/NAME/providers/Microsoft.Network/\
                           virtualNetworks/NAME/subnets/NAME";
const SET_FORM: &str = "it must have the form /subscriptions/ID/resourceGroups/NAME/providers/Microsoft.Compute/\
                        diskEncryptionSets/NAME";

pub(super) fn master(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let profile = properties.master.ok_or_else(|| FieldError::required("properties.masterProfile"))?;
    let target = |member: &str| format!("properties.masterProfile.{member}");
    size(profile.vm_size.as_deref(), PoolRole::Master, properties, context, &target("vmSize"))?;
    let id = given(profile.subnet_id.as_deref()).ok_or_else(|| FieldError::required(target("subnetId")))?;
    let subnet = subnet_id(id).ok_or_else(|| bad_subnet(id, &target("subnetId"), SUBNET_FORM))?;
    if !subnet.group.subscription.eq_ignore_ascii_case(context.subscription()) {
        return Err(bad_subnet(id, &target("subnetId"), "it must be in the cluster's own subscription"));
    }
    one_of(profile.encryption_at_host.as_deref(), &SWITCH, &target("encryptionAtHost"))?;
    disks(profile.disk_encryption_set_id.as_deref(), context, &target("diskEncryptionSetId"))
}

fn bad_subnet(id: &str, target: &str, why: &str) -> FieldError {
    FieldError::parameter(target, format!("The provided subnet {} is invalid: {why}.", shown(id)))
}

fn size(
    name: Option<&str>,
    role: PoolRole,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
    target: &str,
) -> Result<(), FieldError> {
    let name = given(name).ok_or_else(|| FieldError::required(target))?;
    let refused = |kind: &str| {
        let message = format!("The provided VM size {} is not supported for {kind}.", shown(name));
        Err(FieldError::parameter(target, message))
    };
    if role == PoolRole::Worker && context.small_workers {
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

fn disks(id: Option<&str>, context: &ValidationContext<'_>, target: &str) -> Result<(), FieldError> {
    let Some(id) = given(id) else { return Ok(()) };
    let refused = |why: &str| {
        let message = format!("The provided disk encryption set {} is invalid: {why}.", shown(id));
        Err(FieldError::parameter(target, message))
    };
    match disk_encryption_set_id(id) {
        None => refused(SET_FORM),
        Some(group) if !group.subscription.eq_ignore_ascii_case(context.subscription()) => {
            refused("it must be in the cluster's own subscription")
        }
        Some(_) => Ok(()),
    }
}

pub(super) fn workers(
    _: &Draft<'_>,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    const TARGET: &str = "properties.workerProfiles";
    let profiles = properties.workers.ok_or_else(|| FieldError::required(TARGET))?;
    if context.is_create() && profiles.len() != 1 {
        return Err(FieldError::parameter(TARGET, "There should be exactly one worker profile."));
    }
    profiles.iter().try_for_each(|profile| worker(profile, properties, context))
}

fn worker(
    profile: &WorkerProfile,
    properties: &DraftProperties<'_>,
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    let name = profile.name.as_deref().unwrap_or_default();
    let target = |member: &str| format!("properties.workerProfiles['{name}'].{member}");
    if name != "worker" {
        let message = format!("The provided worker name {} is invalid: it must be worker.", shown(name));
        return Err(FieldError::parameter(target("name"), message));
    }
    size(profile.vm_size.as_deref(), PoolRole::Worker, properties, context, &target("vmSize"))?;
    let disk = profile.disk_size_gb.ok_or_else(|| FieldError::required(target("diskSizeGB")))?;
    if disk < DISK_GB_MIN || u32::try_from(disk).is_err() {
        let message = format!("The provided disk size {disk} is invalid: it must be {DISK_GB_MIN} or more.");
        return Err(FieldError::parameter(target("diskSizeGB"), message));
    }
    subnet(profile, properties, &target("subnetId"))?;
    let count = profile.count.ok_or_else(|| FieldError::required(target("count")))?;
    if !WORKERS.contains(&count) {
        let message = format!(
            "The provided worker count {count} is invalid: it must be from {} to {}.",
            WORKERS.start(),
            WORKERS.end()
        );
        return Err(FieldError::parameter(target("count"), message));
    }
    one_of(profile.encryption_at_host.as_deref(), &SWITCH, &target("encryptionAtHost"))?;
    let set = given(profile.disk_encryption_set_id.as_deref());
    disks(set, context, &target("diskEncryptionSetId"))?;
    let of_masters = given(properties.master.and_then(|it| it.disk_encryption_set_id.as_deref()));
    if !set.unwrap_or_default().eq_ignore_ascii_case(of_masters.unwrap_or_default()) {
        let message = "The disk encryption sets of workers and control plane must be the same.";
        return Err(FieldError::parameter(target("diskEncryptionSetId"), message));
    }
    Ok(())
}

fn subnet(profile: &WorkerProfile, properties: &DraftProperties<'_>, target: &str) -> Result<(), FieldError> {
    let id = given(profile.subnet_id.as_deref()).ok_or_else(|| FieldError::required(target))?;
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
    context: &ValidationContext<'_>,
) -> Result<(), FieldError> {
    if context.is_create() && properties.workers_status.is_some_and(|it| !it.is_empty()) {
        let message = "The status of workers is read-only and must be absent.";
        return Err(FieldError::parameter("properties.workerProfilesStatus", message));
    }
    Ok(())
}
