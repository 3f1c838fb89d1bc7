//! What a providerSpec must satisfy before anything is launched. The webhook refuses the same; a Machine may be older than the webhook.

use cloud::InstanceError;

use crate::errors::invalid;
use crate::spec::{BlockDevice, ProviderSpec};

type Check = Result<(), InstanceError>;

/// The confidential computing of AWS: `AMD SEV-SNP`.
pub(crate) const SEV_SNP: &str = "AMDEncryptedVirtualizationNestedPaging";
/// Throughput of a gp3 volume, in MiB/s.
const THROUGHPUT: std::ops::RangeInclusive<i32> = 125..=2000;

/// Checks what every call needs: the region, which becomes part of a host name.
pub(crate) fn check_region(spec: &ProviderSpec) -> Check {
    let region = &spec.placement.region;
    let is_inner = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
    let is_name = !region.is_empty()
        && region.len() <= 40
        && region.chars().all(is_inner)
        && !region.starts_with('-')
        && !region.ends_with('-');
    if is_name {
        return Ok(());
    }
    Err(invalid(format!("placement.region is '{region}'; expected the name of a region, such as eu-west-1")))
}

/// Checks every member; the first wrong one is the error.
pub(crate) fn validate(spec: &ProviderSpec) -> Check {
    required("instanceType", &spec.instance_type, "the name of a type, such as m5.large")?;
    required("ami.id", &spec.ami.id, "the id of an image, such as ami-0123456789abcdef0")?;
    one_of("placement.tenancy", &spec.placement.tenancy, &["", "default", "dedicated", "host"])?;
    one_of("networkInterfaceType", &spec.network_interface_type, &["", "ENA", "EFA"])?;
    let authentication = &spec.metadata_service_options.authentication;
    one_of("metadataServiceOptions.authentication", authentication, &["", "Optional", "Required"])?;
    if let Some(options) = &spec.cpu_options {
        one_of("cpuOptions.confidentialCompute", &options.confidential_compute, &["Disabled", SEV_SNP])?;
    }
    references(spec)?;
    market(spec)?;
    host(spec)?;
    group(spec)?;
    for (index, device) in spec.block_devices.iter().enumerate() {
        block_device(device, index)?;
    }
    for (index, balancer) in spec.load_balancers.iter().enumerate() {
        let member = format!("loadBalancers[{index}]");
        required(&format!("{member}.name"), &balancer.name, "the name of a load balancer")?;
        one_of(&format!("{member}.type"), &balancer.balancer_type, &["classic", "network"])?;
    }
    Ok(())
}

fn required(member: &str, value: &str, expected: &str) -> Check {
    if value.trim().is_empty() {
        return Err(invalid(format!("{member} is empty; expected {expected}")));
    }
    Ok(())
}

fn one_of(member: &str, value: &str, accepted: &[&str]) -> Check {
    if accepted.contains(&value) {
        return Ok(());
    }
    let accepted: Vec<&str> = accepted.iter().copied().filter(|it| !it.is_empty()).collect();
    Err(invalid(format!("{member} is '{value}'; accepted are {}", accepted.join(", "))))
}

fn references(spec: &ProviderSpec) -> Check {
    if spec.subnet.id.is_empty() && !spec.subnet.arn.is_empty() {
        return Err(invalid("subnet has an arn only; expected id or filters"));
    }
    for (index, group) in spec.security_groups.iter().enumerate() {
        if group.id.is_empty() && group.filters.is_empty() {
            return Err(invalid(format!("securityGroups[{index}] has neither id nor filters; expected one")));
        }
    }
    if spec.iam_instance_profile.as_ref().is_some_and(|it| it.id.is_empty()) {
        return Err(invalid("iamInstanceProfile.id is empty; expected the name of an instance profile"));
    }
    Ok(())
}

fn market(spec: &ProviderSpec) -> Check {
    let (has_reservation, has_spot) =
        (!spec.capacity_reservation_id.is_empty(), spec.spot_market_options.is_some());
    one_of("marketType", &spec.market_type, &["", "OnDemand", "Spot", "CapacityBlock"])?;
    if has_spot && matches!(spec.market_type.as_str(), "OnDemand" | "CapacityBlock") {
        let market = &spec.market_type;
        return Err(invalid(format!("marketType is '{market}'; spotMarketOptions need Spot or none")));
    }
    if spec.market_type == "CapacityBlock" && !has_reservation {
        return Err(invalid("marketType is 'CapacityBlock'; it needs capacityReservationId"));
    }
    if spec.is_spot() && has_reservation {
        return Err(invalid("capacityReservationId is set; spot instances cannot use a reservation"));
    }
    Ok(())
}

fn host(spec: &ProviderSpec) -> Check {
    let Some(host) = &spec.placement.host else { return Ok(()) };
    if spec.placement.tenancy != "host" {
        let tenancy = &spec.placement.tenancy;
        return Err(invalid(format!("placement.tenancy is '{tenancy}'; placement.host needs host")));
    }
    one_of("placement.host.affinity", &host.affinity, &["AnyAvailable", "DedicatedHost"])?;
    match &host.dedicated_host {
        None if host.affinity == "DedicatedHost" => {
            Err(invalid("placement.host.dedicatedHost is missing; the affinity DedicatedHost needs it"))
        }
        None => Ok(()),
        Some(dedicated) => {
            let member = "placement.host.dedicatedHost";
            let strategy = &dedicated.allocation_strategy;
            one_of(&format!("{member}.allocationStrategy"), strategy, &["", "UserProvided"])?;
            required(&format!("{member}.id"), &dedicated.id, "the id of a host, such as h-0123456789abcdef0")
        }
    }
}

