//! The rules of AWS.

use serde_json::{Value, json};

use crate::webhooks::facts::{Architecture, Platform, PlatformFacts};
use crate::webhooks::tests::rules::{
    check_defaults, check_defaults_of, check_errors, check_warnings, facts, machine,
};
use crate::webhooks::{WebhookKind, validate};

const AWS: Platform = Platform::Aws;

fn valid() -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "AWSMachineProviderConfig",
        "ami": {"id": "ami-1"}, "instanceType": "m6i.xlarge", "placement": {"region": "us-east-1"},
        "subnet": {"id": "subnet-1"}, "iamInstanceProfile": {"id": "worker"},
        "userDataSecret": {"name": "u"}, "credentialsSecret": {"name": "c"}
    })
}

#[test]
fn aws_defaults_are_type_region_and_secrets() {
    let secrets = |mut spec: Value| {
        spec["userDataSecret"] = json!({"name": "worker-user-data"});
        spec["credentialsSecret"] = json!({"name": "aws-cloud-credentials"});
        spec
    };
    check_defaults(
        AWS,
        json!({}),
        secrets(json!({"instanceType": "m5.large", "placement": {"region": "r1"}})),
    );
    let arm = PlatformFacts { architecture: Architecture::Arm64, ..facts(AWS) };
    check_defaults_of(
        &arm,
        json!({"placement": {"availabilityZone": "z", "region": ""}}),
        secrets(json!({
            "instanceType": "m6g.large", "placement": {"availabilityZone": "z", "region": "r1"}
        })),
    );
    check_defaults(AWS, valid(), valid());
}

#[test]
fn aws_needs_image_region_type_and_secrets() {
    check_errors(AWS, valid(), json!({}), &[]);
    check_errors(
        AWS,
        valid(),
        json!({
            "ami": null, "placement": null, "instanceType": "", "userDataSecret": null, "credentialsSecret": null
        }),
        &[
            "providerSpec.ami: Required value: expected providerSpec.ami.id to be populated",
            "providerSpec.placement.region: Required value: expected providerSpec.placement.region to be populated",
            "providerSpec.instanceType: Required value: expected providerSpec.instanceType to be populated",
            "providerSpec.userDataSecret: Required value: expected providerSpec.userDataSecret to be populated",
            "providerSpec.credentialsSecret: Required value: expected providerSpec.credentialsSecret to be populated",
        ],
    );
    check_errors(
        AWS,
        valid(),
        json!({"userDataSecret": {"name": null}, "credentialsSecret": {"name": ""}}),
        &[
            "providerSpec.userDataSecret.name: Required value: expected providerSpec.userDataSecret.name to be populated",
            "providerSpec.credentialsSecret.name: Required value: expected providerSpec.credentialsSecret.name to be populated",
        ],
    );
}

#[test]
fn aws_warns_about_references_that_it_does_not_use() {
    check_warnings(AWS, valid(), json!({}), &[]);
    check_warnings(
        AWS,
        valid(),
        json!({
            "ami": {"arn": "a", "filters": []}, "subnet": {"arn": "a"},
            "iamInstanceProfile": {"arn": "a", "filters": []}
        }),
        &[
            "can't use providerSpec.ami.arn, only providerSpec.ami.id can be used to reference AMI",
            "can't use providerSpec.ami.filters, only providerSpec.ami.id can be used to reference AMI",
            "can't use providerSpec.subnet.arn, only providerSpec.subnet.id and providerSpec.subnet.filters can be used to reference \
             Subnet",
            "can't use providerSpec.iamInstanceProfile.arn, only providerSpec.iamInstanceProfile.id can be used to reference \
             IAMInstanceProfile",
            "can't use providerSpec.iamInstanceProfile.filters, only providerSpec.iamInstanceProfile.id can be used to reference \
             IAMInstanceProfile",
        ],
    );
}

