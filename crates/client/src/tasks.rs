//! The catalogue of tasks.

use api::admin::TaskForm;
use serde::Serialize;
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

const TASKS: &str = "/admin/maintenancetasks";

impl Client {
    /// Every task, built-in ones and those written as data.
    pub fn tasks(&self) -> Pages<TaskForm> {
        Pages::of(self, &Path::of(TASKS))
    }

    /// One task, by its id or name.
    pub async fn task(&self, id_or_name: &str) -> Result<Answer<TaskForm>, ClientError> {
        self.get(&Path::of(TASKS).segment(id_or_name)).await
    }

    /// Stores a task: a [`TaskForm`], or a document that the server is to check.
    pub async fn put_task(
        &self,
        id: Uuid,
        task: &(impl Serialize + ?Sized),
        if_match: Option<&str>,
    ) -> Result<Answer<TaskForm>, ClientError> {
        self.put(&Path::of(TASKS).segment(&id.to_string()), task, if_match).await
    }

    /// Removes a task written as data.
    pub async fn delete_task(&self, id: Uuid, reason: Option<&str>) -> Result<(), ClientError> {
        self.delete(&Path::of(TASKS).segment(&id.to_string()).maybe("reason", reason)).await
    }
}
