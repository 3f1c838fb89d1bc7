//! Google Cloud.

mod security;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use super::{MachineIdentity, USER_DATA_SECRET, is_empty_or, secret_reference, validate_secrets};
use crate::webhooks::facts::PlatformFacts;
use crate::webhooks::field::FieldError;
use crate::webhooks::provider_spec::{ExpectedType, set_if_absent, set_if_empty};
use crate::webhooks::verdict::Verdict;

pub(crate) use spec::GcpSpec;
use spec::{Disk, Gpu, NetworkInterface, ServiceAccount};

const TYPE: ExpectedType =
    ExpectedType { kind: "GCPMachineProviderSpec", earlier_group: "gcpprovider.openshift.io" };

const CREDENTIALS_SECRET: &str = "gcp-cloud-credentials";

const DISK_TYPE: &str = "pd-standard";
const DISK_SIZE_GB: i64 = 128;
const DISK_TYPES: [&str; 4] = ["hyperdisk-balanced", "pd-balanced", "pd-ssd", "pd-standard"];
const IMAGE_AMD64: &str = "projects/rhcos-cloud/global/images/rhcos-414-92-202307070025-0-gcp-x86-64";
const IMAGE_ARM64: &str = "projects/rhcos-cloud/global/images/rhcos-414-92-202307070025-0-gcp-aarch64";

/// The family of machine types that have GPUs of their own.
const FAMILY_WITH_GPUS: &str = "a2-";

pub(crate) fn set_defaults(fields: &mut Map<String, Value>, facts: &PlatformFacts) {
    set_if_empty(fields, "machineType", facts.by_architecture("n1-standard-4", "t2a-standard-4"));
    let interface = json!([
        { "network": facts.resource_name("network"), "subnetwork": facts.resource_name("worker-subnet") }
    ]);
    set_if_empty(fields, "networkInterfaces", interface);
    set_disk_defaults(fields, facts.by_architecture(IMAGE_AMD64, IMAGE_ARM64));
    let gpu = fields.get_mut("gpus").and_then(|it| it.get_mut(0)).and_then(Value::as_object_mut);
    if let Some(gpu) = gpu {
        set_if_empty(gpu, "count", 1);
    }
    set_if_empty(fields, "tags", json!([facts.resource_name("worker")]));
    set_if_absent(fields, "userDataSecret", secret_reference(USER_DATA_SECRET));
    set_if_absent(fields, "credentialsSecret", secret_reference(CREDENTIALS_SECRET));
}

fn set_disk_defaults(fields: &mut Map<String, Value>, image: &str) {
    let disk = json!([
        { "autoDelete": true, "boot": true, "sizeGb": DISK_SIZE_GB, "type": DISK_TYPE, "image": image }
    ]);
    set_if_empty(fields, "disks", disk);
    let disks = fields.get_mut("disks").and_then(Value::as_array_mut);
    for disk in disks.into_iter().flatten().filter_map(Value::as_object_mut) {
        set_if_empty(disk, "type", DISK_TYPE);
        if disk.get("boot") == Some(&Value::Bool(true)) {
            set_if_empty(disk, "image", image);
        }
    }
}

pub(crate) fn validate(spec: &GcpSpec, machine: MachineIdentity<'_>, verdict: &mut Verdict) {
    if let Some(warning) = TYPE.warning(&spec.api_version, &spec.kind) {
        verdict.warn(warning);
    }
    verdict.require(!spec.region.is_empty(), || {
        FieldError::required("providerSpec.region", "region is required")
    });
    verdict.require(spec.zone.starts_with(&spec.region), || {
        let detail = format!("zone not in configured region ({})", spec.region);
        FieldError::invalid("providerSpec.zone", spec.zone.as_str(), detail)
    });
    verdict.require(!spec.machine_type.is_empty(), || {
        let detail = "machineType should be set to one of the supported GCP machine types";
        FieldError::required("providerSpec.machineType", detail)
    });
    let maintenance = spec.on_host_maintenance.as_str();
    verdict.require(is_empty_or(maintenance, &["Migrate", "Terminate"]), || {
        let detail = "onHostMaintenance must be either Migrate or Terminate.";
        FieldError::invalid("providerSpec.onHostMaintenance", maintenance, detail)
    });
    security::validate_shielded(&spec.shielded_instance_config, verdict);
    security::validate_confidential(spec, verdict);
    verdict.require(is_empty_or(&spec.restart_policy, &["Always", "Never"]), || {
        let detail = "restartPolicy must be either Never or Always.";
        FieldError::invalid("providerSpec.restartPolicy", spec.restart_policy.as_str(), detail)
    });
    validate_provisioning_model(spec, verdict);
    let has_gpus = !spec.gpus.is_empty() || spec.machine_type.starts_with(FAMILY_WITH_GPUS);
    verdict.require(!(has_gpus && maintenance == "Migrate"), || {
        FieldError::forbidden(
            "providerSpec.onHostMaintenance",
            "When GPUs are specified or using machineType with pre-attached GPUs(A2 machine family), onHostMaintenance must be set to \
             Terminate.",
        )
    });
    validate_network_interfaces(&spec.network_interfaces, verdict);
    validate_disks(&spec.disks, verdict);
    validate_gpus(&spec.gpus, &spec.machine_type, verdict);
    validate_service_accounts(&spec.service_accounts, verdict);
    validate_secrets(spec.user_data_secret.as_ref(), spec.credentials_secret.as_ref(), machine, verdict);
}