#[test]
fn aws_warns_about_a_missing_subnet_and_profile_and_duplicate_tags() {
    let tag = |name: &str| json!({"name": name, "value": "v"});
    check_warnings(
        AWS,
        valid(),
        json!({
            "subnet": null, "iamInstanceProfile": null,
            "tags": [tag("a"), tag("b"), tag("b"), tag("a"), tag("a"), tag("c")]
        }),
        &[
            "providerSpec.subnet: No subnet has been provided. Instances may be created in an unexpected subnet and may not join the cluster.",
            "providerSpec.iamInstanceProfile: no IAM instance profile provided: nodes may be unable to join the cluster",
            "providerSpec.tags: duplicated tag names (b,a): only the first value will be used.",
        ],
    );
}

#[test]
fn aws_warns_about_a_wrong_type_and_unknown_fields() {
    check_warnings(
        AWS,
        valid(),
        json!({"kind": "Other", "colour": "red"}),
        &[
            "providerSpec.value: Unsupported value: \"colour\": Unknown field (colour) will be ignored",
            "incorrect GroupVersionKind for AWSMachineProviderConfig object: machine.openshift.io/v1beta1, Kind=Other",
        ],
    );
    check_warnings(AWS, valid(), json!({"apiVersion": "awsproviderconfig.openshift.io/v1"}), &[]);
}

#[test]
fn aws_tenancy_is_one_of_a_list() {
    for tenancy in ["", "default", "dedicated", "host"] {
        check_errors(AWS, valid(), json!({"placement": {"tenancy": tenancy}}), &[]);
    }
    check_errors(
        AWS,
        valid(),
        json!({"placement": {"tenancy": "shared"}}),
        &[
            "providerSpec.tenancy: Invalid value: \"shared\": Invalid providerSpec.tenancy, the only allowed options are: default, dedicated, host",
        ],
    );
}

#[test]
fn aws_hosts_need_host_tenancy_and_workers() {
    let host = json!({"affinity": "AnyAvailable"});
    check_errors(AWS, valid(), json!({"placement": {"tenancy": "host", "host": host}}), &[]);
    check_errors(
        AWS,
        valid(),
        json!({"placement": {"tenancy": "dedicated", "host": host}}),
        &["providerSpec.placement.host: Forbidden: host may only be set when tenancy is host"],
    );
    let mut spec = valid();
    spec["placement"] = json!({"region": "r", "tenancy": "host", "host": host});
    let mut machine = machine(spec);
    machine["metadata"]["labels"]["machine.openshift.io/cluster-api-machine-role"] = json!("master");
    assert_eq!(
        validate(WebhookKind::Machine, None, &machine, &facts(AWS)).refusal().unwrap(),
        "providerSpec.placement.host: Forbidden: host may not be set for machines of the control plane"
    );
}

#[test]
fn aws_host_affinity_is_required_and_a_dedicated_host_needs_its_host() {
    let check = |host: Value, expected: &[&str]| {
        check_errors(AWS, valid(), json!({"placement": {"tenancy": "host", "host": host}}), expected);
    };
    check(
        json!({"dedicatedHost": {"id": "h-01234567"}}),
        &[
            "providerSpec.placement.host.affinity: Required value: affinity must be provided and be either AnyAvailable or DedicatedHost",
        ],
    );
    check(
        json!({"affinity": "Near"}),
        &[
            "providerSpec.placement.host.affinity: Invalid value: \"Near\": affinity must be either AnyAvailable or DedicatedHost",
        ],
    );
    check(
        json!({"affinity": "DedicatedHost"}),
        &[
            "providerSpec.placement.host.dedicatedHost: Required value: dedicatedHost must be provided when affinity is DedicatedHost",
        ],
    );
    check(json!({"affinity": "DedicatedHost", "dedicatedHost": {"id": "h-01234567"}}), &[]);
}

