//! The providerSpec of AWS machines, as Machines carry it. Members that are not known here are ignored: the webhook warns of them.

use cloud::{InstanceError, SecretRef};
use serde::Deserialize;
use serde_json::Value;

/// The kind of the providerSpec.
const KIND: &str = "AWSMachineProviderConfig";

/// `AWSMachineProviderConfig` of `machine.openshift.io/v1beta1`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ProviderSpec {
    kind: String,
    pub(crate) ami: Reference,
    pub(crate) instance_type: String,
    pub(crate) cpu_options: Option<CpuOptions>,
    pub(crate) tags: Vec<NamedTag>,
    pub(crate) iam_instance_profile: Option<Reference>,
    pub(crate) user_data_secret: Option<SecretReference>,
    pub(crate) credentials_secret: Option<SecretReference>,
    pub(crate) key_name: String,
    pub(crate) device_index: i32,
    pub(crate) public_ip: Option<bool>,
    pub(crate) network_interface_type: String,
    pub(crate) security_groups: Vec<Reference>,
    pub(crate) subnet: Reference,
    pub(crate) placement: PlacementSpec,
    pub(crate) load_balancers: Vec<LoadBalancerReference>,
    pub(crate) block_devices: Vec<BlockDevice>,
    pub(crate) spot_market_options: Option<SpotOptions>,
    pub(crate) metadata_service_options: MetadataOptions,
    pub(crate) placement_group_name: String,
    pub(crate) placement_group_partition: Option<i32>,
    pub(crate) capacity_reservation_id: String,
    pub(crate) market_type: String,
}

/// A resource by its id, its ARN or by filters. Which of them a member accepts is its own matter.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Reference {
    pub(crate) id: String,
    pub(crate) arn: String,
    pub(crate) filters: Vec<FilterSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct FilterSpec {
    pub(crate) name: String,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct CpuOptions {
    pub(crate) confidential_compute: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct NamedTag {
    pub(crate) name: String,
    pub(crate) value: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SecretReference {
    name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PlacementSpec {
    pub(crate) region: String,
    pub(crate) availability_zone: String,
    pub(crate) tenancy: String,
    pub(crate) host: Option<HostSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct HostSpec {
    pub(crate) affinity: String,
    pub(crate) dedicated_host: Option<DedicatedHost>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct DedicatedHost {
    pub(crate) allocation_strategy: String,
    pub(crate) id: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LoadBalancerReference {
    pub(crate) name: String,
    #[serde(rename = "type")]
    pub(crate) balancer_type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BlockDevice {
    pub(crate) device_name: String,
    pub(crate) ebs: Option<Ebs>,
    pub(crate) no_device: String,
    pub(crate) virtual_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Ebs {
    pub(crate) encrypted: Option<bool>,
    pub(crate) kms_key: Reference,
    pub(crate) iops: Option<i32>,
    pub(crate) throughput_mib: Option<i32>,
    pub(crate) volume_size: Option<i32>,
    pub(crate) volume_type: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct SpotOptions {
    pub(crate) max_price: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetadataOptions {
    pub(crate) authentication: String,
}

impl ProviderSpec {
    /// Reads a providerSpec. As in Kubernetes, null means absent.
    pub(crate) fn read(value: &Value) -> Result<ProviderSpec, InstanceError> {
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

    /// Whether AWS may take the instance back at any time.
    pub(crate) fn is_spot(&self) -> bool {
        self.spot_market_options.is_some() || self.market_type == "Spot"
    }
}

impl SecretReference {
    /// The Secret, which is one of the Machine's namespace.
    pub(crate) fn secret_ref(&self) -> Option<SecretRef> {
        (!self.name.is_empty()).then(|| SecretRef { namespace: None, name: self.name.clone() })
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_spec_that_cannot_be_read_is_refused_by_its_member() {
        let check = |given: Value, expect: &str| {
            assert_eq!(ProviderSpec::read(&given).unwrap_err().to_string(), expect);
        };
        check(json!(null), "providerSpec.value is missing; expected an AWSMachineProviderConfig");
        check(
            json!({"kind": "AzureMachineProviderSpec"}),
            "providerSpec.value.kind is 'AzureMachineProviderSpec'; expected AWSMachineProviderConfig",
        );
        check(
            json!({"blockDevices": [{"ebs": {"volumeSize": "big"}}]}),
            "providerSpec.value.blockDevices[0].ebs.volumeSize: invalid type: string \"big\", expected i32",
        );
        let spec = ProviderSpec::read(&json!({"subnet": null, "future": 1, "keyName": "k"})).unwrap();
        assert_eq!(spec.key_name, "k");
    }
}
