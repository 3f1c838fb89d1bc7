//! Definitions of the tasks that are part of Shipshape, one file each. Their ids never change.
//!
//! A built-in task is either a list of step forms, like a task that a team writes as data, or code. The steps of the latter
//! do I/O, so they are in crate `maintenance`: a definition here names them ([`CodedTask`]), declares its parameters and
//! parses them into types.

mod apply_manifests;
pub mod approve_node_csrs;
pub mod check_registry_token;
pub mod cluster_health;
pub mod cycle_nodes;
pub mod renew_identity_certificate;
pub mod replace_machine;
mod restart_workload;
pub mod rotate_certificates;
pub mod rotate_tls_secret;
mod run_job;
pub mod scale_machineset;

use api::admin::{StepForm, TaskForm, TaskSource};
use api::duration::TimeSpan;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::TaskProblem;
use super::definition::{Definition, StepSource};

/// The built-in tasks whose steps are code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodedTask {
    /// `approve-node-csrs`.
    ApproveNodeCsrs,
    /// `check-registry-token`.
    CheckRegistryToken,
    /// `cluster-health`.
    ClusterHealth,
    /// `cycle-nodes`.
    CycleNodes,
    /// `renew-identity-certificate`.
    RenewIdentityCertificate,
    /// `replace-machine`.
    ReplaceMachine,
    /// `rotate-certificates`.
    RotateCertificates,
    /// `rotate-tls-secret`.
    RotateTlsSecret,
    /// `scale-machineset`.
    ScaleMachineset,
}

impl CodedTask {
    /// The names of its steps, in order. The code that builds the steps uses the same constants.
    pub fn step_names(self) -> &'static [&'static str] {
        match self {
            CodedTask::ApproveNodeCsrs => &approve_node_csrs::STEPS,
            CodedTask::CheckRegistryToken => &check_registry_token::STEPS,
            CodedTask::ClusterHealth => &cluster_health::STEPS,
            CodedTask::CycleNodes => &cycle_nodes::STEPS,
            CodedTask::RenewIdentityCertificate => &renew_identity_certificate::STEPS,
            CodedTask::ReplaceMachine => &replace_machine::STEPS,
            CodedTask::RotateCertificates => &rotate_certificates::STEPS,
            CodedTask::RotateTlsSecret => &rotate_tls_secret::STEPS,
            CodedTask::ScaleMachineset => &scale_machineset::STEPS,
        }
    }

    /// Checks the parameters for what their JSON schema cannot express.
    pub(super) fn check_parameters(self, parameters: &Map<String, Value>) -> Result<(), TaskProblem> {
        match self {
            CodedTask::CycleNodes => cycle_nodes::CycleNodesParameters::read(parameters).map(drop),
            CodedTask::ReplaceMachine => {
                replace_machine::ReplaceMachineParameters::read(parameters).map(drop)
            }
            CodedTask::RotateTlsSecret => {
                rotate_tls_secret::RotateTlsSecretParameters::read(parameters).map(drop)
            }
            CodedTask::ScaleMachineset => {
                scale_machineset::ScaleMachinesetParameters::read(parameters).map(drop)
            }
            CodedTask::ApproveNodeCsrs
            | CodedTask::CheckRegistryToken
            | CodedTask::ClusterHealth
            | CodedTask::RenewIdentityCertificate
            | CodedTask::RotateCertificates => Ok(()),
        }
    }
}

/// Reads validated parameters into their type.
fn read_parameters<T: DeserializeOwned>(parameters: &Map<String, Value>) -> Result<T, TaskProblem> {
    serde_path_to_error::deserialize(parameters)
        .map_err(|error| TaskProblem::at(format!("parameters.{}", error.path()), error.inner().to_string()))
}

/// Checks a parameter that names an object.
fn read_named(parameter: &str, name: &str) -> Result<(), TaskProblem> {
    let problem = |why| TaskProblem::at(format!("parameters.{parameter}"), why);
    steps::kinds::check_name(name).map(drop).map_err(problem)
}

/// JSON schema of the namespace of machines.
fn machine_namespace() -> Value {
    serde_json::json!({
        "type": "string", "minLength": 1, "default": api::crd::machine::names::NAMESPACE, "description": "The namespace of the machines"
    })
}

