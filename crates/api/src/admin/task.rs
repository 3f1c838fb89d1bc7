//! Tasks in the Admin API.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::duration::DurationText;

/// A maintenance task.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TaskForm {
    /// Its id.
    #[serde(default)]
    pub id: Option<Uuid>,
    /// Its name, in kebab case; unique.
    pub name: String,
    /// Title for people, one line.
    pub title: String,
    /// Description for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Whether it is built in or data; ignored in requests.
    #[serde(default)]
    pub source: Option<TaskSource>,
    /// Incremented with each change; ignored in requests.
    #[serde(default)]
    pub version: Option<u32>,
    /// Whether it can disrupt workloads of the cluster.
    #[serde(default)]
    pub disruptive: bool,
    /// Time limit of one attempt; 30m when absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub time_limit: Option<DurationText>,
    /// Usual duration of a run: the plan uses it until runs were observed. Derived from the steps when absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub expected_duration: Option<DurationText>,
    /// JSON schema of its parameters, an object; it has no parameters when absent.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Value>,
    /// Preconditions of its start.
    #[serde(default)]
    pub requires: Option<RequiresForm>,
    /// Steps, in order. Built-in tasks show the names of their steps.
    pub steps: Vec<StepForm>,
    /// Reason of a change; never in responses.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Source of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum TaskSource {
    /// Part of Shipshape.
    Builtin,
    /// A document that a team wrote.
    Data,
}

/// Preconditions of a task.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RequiresForm {
    /// Accepted provisioning states of the cluster; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provisioning_states: Vec<String>,
    /// The cluster's version must be at least this.
    #[serde(default)]
    pub minimum_version: Option<String>,
    /// The cluster's version must be at most this.
    #[serde(default)]
    pub maximum_version: Option<String>,
    /// `healthy`: the monitor must have observed within three minutes that nothing is wrong with the cluster that other maintenance
    /// does not explain.
    #[serde(default)]
    pub health: Option<String>,
}

/// One step of a task.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepForm {
    /// Its name, unique within the task; the kind when absent.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The kind of step: `kubernetes/apply`, `node/drain`, `pause`…
    pub uses: String,
    /// Parameters of the step.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    #[schema(value_type = Object)]
    pub with: Value,
    /// Time limit; 10m when absent.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub timeout: Option<DurationText>,
    /// Retries within one attempt of the task.
    #[serde(default)]
    pub retry: Option<RetryForm>,
    /// Undo of the step.
    #[serde(default)]
    #[schema(no_recursion)]
    pub undo: Option<UndoForm>,
}

/// Retries of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RetryForm {
    /// Maximum number of tries, including the first.
    pub attempts: u32,
    /// Pause before the second try; it doubles with each further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub backoff: Option<DurationText>,
}

/// Undo of a step: one step, or several in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum UndoForm {
    /// Several.
    Many(Vec<StepForm>),
    /// One.
    One(Box<StepForm>),
}
