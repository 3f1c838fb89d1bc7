//! The request that launches the instance of a Machine: a function of the providerSpec and of what was looked up for it. Two calls for
//! the same Machine make the same request, which the idempotency token demands.

use std::collections::BTreeMap;

use aws_sdk_ec2::operation::run_instances::builders::RunInstancesInputBuilder;
use aws_sdk_ec2::types::{
    AmdSevSnpSpecification, BlockDeviceMapping, CapacityReservationSpecification, CapacityReservationTarget,
    CpuOptionsRequest, EbsBlockDevice, HttpTokensState, IamInstanceProfileSpecification,
    InstanceInterruptionBehavior, InstanceMarketOptionsRequest, InstanceMetadataOptionsRequest,
    InstanceNetworkInterfaceSpecification, MarketType, Placement, ResourceType, SpotInstanceType,
    SpotMarketOptions, TagSpecification,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::network::Network;
use crate::spec::{BlockDevice, ProviderSpec};
use crate::tags;
use crate::validate::SEV_SNP;

/// What a launch is made from.
pub(crate) struct Launch<'a> {
    pub(crate) spec: &'a ProviderSpec,
    /// The idempotency token.
    pub(crate) token: &'a str,
    pub(crate) tags: &'a BTreeMap<String, String>,
    pub(crate) network: &'a Network,
    pub(crate) user_data: Option<&'a [u8]>,
}

impl Launch<'_> {
    pub(crate) fn request(&self) -> RunInstancesInputBuilder {
        let spec = self.spec;
        let profile = spec.iam_instance_profile.as_ref();
        let authentication = match spec.metadata_service_options.authentication.as_str() {
            "Required" => Some(HttpTokensState::Required),
            "Optional" => Some(HttpTokensState::Optional),
            _ => None,
        };
        RunInstancesInputBuilder::default()
            .client_token(self.token)
            .min_count(1)
            .max_count(1)
            .image_id(&spec.ami.id)
            .instance_type(spec.instance_type.as_str().into())
            .set_key_name(given(&spec.key_name))
            .set_user_data(self.user_data.map(|it| STANDARD.encode(it)))
            .set_iam_instance_profile(
                profile.map(|it| IamInstanceProfileSpecification::builder().name(&it.id).build()),
            )
            .set_block_device_mappings(Some(self.block_devices()).filter(|it| !it.is_empty()))
            .network_interfaces(self.interface())
            .set_placement(self.placement())
            .set_instance_market_options(self.market())
            .set_capacity_reservation_specification(self.reservation())
            .set_cpu_options(self.cpu_options())
            .set_metadata_options(
                authentication.map(|it| InstanceMetadataOptionsRequest::builder().http_tokens(it).build()),
            )
            .set_tag_specifications(Some(
                [ResourceType::Instance, ResourceType::Volume]
                    .map(|it| {
                        let tags = tags::to_sdk(self.tags);
                        TagSpecification::builder().resource_type(it).set_tags(Some(tags)).build()
                    })
                    .into(),
            ))
    }

    fn interface(&self) -> InstanceNetworkInterfaceSpecification {
        let interface_type = (self.spec.network_interface_type == "EFA").then(|| "efa".to_owned());
        let groups = &self.network.groups;
        InstanceNetworkInterfaceSpecification::builder()
            .device_index(self.spec.device_index)
            .delete_on_termination(true)
            .set_associate_public_ip_address(self.spec.public_ip)
            .set_subnet_id(self.network.subnet.clone())
            .set_groups((!groups.is_empty()).then(|| groups.clone()))
            .set_interface_type(interface_type)
            .build()
    }

    /// Volumes are deleted with their instance, whatever the deprecated member `deleteOnTermination` says.
    fn block_devices(&self) -> Vec<BlockDeviceMapping> {
        let device = |device: &BlockDevice| {
            let name = given(&device.device_name).or_else(|| self.network.root_device.clone());
            let ebs = device.ebs.as_ref().map(|ebs| {
                let key = given(&ebs.kms_key.id).or_else(|| given(&ebs.kms_key.arn));
                EbsBlockDevice::builder()
                    .delete_on_termination(true)
                    .set_encrypted(ebs.encrypted)
                    .set_kms_key_id(key.filter(|_| ebs.encrypted == Some(true)))
                    .set_iops(ebs.iops)
                    .set_throughput(ebs.throughput_mib)
                    .set_volume_size(ebs.volume_size)
                    .set_volume_type(given(&ebs.volume_type).map(|it| it.as_str().into()))
                    .build()
            });
            BlockDeviceMapping::builder()
                .set_device_name(name)
                .set_ebs(ebs)
                .set_no_device(given(&device.no_device))
                .set_virtual_name(given(&device.virtual_name))
                .build()
        };
        self.spec.block_devices.iter().map(device).collect()
    }

    fn placement(&self) -> Option<Placement> {
        let spec = self.spec;
        let placement = &spec.placement;
        let host = placement.host.as_ref();
        let host_id = host.and_then(|it| it.dedicated_host.as_ref()).and_then(|it| given(&it.id));
        let affinity = host.map(|it| match it.affinity.as_str() {
            "DedicatedHost" => "host",
            _ => "default",
        });
        let built = Placement::builder()
            .set_availability_zone(given(&placement.availability_zone))
            .set_tenancy(given(&placement.tenancy).map(|it| it.as_str().into()))
            .set_host_id(host_id)
            .set_affinity(affinity.map(str::to_owned))
            .set_group_name(given(&spec.placement_group_name))
            .set_partition_number(spec.placement_group_partition)
            .build();
        (built != Placement::builder().build()).then_some(built)
    }

    fn market(&self) -> Option<InstanceMarketOptionsRequest> {
        if self.spec.market_type == "CapacityBlock" {
            let market = MarketType::CapacityBlock;
            return Some(InstanceMarketOptionsRequest::builder().market_type(market).build());
        }
        if !self.spec.is_spot() {
            return None;
        }
        let max_price = self.spec.spot_market_options.as_ref().and_then(|it| given(&it.max_price));
        // A Machine has one instance, so the request ends with it.
        let options = SpotMarketOptions::builder()
            .spot_instance_type(SpotInstanceType::OneTime)
            .instance_interruption_behavior(InstanceInterruptionBehavior::Terminate)
            .set_max_price(max_price)
            .build();
        let market = InstanceMarketOptionsRequest::builder().market_type(MarketType::Spot);
        Some(market.spot_options(options).build())
    }

    fn reservation(&self) -> Option<CapacityReservationSpecification> {
        let id = given(&self.spec.capacity_reservation_id)?;
        let target = CapacityReservationTarget::builder().capacity_reservation_id(id).build();
        Some(CapacityReservationSpecification::builder().capacity_reservation_target(target).build())
    }

    fn cpu_options(&self) -> Option<CpuOptionsRequest> {
        let options = self.spec.cpu_options.as_ref()?;
        let is_on = options.confidential_compute == SEV_SNP;
        let snp = if is_on { AmdSevSnpSpecification::Enabled } else { AmdSevSnpSpecification::Disabled };
        Some(CpuOptionsRequest::builder().amd_sev_snp(snp).build())
    }
}

