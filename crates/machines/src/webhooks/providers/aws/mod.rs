//! Amazon Web Services.

mod market;
mod placement;
mod spec;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use super::{MachineIdentity, USER_DATA_SECRET, check_credentials, is_empty_or, secret_reference};
use crate::webhooks::facts::PlatformFacts;
use crate::webhooks::field::FieldError;
use crate::webhooks::provider_spec::{ExpectedType, object, set_if_absent, set_if_empty};
use crate::webhooks::verdict::Verdict;

pub(crate) use spec::AwsSpec;
use spec::{BlockDevice, CpuOptions, ResourceReference, Tag};

const TYPE: ExpectedType =
    ExpectedType { kind: "AWSMachineProviderConfig", earlier_group: "awsproviderconfig.openshift.io" };

const CREDENTIALS_SECRET: &str = "aws-cloud-credentials";

/// The throughput of a gp3 volume, in MiB/s.
const THROUGHPUT: std::ops::RangeInclusive<i32> = 125..=2000;

/// The confidential computing of AWS: `AMD SEV-SNP`.
const SEV_SNP: &str = "AMDEncryptedVirtualizationNestedPaging";

pub(crate) fn set_defaults(fields: &mut Map<String, Value>, facts: &PlatformFacts) {
    set_if_empty(fields, "instanceType", facts.by_architecture("m5.large", "m6g.large"));
    if let (Some(region), Some(placement)) = (&facts.region, object(fields, "placement")) {
        set_if_empty(placement, "region", region.clone());
    }
    set_if_absent(fields, "userDataSecret", secret_reference(USER_DATA_SECRET));
    set_if_absent(fields, "credentialsSecret", secret_reference(CREDENTIALS_SECRET));
}

pub(crate) fn validate(spec: &AwsSpec, machine: MachineIdentity<'_>, verdict: &mut Verdict) {
    if let Some(warning) = TYPE.warning(&spec.api_version, &spec.kind) {
        verdict.warn(warning);
    }
    validate_image(&spec.ami, verdict);
    let mut require = |is_given: bool, path: &str, field: &str| {
        verdict.require(is_given, || FieldError::required(path, format!("expected {field} to be populated")));
    };
    let mut require_field = |is_given: bool, path: &str| require(is_given, path, path);
    require_field(!spec.placement.region.is_empty(), "providerSpec.placement.region");
    require_field(!spec.instance_type.is_empty(), "providerSpec.instanceType");
    require_field(spec.user_data_secret.is_some(), "providerSpec.userDataSecret");
    require_field(
        spec.user_data_secret.as_ref().is_none_or(|it| !it.name.is_empty()),
        "providerSpec.userDataSecret.name",
    );
    require_field(spec.credentials_secret.is_some(), "providerSpec.credentialsSecret");
    require_field(
        spec.credentials_secret.as_ref().is_none_or(|it| !it.name.is_empty()),
        "providerSpec.credentialsSecret.name",
    );
    check_credentials(
        spec.credentials_secret.as_ref().map(|it| it.name.as_str()),
        machine.namespace,
        verdict,
    );
    warn_about_omissions(spec, verdict);
    placement::validate(spec, machine, verdict);
    market::validate(spec, verdict);
    validate_block_devices(&spec.block_devices, verdict);
    validate_options(spec, verdict);
}

fn validate_image(ami: &ResourceReference, verdict: &mut Verdict) {
    verdict.require(ami.id.as_ref().is_some_and(|it| !it.is_empty()), || {
        FieldError::required("providerSpec.ami", "expected providerSpec.ami.id to be populated")
    });
    for (field, is_given) in [("arn", ami.arn.is_some()), ("filters", ami.filters.is_some())] {
        verdict.warn_if(is_given, || {
            format!(
                "can't use providerSpec.ami.{field}, only providerSpec.ami.id can be used to reference AMI"
            )
        });
    }
}

