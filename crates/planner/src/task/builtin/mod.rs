//! The tasks that are part of Shipshape, one file each. Their ids never change.

mod apply_manifests;
mod approve_node_csrs;
mod check_registry_token;
mod cluster_health;
pub mod cycle_nodes;
mod renew_identity_certificate;
mod restart_workload;
mod rotate_certificates;
mod rotate_tls_secret;
mod run_job;

use api::admin::{StepForm, TaskForm, TaskSource};
use api::duration::TimeSpan;
use serde_json::Value;
use uuid::Uuid;

use super::definition::{Definition, Made, Maker};

/// What a built-in task says of itself.
struct Told {
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
    parameters: Value,
}

/// All of them, by name.
pub fn all() -> impl Iterator<Item = Definition> {
    let all: [fn() -> Definition; 10] = [
        apply_manifests::task,
        approve_node_csrs::task,
        check_registry_token::task,
        cluster_health::task,
        cycle_nodes::task,
        renew_identity_certificate::task,
        restart_workload::task,
        rotate_certificates::task,
        rotate_tls_secret::task,
        run_job::task,
    ];
    all.into_iter().map(|task| task())
}

/// A task whose steps are of the same kinds as those of tasks as data.
fn written(told: Told, steps: Vec<StepForm>) -> Definition {
    let (id, version) = (told.id, told.version);
    Definition::new(id, version, TaskSource::Builtin, form(told, steps), Made::Written)
}

/// A task whose steps are code; it shows their names.
fn coded(told: Told, names: &[&str], maker: Maker) -> Definition {
    let shown = names.iter().map(|name| step(name, "builtin", Value::Null, None)).collect();
    let (id, version) = (told.id, told.version);
    Definition::new(id, version, TaskSource::Builtin, form(told, shown), Made::Coded(maker))
}

fn form(told: Told, steps: Vec<StepForm>) -> TaskForm {
    TaskForm {
        id: None,
        name: told.name.to_owned(),
        title: told.title.to_owned(),
        description: told.description.to_owned(),
        source: None,
        version: None,
        disruptive: told.disruptive,
        time_limit: Some(told.time_limit.into()),
        expected_duration: Some(told.expected_duration.into()),
        parameters: Some(told.parameters),
        requires: None,
        steps,
        reason: None,
    }
}

fn step(name: &str, uses: &str, with: Value, timeout: Option<TimeSpan>) -> StepForm {
    let timeout = timeout.map(Into::into);
    StepForm { name: name.to_owned(), uses: uses.to_owned(), with, timeout, retry: None, undo: None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_built_in_task_has_an_id_a_name_and_a_sound_schema() {
        let ids: BTreeSet<Uuid> = all().map(|it| it.id()).collect();
        let names: Vec<String> = all().map(|it| it.name().to_owned()).collect();
        assert_eq!((ids.len(), names.len()), (10, 10));
        assert!(names.is_sorted(), "{names:?}");
        for task in all() {
            let schema = task.schema().expect("every one has a schema");
            crate::task::parameters::check_schema(schema)
                .unwrap_or_else(|problem| panic!("{}: {problem}", task.name()));
            assert_eq!(Definition::thaw(&task.frozen()).unwrap().id(), task.id());
        }
    }

    #[test]
    fn the_tasks_of_the_reference_keep_their_ids_and_those_that_cannot_be_done_yet_are_not_known() {
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
