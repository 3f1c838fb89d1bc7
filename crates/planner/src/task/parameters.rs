//! Parameters of tasks: validation of the schema of a task, and of the parameters of a manifest.

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

/// Most parameters of a task.
const PARAMETERS_MAX: usize = 100;
/// Largest parameters of a manifest, as JSON in bytes: manifests are read often.
const PARAMETERS_SIZE_MAX: usize = 256 * 1024;
/// Longest message of the validator that is shown, in characters.
const MESSAGE_MAX: usize = 300;
/// Work up to which the validator reports the error; beyond it, only whether there is one.
const DETAIL_WORK_MAX: u64 = 50_000;
/// Stack size for the deepest schema within the limits.
const STACK_BYTES: usize = 64 << 20;

/// Names of the parameters of a task.
pub(super) fn names_of(schema: Option<&Value>) -> BTreeSet<String> {
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    properties.into_iter().flat_map(|properties| properties.keys().cloned()).collect()
}

/// Adds the defaults of absent parameters.
pub(super) fn with_defaults(schema: Option<&Value>, parameters: &Map<String, Value>) -> Map<String, Value> {
    let mut whole = parameters.clone();
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

/// Rejects a schema that is invalid, or not of an object.
pub(super) fn check_schema(schema: &Value) -> Result<(), TaskProblem> {
    let invalid = |message: &str| Err(TaskProblem::at("parameters", message));
    let Some(members) = schema.as_object() else { return invalid("a JSON schema of an object is expected") };
    match members.get("type").and_then(Value::as_str) {
        None if members.contains_key("type") => return invalid("the schema's type must be object"),
        Some(other) if other != "object" => return invalid("the schema's type must be object"),
        _ => {}
    }
    if members.get("properties").is_some_and(|properties| !properties.is_object()) {
        return Err(TaskProblem::at("parameters.properties", "an object is expected"));
    }
    let names = names_of(Some(schema));
    if names.len() > PARAMETERS_MAX {
        return invalid(&format!(
            "there are {} parameters, and at most {PARAMETERS_MAX} are accepted",
            names.len()
        ));
    }
    let is_valid_name = |name: &String| {
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-') && !name.is_empty()
    };
    if let Some(name) = names.iter().find(|name| !is_valid_name(name)) {
        let message = "the name of a parameter consists of letters, digits, - and _";
        return Err(TaskProblem::at(format!("parameters.properties.{name}"), message));
    }
    if let Err(error) = jsonschema::meta::validate(schema) {
        let place = dotted("parameters", &error.instance_path().to_string());
        return Err(TaskProblem::at(place, format!("it is not a JSON schema: {}", shortened(&error))));
    }
    let checker = Checker::new(schema)?;
    checker.costs.check_any(schema).map_err(too_costly)?;
    // A default that does not match its own schema would make every manifest fail.
    let defaults = Value::Object(with_defaults(Some(schema), &Map::new()));
    checker.costs.check(schema, &defaults).map_err(too_costly)?;
    on_a_large_stack(|| {
        let mut errors = checker.validator.iter_errors(&defaults);
        match errors.find(|error| error.instance_path().to_string() != "") {
            Some(error) => {
                let place = place(&error).replacen("parameters", "parameters.properties", 1);
                Err(TaskProblem::at(
                    place,
                    format!("the default does not match the schema: {}", shortened(&error)),
                ))
            }
            None => Ok(()),
        }
    })
}

/// Validator of parameters with limits.
pub(super) struct Checker {
    validator: Validator,
    costs: Costs,
}

impl Checker {
    /// Creates a validator with linear-time patterns that fetches nothing outside the schema.
    pub(super) fn new(schema: &Value) -> Result<Checker, TaskProblem> {
        let costs = Costs::new(schema).map_err(too_costly)?;
        let options = jsonschema::options().with_pattern_options(PatternOptions::regex().size_limit(1 << 20));
        let built = on_a_large_stack(|| {
            options.build(schema).map_err(|error| {
                TaskProblem::at("parameters", format!("it is not a JSON schema: {}", shortened(&error)))
            })
        });
        Ok(Checker { validator: built?, costs })
    }

    /// Rejects parameters that do not match the schema, or whose validation would take too long.
    fn check(&self, schema: &Value, whole: &Value) -> Result<(), TaskProblem> {
        let work = self.costs.check(schema, whole).map_err(too_costly)?;
        on_a_large_stack(|| {
            if work > DETAIL_WORK_MAX {
                // Finding the error takes far more memory than finding that there is one.
                return match self.validator.is_valid(whole) {
                    true => Ok(()),
                    false => Err(TaskProblem::at(
                        "parameters",
                        "the parameters do not match the schema of the task",
                    )),
                };
            }
            self.validator.validate(whole).map_err(|error| TaskProblem::at(place(&error), shortened(&error)))
        })
    }
}

fn too_costly(CostExceeded { at, message }: CostExceeded) -> TaskProblem {
    TaskProblem::at(dotted("parameters", &at), message)
}

/// Runs on a thread with a large stack, since the validator recurses through the references of a schema.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> Result<T, TaskProblem> + Send) -> Result<T, TaskProblem> {
    let failed = || TaskProblem::at("parameters", "the schema could not be checked");
    std::thread::scope(|scope| {
        let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        worker.map_err(|_| failed())?.join().map_err(|_| failed())?
    })
}

/// Rejects parameters that a task does not take.
pub fn check_parameters(task: &Definition, parameters: &Map<String, Value>) -> Result<(), TaskProblem> {
    let resolved = checked(task, parameters)?;
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

/// Validates parameters and adds the defaults.
pub(super) fn checked(
    task: &Definition,
    parameters: &Map<String, Value>,
) -> Result<Map<String, Value>, TaskProblem> {
    let size = serde_json::to_string(parameters).map_or(usize::MAX, |text| text.len());
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
    if let Some(unknown) = parameters.keys().find(|name| !open && !names.contains(*name)) {
        let known = if names.is_empty() {
            format!("task {} takes none", task.name())
        } else {
            format!("task {} takes {}", task.name(), names.into_iter().collect::<Vec<_>>().join(", "))
        };
        return Err(TaskProblem::at(
            format!("parameters.{unknown}"),
            format!("unknown parameter {unknown}; {known}"),
        ));
    }
    let whole = Value::Object(with_defaults(task.schema(), parameters));
    if let (Some(schema), Some(checker)) = (task.schema(), task.checker()?) {
        checker.check(schema, &whole)?;
    }
    match whole {
        Value::Object(whole) => Ok(whole),
        _ => Ok(Map::new()),
    }
}

/// Placeholder cluster for building steps that use no facts of a cluster.
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

/// Converts a JSON pointer to a path below `root`, such as `parameters.hosts[2].name`.
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

fn shortened(error: &ValidationError<'_>) -> String {
    let text = error.to_string().replace('\n', " ");
    match text.char_indices().nth(MESSAGE_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