fn warn_about_omissions(spec: &AwsSpec, verdict: &mut Verdict) {
    let subnet = &spec.subnet;
    let has_subnet = subnet.id.is_some() || subnet.arn.is_some() || subnet.filters.is_some();
    verdict.warn_if(!has_subnet, || {
        "providerSpec.subnet: No subnet has been provided. Instances may be created in an unexpected subnet and may not join the \
         cluster."
            .to_owned()
    });
    verdict.warn_if(subnet.arn.is_some(), || {
        "can't use providerSpec.subnet.arn, only providerSpec.subnet.id and providerSpec.subnet.filters can be used to reference Subnet"
            .to_owned()
    });
    match &spec.iam_instance_profile {
        None => verdict.warn(
            "providerSpec.iamInstanceProfile: no IAM instance profile provided: nodes may be unable to join the cluster",
        ),
        Some(profile) => {
            for (field, is_given) in [("arn", profile.arn.is_some()), ("filters", profile.filters.is_some())] {
                verdict.warn_if(is_given, || {
                    format!(
                        "can't use providerSpec.iamInstanceProfile.{field}, only providerSpec.iamInstanceProfile.id can be used to \
                         reference IAMInstanceProfile"
                    )
                });
            }
        }
    }
    let duplicates = duplicate_names(&spec.tags);
    verdict.warn_if(!duplicates.is_empty(), || {
        let names = duplicates.join(",");
        format!("providerSpec.tags: duplicated tag names ({names}): only the first value will be used.")
    });
}

/// The names that more than one tag has, in the order of their first repetition.
fn duplicate_names(tags: &[Tag]) -> Vec<&str> {
    let (mut seen, mut duplicates) = (std::collections::BTreeSet::new(), Vec::new());
    for tag in tags {
        let name = tag.name.as_str();
        if !seen.insert(name) && !duplicates.contains(&name) {
            duplicates.push(name);
        }
    }
    duplicates
}

fn validate_block_devices(devices: &[BlockDevice], verdict: &mut Verdict) {
    for (index, ebs) in devices.iter().enumerate().filter_map(|(index, it)| Some((index, it.ebs.as_ref()?))) {
        let Some(throughput) = ebs.throughput_mib else { continue };
        let path = format!("providerSpec.blockDevices[{index}].ebs.throughputMib");
        if ebs.volume_type.as_deref() != Some("gp3") {
            verdict
                .error(FieldError::forbidden(path, "throughputMib may only be set for volumes of type gp3"));
        } else if !THROUGHPUT.contains(&throughput) {
            let detail = format!("must be from {} to {}", THROUGHPUT.start(), THROUGHPUT.end());
            verdict.error(FieldError::invalid(path, throughput, detail));
        }
    }
}

fn validate_options(spec: &AwsSpec, verdict: &mut Verdict) {
    let interface = &spec.network_interface_type;
    verdict.require(is_empty_or(interface, &["ENA", "EFA"]), || {
        let path = "providerSpec.networkInterfaceType";
        FieldError::invalid(path, interface.as_str(), "Valid values are: ENA, EFA and omitted")
    });
    let authentication = &spec.metadata_service_options.authentication;
    verdict.require(is_empty_or(authentication, &["Optional", "Required"]), || {
        FieldError::invalid(
            "providerSpec.metadataServiceOptions.authentication",
            authentication.as_str(),
            "Allowed values are either 'Optional' or 'Required'",
        )
    });
    match &spec.cpu_options {
        None => {}
        Some(CpuOptions { confidential_compute: None }) => verdict.error(FieldError::required(
            "providerSpec.cpuOptions",
            "at least one field of cpuOptions must be provided when cpuOptions is set",
        )),
        Some(CpuOptions { confidential_compute: Some(value) }) => {
            verdict.require(["Disabled", SEV_SNP].contains(&value.as_str()), || {
                FieldError::invalid(
                    "providerSpec.cpuOptions.confidentialCompute",
                    value.as_str(),
                    format!("Allowed values are either 'Disabled' or '{SEV_SNP}'"),
                )
            });
        }
    }
}
