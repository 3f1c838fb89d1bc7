//! The provider spec of AWS.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::webhooks::provider_spec::LocalSecretReference;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AwsSpec {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Value,
    pub(crate) ami: ResourceReference,
    pub(crate) instance_type: String,
    pub(crate) cpu_options: Option<CpuOptions>,
    pub(crate) tags: Vec<Tag>,
    pub(crate) iam_instance_profile: Option<ResourceReference>,
    pub(crate) user_data_secret: Option<LocalSecretReference>,
    pub(crate) credentials_secret: Option<LocalSecretReference>,
    pub(crate) key_name: Option<String>,
    pub(crate) device_index: i64,
    pub(crate) public_ip: Option<bool>,
    pub(crate) network_interface_type: String,
    pub(crate) security_groups: Vec<ResourceReference>,
    pub(crate) subnet: ResourceReference,
    pub(crate) placement: Placement,
    pub(crate) load_balancers: Vec<LoadBalancer>,
    pub(crate) block_devices: Vec<BlockDevice>,
    pub(crate) spot_market_options: Option<SpotMarketOptions>,
    pub(crate) metadata_service_options: MetadataServiceOptions,
    pub(crate) placement_group_name: String,
    pub(crate) placement_group_partition: Option<i32>,
    pub(crate) capacity_reservation_id: String,
    pub(crate) market_type: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ResourceReference {
    pub(crate) id: Option<String>,
    pub(crate) arn: Option<String>,
    pub(crate) filters: Option<Vec<Filter>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Filter {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CpuOptions {
    pub(crate) confidential_compute: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Tag {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Placement {
    pub(crate) region: String,
    pub(crate) availability_zone: String,
    pub(crate) tenancy: String,
    pub(crate) host: Option<HostPlacement>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct HostPlacement {
    pub(crate) affinity: Option<String>,
    pub(crate) dedicated_host: Option<DedicatedHost>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DedicatedHost {
    pub(crate) allocation_strategy: Option<String>,
    pub(crate) id: String,
    pub(crate) dynamic_host_allocation: Option<DynamicHostAllocation>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct DynamicHostAllocation {
    pub(crate) tags: Option<Vec<Tag>>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct LoadBalancer {
    pub(crate) name: String,
    pub(crate) r#type: String,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct BlockDevice {
    pub(crate) device_name: Option<String>,
    pub(crate) ebs: Option<Ebs>,
    pub(crate) no_device: Option<String>,
    pub(crate) virtual_name: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ebs {
    pub(crate) delete_on_termination: Option<bool>,
    pub(crate) encrypted: Option<bool>,
    pub(crate) kms_key: ResourceReference,
    pub(crate) iops: Option<i64>,
    pub(crate) throughput_mib: Option<i32>,
    pub(crate) volume_size: Option<i64>,
    pub(crate) volume_type: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct SpotMarketOptions {
    pub(crate) max_price: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct MetadataServiceOptions {
    pub(crate) authentication: String,
}
