//! Parameters of tasks: the schema that a task gives, and what a manifest gives. Pure.

use std::collections::{BTreeMap, BTreeSet};

use api::doc::ProvisioningState;
use jsonschema::error::{ValidationError, ValidationErrorKind};
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value};
use steps::{ClusterFacts, names_cluster};
use uuid::Uuid;

use super::TaskProblem;
use super::cost::{CostExceeded, Costs};
use super::definition::Definition;

/// The most parameters that a task may have.
const PARAMETERS_MAX: usize = 100;
/// The most that a manifest may give, as JSON in bytes: manifests are read often.
const PARAMETERS_SIZE_MAX: usize = 256 * 1024;
/// At most so much of what a validator says is told.
const MESSAGE_MAX: usize = 300;
/// Up to so much work it is said what is wrong with parameters; beyond it, only that something is.
const TELL_MAX: u64 = 50_000;
/// Enough for what the limits let through.
const STACK_BYTES: usize = 64 << 20;

/// The names of a task's parameters.
pub(super) fn names_of(schema: Option<&Value>) -> BTreeSet<String> {
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
}

/// What was given, with the defaults of what was not.
pub(super) fn with_defaults(schema: Option<&Value>, given: &Map<String, Value>) -> Map<String, Value> {
    let mut whole = given.clone();
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !whole.contains_key(name)
        {
            whole.insert(name.clone(), default.clone());
        }
    }
    whole
}

/// Refuses a schema that is not one of an object, or cannot be used.
pub(super) fn check_schema(schema: &Value) -> Result<(), TaskProblem> {
    let refuse = |message: &str| Err(TaskProblem::at("parameters", message));
    let Some(members) = schema.as_object() else { return refuse("a JSON schema of an object is expected") };
    match members.get("type").and_then(Value::as_str) {
        None if members.contains_key("type") => return refuse("the schema's type must be object"),
        Some(other) if other != "object" => return refuse("the schema's type must be object"),
        _ => {}
    }
    if members.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err(TaskProblem::at("parameters.properties", "an object is expected"));
    }
    let names = names_of(Some(schema));
    if names.len() > PARAMETERS_MAX {
        return refuse(&format!(
            "there are {} parameters, and at most {PARAMETERS_MAX} are accepted",
            names.len()
        ));
    }
    let word = |name: &String| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') && !name.is_empty()
    };
    if let Some(name) = names.iter().find(|name| !word(name)) {
        let message = "a parameter's name is made of letters, digits, - and _";
        return Err(TaskProblem::at(format!("parameters.properties.{name}"), message));
    }
    if let Err(error) = jsonschema::meta::validate(schema) {
        let place = dotted("parameters", &error.instance_path().to_string());
        return Err(TaskProblem::at(place, format!("it is not a JSON schema: {}", told(&error))));
    }
    let checker = Checker::new(schema)?;
    checker.costs.check_any(schema).map_err(too_much)?;
    // A default that its own schema refuses would make every manifest fail.
    let defaults = Value::Object(with_defaults(Some(schema), &Map::new()));
    checker.costs.check(schema, &defaults).map_err(too_much)?;
    on_a_large_stack(|| {
        let mut errors = checker.validator.iter_errors(&defaults);
        match errors.find(|error| error.instance_path().to_string() != "") {
            Some(error) => {
                let place = place(&error).replacen("parameters", "parameters.properties", 1);
                Err(TaskProblem::at(place, format!("the default does not fit: {}", told(&error))))
            }
            None => Ok(()),
        }
    })
}

/// What holds parameters against a schema, within bounds.
pub(super) struct Checker {
    validator: Validator,
    costs: Costs,
}

impl Checker {
    /// Patterns are those of linear time; nothing outside the schema is fetched.
    pub(super) fn new(schema: &Value) -> Result<Checker, TaskProblem> {
        let costs = Costs::new(schema).map_err(too_much)?;
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20));
        let built = on_a_large_stack(|| {
            options.build(schema).map_err(|error| {
                TaskProblem::at("parameters", format!("it is not a JSON schema: {}", told(&error)))
            })
        });
        Ok(Checker { validator: built?, costs })
    }

    /// Refuses parameters that are not of the schema, or that it would take too long to hold against it.
    fn check(&self, schema: &Value, whole: &Value) -> Result<(), TaskProblem> {
        let work = self.costs.check(schema, whole).map_err(too_much)?;
        on_a_large_stack(|| {
            if work > TELL_MAX {
                // To find out what is wrong takes far more room than to find out that something is.
                return match self.validator.is_valid(whole) {
                    true => Ok(()),
                    false => Err(TaskProblem::at("parameters", "they do not fit the schema of the task")),
                };
            }
            self.validator.validate(whole).map_err(|error| TaskProblem::at(place(&error), told(&error)))
        })
    }
}

