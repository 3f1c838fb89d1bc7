//! Nutanix.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{MachineIdentity, USER_DATA_SECRET, is_empty_or, secret_reference, validate_secrets};
use crate::webhooks::field::FieldError;
use crate::webhooks::provider_spec::{LocalSecretReference, set_if_absent};
use crate::webhooks::quantity::Quantity;
use crate::webhooks::verdict::Verdict;

const CREDENTIALS_SECRET: &str = "nutanix-credentials";

const SOCKETS_MIN: i32 = 1;
const CPUS_PER_SOCKET_MIN: i32 = 1;
const MEMORY_MIB_MIN: f64 = 2048.0;
const DISK_GIB_MIN: f64 = 20.0;
const SUBNETS_MAX: usize = 32;

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NutanixSpec {
    api_version: String,
    kind: String,
    metadata: Value,
    cluster: ResourceIdentifier,
    image: ResourceIdentifier,
    subnets: Vec<ResourceIdentifier>,
    vcpus_per_socket: i32,
    vcpu_sockets: i32,
    memory_size: Quantity,
    system_disk_size: Quantity,
    boot_type: String,
    project: ResourceIdentifier,
    categories: Vec<Category>,
    gpus: Vec<Gpu>,
    data_disks: Vec<DataDisk>,
    user_data_secret: Option<LocalSecretReference>,
    credentials_secret: Option<LocalSecretReference>,
    failure_domain: Option<FailureDomain>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct ResourceIdentifier {
    r#type: String,
    uuid: Option<String>,
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Category {
    key: String,
    value: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Gpu {
    r#type: String,
    #[serde(rename = "deviceID")]
    device_id: Option<i32>,
    name: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct DataDisk {
    disk_size: Quantity,
    device_properties: Option<DeviceProperties>,
    storage_config: Option<StorageConfig>,
    data_source: Option<ResourceIdentifier>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct DeviceProperties {
    device_type: String,
    adapter_type: String,
    device_index: i32,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct StorageConfig {
    disk_mode: String,
    storage_container: Option<ResourceIdentifier>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct FailureDomain {
    name: String,
}

pub(crate) fn set_defaults(fields: &mut Map<String, Value>) {
    set_if_absent(fields, "userDataSecret", secret_reference(USER_DATA_SECRET));
    set_if_absent(fields, "credentialsSecret", secret_reference(CREDENTIALS_SECRET));
}

pub(crate) fn validate(spec: &NutanixSpec, machine: MachineIdentity<'_>, verdict: &mut Verdict) {
    // A failure domain has a cluster and subnets of its own.
    if spec.failure_domain.is_none() {
        validate_identifier("cluster", &spec.cluster, verdict);
        validate_subnets(&spec.subnets, verdict);
    }
    validate_identifier("image", &spec.image, verdict);
    warn_about_sizes(spec, verdict);
    validate_secrets(spec.user_data_secret.as_ref(), spec.credentials_secret.as_ref(), machine, verdict);
    verdict.require(is_empty_or(&spec.boot_type, &["Legacy", "UEFI", "SecureBoot"]), || {
        let detail = r#"valid bootType values are: "", "Legacy", "UEFI", "SecureBoot"."#;
        FieldError::invalid("providerSpec.bootType", spec.boot_type.as_str(), detail)
    });
    if !spec.project.r#type.is_empty() {
        validate_identifier("project", &spec.project, verdict);
    }
    for category in &spec.categories {
        for (field, value) in [("key", category.key.as_str()), ("value", category.value.as_str())] {
            verdict.require((1..=64).contains(&value.len()), || {
                let detail = format!("{field} must be a string with length between 1 and 64.");
                FieldError::invalid(format!("providerSpec.categories.{field}"), value, detail)
            });
        }
    }
}

fn validate_identifier(resource: &str, identifier: &ResourceIdentifier, verdict: &mut Verdict) {
    let path = format!("providerSpec.{resource}");
    let is_given = |value: &Option<String>| value.as_ref().is_some_and(|it| !it.is_empty());
    match identifier.r#type.as_str() {
        "name" => verdict.require(is_given(&identifier.name), || {
            FieldError::required(format!("{path}.name"), format!("{resource} name must be provided"))
        }),
        "uuid" => verdict.require(is_given(&identifier.uuid), || {
            FieldError::required(format!("{path}.uuid"), format!("{resource} UUID must be provided"))
        }),
        other => {
            let detail = format!("{resource} type must be one of name or uuid");
            verdict.error(FieldError::invalid(format!("{path}.type"), other, detail));
        }
    }
}

fn validate_subnets(subnets: &[ResourceIdentifier], verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.subnets";
    match subnets.len() {
        0 => {
            let detail = "missing subnets: nodes may fail to start if no subnets are configured";
            verdict.error(FieldError::invalid(PATH, Value::Array(Vec::new()), detail));
        }
        1..=SUBNETS_MAX => {}
        count => verdict.error(FieldError::too_many(PATH, count, SUBNETS_MAX)),
    }
    for subnet in subnets {
        validate_identifier("subnet", subnet, verdict);
    }
}

fn warn_about_sizes(spec: &NutanixSpec, verdict: &mut Verdict) {
    let (sockets, cpus) = (spec.vcpu_sockets, spec.vcpus_per_socket);
    verdict.warn_if(sockets < SOCKETS_MIN, || {
        format!(
            "providerSpec.vcpuSockets: {sockets} is missing or less than the minimum value ({SOCKETS_MIN}): nodes may not boot correctly"
        )
    });
    verdict.warn_if(cpus < CPUS_PER_SOCKET_MIN, || {
        format!(
            "providerSpec.vcpusPerSocket: {cpus} is missing or less than the minimum value ({CPUS_PER_SOCKET_MIN}): nodes may not boot \
             correctly"
        )
    });
    verdict.warn_if(spec.memory_size.value() < MEMORY_MIB_MIN * MIB, || {
        let memory = spec.memory_size.in_units_of(MIB);
        format!(
            "providerSpec.memorySize: {memory} is missing or less than the recommended minimum value ({MEMORY_MIB_MIN}): nodes may not \
             boot correctly"
        )
    });
    verdict.warn_if(spec.system_disk_size.value() < DISK_GIB_MIN * GIB, || {
        let disk = spec.system_disk_size.in_units_of(GIB);
        format!(
            "providerSpec.systemDiskSize: {disk} is missing or less than the recommended minimum ({DISK_GIB_MIN}): nodes may fail to \
             start if disk size is too low"
        )
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::webhooks::facts::Platform;
    use crate::webhooks::tests::rules::{check_defaults, check_errors, check_warnings};

    const NUTANIX: Platform = Platform::Nutanix;

    fn valid() -> serde_json::Value {
        json!({
            "cluster": {"type": "uuid", "uuid": "c"}, "image": {"type": "name", "name": "i"},
            "subnets": [{"type": "name", "name": "s"}], "vcpuSockets": 4, "vcpusPerSocket": 1,
            "memorySize": "16Gi", "systemDiskSize": "120Gi",
            "userDataSecret": {"name": "u"}, "credentialsSecret": {"name": "c"}
        })
    }

    #[test]
    fn nutanix_defaults_are_both_secrets() {
        check_defaults(
            NUTANIX,
            json!({"vcpuSockets": 4}),
            json!({
                "vcpuSockets": 4, "userDataSecret": {"name": "worker-user-data"},
                "credentialsSecret": {"name": "nutanix-credentials"}
            }),
        );
    }

    #[test]
    fn nutanix_needs_cluster_image_and_subnets() {
        check_errors(NUTANIX, valid(), json!({}), &[]);
        check_errors(
            NUTANIX,
            valid(),
            json!({"cluster": {"type": "uuid", "uuid": null}, "image": {"type": "name", "name": ""}}),
            &[
                "providerSpec.cluster.uuid: Required value: cluster UUID must be provided",
                "providerSpec.image.name: Required value: image name must be provided",
            ],
        );
        check_errors(
            NUTANIX,
            valid(),
            json!({"cluster": {"type": "other"}, "subnets": null}),
            &[
                "providerSpec.cluster.type: Invalid value: \"other\": cluster type must be one of name or uuid",
                "providerSpec.subnets: Invalid value: []: missing subnets: nodes may fail to start if no subnets are configured",
            ],
        );
        check_errors(
            NUTANIX,
            valid(),
            json!({"cluster": null, "subnets": null, "failureDomain": {"name": "f"}}),
            &[],
        );
        let many = vec![json!({"type": "name", "name": "s"}); 33];
        check_errors(
            NUTANIX,
            valid(),
            json!({"subnets": many}),
            &["providerSpec.subnets: Too many: 33: must have at most 32 items"],
        );
    }

    #[test]
    fn nutanix_boot_type_project_and_categories_are_checked() {
        check_errors(
            NUTANIX,
            valid(),
            json!({"bootType": "BIOS", "project": {"type": "uuid"}, "categories": [{"key": "", "value": "v"}]}),
            &[
                r#"providerSpec.bootType: Invalid value: "BIOS": valid bootType values are: "", "Legacy", "UEFI", "SecureBoot"."#,
                "providerSpec.project.uuid: Required value: project UUID must be provided",
                "providerSpec.categories.key: Invalid value: \"\": key must be a string with length between 1 and 64.",
            ],
        );
    }

    #[test]
    fn small_nutanix_machines_are_warnings() {
        check_warnings(
            NUTANIX,
            valid(),
            json!({"vcpuSockets": 0, "vcpusPerSocket": null, "memorySize": "2047Mi", "systemDiskSize": "19.5Gi"}),
            &[
                "providerSpec.vcpuSockets: 0 is missing or less than the minimum value (1): nodes may not boot correctly",
                "providerSpec.vcpusPerSocket: 0 is missing or less than the minimum value (1): nodes may not boot correctly",
                "providerSpec.memorySize: 2047 is missing or less than the recommended minimum value (2048): nodes may not boot correctly",
                "providerSpec.systemDiskSize: 19 is missing or less than the recommended minimum (20): nodes may fail to start if disk size \
                 is too low",
            ],
        );
        check_warnings(NUTANIX, valid(), json!({"memorySize": "2Gi", "systemDiskSize": "20Gi"}), &[]);
    }
}
