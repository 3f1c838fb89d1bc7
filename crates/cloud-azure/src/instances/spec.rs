//! The providerSpec of Azure machines, as Machines carry it. Members that are not known here are ignored: the webhook warns of them.

use std::collections::BTreeMap;

use cloud::{InstanceError, SecretRef};
use serde::Deserialize;
use serde_json::Value;

/// The kind of the providerSpec.
const KIND: &str = "AzureMachineProviderSpec";

/// `AzureMachineProviderSpec` of `machine.openshift.io/v1beta1`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ProviderSpec {
    kind: String,
    pub(super) user_data_secret: Option<SecretReference>,
    pub(super) credentials_secret: Option<SecretReference>,
    pub(super) location: String,
    pub(super) vm_size: String,
    pub(super) image: Image,
    pub(super) os_disk: OsDisk,
    pub(super) data_disks: Vec<DataDisk>,
    /// The key in base64.
    pub(super) ssh_public_key: String,
    #[serde(rename = "publicIP")]
    pub(super) public_ip: bool,
    pub(super) tags: BTreeMap<String, String>,
    pub(super) security_group: String,
    pub(super) application_security_groups: Vec<String>,
    pub(super) subnet: String,
    pub(super) public_load_balancer: String,
    pub(super) internal_load_balancer: String,
    /// The index of a rule in the public load balancer.
    pub(super) nat_rule: Option<i64>,
    pub(super) managed_identity: String,
    pub(super) vnet: String,
    pub(super) zone: String,
    pub(super) network_resource_group: String,
    pub(super) resource_group: String,
    #[serde(rename = "spotVMOptions")]
    pub(super) spot: Option<SpotOptions>,
    pub(super) security_profile: Option<SecurityProfile>,
    #[serde(rename = "ultraSSDCapability")]
    pub(super) ultra_ssd: String,
    pub(super) accelerated_networking: bool,
    pub(super) availability_set: String,
    pub(super) diagnostics: Diagnostics,
    #[serde(rename = "capacityReservationGroupID")]
    pub(super) capacity_reservation_group: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct SecretReference {
    name: String,
    namespace: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Image {
    pub(super) publisher: String,
    pub(super) offer: String,
    pub(super) sku: String,
    pub(super) version: String,
    #[serde(rename = "resourceID")]
    pub(super) resource_id: String,
    #[serde(rename = "type")]
    pub(super) image_type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct OsDisk {
    pub(super) os_type: String,
    pub(super) managed_disk: ManagedDisk,
    #[serde(rename = "diskSizeGB")]
    pub(super) disk_size_gb: i64,
    pub(super) disk_settings: DiskSettings,
    pub(super) caching_type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DiskSettings {
    pub(super) ephemeral_storage_location: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ManagedDisk {
    pub(super) storage_account_type: String,
    pub(super) disk_encryption_set: EncryptionSet,
    pub(super) security_profile: DiskSecurityProfile,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DiskSecurityProfile {
    pub(super) security_encryption_type: String,
    pub(super) disk_encryption_set: EncryptionSet,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct EncryptionSet {
    pub(super) id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct DataDisk {
    pub(super) name_suffix: String,
    #[serde(rename = "diskSizeGB")]
    pub(super) disk_size_gb: i64,
    pub(super) managed_disk: ManagedDisk,
    pub(super) lun: i64,
    pub(super) caching_type: String,
    pub(super) deletion_policy: String,
}

impl DataDisk {
    /// Whether the disk goes with its machine.
    pub(super) fn is_deleted(&self) -> bool {
        self.deletion_policy == "Delete"
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SpotOptions {
    /// A quantity of Kubernetes: a number, or its text.
    pub(super) max_price: Option<Value>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecurityProfile {
    pub(super) encryption_at_host: Option<bool>,
    pub(super) settings: SecuritySettings,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SecuritySettings {
    pub(super) security_type: String,
    #[serde(rename = "confidentialVM")]
    pub(super) confidential_vm: Option<Uefi>,
    pub(super) trusted_launch: Option<Uefi>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Uefi {
    uefi_settings: UefiSettings,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UefiSettings {
    secure_boot: String,
    virtualized_trusted_platform_module: String,
}

impl Uefi {
    pub(super) fn secure_boot(&self) -> bool {
        self.uefi_settings.secure_boot == "Enabled"
    }

    /// Whether there is a virtual trusted platform module.
    pub(super) fn vtpm(&self) -> bool {
        self.uefi_settings.virtualized_trusted_platform_module == "Enabled"
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Diagnostics {
    pub(super) boot: Option<BootDiagnostics>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct BootDiagnostics {
    pub(super) storage_account_type: String,
    pub(super) customer_managed: Option<CustomerManaged>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CustomerManaged {
    #[serde(rename = "storageAccountURI")]
    pub(super) storage_account_uri: String,
}

impl ProviderSpec {
    /// Reads a providerSpec. As in Kubernetes, null means absent.
    pub(super) fn read(value: &Value) -> Result<ProviderSpec, InstanceError> {
        let invalid = |why: String| InstanceError::InvalidConfiguration(format!("providerSpec.value{why}"));
        if !value.is_object() {
            return Err(invalid(format!(" is missing; expected an {KIND}")));
        }
        let spec: ProviderSpec = serde_path_to_error::deserialize(without_nulls(value))
            .map_err(|error| invalid(format!(".{}: {}", error.path(), error.inner())))?;
        match spec.kind.as_str() {
            "" | KIND => Ok(spec),
            other => Err(invalid(format!(".kind is '{other}'; expected {KIND}"))),
        }
    }
}

impl SecretReference {
    pub(super) fn secret_ref(&self) -> Option<SecretRef> {
        let namespace = Some(self.namespace.clone()).filter(|it| !it.is_empty());
        (!self.name.is_empty()).then(|| SecretRef { namespace, name: self.name.clone() })
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, it)| !it.is_null());
            Value::Object(members.map(|(name, it)| (name.clone(), without_nulls(it))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        other => other.clone(),
    }
}