/// A text that is not empty.
fn given(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use aws_sdk_ec2::operation::run_instances::RunInstancesInput;
    use aws_sdk_ec2::types::Tenancy;
    use serde_json::{Value, json};

    use super::*;

    fn request(changes: Value) -> RunInstancesInput {
        let mut spec = json!({"ami": {"id": "ami-1"}, "instanceType": "m5.large"});
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let spec = ProviderSpec::read(&spec).unwrap();
        let network = Network {
            subnet: Some("subnet-1".to_owned()),
            groups: vec!["sg-1".to_owned(), "sg-2".to_owned()],
            root_device: Some("/dev/xvda".to_owned()),
        };
        let tags = [("Name".to_owned(), "m".to_owned())].into();
        let launch = Launch {
            spec: &spec,
            token: "uid-1",
            tags: &tags,
            network: &network,
            user_data: Some(b"hunter2"),
        };
        launch.request().build().unwrap()
    }

    #[test]
    fn a_launch_is_one_instance_with_its_token_tags_and_interface() {
        let request = request(
            json!({"publicIp": true, "networkInterfaceType": "EFA", "iamInstanceProfile": {"id": "p"}}),
        );
        assert_eq!((request.min_count(), request.max_count()), (Some(1), Some(1)));
        assert_eq!(request.client_token(), Some("uid-1"));
        assert_eq!(request.user_data(), Some("aHVudGVyMg=="));
        assert_eq!(request.iam_instance_profile().unwrap().name(), Some("p"));
        let [interface] = request.network_interfaces() else { panic!() };
        assert_eq!(interface.associate_public_ip_address(), Some(true));
        assert_eq!((interface.subnet_id(), interface.interface_type()), (Some("subnet-1"), Some("efa")));
        assert_eq!(interface.groups(), ["sg-1", "sg-2"]);
        let kinds: Vec<&str> =
            request.tag_specifications().iter().filter_map(|it| Some(it.resource_type()?.as_str())).collect();
        assert_eq!(kinds, ["instance", "volume"]);
        assert!(request.placement().is_none() && request.instance_market_options().is_none());
        assert!(!format!("{request:?}").contains("aHVudGVyMg=="));
    }

    #[test]
    fn block_devices_are_deleted_with_their_instance_and_the_unnamed_one_is_the_root() {
        let request = request(json!({"blockDevices": [
            {"ebs": {"volumeSize": 120, "volumeType": "gp3", "iops": 4000, "throughputMib": 200, "deleteOnTermination": false,
                "encrypted": true, "kmsKey": {"arn": "arn:k"}}},
            {"deviceName": "/dev/sdb", "ebs": {"volumeSize": 10, "kmsKey": {"id": "unused"}}},
            {"deviceName": "/dev/sdc", "noDevice": "x"},
        ]}));
        let devices = request.block_device_mappings();
        let names: Vec<&str> = devices.iter().filter_map(|it| it.device_name()).collect();
        assert_eq!(names, ["/dev/xvda", "/dev/sdb", "/dev/sdc"]);
        let root = devices[0].ebs().unwrap();
        assert_eq!((root.volume_size(), root.iops(), root.throughput()), (Some(120), Some(4000), Some(200)));
        assert_eq!((root.encrypted(), root.kms_key_id()), (Some(true), Some("arn:k")));
        assert_eq!(root.delete_on_termination(), Some(true));
        assert_eq!(devices[1].ebs().unwrap().kms_key_id(), None);
        assert_eq!((devices[2].ebs(), devices[2].no_device()), (None, Some("x")));
    }

    #[test]
    fn placement_market_and_options_are_those_of_the_spec() {
        let request = request(json!({
            "placement": {"region": "r", "availabilityZone": "r-a", "tenancy": "host",
                "host": {"affinity": "DedicatedHost", "dedicatedHost": {"id": "h-1"}}},
            "placementGroupName": "g", "placementGroupPartition": 2, "capacityReservationId": "cr-1",
            "metadataServiceOptions": {"authentication": "Required"},
            "cpuOptions": {"confidentialCompute": "AMDEncryptedVirtualizationNestedPaging"},
        }));
        let placement = request.placement().unwrap();
        assert_eq!(placement.availability_zone(), Some("r-a"));
        assert_eq!((placement.tenancy(), placement.host_id()), (Some(&Tenancy::Host), Some("h-1")));
        assert_eq!((placement.affinity(), placement.group_name()), (Some("host"), Some("g")));
        assert_eq!(placement.partition_number(), Some(2));
        assert_eq!(request.metadata_options().unwrap().http_tokens(), Some(&HttpTokensState::Required));
        let reservation = request.capacity_reservation_specification().unwrap();
        let target = reservation.capacity_reservation_target().unwrap();
        assert_eq!(target.capacity_reservation_id(), Some("cr-1"));
        assert_eq!(request.cpu_options().unwrap().amd_sev_snp(), Some(&AmdSevSnpSpecification::Enabled));
    }

    #[test]
    fn a_spot_instance_is_asked_for_once_and_ends_when_it_is_interrupted() {
        let spot = |changes: Value| request(changes).instance_market_options().cloned().unwrap();
        let market = spot(json!({"spotMarketOptions": {"maxPrice": "0.05"}}));
        assert_eq!(market.market_type(), Some(&MarketType::Spot));
        let options = market.spot_options().unwrap();
        assert_eq!(options.max_price(), Some("0.05"));
        assert_eq!(options.spot_instance_type(), Some(&SpotInstanceType::OneTime));
        assert_eq!(spot(json!({"marketType": "Spot"})).spot_options().unwrap().max_price(), None);
        let block = spot(json!({"marketType": "CapacityBlock", "capacityReservationId": "cr-1"}));
        assert_eq!(block.market_type(), Some(&MarketType::CapacityBlock));
        assert!(block.spot_options().is_none());
    }
}
