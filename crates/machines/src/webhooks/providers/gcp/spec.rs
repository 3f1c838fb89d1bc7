//! The provider spec of Google Cloud.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::webhooks::provider_spec::LocalSecretReference;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct GcpSpec {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Value,
    pub(crate) user_data_secret: Option<LocalSecretReference>,
    pub(crate) credentials_secret: Option<LocalSecretReference>,
    #[serde(rename = "canIPForward")]
    pub(crate) can_ip_forward: bool,
    pub(crate) deletion_protection: bool,
    pub(crate) disks: Vec<Disk>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) gcp_metadata: Vec<MetadataItem>,
    pub(crate) network_interfaces: Vec<NetworkInterface>,
    pub(crate) service_accounts: Vec<ServiceAccount>,
    pub(crate) tags: Vec<String>,
    pub(crate) resource_manager_tags: Vec<ResourceManagerTag>,
    pub(crate) target_pools: Vec<String>,
    pub(crate) machine_type: String,
    pub(crate) region: String,
    pub(crate) zone: String,
    #[serde(rename = "projectID")]
    pub(crate) project_id: String,
    pub(crate) gpus: Vec<Gpu>,
    pub(crate) preemptible: bool,
    pub(crate) provisioning_model: Option<String>,
    pub(crate) on_host_maintenance: String,
    pub(crate) restart_policy: String,
    pub(crate) shielded_instance_config: ShieldedInstanceConfig,
    pub(crate) confidential_compute: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Disk {
    pub(crate) auto_delete: bool,
    pub(crate) boot: bool,
    pub(crate) size_gb: i64,
    pub(crate) r#type: String,
    pub(crate) image: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) encryption_key: Option<EncryptionKey>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct EncryptionKey {
    pub(crate) kms_key: Option<KmsKey>,
    pub(crate) kms_key_service_account: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct KmsKey {
    pub(crate) name: String,
    pub(crate) key_ring: String,
    #[serde(rename = "projectID")]
    pub(crate) project_id: String,
    pub(crate) location: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MetadataItem {
    pub(crate) key: String,
    pub(crate) value: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NetworkInterface {
    #[serde(rename = "publicIP")]
    pub(crate) public_ip: bool,
    pub(crate) network: String,
    #[serde(rename = "projectID")]
    pub(crate) project_id: String,
    pub(crate) subnetwork: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ServiceAccount {
    pub(crate) email: String,
    pub(crate) scopes: Vec<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceManagerTag {
    #[serde(rename = "parentID")]
    pub(crate) parent_id: String,
    pub(crate) key: String,
    pub(crate) value: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Gpu {
    pub(crate) count: i32,
    pub(crate) r#type: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ShieldedInstanceConfig {
    pub(crate) secure_boot: String,
    pub(crate) virtualized_trusted_platform_module: String,
    pub(crate) integrity_monitoring: String,
}
