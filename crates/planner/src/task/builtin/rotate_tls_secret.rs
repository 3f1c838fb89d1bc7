//! `rotate-tls-secret`: copies a new certificate and key into a TLS Secret, from another Secret of the same cluster.
//!
//! The parameters reference the key and never contain it, because manifests, their history and the audit log have many
//! readers.

use api::duration::TimeSpan;
use serde_json::{Map, Value, json};
use steps::kinds::check_name;
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code};
use crate::task::{Definition, TaskProblem};

/// Names of the steps, in order.
pub const STEPS: [&str; 5] =
    ["check-certificate", "keep-previous", "rotate", "restart-workloads", "forget-previous"];

pub(super) fn task() -> Definition {
    let reference = |description: &str| {
        json!({"type": "object", "required": ["namespace", "name"], "additionalProperties": false, "description": description,
            "properties": {"namespace": {"type": "string"}, "name": {"type": "string"}}})
    };
    let workload = json!({"type": "object", "required": ["kind", "namespace", "name"], "additionalProperties": false,
        "properties": {"kind": {"enum": ["Deployment", "DaemonSet", "StatefulSet"]},
            "namespace": {"type": "string"}, "name": {"type": "string"}}});
    let task = BuiltinTask {
        id: uuid!("6a609e88-744d-40bd-8884-21415c912bb4"),
        version: 1,
        name: "rotate-tls-secret",
        title: "Rotate a TLS secret from a given certificate",
        description: "Copies tls.crt and tls.key from one Secret of the cluster into another, after validation: \
            the key matches the certificate, which is valid now and for minimumDays more, covers dnsNames, and has the \
            fingerprint. Then restarts the workloads that use it. An undo restores the previous certificate.",
        disruptive: true,
        time_limit: TimeSpan::hours(2),
        expected_duration: TimeSpan::minutes(3),
        parameters: json!({
            "type": "object",
            "required": ["source", "target"],
            "additionalProperties": false,
            "properties": {
                "source": reference("The Secret with the new certificate and key"),
                "target": reference("The Secret to change"),
                "fingerprint": {"type": "string", "pattern": "^([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$",
                    "description": "The SHA-256 of the new certificate, in hex"},
                "dnsNames": {"type": "array", "items": {"type": "string"}, "default": [],
                    "description": "Names that the new certificate must cover"},
                "minimumDays": {"type": "integer", "minimum": 0, "maximum": 3650, "default": 1},
                "restart": {"type": "array", "items": workload, "maxItems": 50, "default": []},
            },
        }),
    };
    from_code(task, CodedTask::RotateTlsSecret)
}

/// Parameters of a run.
#[derive(Debug, Clone)]
pub struct RotateTlsSecretParameters {
    /// The Secret with the new certificate and key.
    pub source: SecretRef,
    /// The Secret to change.
    pub target: SecretRef,
    /// SHA-256 of the new certificate, in lower-case hex without colons.
    pub fingerprint: Option<String>,
    /// Names that the new certificate must cover.
    pub dns_names: Vec<String>,
    /// Days for which the new certificate must stay valid.
    pub minimum_days: i64,
    /// Workloads to restart afterwards.
    pub restart: Vec<WorkloadRef>,
}

/// A Secret by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A workload by kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadRef {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of workloads that can be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// A Deployment.
    Deployment,
    /// A DaemonSet.
    DaemonSet,
    /// A StatefulSet.
    StatefulSet,
}

impl RotateTlsSecretParameters {
    /// Reads parameters that match the schema.
    pub fn read(parameters: &Map<String, Value>) -> Result<RotateTlsSecretParameters, TaskProblem> {
        let secret = |member: &str| {
            let secret = parameters.get(member).unwrap_or(&Value::Null);
            let place = format!("parameters.{member}");
            let (namespace, name) = (named(secret, "namespace", &place)?, named(secret, "name", &place)?);
            Ok(SecretRef { namespace, name })
        };
        let (source, target) = (secret("source")?, secret("target")?);
        if source == target {
            return Err(TaskProblem::at("parameters.target", "source and target are the same Secret"));
        }
        let list = |name: &str| parameters.get(name).and_then(Value::as_array).into_iter().flatten();
        let restart = list("restart").enumerate().map(|(index, workload)| {
            let place = format!("parameters.restart[{index}]");
            Ok(WorkloadRef {
                kind: workload_kind(workload, &place)?,
                namespace: named(workload, "namespace", &place)?,
                name: named(workload, "name", &place)?,
            })
        });
        let fingerprint = parameters.get("fingerprint").and_then(Value::as_str);
        Ok(RotateTlsSecretParameters {
            source,
            target,
            fingerprint: fingerprint.map(|it| it.replace(':', "").to_ascii_lowercase()),
            dns_names: list("dnsNames").filter_map(Value::as_str).map(str::to_owned).collect(),
            minimum_days: parameters.get("minimumDays").and_then(Value::as_i64).unwrap_or(1),
            restart: restart.collect::<Result<_, TaskProblem>>()?,
        })
    }
}

/// A member of an object that holds the name of a Kubernetes object.
fn named(object: &Value, member: &str, place: &str) -> Result<String, TaskProblem> {
    let text = object.get(member).and_then(Value::as_str).unwrap_or_default();
    check_name(text).map_err(|message| TaskProblem::at(format!("{place}.{member}"), message))
}

fn workload_kind(workload: &Value, place: &str) -> Result<WorkloadKind, TaskProblem> {
    match workload.get("kind").and_then(Value::as_str).unwrap_or_default() {
        "Deployment" => Ok(WorkloadKind::Deployment),
        "DaemonSet" => Ok(WorkloadKind::DaemonSet),
        "StatefulSet" => Ok(WorkloadKind::StatefulSet),
        other => Err(TaskProblem::at(format!("{place}.kind"), format!("{other:?} cannot be restarted"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_rotated_from_itself() {
        let web = json!({"namespace": "a", "name": "web"});
        let parameters = json!({"source": web, "target": web});
        let error = RotateTlsSecretParameters::read(parameters.as_object().unwrap()).unwrap_err();
        assert_eq!(error.to_string(), "parameters.target: source and target are the same Secret");
    }
}
