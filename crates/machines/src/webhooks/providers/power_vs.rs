//! IBM Power Virtual Server.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{MachineIdentity, USER_DATA_SECRET, check_credentials, secret_reference};
use crate::webhooks::field::FieldError;
use crate::webhooks::provider_spec::{LocalSecretReference, set_if_absent, set_if_empty};
use crate::webhooks::quantity::IntOrString;
use crate::webhooks::verdict::Verdict;

const CREDENTIALS_SECRET: &str = "powervs-credentials";
const SYSTEM_TYPE: &str = "s922";
const PROCESSOR_TYPE: &str = "Shared";
const MEMORY_GIB: i32 = 32;

/// The limits of a type of system.
#[derive(Debug)]
struct SystemLimits {
    system_type: &'static str,
    memory_gib_max: i32,
    processors_max: f64,
}

/// In the order in which texts name them.
const SYSTEMS: [SystemLimits; 3] = [
    SystemLimits { system_type: "s922", memory_gib_max: 942, processors_max: 15.0 },
    SystemLimits { system_type: "e980", memory_gib_max: 15_307, processors_max: 143.0 },
    SystemLimits { system_type: "e880", memory_gib_max: 7_463, processors_max: 143.0 },
];

const MEMORY_GIB_MIN: i32 = 32;
const SHARED_PROCESSORS_MIN: f64 = 0.5;
const DEDICATED_PROCESSORS_MIN: f64 = 1.0;

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct PowerVsSpec {
    api_version: String,
    kind: String,
    metadata: Value,
    user_data_secret: Option<LocalSecretReference>,
    credentials_secret: Option<LocalSecretReference>,
    service_instance: PowerVsResource,
    image: PowerVsResource,
    network: PowerVsResource,
    key_pair_name: String,
    system_type: String,
    processor_type: String,
    processors: IntOrString,
    #[serde(rename = "memoryGiB")]
    memory_gib: i32,
    load_balancers: Vec<LoadBalancer>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct PowerVsResource {
    r#type: String,
    id: Option<String>,
    name: Option<String>,
    regex: Option<String>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct LoadBalancer {
    name: String,
    r#type: String,
}

pub(crate) fn set_defaults(spec: &PowerVsSpec, fields: &mut Map<String, Value>) {
    set_if_absent(fields, "userDataSecret", secret_reference(USER_DATA_SECRET));
    set_if_absent(fields, "credentialsSecret", secret_reference(CREDENTIALS_SECRET));
    set_if_empty(fields, "systemType", SYSTEM_TYPE);
    set_if_empty(fields, "processorType", PROCESSOR_TYPE);
    let processors = if spec.processor_type == "Dedicated" { Value::from(1) } else { Value::from("0.5") };
    set_if_empty(fields, "processors", processors);
    set_if_empty(fields, "memoryGiB", MEMORY_GIB);
}

pub(crate) fn validate(spec: &PowerVsSpec, machine: MachineIdentity<'_>, verdict: &mut Verdict) {
    verdict.require(!spec.key_pair_name.is_empty(), || must_be_provided("providerSpec.keyPairName"));
    validate_resource("serviceInstance", &spec.service_instance, verdict);
    validate_resource("image", &spec.image, verdict);
    validate_resource("network", &spec.network, verdict);
    let secrets =
        [("userDataSecret", &spec.user_data_secret), ("credentialsSecret", &spec.credentials_secret)];
    for (field, secret) in secrets {
        let path = format!("providerSpec.{field}");
        match secret {
            None => verdict.error(must_be_provided(&path)),
            Some(secret) => {
                verdict.require(!secret.name.is_empty(), || must_be_provided(&format!("{path}.name")));
            }
        }
    }
    let credentials = spec.credentials_secret.as_ref().map(|it| it.name.as_str());
    check_credentials(credentials, machine.namespace, verdict);
    validate_size(spec, verdict);
}

fn must_be_provided(path: &str) -> FieldError {
    FieldError::required(path, format!("{path} must be provided"))
}

fn validate_resource(field: &str, resource: &PowerVsResource, verdict: &mut Verdict) {
    let path = format!("providerSpec.{field}");
    let without_value = |child: &str, name: &str| {
        let detail = format!("{field} identifier is specified as {name} but the value is nil");
        FieldError::required(format!("{path}.{child}"), detail)
    };
    match resource.r#type.as_str() {
        "ID" => verdict.require(resource.id.is_some(), || without_value("id", "ID")),
        "Name" => verdict.require(resource.name.is_some(), || without_value("name", "Name")),
        "RegEx" => {
            verdict.require(field == "network", || {
                let detail = format!(
                    "{field} identifier is specified as RegEx but only ID and Name are valid resource identifiers"
                );
                FieldError::invalid(path.as_str(), "RegEx", detail)
            });
            verdict.require(resource.regex.is_some(), || without_value("regex", "Regex"));
        }
        "" => verdict.error(FieldError::required(path, format!("{field} identifier must be provided"))),
        other => {
            let detail = format!(
                "{field} identifier is specified as {other} but only ID, Name and RegEx are valid resource identifiers"
            );
            verdict.error(FieldError::invalid(path, other, detail));
        }
    }
}

fn validate_size(spec: &PowerVsSpec, verdict: &mut Verdict) {
    let system_type = spec.system_type.as_str();
    let Some(limits) = SYSTEMS.iter().find(|it| it.system_type == system_type) else {
        let [first, second, third] = SYSTEMS.each_ref().map(|it| it.system_type);
        return verdict.warn(format!(
            "providerSpec.SystemType: {system_type} is not known, Currently known system types are {first}, {second} and {third}"
        ));
    };
    let memory = spec.memory_gib;
    let invalid_memory = |detail: String| FieldError::invalid("providerSpec.memoryGiB", memory, detail);
    if memory > limits.memory_gib_max {
        let most = limits.memory_gib_max;
        verdict.error(invalid_memory(format!(
            "for {system_type} systemtype the maximum supported memory value is {most}"
        )));
    } else if memory < 0 {
        verdict.error(invalid_memory("memory value cannot be negative".to_owned()));
    } else if memory < MEMORY_GIB_MIN {
        verdict
            .warn(format!("providerspec.MemoryGiB {memory} is less than the minimum value {MEMORY_GIB_MIN}"));
    }
    validate_processors(spec, limits, verdict);
}

fn validate_processors(spec: &PowerVsSpec, limits: &SystemLimits, verdict: &mut Verdict) {
    const PATH: &str = "providerSpec.processor";
    let processors = match &spec.processors {
        IntOrString::Int(number) => f64::from(*number),
        IntOrString::String(text) => match text.parse::<f64>().ok().filter(|it| it.is_finite()) {
            Some(number) => number,
            None => {
                let detail = format!(
                    "error while getting processor value: failed to convert Processors {text} to float64"
                );
                return verdict.error(FieldError::internal(PATH, detail));
            }
        },
    };
    let processor_type = spec.processor_type.as_str();
    let least = if processor_type == "Dedicated" { DEDICATED_PROCESSORS_MIN } else { SHARED_PROCESSORS_MIN };
    if processors > limits.processors_max {
        let detail = format!(
            "for {} systemtype the maximum supported processor value is {:.6}",
            limits.system_type, limits.processors_max
        );
        verdict.error(FieldError::invalid(PATH, processors, detail));
    } else if processors < 0.0 {
        verdict.error(FieldError::invalid(PATH, processors, "processor value cannot be negative"));
    } else if processors < least {
        verdict.warn(format!(
            "providerspec.Processor {processors:.6} is less than the minimum value {least:.6} for providerSpec.ProcessorType: \
             {processor_type}"
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::webhooks::facts::Platform;
    use crate::webhooks::tests::rules::{check_defaults, check_errors, check_warnings};

    const POWER_VS: Platform = Platform::PowerVs;

    fn valid() -> serde_json::Value {
        json!({
            "serviceInstance": {"type": "ID", "id": "i"}, "image": {"type": "Name", "name": "n"},
            "network": {"type": "RegEx", "regex": ".*"}, "keyPairName": "k", "systemType": "s922",
            "processorType": "Shared", "processors": "0.5", "memoryGiB": 32,
            "userDataSecret": {"name": "u"}, "credentialsSecret": {"name": "c"}
        })
    }

    #[test]
    fn power_vs_defaults_are_a_small_shared_machine() {
        let secrets = |mut spec: serde_json::Value| {
            spec["userDataSecret"] = json!({"name": "worker-user-data"});
            spec["credentialsSecret"] = json!({"name": "powervs-credentials"});
            spec
        };
        check_defaults(
            POWER_VS,
            json!({}),
            secrets(
                json!({"systemType": "s922", "processorType": "Shared", "processors": "0.5", "memoryGiB": 32}),
            ),
        );
        check_defaults(
            POWER_VS,
            json!({"processorType": "Dedicated", "systemType": "e980", "processors": 0}),
            secrets(
                json!({"systemType": "e980", "processorType": "Dedicated", "processors": 1, "memoryGiB": 32}),
            ),
        );
    }

    #[test]
    fn power_vs_needs_key_resources_and_secrets() {
        check_errors(POWER_VS, valid(), json!({}), &[]);
        check_errors(
            POWER_VS,
            valid(),
            json!({
                "keyPairName": "", "serviceInstance": {"type": "RegEx", "id": null}, "image": null,
                "network": {"type": "Other"}, "userDataSecret": null, "credentialsSecret": {"name": ""}
            }),
            &[
                "providerSpec.keyPairName: Required value: providerSpec.keyPairName must be provided",
                "providerSpec.serviceInstance: Invalid value: \"RegEx\": serviceInstance identifier is specified as RegEx but only ID and \
                 Name are valid resource identifiers",
                "providerSpec.serviceInstance.regex: Required value: serviceInstance identifier is specified as Regex but the value is nil",
                "providerSpec.image: Required value: image identifier must be provided",
                "providerSpec.network: Invalid value: \"Other\": network identifier is specified as Other but only ID, Name and RegEx are \
                 valid resource identifiers",
                "providerSpec.userDataSecret: Required value: providerSpec.userDataSecret must be provided",
                "providerSpec.credentialsSecret.name: Required value: providerSpec.credentialsSecret.name must be provided",
            ],
        );
    }

    #[test]
    fn power_vs_sizes_have_limits_by_system_type() {
        check_errors(POWER_VS, valid(), json!({"memoryGiB": 942, "processors": 15}), &[]);
        check_errors(
            POWER_VS,
            valid(),
            json!({"memoryGiB": 943, "processors": "15.25"}),
            &[
                "providerSpec.memoryGiB: Invalid value: 943: for s922 systemtype the maximum supported memory value is 942",
                "providerSpec.processor: Invalid value: 15.25: for s922 systemtype the maximum supported processor value is 15.000000",
            ],
        );
        check_errors(
            POWER_VS,
            valid(),
            json!({"systemType": "e880", "memoryGiB": 7463, "processors": 143}),
            &[],
        );
        check_errors(
            POWER_VS,
            valid(),
            json!({"systemType": "e980", "memoryGiB": 15308, "processors": -1}),
            &[
                "providerSpec.memoryGiB: Invalid value: 15308: for e980 systemtype the maximum supported memory value is 15307",
                "providerSpec.processor: Invalid value: -1.0: processor value cannot be negative",
            ],
        );
        check_errors(
            POWER_VS,
            valid(),
            json!({"processors": "half"}),
            &[
                "providerSpec.processor: Internal error: error while getting processor value: failed to convert Processors half to float64",
            ],
        );
    }

    #[test]
    fn small_power_vs_machines_and_unknown_systems_are_warnings() {
        check_warnings(
            POWER_VS,
            valid(),
            json!({"memoryGiB": 31, "processors": "0.25"}),
            &[
                "providerspec.MemoryGiB 31 is less than the minimum value 32",
                "providerspec.Processor 0.250000 is less than the minimum value 0.500000 for providerSpec.ProcessorType: Shared",
            ],
        );
        check_warnings(
            POWER_VS,
            valid(),
            json!({"processorType": "Dedicated"}),
            &[
                "providerspec.Processor 0.500000 is less than the minimum value 1.000000 for providerSpec.ProcessorType: Dedicated",
            ],
        );
        check_warnings(
            POWER_VS,
            valid(),
            json!({"systemType": "s1022"}),
            &[
                "providerSpec.SystemType: s1022 is not known, Currently known system types are s922, e980 and e880",
            ],
        );
    }
}
