//! `rotate-tls-secret`: copies a new certificate and key into a TLS Secret, from another Secret of the same cluster.
//!
//! The parameters reference the key and never contain it, because manifests, their history and the audit log have many
//! readers.

use api::duration::TimeSpan;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use steps::kinds::check_name;
use uuid::uuid;

use super::{BuiltinTask, CodedTask, from_code, read_parameters};
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

/// The parameters of a run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RotateTlsSecretParameters {
    /// The Secret with the new certificate and key.
    pub source: SecretRef,
    /// The Secret to change.
    pub target: SecretRef,
    /// SHA-256 of the new certificate, in lower-case hex without colons.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Names that the new certificate must cover.
    #[serde(default)]
    pub dns_names: Vec<String>,
    /// Days for which the new certificate must stay valid.
    #[serde(default = "minimum_days")]
    pub minimum_days: i64,
    /// Workloads to restart afterwards.
    #[serde(default)]
    pub restart: Vec<WorkloadRef>,
}

fn minimum_days() -> i64 {
    1
}

/// A Secret by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SecretRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A workload by kind, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkloadRef {
    /// Its kind.
    pub kind: WorkloadKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Kinds of workloads that can be restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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
        let mut read: RotateTlsSecretParameters = read_parameters(parameters)?;
        read.source.check("parameters.source")?;
        read.target.check("parameters.target")?;
        if read.source == read.target {
            return Err(TaskProblem::at("parameters.target", "source and target are the same Secret"));
        }
        for (index, workload) in read.restart.iter().enumerate() {
            let place = format!("parameters.restart[{index}]");
            check_member(&workload.namespace, &place, "namespace")?;
            check_member(&workload.name, &place, "name")?;
        }
        read.fingerprint = read.fingerprint.map(|it| it.replace(':', "").to_ascii_lowercase());
        Ok(read)
    }
}

impl SecretRef {
    fn check(&self, place: &str) -> Result<(), TaskProblem> {
        check_member(&self.namespace, place, "namespace")?;
        check_member(&self.name, place, "name")
    }
}

/// Rejects a member that is not the name of a Kubernetes object.
fn check_member(text: &str, place: &str, member: &str) -> Result<(), TaskProblem> {
    check_name(text).map(drop).map_err(|why| TaskProblem::at(format!("{place}.{member}"), why))
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

    #[test]
    fn stored_parameters_are_read() {
        let stored = json!({
            "source": {"namespace": "shop", "name": "new"},
            "target": {"namespace": "shop", "name": "web"},
            "fingerprint": "AB:CD",
            "dnsNames": ["shop.example"],
            "minimumDays": 30,
            "restart": [{"kind": "Deployment", "namespace": "shop", "name": "web"}],
        });
        let read = RotateTlsSecretParameters::read(stored.as_object().unwrap()).unwrap();
        assert_eq!((read.fingerprint.as_deref(), read.minimum_days), (Some("abcd"), 30));
        assert_eq!(
            (read.dns_names.as_slice(), read.restart[0].kind),
            (&["shop.example".to_owned()][..], WorkloadKind::Deployment)
        );
        let short =
            json!({"source": {"namespace": "a", "name": "b"}, "target": {"namespace": "a", "name": "c"}});
        let read = RotateTlsSecretParameters::read(short.as_object().unwrap()).unwrap();
        assert_eq!((read.fingerprint, read.minimum_days, read.restart.len()), (None, 1, 0));
    }

    #[test]
    fn a_name_that_kubernetes_does_not_accept_is_rejected_with_its_place() {
        let stored = json!({"source": {"namespace": "a", "name": "b"}, "target": {"namespace": "a", "name": "c"},
            "restart": [{"kind": "Deployment", "namespace": "a", "name": "../b"}]});
        let error = RotateTlsSecretParameters::read(stored.as_object().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("parameters.restart[0].name: \"../b\" is not the name"), "{error}");
    }
}