fn validate_provisioning_model(spec: &GcpSpec, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.provisioningModel";
    let Some(model) = spec.provisioning_model.as_deref() else { return };
    verdict.require(model == "Spot", || {
        FieldError::invalid(PATH, model, "provisioningModel must be Spot or omitted.")
    });
    verdict.require(!spec.preemptible, || {
        FieldError::forbidden(PATH, "provisioningModel may not be set together with preemptible.")
    });
}

fn validate_network_interfaces(interfaces: &[NetworkInterface], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.networkInterfaces";
    verdict.require(!interfaces.is_empty(), || {
        FieldError::required(PATH, "at least 1 network interface is required")
    });
    for (index, interface) in interfaces.iter().enumerate() {
        for (field, value) in [("network", &interface.network), ("subnetwork", &interface.subnetwork)] {
            verdict.require(!value.is_empty(), || {
                FieldError::required(format!("{PATH}[{index}].{field}"), format!("{field} is required"))
            });
        }
    }
}

fn validate_disks(disks: &[Disk], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.disks";
    verdict.require(!disks.is_empty(), || FieldError::required(PATH, "at least 1 disk is required"));
    for (index, disk) in disks.iter().enumerate() {
        let invalid_size =
            |detail: &str| FieldError::invalid(format!("{PATH}[{index}].sizeGb"), disk.size_gb, detail);
        match disk.size_gb {
            0 | 16..=65_536 => {}
            ..16 => verdict.error(invalid_size("must be at least 16GB in size")),
            65_537.. => {
                verdict.error(invalid_size("exceeding maximum GCP disk size limit, must be below 65536"));
            }
        }
        verdict.require(is_empty_or(&disk.r#type, &DISK_TYPES), || {
            FieldError::not_supported(format!("{PATH}[{index}].type"), &disk.r#type, &DISK_TYPES)
        });
    }
}

fn validate_gpus(gpus: &[Gpu], machine_type: &str, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.gpus";
    let gpu = match gpus {
        [] => return,
        [gpu] => gpu,
        _ => return verdict.error(FieldError::too_many(PATH, gpus.len(), 1)),
    };
    let gpu = gpu.r#type.as_str();
    verdict.require(!gpu.is_empty(), || FieldError::required(format!("{PATH}.Type"), "Type is required"));
    verdict.require(gpu != "nvidia-tesla-a100", || {
        let detail = " nvidia-tesla-a100 gpus, are only attached to the A2 machine types";
        FieldError::invalid(format!("{PATH}.Type"), gpu, detail)
    });
    verdict.require(!machine_type.starts_with(FAMILY_WITH_GPUS), || {
        let detail = "A2 machine types have already attached gpus, additional gpus cannot be specified";
        FieldError::invalid(PATH, gpu, detail)
    });
}

fn validate_service_accounts(accounts: &[ServiceAccount], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.serviceAccounts";
    match accounts {
        [] => verdict.warn(
            "providerSpec.serviceAccounts: no service account provided: nodes may be unable to join the cluster",
        ),
        [account] => {
            verdict.require(!account.email.is_empty(), || {
                FieldError::required(format!("{PATH}[0].email"), "email is required")
            });
            verdict.require(!account.scopes.is_empty(), || {
                FieldError::required(format!("{PATH}[0].scopes"), "at least 1 scope is required")
            });
        }
        _ => {
            let value = format!("{} service accounts supplied", accounts.len());
            verdict.error(FieldError::invalid(PATH, value, "exactly 1 service account must be supplied"));
        }
    }
}
