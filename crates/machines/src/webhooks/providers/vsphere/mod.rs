//! VMware vSphere.

mod spec;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value};

use super::{MachineIdentity, USER_DATA_SECRET, is_empty_or, secret_reference, validate_secrets};
use crate::webhooks::facts::PlatformFacts;
use crate::webhooks::field::FieldError;
use crate::webhooks::provider_spec::{ExpectedType, set_if_absent};
use crate::webhooks::verdict::Verdict;

pub(crate) use spec::VSphereSpec;
use spec::{DataDisk, NetworkDevice, Workspace};

const TYPE: ExpectedType =
    ExpectedType { kind: "VSphereMachineProviderSpec", earlier_group: "vsphereprovider.openshift.io" };

const CREDENTIALS_SECRET: &str = "vsphere-cloud-credentials";

/// The gate of host groups as zones.
const VM_GROUP_GATE: &str = "VSphereHostVMGroupZonal";

const CPUS_MIN: i32 = 2;
const MEMORY_MIB_MIN: i64 = 2048;
const DISK_GIB_MIN: i32 = 120;
const DEVICES_MAX: usize = 10;
const TAGS_MAX: usize = 10;
const DATA_DISKS_MAX: usize = 29;
const DATA_DISK_GIB_MAX: i32 = 16_384;
/// The longest name of a disk or a group.
const NAME_MAX: usize = 80;

static TAG: LazyLock<Regex> = LazyLock::new(|| {
    let uuid = "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
    Regex::new(&format!("^urn:vmomi:InventoryServiceTag:{uuid}:[^:]+$")).expect("a valid expression")
});

static DATA_DISK_NAME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new("^[a-zA-Z0-9](?:[a-zA-Z0-9_-]*[a-zA-Z0-9])?$").expect("a valid expression"));

pub(crate) fn set_defaults(fields: &mut Map<String, Value>) {
    set_if_absent(fields, "userDataSecret", secret_reference(USER_DATA_SECRET));
    set_if_absent(fields, "credentialsSecret", secret_reference(CREDENTIALS_SECRET));
}

pub(crate) fn validate(
    spec: &VSphereSpec,
    machine: MachineIdentity<'_>,
    facts: &PlatformFacts,
    verdict: &mut Verdict,
) {
    if let Some(warning) = TYPE.warning(&spec.api_version, &spec.kind) {
        verdict.warn(warning);
    }
    verdict.require(!spec.template.is_empty(), || {
        FieldError::required("providerSpec.template", "template must be provided")
    });
    match &spec.workspace {
        None => verdict.error(FieldError::required("providerSpec.workspace", "workspace must be provided")),
        Some(workspace) => validate_workspace(workspace, facts, verdict),
    }
    validate_devices(&spec.network.devices, verdict);
    warn_about_sizes(spec, verdict);
    validate_tags(&spec.tag_ids, verdict);
    validate_data_disks(&spec.data_disks, verdict);
    validate_secrets(spec.user_data_secret.as_ref(), spec.credentials_secret.as_ref(), machine, verdict);
}

fn validate_workspace(workspace: &Workspace, facts: &PlatformFacts, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.workspace";
    verdict.require(!workspace.server.is_empty(), || {
        FieldError::required(format!("{PATH}.server"), "server must be provided")
    });
    verdict.warn_if(workspace.datacenter.is_empty(), || {
        format!("{PATH}.datacenter: datacenter is unset: if more than one datacenter is present, VMs cannot be created")
    });
    let prefix = format!("/{}/vm/", workspace.datacenter);
    verdict.require(workspace.folder.is_empty() || workspace.folder.starts_with(&prefix), || {
        let detail = format!("folder must be absolute path: expected prefix {prefix:?}");
        FieldError::invalid(format!("{PATH}.folder"), workspace.folder.as_str(), detail)
    });
    let group = workspace.vm_group.as_str();
    if !group.is_empty() && !facts.feature_gates.contains(VM_GROUP_GATE) {
        let detail = format!("this field is protected by the {VM_GROUP_GATE} feature gate which is disabled");
        verdict.error(FieldError::forbidden(format!("{PATH}.vmGroup"), detail));
    } else if group.chars().count() > NAME_MAX {
        let detail = format!("vmGroup must have at most {NAME_MAX} characters");
        verdict.error(FieldError::invalid(format!("{PATH}.vmGroup"), group, detail));
    }
}

