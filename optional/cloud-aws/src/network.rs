//! What a launch needs to know about the surroundings that a providerSpec describes by filters: subnet, security groups, root device.

use aws_sdk_ec2::types::Filter;
use cloud::InstanceError;

use crate::errors::{CallError, Verb, failed, invalid};
use crate::find::Target;
use crate::spec::{FilterSpec, Reference};

/// Filters of subnets by their zone; one of them in the providerSpec decides the zone.
const ZONE_FILTERS: [&str; 4] =
    ["availability-zone", "availabilityZone", "availability-zone-id", "availabilityZoneId"];

/// What was looked up, in an order that is the same for every repetition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Network {
    /// The subnet; `None` for AWS's default.
    pub(crate) subnet: Option<String>,
    pub(crate) groups: Vec<String>,
    /// The image's root device, if a block device needs its name.
    pub(crate) root_device: Option<String>,
}

fn wrong(error: CallError) -> InstanceError {
    error.for_machine(Verb::Create)
}

fn filter(name: &str, values: &[String]) -> Filter {
    Filter::builder().name(name).set_values(Some(values.to_vec())).build()
}

fn filters(given: &[FilterSpec]) -> Vec<Filter> {
    given.iter().map(|it| filter(&it.name, &it.values)).collect()
}

/// The filters in a sentence.
fn describe(given: &[FilterSpec]) -> String {
    let all: Vec<String> = given.iter().map(|it| format!("{}={}", it.name, it.values.join(","))).collect();
    all.join(" ")
}

impl Target {
    pub(crate) async fn network(&self) -> Result<Network, InstanceError> {
        Ok(Network {
            subnet: self.subnet().await?,
            groups: self.groups().await?,
            root_device: self.root_device().await?,
        })
    }

    /// The subnet by its id, or the first that the filters find in the Machine's zone.
    async fn subnet(&self) -> Result<Option<String>, InstanceError> {
        let Reference { id, filters: given, .. } = &self.spec.subnet;
        if !id.is_empty() {
            return Ok(Some(id.clone()));
        }
        if given.is_empty() {
            return Ok(None);
        }
        let mut all = filters(given);
        let zone = &self.spec.placement.availability_zone;
        if !zone.is_empty() && !given.iter().any(|it| ZONE_FILTERS.contains(&it.name.as_str())) {
            all.push(filter("availability-zone", std::slice::from_ref(zone)));
        }
        let call = self.clients.ec2.describe_subnets().set_filters(Some(all)).send().await;
        let found = call.map_err(|error| wrong(CallError::of("DescribeSubnets", error)))?;
        let ids = found.subnets().iter().filter_map(|it| it.subnet_id());
        match ids.min() {
            Some(id) => Ok(Some(id.to_owned())),
            None => Err(not_there("subnet", given, zone)),
        }
    }

    async fn groups(&self) -> Result<Vec<String>, InstanceError> {
        let mut groups = Vec::new();
        for (index, group) in self.spec.security_groups.iter().enumerate() {
            if !group.id.is_empty() {
                groups.push(group.id.clone());
                continue;
            }
            let call = self.clients.ec2.describe_security_groups().set_filters(Some(filters(&group.filters)));
            let found = call.send().await.map_err(|it| wrong(CallError::of("DescribeSecurityGroups", it)))?;
            let ids: Vec<String> =
                found.security_groups().iter().filter_map(|it| it.group_id().map(str::to_owned)).collect();
            if ids.is_empty() {
                return Err(not_there(&format!("securityGroups[{index}]"), &group.filters, ""));
            }
            groups.extend(ids);
        }
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    /// The name of the image's root device, which a block device without a name describes.
    async fn root_device(&self) -> Result<Option<String>, InstanceError> {
        let is_unnamed = |it: &crate::spec::BlockDevice| it.ebs.is_some() && it.device_name.is_empty();
        if !self.spec.block_devices.iter().any(is_unnamed) {
            return Ok(None);
        }
        let id = &self.spec.ami.id;
        let call = self.clients.ec2.describe_images().image_ids(id).send().await;
        let found = call.map_err(|error| wrong(CallError::of("DescribeImages", error)))?;
        let name = found.images().first().and_then(|it| it.root_device_name());
        match name {
            Some(name) => Ok(Some(name.to_owned())),
            None => Err(invalid(format!("ami.id is '{id}'; there is no such image with a root device"))),
        }
    }
}

/// What filters look for may be made later, so this is no reason to give the Machine up.
fn not_there(member: &str, given: &[FilterSpec], zone: &str) -> InstanceError {
    let place = if zone.is_empty() { String::new() } else { format!(" in {zone}") };
    failed(
        Verb::Create,
        format!("providerSpec.value.{member}: nothing{place} matches the filters {}", describe(given)),
    )
}
