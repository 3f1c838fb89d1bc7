//! The catalogue of tasks.

use api::admin::TaskForm;
use serde::Serialize;
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

const TASKS: &str = "/admin/maintenancetasks";

impl Client {
    /// Lists all tasks, built-in and declarative.
    pub fn tasks(&self) -> Pages<TaskForm> {
        Pages::new(self, &ApiPath::new(TASKS))
    }

    /// Gets a task by id or name.
    pub async fn task(&self, id_or_name: &str) -> Result<TypedResponse<TaskForm>, ClientError> {
        self.get(&ApiPath::new(TASKS).segment(id_or_name)).await
    }

    /// Creates or replaces a task: a [`TaskForm`], or a document that the server validates.
    pub async fn put_task(
        &self,
        id: Uuid,
        task: &(impl Serialize + ?Sized),
        if_match: Option<&str>,
    ) -> Result<TypedResponse<TaskForm>, ClientError> {
        self.put(&ApiPath::new(TASKS).segment(&id.to_string()), task, if_match).await
    }

    /// Deletes a declarative task.
    pub async fn delete_task(&self, id: Uuid, reason: Option<&str>) -> Result<(), ClientError> {
        self.delete(&ApiPath::new(TASKS).segment(&id.to_string()).optional_query("reason", reason)).await
    }
}
