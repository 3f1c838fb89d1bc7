//! The provider specs of each platform: their type, defaults and rules. Texts are those of OpenShift's machine-api-operator where it has
//! the same rule, because clients and documentation match them.

mod aws;
mod azure;
mod gcp;
mod nutanix;
mod power_vs;
mod vsphere;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::facts::{Platform, PlatformFacts};
use super::field::FieldError;
use super::provider_spec::{DecodedSpec, LocalSecretReference, decode};
use super::verdict::{SecretReference, Verdict};

/// The Secret with the user data of workers.
const USER_DATA_SECRET: &str = "worker-user-data";

/// The Machine that a provider spec is for. The template of a MachineSet has neither name nor role.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MachineIdentity<'a> {
    /// Its name.
    pub(crate) name: &'a str,
    /// Its namespace.
    pub(crate) namespace: &'a str,
    /// Whether it is labelled as a Machine of the control plane.
    pub(crate) is_control_plane: bool,
}

/// The provider spec with its defaults and without unknown fields; none on platforms without rules.
pub(crate) fn with_defaults(
    value: Option<&Value>,
    facts: &PlatformFacts,
) -> Result<Option<Value>, FieldError> {
    let complete = match facts.platform {
        Platform::Aws => complete(value, |_: &aws::AwsSpec, fields| aws::set_defaults(fields, facts)),
        Platform::Azure => complete(value, |spec, fields| azure::set_defaults(spec, fields, facts)),
        Platform::Gcp => complete(value, |_: &gcp::GcpSpec, fields| gcp::set_defaults(fields, facts)),
        Platform::VSphere => {
            complete(value, |_: &vsphere::VSphereSpec, fields| vsphere::set_defaults(fields))
        }
        Platform::Nutanix => {
            complete(value, |_: &nutanix::NutanixSpec, fields| nutanix::set_defaults(fields))
        }
        Platform::PowerVs => complete(value, power_vs::set_defaults),
        Platform::Other => return Ok(None),
    };
    complete.map(Some)
}

fn complete<T: DeserializeOwned + Serialize>(
    value: Option<&Value>,
    set_defaults: impl FnOnce(&T, &mut Map<String, Value>),
) -> Result<Value, FieldError> {
    let DecodedSpec { spec, mut known, .. } = decode(value)?;
    set_defaults(&spec, &mut known);
    Ok(Value::Object(known))
}

/// Adds what the rules of the platform find to `verdict`.
pub(crate) fn validate(
    value: Option<&Value>,
    machine: MachineIdentity<'_>,
    facts: &PlatformFacts,
    verdict: &mut Verdict,
) {
    let result =
        match facts.platform {
            Platform::Aws => {
                read(value, verdict).map(|spec: aws::AwsSpec| aws::validate(&spec, machine, verdict))
            }
            Platform::Azure => read(value, verdict)
                .map(|spec: azure::AzureSpec| azure::validate(&spec, machine, facts, verdict)),
            Platform::Gcp => {
                read(value, verdict).map(|spec: gcp::GcpSpec| gcp::validate(&spec, machine, verdict))
            }
            Platform::VSphere => read(value, verdict)
                .map(|spec: vsphere::VSphereSpec| vsphere::validate(&spec, machine, facts, verdict)),
            Platform::Nutanix => read(value, verdict)
                .map(|spec: nutanix::NutanixSpec| nutanix::validate(&spec, machine, verdict)),
            Platform::PowerVs => read(value, verdict)
                .map(|spec: power_vs::PowerVsSpec| power_vs::validate(&spec, machine, verdict)),
            Platform::Other => Ok(()),
        };
    if let Err(error) = result {
        verdict.error(error);
    }
}

fn read<T: DeserializeOwned + Serialize>(
    value: Option<&Value>,
    verdict: &mut Verdict,
) -> Result<T, FieldError> {
    let decoded = decode(value)?;
    verdict.warnings.extend(decoded.warnings());
    Ok(decoded.spec)
}

/// A reference to a Secret as it is in JSON.
fn secret_reference(name: &str) -> Value {
    serde_json::json!({ "name": name })
}

/// The rules of platforms whose Secrets are both in the namespace of the Machine.
fn validate_secrets(
    user_data: Option<&LocalSecretReference>,
    credentials: Option<&LocalSecretReference>,
    machine: MachineIdentity<'_>,
    verdict: &mut Verdict,
) {
    for (field, reference) in [("userDataSecret", user_data), ("credentialsSecret", credentials)] {
        let path = format!("providerSpec.{field}");
        match reference {
            None => verdict.error(FieldError::required(path, format!("{field} must be provided"))),
            Some(reference) if reference.name.is_empty() => {
                verdict.error(FieldError::required(format!("{path}.name"), "name must be provided"));
            }
            Some(_) => {}
        }
    }
    check_credentials(credentials.map(|it| it.name.as_str()), machine.namespace, verdict);
}

/// Has the handler check that the Secret exists.
fn check_credentials(name: Option<&str>, namespace: &str, verdict: &mut Verdict) {
    verdict.credentials = name
        .filter(|it| !it.is_empty())
        .map(|name| SecretReference { namespace: namespace.to_owned(), name: name.to_owned() });
}

/// Whether a value is one of those that are accepted; an empty one is the default of the cloud.
fn is_empty_or(value: &str, accepted: &[&str]) -> bool {
    value.is_empty() || accepted.contains(&value)
}