/// Everything about a built-in task but its steps.
struct BuiltinTask {
    id: Uuid,
    /// Raised when its steps or parameters change.
    version: u32,
    name: &'static str,
    title: &'static str,
    description: &'static str,
    disruptive: bool,
    time_limit: TimeSpan,
    /// Usual length of a run.
    expected_duration: TimeSpan,
    /// JSON schema of the parameters.
    parameters: Value,
}

/// All built-in tasks, by name.
pub fn all() -> impl Iterator<Item = Definition> {
    let all: [fn() -> Definition; 12] = [
        apply_manifests::task,
        approve_node_csrs::task,
        check_registry_token::task,
        cluster_health::task,
        cycle_nodes::task,
        renew_identity_certificate::task,
        replace_machine::task,
        restart_workload::task,
        rotate_certificates::task,
        rotate_tls_secret::task,
        run_job::task,
        scale_machineset::task,
    ];
    all.into_iter().map(|task| task())
}

/// Defines a task by step forms.
fn from_forms(task: BuiltinTask, steps: Vec<StepForm>) -> Definition {
    let (id, version) = (task.id, task.version);
    Definition::new(id, version, TaskSource::Builtin, form(task, steps), StepSource::Forms)
}

/// Defines a task whose steps are code. Its form shows their names.
fn from_code(task: BuiltinTask, coded: CodedTask) -> Definition {
    let names = coded.step_names().iter();
    let steps = names.map(|name| step(name, "builtin", Value::Null, None)).collect();
    let (id, version) = (task.id, task.version);
    Definition::new(id, version, TaskSource::Builtin, form(task, steps), StepSource::Code(coded))
}

fn form(task: BuiltinTask, steps: Vec<StepForm>) -> TaskForm {
    TaskForm {
        id: None,
        name: task.name.to_owned(),
        title: task.title.to_owned(),
        description: task.description.to_owned(),
        source: None,
        version: None,
        disruptive: task.disruptive,
        time_limit: Some(task.time_limit.into()),
        expected_duration: Some(task.expected_duration.into()),
        parameters: Some(task.parameters),
        requires: None,
        steps,
        reason: None,
    }
}

fn step(name: &str, uses: &str, with: Value, timeout: Option<TimeSpan>) -> StepForm {
    let timeout = timeout.map(Into::into);
    StepForm { name: name.to_owned(), uses: uses.to_owned(), with, timeout, retry: None, undo: None }
}

/// JSON schema of a task without parameters.
fn no_parameters() -> Value {
    serde_json::json!({"type": "object", "additionalProperties": false, "properties": {}})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_built_in_task_has_an_id_a_name_and_a_sound_schema() {
        let ids: BTreeSet<Uuid> = all().map(|it| it.id()).collect();
        let names: Vec<String> = all().map(|it| it.name().to_owned()).collect();
        assert_eq!((ids.len(), names.len()), (12, 12));
        assert!(names.is_sorted(), "{names:?}");
        for task in all() {
            let schema = task.schema().expect("every one has a schema");
            crate::task::parameters::check_schema(schema)
                .unwrap_or_else(|problem| panic!("{}: {problem}", task.name()));
            assert_eq!(Definition::from_snapshot(&task.snapshot()).unwrap().id(), task.id());
        }
    }

    #[test]
    fn the_tasks_of_the_reference_keep_their_ids_and_unsupported_ones_are_not_listed() {
        let catalogue = crate::task::Catalogue::builtin();
        for (id, name) in [
            ("9b741734-6505-447f-8510-85eb0ae561a2", "rotate-certificates"),
            ("082978ce-3700-4972-835f-53d48658d291", "check-registry-token"),
            ("7c3f8e2d-9a4b-4f1e-8c5d-2b6a9e7f3d1c", "renew-identity-certificate"),
        ] {
            assert_eq!(catalogue.find(id).map(Definition::name), Some(name), "{id}");
        }
        for id in ["888fc221-b059-49db-bd02-22ad86cccd6b", "258efb3b-a695-4a40-93ed-38fb1a19be6f"] {
            assert!(catalogue.find(id).is_none(), "{id}");
        }
    }
}
