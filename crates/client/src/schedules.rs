//! Schedules and their previews.

use api::admin::{PreviewForm, ScheduleForm};
use serde::Serialize;

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

const SCHEDULES: &str = "/admin/maintenanceschedules";

/// Handling of the pending manifests of a deleted schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingWork {
    /// Cancel them.
    Cancel,
    /// Keep them, like manifests that a person created.
    Keep,
}

impl Client {
    /// Lists all schedules.
    pub fn schedules(&self) -> Pages<ScheduleForm> {
        Pages::new(self, &ApiPath::new(SCHEDULES))
    }

    /// Gets a schedule and its ETag.
    pub async fn schedule(&self, id: &str) -> Result<TypedResponse<ScheduleForm>, ClientError> {
        self.get(&ApiPath::new(SCHEDULES).segment(id)).await
    }

    /// Creates or replaces a schedule: a [`ScheduleForm`], or a document that the server validates.
    pub async fn put_schedule(
        &self,
        schedule: &(impl Serialize + ?Sized),
        if_match: Option<&str>,
    ) -> Result<TypedResponse<ScheduleForm>, ClientError> {
        self.put(&ApiPath::new(SCHEDULES), schedule, if_match).await
    }

    /// Deletes a schedule.
    pub async fn delete_schedule(
        &self,
        id: &str,
        pending: PendingWork,
        reason: Option<&str>,
    ) -> Result<(), ClientError> {
        let pending = match pending {
            PendingWork::Cancel => "cancel",
            PendingWork::Keep => "keep",
        };
        self.delete(
            &ApiPath::new(SCHEDULES).segment(id).query("pending", pending).optional_query("reason", reason),
        )
        .await
    }

    /// Previews a schedule without storing it: its next `count` periods, and their times for at most `clusters` clusters.
    /// `now` (RFC 3339) replaces the current time.
    pub async fn preview(
        &self,
        schedule: &(impl Serialize + ?Sized),
        count: u32,
        clusters: u32,
        now: Option<&str>,
    ) -> Result<PreviewForm, ClientError> {
        let path = ApiPath::new(SCHEDULES).segment("preview");
        let path = path.query("count", count.to_string()).query("clusters", clusters.to_string());
        Ok(self.post(&path.optional_query("now", now), schedule).await?.value)
    }
}
