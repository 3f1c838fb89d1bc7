//! The tasks that are part of Shipshape, one file each. Their ids never change.

mod apply_manifests;
mod restart_workload;
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
    parameters: Value,
}

/// All of them, by name.
pub fn all() -> impl Iterator<Item = Definition> {
    [apply_manifests::task, restart_workload::task, run_job::task].into_iter().map(|task| task())
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
        time_limit: Some(told.time_limit),
        parameters: Some(told.parameters),
        requires: None,
        steps,
        reason: None,
    }
}

fn step(name: &str, uses: &str, with: Value, timeout: Option<TimeSpan>) -> StepForm {
    StepForm { name: name.to_owned(), uses: uses.to_owned(), with, timeout, retry: None, undo: None }
}