#[test]
fn aws_host_ids_have_8_or_17_digits_and_exclude_dynamic_allocation() {
    let check = |dedicated: Value, expected: &[&str]| {
        let host = json!({"affinity": "DedicatedHost", "dedicatedHost": dedicated});
        check_errors(AWS, valid(), json!({"placement": {"tenancy": "host", "host": host}}), expected);
    };
    check(json!({"allocationStrategy": "UserProvided", "id": "h-0123456789abcdef0"}), &[]);
    let detail = "must be h- followed by 8 or 17 lowercase hexadecimal digits";
    for id in ["h-0123456", "h-0123456789abcdef", "h-0123456G", "i-01234567", "h-0123456789ABCDEF0"] {
        let text = format!("providerSpec.placement.host.dedicatedHost.id: Invalid value: {id:?}: {detail}");
        check(json!({"id": id}), &[&text]);
    }
    check(
        json!({"dynamicHostAllocation": {"tags": [{"name": "a", "value": "b"}]}}),
        &[
            "providerSpec.placement.host.dedicatedHost.id: Required value: id must be provided when allocationStrategy is UserProvided",
            "providerSpec.placement.host.dedicatedHost.dynamicHostAllocation: Forbidden: dynamicHostAllocation may only be set when \
             allocationStrategy is Dynamic",
        ],
    );
    check(
        json!({"allocationStrategy": "Other"}),
        &[
            "providerSpec.placement.host.dedicatedHost.allocationStrategy: Invalid value: \"Other\": allocationStrategy must be either \
           UserProvided or Dynamic",
        ],
    );
}

#[test]
fn aws_dynamic_hosts_have_no_id_and_1_to_50_tags() {
    let check = |affinity: &str, dedicated: Value, expected: &[&str]| {
        let host = json!({"affinity": affinity, "dedicatedHost": dedicated});
        check_errors(AWS, valid(), json!({"placement": {"tenancy": "host", "host": host}}), expected);
    };
    let tags = |count: usize| json!({"tags": vec![json!({"name": "a", "value": "b"}); count]});
    let dynamic =
        |allocation: Value| json!({"allocationStrategy": "Dynamic", "dynamicHostAllocation": allocation});
    check("DedicatedHost", dynamic(Value::Null), &[]);
    check("DedicatedHost", dynamic(tags(1)), &[]);
    check("DedicatedHost", dynamic(tags(50)), &[]);
    let path = "providerSpec.placement.host.dedicatedHost.dynamicHostAllocation.tags";
    let none = format!(
        "{path}: Required value: at least one tag must be provided when dynamicHostAllocation is set"
    );
    check("DedicatedHost", dynamic(tags(0)), &[&none]);
    check("DedicatedHost", dynamic(json!({})), &[&none]);
    check(
        "DedicatedHost",
        dynamic(tags(51)),
        &[&format!("{path}: Too many: 51: must have at most 50 items")],
    );
    check(
        "AnyAvailable",
        json!({"allocationStrategy": "Dynamic", "id": "h-01234567"}),
        &[
            "providerSpec.placement.host.affinity: Invalid value: \"AnyAvailable\": affinity must be DedicatedHost when allocationStrategy \
             is Dynamic",
            "providerSpec.placement.host.dedicatedHost.id: Forbidden: id may not be set when allocationStrategy is Dynamic",
        ],
    );
}

#[test]
fn aws_reservations_have_17_digits_and_exclude_the_spot_market() {
    let id = "cr-0123456789abcdef0";
    check_errors(AWS, valid(), json!({"capacityReservationId": id}), &[]);
    for wrong in ["cr-0123456789abcdef", "cr-0123456789abcdef01", "cr-0123456789abcdeg0", "0123456789abcdef0"]
    {
        let text = format!(
            "providerSpec.capacityReservationId: Invalid value: {wrong:?}: must be cr- followed by 17 lowercase hexadecimal digits"
        );
        check_errors(AWS, valid(), json!({"capacityReservationId": wrong}), &[&text]);
    }
    check_errors(
        AWS,
        valid(),
        json!({"capacityReservationId": id, "spotMarketOptions": {}}),
        &[
            "providerSpec.spotMarketOptions: Forbidden: spotMarketOptions may not be set together with capacityReservationId",
        ],
    );
}

