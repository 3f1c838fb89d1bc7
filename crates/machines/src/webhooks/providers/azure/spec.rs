//! The provider spec of Azure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AzureSpec {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Value,
    pub(crate) user_data_secret: Option<SecretReference>,
    pub(crate) credentials_secret: Option<SecretReference>,
    pub(crate) location: String,
    pub(crate) vm_size: String,
    pub(crate) image: Image,
    pub(crate) os_disk: OsDisk,
    pub(crate) data_disks: Vec<DataDisk>,
    #[serde(rename = "sshPublicKey")]
    pub(crate) ssh_public_key: String,
    #[serde(rename = "publicIP")]
    pub(crate) public_ip: bool,
    pub(crate) tags: BTreeMap<String, String>,
    pub(crate) security_group: String,
    pub(crate) application_security_groups: Vec<String>,
    pub(crate) subnet: String,
    pub(crate) public_load_balancer: String,
    pub(crate) internal_load_balancer: String,
    pub(crate) nat_rule: Option<i64>,
    pub(crate) managed_identity: String,
    pub(crate) vnet: String,
    pub(crate) zone: String,
    pub(crate) network_resource_group: String,
    pub(crate) resource_group: String,
    #[serde(rename = "spotVMOptions")]
    pub(crate) spot_vm_options: Option<SpotVmOptions>,
    pub(crate) security_profile: Option<SecurityProfile>,
    #[serde(rename = "ultraSSDCapability")]
    pub(crate) ultra_ssd_capability: String,
    pub(crate) accelerated_networking: bool,
    pub(crate) availability_set: String,
    pub(crate) diagnostics: Diagnostics,
    #[serde(rename = "capacityReservationGroupID")]
    pub(crate) capacity_reservation_group_id: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecretReference {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Image {
    pub(crate) publisher: String,
    pub(crate) offer: String,
    pub(crate) sku: String,
    pub(crate) version: String,
    #[serde(rename = "resourceID")]
    pub(crate) resource_id: String,
    pub(crate) r#type: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OsDisk {
    pub(crate) os_type: String,
    pub(crate) managed_disk: OsManagedDisk,
    #[serde(rename = "diskSizeGB")]
    pub(crate) disk_size_gb: i32,
    pub(crate) disk_settings: DiskSettings,
    pub(crate) caching_type: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct OsManagedDisk {
    pub(crate) storage_account_type: String,
    pub(crate) security_profile: DiskSecurityProfile,
    pub(crate) disk_encryption_set: Option<DiskEncryptionSet>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DiskSecurityProfile {
    pub(crate) security_encryption_type: String,
    pub(crate) disk_encryption_set: DiskEncryptionSet,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DiskEncryptionSet {
    pub(crate) id: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DiskSettings {
    pub(crate) ephemeral_storage_location: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DataDisk {
    pub(crate) name_suffix: String,
    #[serde(rename = "diskSizeGB")]
    pub(crate) disk_size_gb: i32,
    pub(crate) managed_disk: DataManagedDisk,
    pub(crate) lun: i32,
    pub(crate) caching_type: String,
    pub(crate) deletion_policy: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DataManagedDisk {
    pub(crate) storage_account_type: String,
    pub(crate) disk_encryption_set: Option<DiskEncryptionSet>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotVmOptions {
    /// A quantity: a number or a string.
    pub(crate) max_price: Value,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecurityProfile {
    pub(crate) encryption_at_host: Option<bool>,
    pub(crate) settings: SecuritySettings,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SecuritySettings {
    pub(crate) security_type: String,
    #[serde(rename = "confidentialVM")]
    pub(crate) confidential_vm: Option<VmSecurity>,
    pub(crate) trusted_launch: Option<VmSecurity>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct VmSecurity {
    pub(crate) uefi_settings: UefiSettings,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct UefiSettings {
    pub(crate) secure_boot: String,
    pub(crate) virtualized_trusted_platform_module: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Diagnostics {
    pub(crate) boot: Option<BootDiagnostics>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BootDiagnostics {
    pub(crate) storage_account_type: String,
    pub(crate) customer_managed: Option<CustomerManagedDiagnostics>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CustomerManagedDiagnostics {
    #[serde(rename = "storageAccountURI")]
    pub(crate) storage_account_uri: String,
}
