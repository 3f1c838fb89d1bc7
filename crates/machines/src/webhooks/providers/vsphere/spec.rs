//! The provider spec of vSphere.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::webhooks::provider_spec::LocalSecretReference;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct VSphereSpec {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Value,
    pub(crate) user_data_secret: Option<LocalSecretReference>,
    pub(crate) credentials_secret: Option<LocalSecretReference>,
    pub(crate) template: String,
    pub(crate) workspace: Option<Workspace>,
    pub(crate) network: Network,
    #[serde(rename = "numCPUs")]
    pub(crate) num_cpus: i32,
    pub(crate) num_cores_per_socket: i32,
    #[serde(rename = "memoryMiB")]
    pub(crate) memory_mib: i64,
    #[serde(rename = "diskGiB")]
    pub(crate) disk_gib: i32,
    pub(crate) snapshot: String,
    pub(crate) clone_mode: String,
    #[serde(rename = "tagIDs")]
    pub(crate) tag_ids: Vec<String>,
    pub(crate) data_disks: Vec<DataDisk>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Workspace {
    pub(crate) server: String,
    pub(crate) datacenter: String,
    pub(crate) folder: String,
    pub(crate) datastore: String,
    pub(crate) resource_pool: String,
    pub(crate) vm_group: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Network {
    pub(crate) devices: Vec<NetworkDevice>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NetworkDevice {
    pub(crate) network_name: String,
    pub(crate) gateway: String,
    pub(crate) ip_addrs: Vec<String>,
    pub(crate) nameservers: Vec<String>,
    pub(crate) addresses_from_pools: Vec<AddressPool>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AddressPool {
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) name: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DataDisk {
    pub(crate) name: String,
    #[serde(rename = "sizeGiB")]
    pub(crate) size_gib: i32,
    pub(crate) provisioning_mode: String,
}
