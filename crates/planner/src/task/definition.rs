//! One task: its name, parameters and requirements, and the plan of a task that is a list of step forms.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::admin::{RequiresForm, StepForm, TaskForm, TaskSource};
use api::doc::{StepName, Task};
use api::duration::{DurationText, TimeSpan};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use steps::engine::{PLAN_TIME, Plan};
use steps::kinds::{build_step, step_name};
use steps::{ClusterContext, ClusterFacts, TemplateValues};
use uuid::Uuid;

use super::TaskProblem;
use super::builtin::{self, CodedTask};
use super::expected::{ExpectedDuration, expected};
use super::parameters::{Checker, checked};

/// A task of a certain version. Cheap to clone.
#[derive(Clone)]
pub struct Definition {
    inner: Arc<Inner>,
}

struct Inner {
    id: Uuid,
    version: u32,
    source: TaskSource,
    /// Form as written by the author. Its steps are those that run, unless `steps` is code.
    form: TaskForm,
    steps: StepSource,
    checker: OnceLock<Checker>,
}

/// Origin of a task's steps.
#[derive(Debug, Clone, Copy)]
pub(super) enum StepSource {
    /// The forms of the task.
    Forms,
    /// Code; the form of the task only names the steps.
    Code(CodedTask),
}

impl Definition {
    pub(super) fn new(
        id: Uuid,
        version: u32,
        source: TaskSource,
        form: TaskForm,
        steps: StepSource,
    ) -> Definition {
        let form = TaskForm { id: None, version: None, source: None, reason: None, ..form };
        Definition { inner: Arc::new(Inner { id, version, source, form, steps, checker: OnceLock::new() }) }
    }

    /// Parses a stored task, whose form was validated before it was stored.
    pub fn from_document(task: &Task) -> Result<Definition, TaskProblem> {
        let mut form = task.definition.clone();
        if let Some(members) = form.as_object_mut() {
            members.insert("name".to_owned(), json!(task.name));
            members.insert("title".to_owned(), json!(task.title));
        }
        let form = super::form::from_value(form)?;
        Ok(Definition::new(task.id, task.version, TaskSource::Data, form, StepSource::Forms))
    }

    /// Converts the task to its document.
    pub fn document(&self) -> Task {
        let mut definition = serde_json::to_value(&self.inner.form).unwrap_or_default();
        if let Some(members) = definition.as_object_mut() {
            members.remove("name");
            members.remove("title");
        }
        Task {
            id: self.inner.id,
            name: self.inner.form.name.clone(),
            title: self.inner.form.title.clone(),
            version: self.inner.version,
            definition,
        }
    }

    /// Returns the task with another version, which the store assigns.
    #[must_use]
    pub fn at_version(&self, version: u32) -> Definition {
        let Inner { id, source, form, steps, .. } = &*self.inner;
        Definition::new(*id, version, *source, form.clone(), *steps)
    }

    /// Returns the task with another id.
    #[must_use]
    pub fn with_id(&self, id: Uuid) -> Definition {
        let Inner { version, source, form, steps, .. } = &*self.inner;
        Definition::new(id, *version, *source, form.clone(), *steps)
    }

    /// Task id.
    pub fn id(&self) -> Uuid {
        self.inner.id
    }

    /// Task name.
    pub fn name(&self) -> &str {
        &self.inner.form.name
    }

    /// Title.
    pub fn title(&self) -> &str {
        &self.inner.form.title
    }

    /// Version, raised at each change.
    pub fn version(&self) -> u32 {
        self.inner.version
    }

    /// Whether it is built in or stored.
    pub fn source(&self) -> TaskSource {
        self.inner.source
    }

    /// Whether it can disrupt workloads of the cluster.
    pub fn disruptive(&self) -> bool {
        self.inner.form.disruptive
    }

    /// Time limit of one attempt.
    pub fn time_limit(&self) -> Duration {
        self.inner.form.time_limit.as_ref().map_or(PLAN_TIME, DurationText::duration)
    }

    /// Usual duration of a run, by the task itself.
    pub fn expected(&self) -> ExpectedDuration {
        expected(&self.inner.form)
    }

    /// Requirements on the cluster.
    pub fn requires(&self) -> RequiresForm {
        self.inner.form.requires.clone().unwrap_or_default()
    }

    /// JSON schema of the parameters.
    pub fn schema(&self) -> Option<&Value> {
        self.inner.form.parameters.as_ref()
    }

    /// The names of its steps, in order.
    pub fn step_names(&self) -> Vec<StepName> {
        self.inner.form.steps.iter().map(step_name).collect()
    }

    pub(super) fn steps(&self) -> &[StepForm] {
        &self.inner.form.steps
    }

    /// The built-in task whose code builds the steps; none when the steps are forms.
    pub fn coded(&self) -> Option<CodedTask> {
        match self.inner.steps {
            StepSource::Code(task) => Some(task),
            StepSource::Forms => None,
        }
    }

