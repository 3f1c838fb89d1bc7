//! A task as the Admin API shows and takes it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::duration::DurationText;

/// A task: what is done to a cluster.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskForm {
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// Its name, in kebab case; unique.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// More for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether it is built in or written as data; passed over when sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<TaskSource>,
    /// Raised at each change; passed over when sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Whether it can disturb what runs in the cluster.
    #[serde(default)]
    pub disruptive: bool,
    /// How long it may take as a whole; 30m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub time_limit: Option<DurationText>,
    /// How long a run usually takes: what the plan expects until runs were observed. Derived from the steps when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub expected_duration: Option<DurationText>,
    /// The JSON schema of its parameters, an object; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// What must be so before it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requires: Option<RequiresForm>,
    /// What is done, in order. Built-in tasks show the names of theirs.
    pub steps: Vec<StepForm>,
    /// Why it is changed; never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Where a task is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TaskSource {
    /// Part of Shipshape.
    Builtin,
    /// Written by a team.
    Data,
}

/// What must be so before a task begins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequiresForm {
    /// The provisioning states in which a cluster may be worked on; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provisioning_states: Vec<String>,
    /// The cluster's version must be at least this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum_version: Option<String>,
    /// The cluster's version must be at most this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maximum_version: Option<String>,
}

/// One step of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepForm {
    /// Its name, unique within the task; the kind when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The kind of step: `kubernetes/apply`, `node/drain`, `pause`…
    pub uses: String,
    /// What the step is given.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub with: Value,
    /// How long it may take; 10m when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub timeout: Option<DurationText>,
    /// How often it is tried within one attempt of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryForm>,
    /// What takes back what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(no_recursion)]
    pub undo: Option<UndoForm>,
}

/// How often a step is tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryForm {
    /// So often at most, the first time included.
    pub attempts: u32,
    /// The pause before the second; it doubles each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub backoff: Option<DurationText>,
}

/// What takes back what a step did: one step, or several in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UndoForm {
    /// Several.
    Many(Vec<StepForm>),
    /// One.
    One(Box<StepForm>),
}