fn too_much(CostExceeded { at, why }: CostExceeded) -> TaskProblem {
    TaskProblem::at(dotted("parameters", &at), why)
}

/// A schema may lead from part to part many times before it comes to an end, and its validator does so on the stack.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> Result<T, TaskProblem> + Send) -> Result<T, TaskProblem> {
    let ended_early = || TaskProblem::at("parameters", "the schema could not be looked at");
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        worker.map_err(|_| ended_early())?.join().map_err(|_| ended_early())?
    })
}

/// Rejects parameters that a task does not take.
pub fn check_parameters(task: &Definition, given: &Map<String, Value>) -> Result<(), TaskProblem> {
    let resolved = checked(task, given)?;
    if let Some(coded) = task.coded() {
        return coded.check_parameters(&resolved).map_err(about_parameters);
    }
    // Steps that use no facts of the cluster can be built now: that finds what the schema cannot, such as a text that is not a
    // duration.
    let uses_cluster = |step| names_cluster(&serde_json::to_value(step).unwrap_or_default());
    if !task.steps().iter().any(uses_cluster) {
        task.build_forms(&resolved, &sample()).map_err(about_parameters)?;
    }
    Ok(())
}

fn about_parameters(problem: TaskProblem) -> TaskProblem {
    match problem.target.starts_with("parameters") {
        true => problem,
        false => TaskProblem::at("parameters", problem.to_string()),
    }
}

/// What was given, with defaults, if it is of the task's schema.
pub(super) fn checked(
    task: &Definition,
    given: &Map<String, Value>,
) -> Result<Map<String, Value>, TaskProblem> {
    let size = serde_json::to_string(given).map_or(usize::MAX, |text| text.len());
    if size > PARAMETERS_SIZE_MAX {
        let message =
            format!("the parameters have {size} bytes, and at most {PARAMETERS_SIZE_MAX} are accepted");
        return Err(TaskProblem::at("parameters", message));
    }
    let names = names_of(task.schema());
    let open = task.schema().is_some_and(|schema| {
        schema.get("additionalProperties").is_some_and(|it| *it != Value::Bool(false))
            || schema.get("patternProperties").is_some()
    });
    if let Some(unknown) = given.keys().find(|name| !open && !names.contains(*name)) {
        let known = if names.is_empty() {
            format!("task {} takes none", task.name())
        } else {
            format!("task {} takes {}", task.name(), names.into_iter().collect::<Vec<_>>().join(", "))
        };
        return Err(TaskProblem::at(
            format!("parameters.{unknown}"),
            format!("parameter {unknown} is not known; {known}"),
        ));
    }
    let whole = Value::Object(with_defaults(task.schema(), given));
    if let (Some(schema), Some(checker)) = (task.schema(), task.checker()?) {
        checker.check(schema, &whole)?;
    }
    match whole {
        Value::Object(whole) => Ok(whole),
        _ => Ok(Map::new()),
    }
}

/// A cluster that no plan reaches.
fn sample() -> ClusterFacts {
    ClusterFacts {
        uuid: Uuid::nil(),
        id: String::new(),
        name: String::new(),
        location: String::new(),
        version: None,
        provisioning_state: ProvisioningState::Succeeded,
        labels: BTreeMap::new(),
    }
}

fn place(error: &ValidationError<'_>) -> String {
    let place = dotted("parameters", &error.instance_path().to_string());
    match error.kind() {
        ValidationErrorKind::Required { property } => match property.as_str() {
            Some(name) => format!("{place}.{name}"),
            None => place,
        },
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => match unexpected.first() {
            Some(name) => format!("{place}.{name}"),
            None => place,
        },
        _ => place,
    }
}

/// A JSON pointer below `root`, as places are written: `parameters.hosts[2].name`.
fn dotted(root: &str, pointer: &str) -> String {
    let mut place = root.to_owned();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        match part.parse::<usize>() {
            Ok(index) => place.push_str(&format!("[{index}]")),
            Err(_) => place.push_str(&format!(".{part}")),
        }
    }
    place
}

fn told(error: &ValidationError<'_>) -> String {
    let text = error.to_string().replace('\n', " ");
    match text.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