    /// Form for the Admin API.
    pub fn form(&self) -> TaskForm {
        let form = &self.inner.form;
        TaskForm {
            id: Some(self.inner.id),
            version: Some(self.inner.version),
            source: Some(self.inner.source),
            time_limit: Some(form.time_limit.clone().unwrap_or_else(|| TimeSpan::new(PLAN_TIME).into())),
            ..form.clone()
        }
    }

    /// Validator of the parameters; created once.
    pub(super) fn checker(&self) -> Result<Option<&Checker>, TaskProblem> {
        let Some(schema) = self.schema() else { return Ok(None) };
        if let Some(checker) = self.inner.checker.get() {
            return Ok(Some(checker));
        }
        let checker = Checker::new(schema)?;
        Ok(Some(self.inner.checker.get_or_init(|| checker)))
    }

    /// Validates parameters against the schema and adds the defaults of absent ones.
    pub fn resolve_parameters(
        &self,
        parameters: &Map<String, Value>,
    ) -> Result<Map<String, Value>, TaskProblem> {
        checked(self, parameters)
    }

    /// Builds the plan of a task for one cluster from the task's step forms. Of a task whose steps are code ([`Self::coded`])
    /// the forms only name the steps, so that the plan cannot be built here.
    pub fn plan_from_forms(
        &self,
        parameters: &Map<String, Value>,
        cluster: &ClusterFacts,
    ) -> Result<Plan<ClusterContext>, TaskProblem> {
        self.build_forms(&checked(self, parameters)?, cluster)
    }

    /// Builds the plan from parameters that were validated and have their defaults.
    pub(super) fn build_forms(
        &self,
        parameters: &Map<String, Value>,
        cluster: &ClusterFacts,
    ) -> Result<Plan<ClusterContext>, TaskProblem> {
        let facts = cluster.value();
        let values = TemplateValues { parameters, cluster: &facts };
        let forms = self.inner.form.steps.iter().enumerate();
        let steps = forms
            .map(|(index, form)| build_step(form, &format!("steps[{index}]"), values))
            .collect::<Result<_, _>>()?;
        Ok(Plan { steps, time_limit: self.time_limit() })
    }

    /// The form in which the checkpoint of a manifest keeps the task that it started with.
    pub fn snapshot(&self) -> Value {
        let snapshot = match self.inner.source {
            TaskSource::Builtin => TaskSnapshot::Builtin(self.inner.id),
            TaskSource::Data => TaskSnapshot::Data(self.document()),
        };
        serde_json::to_value(snapshot).expect("a task has text keys and no values that JSON does not have")
    }

    /// The task that a manifest started with. A built-in one is that of this release: its steps are matched by name.
    pub fn from_snapshot(snapshot: &Value) -> Result<Definition, TaskProblem> {
        let snapshot = TaskSnapshot::deserialize(snapshot).map_err(|error| {
            TaskProblem::at("", format!("cannot parse the stored snapshot of the task: {error}"))
        })?;
        match snapshot {
            TaskSnapshot::Data(task) => Definition::from_document(&task),
            TaskSnapshot::Builtin(id) => builtin::all()
                .find(|it| it.id() == id)
                .ok_or_else(|| TaskProblem::at("", format!("this release has no built-in task {id}"))),
        }
    }
}

/// The task that a manifest started with, as its checkpoint keeps it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum TaskSnapshot {
    /// A built-in task, by its id.
    Builtin(Uuid),
    /// A task that is data, with its whole document.
    Data(Task),
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition")
            .field("id", &self.inner.id)
            .field("name", &self.inner.form.name)
            .field("version", &self.inner.version)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_snapshots_are_read() {
        let builtin = json!({"builtin": "e44ed769-5f4d-4bbc-a5ef-250f426550ee"});
        let definition = Definition::from_snapshot(&builtin).unwrap();
        assert_eq!((definition.name(), definition.snapshot()), ("cluster-health", builtin));
        let data = json!({"data": {
            "id": "11111111-1111-4111-8111-111111111111", "name": "rest", "title": "Rest", "version": 2,
            "definition": {"steps": [{"uses": "pause", "with": {"duration": "5m"}}]},
        }});
        let definition = Definition::from_snapshot(&data).unwrap();
        assert_eq!((definition.name(), definition.step_names()), ("rest", vec!["pause".into()]));
    }

    #[test]
    fn a_snapshot_of_another_release_is_an_error() {
        let check = |snapshot: Value, expect: &str| {
            let error = Definition::from_snapshot(&snapshot).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(json!({"builtin": Uuid::nil()}), "this release has no built-in task");
        check(json!({"image": "x"}), "cannot parse the stored snapshot of the task");
        check(json!(null), "cannot parse the stored snapshot of the task");
    }
}