fn validate_devices(devices: &[NetworkDevice], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.network.devices";
    match devices.len() {
        0 => verdict.error(FieldError::required(PATH, "at least 1 network device must be provided")),
        1..=DEVICES_MAX => {}
        count => verdict.error(FieldError::too_many(PATH, count, DEVICES_MAX)),
    }
    for (index, device) in devices.iter().enumerate() {
        verdict.require(!device.network_name.is_empty(), || {
            FieldError::required(format!("{PATH}[{index}].networkName"), "networkName must be provided")
        });
    }
}

fn warn_about_sizes(spec: &VSphereSpec, verdict: &mut Verdict) {
    let (cpus, memory, disk) = (spec.num_cpus, spec.memory_mib, spec.disk_gib);
    verdict.warn_if(cpus < CPUS_MIN, || {
        format!(
            "providerSpec.numCPUs: {cpus} is missing or less than the minimum value ({CPUS_MIN}): nodes may not boot correctly"
        )
    });
    verdict.warn_if(memory < MEMORY_MIB_MIN, || {
        format!(
            "providerSpec.memoryMiB: {memory} is missing or less than the recommended minimum value ({MEMORY_MIB_MIN}): nodes may not \
             boot correctly"
        )
    });
    verdict.warn_if(disk < DISK_GIB_MIN, || {
        format!(
            "providerSpec.diskGiB: {disk} is missing or less than the recommended minimum ({DISK_GIB_MIN}): nodes may fail to start if \
             disk size is too low"
        )
    });
    verdict.warn_if(spec.clone_mode == "linkedClone" && disk > 0, || {
        "linkedClone clone mode is set. DiskGiB parameter will be ignored, disk size from template will be used."
            .to_owned()
    });
}

fn validate_tags(tags: &[String], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.tagIDs";
    verdict.require(tags.len() <= TAGS_MAX, || {
        FieldError::invalid(PATH, tags.to_vec(), "a maximum of 10 tags are allowed")
    });
    if tags.iter().any(|tag| !TAG.is_match(tag)) {
        let detail = "tag ID must be in the format of urn:vmomi:InventoryServiceTag:<UUID>:GLOBAL";
        verdict.error(FieldError::required(PATH, detail));
    }
}

fn validate_data_disks(disks: &[DataDisk], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.dataDisks";
    verdict
        .require(disks.len() <= DATA_DISKS_MAX, || FieldError::too_many(PATH, disks.len(), DATA_DISKS_MAX));
    for (index, disk) in disks.iter().enumerate() {
        let (path, name) = (format!("{PATH}[{index}]"), disk.name.as_str());
        if name.is_empty() {
            verdict.error(FieldError::required(format!("{path}.name"), "data disk name must be set"));
        } else if name.len() > NAME_MAX || !DATA_DISK_NAME.is_match(name) {
            let detail = format!(
                "must have at most {NAME_MAX} characters: letters, digits, hyphens and underscores, and begin and end with a letter or digit"
            );
            verdict.error(FieldError::invalid(format!("{path}.name"), name, detail));
        }
        verdict.require((1..=DATA_DISK_GIB_MAX).contains(&disk.size_gib), || {
            let detail = format!("must be from 1 to {DATA_DISK_GIB_MAX}");
            FieldError::invalid(format!("{path}.sizeGiB"), disk.size_gib, detail)
        });
        const MODES: [&str; 3] = ["EagerlyZeroed", "Thick", "Thin"];
        verdict.require(is_empty_or(&disk.provisioning_mode, &MODES), || {
            FieldError::not_supported(format!("{path}.provisioningMode"), &disk.provisioning_mode, &MODES)
        });
    }
}
