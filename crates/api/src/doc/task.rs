//! A maintenance task that is a document.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::Document;

/// A task as data: its steps have the same kinds as those of the built-in tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// The task's id.
    pub id: Uuid,
    /// Its name, in kebab case; unique among tasks.
    pub name: String,
    /// Title for people, one line.
    pub title: String,
    /// Incremented with each change; running work keeps the version it started with.
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
