//! A maintenance task that a team wrote as data.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Document;

/// A task as data: its steps are of the same catalogue as those of the built-in tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The task's id.
    pub id: Uuid,
    /// Its name, in kebab case; no two living tasks share one.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Raised by one at each change; running work keeps the version it began with.
    pub version: u32,
    /// The rest of the task as its author wrote it, checked when it was stored.
    pub definition: Value,
}

impl Document for Task {
    const KIND: &'static str = "task";

    fn path(&self) -> String {
        format!("/maintenancetasks/{}", self.id)
    }

    fn scope(&self) -> String {
        "/".to_owned()
    }

    fn unique_keys(&self) -> Vec<String> {
        vec![format!("task-name:{}", self.name)]
    }
}
