//! Parsing and validation of the form of a task, within limits.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use api::admin::{TaskForm, TaskSource};
use api::duration::{DurationText, TimeSpan};
use serde_json::Value;
use steps::TemplateNames;
use steps::engine::PLAN_TIME;
use steps::kinds::{check_step, step_name};
use uuid::Uuid;

use super::TaskProblem;
use super::builtin;
use super::definition::{Definition, StepSource};
use super::parameters::{check_schema, names_of};
use super::requires::check_requires;

/// Largest task, in bytes.
pub const BODY_MAX: usize = 1024 * 1024;
/// Most steps of a task.
pub const STEPS_MAX: usize = 100;
/// Deepest nesting of a task.
const DEPTH_MAX: usize = 64;
const NAME_MAX: usize = 63;
const TITLE_MAX: usize = 200;
const DESCRIPTION_MAX: usize = 16 * 1024;
const TIME_LIMIT_MAX: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Format of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Parses a task. Errors name the invalid member; the limits bound time and memory for any input.
pub fn read(body: &[u8], format: Format) -> Result<TaskForm, TaskProblem> {
    if body.len() > BODY_MAX {
        let message = format!("the task has {} bytes, and at most {BODY_MAX} are accepted", body.len());
        return Err(TaskProblem::at("", message));
    }
    let text = std::str::from_utf8(body).map_err(|_| TaskProblem::at("", "the task is not text in UTF-8"))?;
    if text.trim().is_empty() {
        return Err(TaskProblem::at("", "the task is empty"));
    }
    let value: Value = match format {
        Format::Json => serde_json::from_str(text)
            .map_err(|error| TaskProblem::at("", format!("the task is not JSON: {error}")))?,
        Format::Yaml => yaml(text)?,
    };
    from_value(value)
}

/// Parses YAML. The budget permits a few aliases, but no exponential growth.
fn yaml(text: &str) -> Result<Value, TaskProblem> {
    let budget = serde_saphyr::budget! {
        max_depth: DEPTH_MAX,
        max_nodes: 100_000,
        max_events: 200_000,
        max_aliases: 200,
        max_anchors: 100,
        max_documents: 1,
        max_total_scalar_bytes: 4 * BODY_MAX,
        max_recorded_anchor_events: 10_000,
    };
    let options = serde_saphyr::options! { budget: budget };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
        let message = error.to_string();
        let message = message.lines().next().unwrap_or_default();
        TaskProblem::at("", format!("the task is not valid YAML{}: {message}", place.unwrap_or_default()))
    })
}

/// Parses a task from a JSON value.
pub fn from_value(value: Value) -> Result<TaskForm, TaskProblem> {
    if !value.is_object() {
        return Err(TaskProblem::at("", "a task is an object with name, title and steps"));
    }
    if let Some(place) = too_deep(&value, 0) {
        return Err(TaskProblem::at(place, format!("the task is nested more than {DEPTH_MAX} deep")));
    }
    if let Some(steps) = value.get("steps").and_then(Value::as_array) {
        check_step_count(steps.len())?;
    }
    serde_path_to_error::deserialize(value).map_err(|error| {
        let place = error.path().to_string();
        let place = if place == "." { String::new() } else { place };
        TaskProblem::at(place, error.inner().to_string())
    })
}