fn group(spec: &ProviderSpec) -> Check {
    let Some(partition) = spec.placement_group_partition else { return Ok(()) };
    if !(1..=7).contains(&partition) {
        return Err(invalid(format!("placementGroupPartition is {partition}; expected from 1 to 7")));
    }
    required("placementGroupName", &spec.placement_group_name, "a name, as placementGroupPartition is set")
}

fn block_device(device: &BlockDevice, index: usize) -> Check {
    let member = format!("blockDevices[{index}]");
    let Some(ebs) = &device.ebs else { return Ok(()) };
    if let Some(size) = ebs.volume_size.filter(|it| *it < 1) {
        return Err(invalid(format!("{member}.ebs.volumeSize is {size}; expected at least 1")));
    }
    if let Some(iops) = ebs.iops.filter(|it| *it < 1) {
        return Err(invalid(format!("{member}.ebs.iops is {iops}; expected at least 1")));
    }
    if let Some(throughput) = ebs.throughput_mib {
        if ebs.volume_type != "gp3" {
            let volume_type = &ebs.volume_type;
            return Err(invalid(format!(
                "{member}.ebs.volumeType is '{volume_type}'; throughputMib needs gp3"
            )));
        }
        if !THROUGHPUT.contains(&throughput) {
            let (from, to) = (THROUGHPUT.start(), THROUGHPUT.end());
            return Err(invalid(format!(
                "{member}.ebs.throughputMib is {throughput}; expected from {from} to {to}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(changes: Value, expect: Option<&str>) {
        let mut spec = json!({
            "ami": {"id": "ami-1"}, "instanceType": "m5.large", "placement": {"region": "eu-west-1"},
        });
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let spec = ProviderSpec::read(&spec).unwrap();
        let result = check_region(&spec).and_then(|()| validate(&spec)).map_err(|it| it.to_string());
        assert_eq!(result.err(), expect.map(|it| format!("providerSpec.value.{it}")), "{changes}");
    }

    #[test]
    fn a_wrong_member_is_refused_with_its_value_and_what_is_accepted() {
        check(json!({}), None);
        for region in ["", "eu-west-1.evil.example", "a@b", "eu-", "EU"] {
            let expect =
                format!("placement.region is '{region}'; expected the name of a region, such as eu-west-1");
            check(json!({"placement": {"region": region}}), Some(&expect));
        }
        check(
            json!({"instanceType": ""}),
            Some("instanceType is empty; expected the name of a type, such as m5.large"),
        );
        check(
            json!({"ami": {"arn": "arn:x"}}),
            Some("ami.id is empty; expected the id of an image, such as ami-0123456789abcdef0"),
        );
        check(
            json!({"placement": {"region": "r", "tenancy": "shared"}}),
            Some("placement.tenancy is 'shared'; accepted are default, dedicated, host"),
        );
        check(
            json!({"loadBalancers": [{"name": "a", "type": "gateway"}]}),
            Some("loadBalancers[0].type is 'gateway'; accepted are classic, network"),
        );
        check(
            json!({"blockDevices": [{"ebs": {"volumeType": "gp2", "throughputMib": 200}}]}),
            Some("blockDevices[0].ebs.volumeType is 'gp2'; throughputMib needs gp3"),
        );
        check(
            json!({"blockDevices": [{"ebs": {"volumeType": "gp3", "throughputMib": 1}}]}),
            Some("blockDevices[0].ebs.throughputMib is 1; expected from 125 to 2000"),
        );
        check(
            json!({"marketType": "Spot", "capacityReservationId": "cr-1"}),
            Some("capacityReservationId is set; spot instances cannot use a reservation"),
        );
        check(
            json!({"placementGroupPartition": 8}),
            Some("placementGroupPartition is 8; expected from 1 to 7"),
        );
        check(
            json!({"securityGroups": [{"arn": "x"}]}),
            Some("securityGroups[0] has neither id nor filters; expected one"),
        );
    }

    #[test]
    fn a_host_needs_the_tenancy_and_its_id() {
        let host = |tenancy: &str, host: Value| json!({"placement": {"region": "r", "tenancy": tenancy, "host": host}});
        check(
            host("", json!({"affinity": "AnyAvailable"})),
            Some("placement.tenancy is ''; placement.host needs host"),
        );
        check(host("host", json!({"affinity": "AnyAvailable"})), None);
        check(
            host("host", json!({"affinity": "DedicatedHost"})),
            Some("placement.host.dedicatedHost is missing; the affinity DedicatedHost needs it"),
        );
        check(host("host", json!({"affinity": "DedicatedHost", "dedicatedHost": {"id": "h-1"}})), None);
        check(
            host(
                "host",
                json!({"affinity": "DedicatedHost", "dedicatedHost": {"allocationStrategy": "Dynamic"}}),
            ),
            Some("placement.host.dedicatedHost.allocationStrategy is 'Dynamic'; accepted are UserProvided"),
        );
    }
}