#[test]
fn aws_market_types_have_their_own_options() {
    let reserved = json!({"marketType": "CapacityBlock", "capacityReservationId": "cr-0123456789abcdef0"});
    check_errors(AWS, valid(), reserved, &[]);
    check_errors(AWS, valid(), json!({"marketType": "Spot", "spotMarketOptions": {"maxPrice": "1"}}), &[]);
    check_errors(AWS, valid(), json!({"marketType": "OnDemand"}), &[]);
    check_errors(
        AWS,
        valid(),
        json!({"marketType": "CapacityBlock", "spotMarketOptions": {}}),
        &[
            "providerSpec.capacityReservationId: Required value: capacityReservationId must be provided when marketType is CapacityBlock",
            "providerSpec.spotMarketOptions: Forbidden: spotMarketOptions may not be set when marketType is CapacityBlock",
        ],
    );
    check_errors(
        AWS,
        valid(),
        json!({"marketType": "OnDemand", "spotMarketOptions": {}}),
        &[
            "providerSpec.spotMarketOptions: Forbidden: spotMarketOptions may not be set when marketType is OnDemand",
        ],
    );
    check_errors(
        AWS,
        valid(),
        json!({"marketType": "Spot", "capacityReservationId": "cr-0123456789abcdef0"}),
        &[
            "providerSpec.capacityReservationId: Forbidden: capacityReservationId may not be set when marketType is Spot",
        ],
    );
    check_errors(
        AWS,
        valid(),
        json!({"marketType": "Free"}),
        &[
            "providerSpec.marketType: Invalid value: \"Free\": Valid values are: OnDemand, Spot, CapacityBlock and omitted",
        ],
    );
}

#[test]
fn aws_throughput_is_for_gp3_from_125_to_2000() {
    let device = |kind: &str, throughput: i32| json!({"blockDevices": [{}, {"ebs": {"volumeType": kind, "throughputMib": throughput}}]});
    check_errors(AWS, valid(), device("gp3", 125), &[]);
    check_errors(AWS, valid(), device("gp3", 2000), &[]);
    for throughput in [124, 2001] {
        let text = format!(
            "providerSpec.blockDevices[1].ebs.throughputMib: Invalid value: {throughput}: must be from 125 to 2000"
        );
        check_errors(AWS, valid(), device("gp3", throughput), &[&text]);
    }
    check_errors(
        AWS,
        valid(),
        device("gp2", 125),
        &[
            "providerSpec.blockDevices[1].ebs.throughputMib: Forbidden: throughputMib may only be set for volumes of type gp3",
        ],
    );
}

#[test]
fn aws_placement_partitions_are_1_to_7_of_a_group() {
    for partition in [1, 7] {
        let group = json!({"placementGroupName": "g", "placementGroupPartition": partition});
        check_errors(AWS, valid(), group, &[]);
    }
    check_errors(
        AWS,
        valid(),
        json!({"placementGroupPartition": 8}),
        &[
            "providerSpec.placementGroupPartition: Invalid value: 8: must be from 1 to 7",
            "providerSpec.placementGroupName: Required value: placementGroupName must be provided when placementGroupPartition is set",
        ],
    );
}

#[test]
fn aws_interfaces_metadata_and_processors_have_listed_values() {
    for interface in ["", "ENA", "EFA"] {
        check_errors(AWS, valid(), json!({"networkInterfaceType": interface}), &[]);
    }
    for authentication in ["", "Optional", "Required"] {
        let change = json!({"metadataServiceOptions": {"authentication": authentication}});
        check_errors(AWS, valid(), change, &[]);
    }
    for compute in ["Disabled", "AMDEncryptedVirtualizationNestedPaging"] {
        check_errors(AWS, valid(), json!({"cpuOptions": {"confidentialCompute": compute}}), &[]);
    }
    check_errors(
        AWS,
        valid(),
        json!({
            "networkInterfaceType": "Fast", "metadataServiceOptions": {"authentication": "Never"},
            "cpuOptions": {"confidentialCompute": "TDX"}
        }),
        &[
            "providerSpec.networkInterfaceType: Invalid value: \"Fast\": Valid values are: ENA, EFA and omitted",
            "providerSpec.metadataServiceOptions.authentication: Invalid value: \"Never\": Allowed values are either 'Optional' or 'Required'",
            "providerSpec.cpuOptions.confidentialCompute: Invalid value: \"TDX\": Allowed values are either 'Disabled' or \
             'AMDEncryptedVirtualizationNestedPaging'",
        ],
    );
    check_errors(
        AWS,
        valid(),
        json!({"cpuOptions": {}}),
        &[
            "providerSpec.cpuOptions: Required value: at least one field of cpuOptions must be provided when cpuOptions is set",
        ],
    );
}