/// Outermost member that is nested too deep.
fn too_deep(value: &Value, depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return Some(String::new());
    }
    match value {
        Value::Array(items) => items.iter().find_map(|item| too_deep(item, depth + 1)),
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            too_deep(value, depth + 1).map(|inner| if depth == 0 { name.clone() } else { inner })
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn check_step_count(steps: usize) -> Result<(), TaskProblem> {
    match steps {
        0 => Err(TaskProblem::at("steps", "a task has at least one step")),
        1..=STEPS_MAX => Ok(()),
        _ => {
            let message = format!("the task has {steps} steps, and at most {STEPS_MAX} are accepted");
            Err(TaskProblem::at("steps", message))
        }
    }
}

/// Validates a task before it is stored. It gets version 1, and a new id if the form has none.
pub fn check(form: &TaskForm) -> Result<Definition, TaskProblem> {
    check_name("name", &form.name)?;
    if builtin::all().any(|it| it.name() == form.name) {
        return Err(TaskProblem::at("name", format!("{} is the name of a built-in task", form.name)));
    }
    check_text("title", &form.title, TITLE_MAX)?;
    if form.title.trim().is_empty() {
        return Err(TaskProblem::at("title", "a title is required"));
    }
    check_text("description", &form.description, DESCRIPTION_MAX)?;
    let limit = form.time_limit.as_ref().map(DurationText::duration);
    if limit.is_some_and(|limit| limit.is_zero() || limit > TIME_LIMIT_MAX) {
        return Err(TaskProblem::at("timeLimit", "a task may take more than 0s and at most 7d"));
    }
    check_expected(form)?;
    if let Some(schema) = &form.parameters {
        check_schema(schema)?;
    }
    if let Some(requires) = &form.requires {
        check_requires(requires)?;
    }
    check_step_count(form.steps.len())?;
    check_steps(form)?;
    let steps =
        form.steps.iter().map(|step| api::admin::StepForm { name: step_name(step).into(), ..step.clone() });
    let form = TaskForm { steps: steps.collect(), ..form.clone() };
    let id = form.id.unwrap_or_else(Uuid::now_v7);
    Ok(Definition::new(id, 1, TaskSource::Data, form, StepSource::Forms))
}

/// Rejects an expected duration beyond the time limit.
fn check_expected(form: &TaskForm) -> Result<(), TaskProblem> {
    let Some(expected) = &form.expected_duration else { return Ok(()) };
    let limit = form.time_limit.clone().unwrap_or_else(|| TimeSpan::new(PLAN_TIME).into());
    if expected.duration().is_zero() || expected.duration() > limit.duration() {
        let message = format!(
            "{expected} is not accepted: it must be more than 0s and at most the time limit, {limit}"
        );
        return Err(TaskProblem::at("expectedDuration", message));
    }
    Ok(())
}

fn check_steps(form: &TaskForm) -> Result<(), TaskProblem> {
    let parameters: BTreeSet<String> = names_of(form.parameters.as_ref());
    let names = TemplateNames { parameters };
    let mut indexes = BTreeMap::new();
    for (index, step) in form.steps.iter().enumerate() {
        let place = format!("steps[{index}]");
        check_step(step, &place, &names)?;
        let name = step_name(step);
        check_name(&format!("{place}.name"), &name)?;
        if let Some(first) = indexes.insert(name.clone(), index) {
            let message = format!("steps[{first}] has the name {name} too; use a unique name for each step");
            return Err(TaskProblem::at(format!("{place}.name"), message));
        }
    }
    Ok(())
}

/// Checks for kebab case: lower-case letters and digits in words joined by single dashes.
fn check_name(place: &str, name: &str) -> Result<(), TaskProblem> {
    let is_valid_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if name.is_empty() || name.len() > NAME_MAX || !name.split('-').all(is_valid_word) {
        let message = format!(
            "{name:?} is not a name such as rotate-logs: words of a-z and 0-9, joined by dashes, at most {NAME_MAX} characters"
        );
        return Err(TaskProblem::at(place, message));
    }
    if Uuid::try_parse(name).is_ok() {
        return Err(TaskProblem::at(place, "a name must not look like an id"));
    }
    Ok(())
}

fn check_text(place: &str, text: &str, length_max: usize) -> Result<(), TaskProblem> {
    if text.len() > length_max {
        return Err(TaskProblem::at(
            place,
            format!("it has {} bytes, and at most {length_max} are accepted", text.len()),
        ));
    }
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(TaskProblem::at(place, "it contains control characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
