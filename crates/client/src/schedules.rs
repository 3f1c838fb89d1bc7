//! Schedules, and what they would make.

use api::admin::{PreviewForm, ScheduleForm};
use serde::Serialize;

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

const SCHEDULES: &str = "/admin/maintenanceschedules";

/// What becomes of a deleted schedule's pending manifests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PendingWork {
    /// They are cancelled.
    Cancel,
    /// They stay, as if a person had asked for them.
    Keep,
}

impl Client {
    /// Every schedule.
    pub fn schedules(&self) -> Pages<ScheduleForm> {
        Pages::of(self, &Path::of(SCHEDULES))
    }

    /// One schedule, with the version to be given back with its change.
    pub async fn schedule(&self, id: &str) -> Result<Answer<ScheduleForm>, ClientError> {
        self.get(&Path::of(SCHEDULES).segment(id)).await
    }

    /// Stores a schedule: a [`ScheduleForm`], or a document that the server is to check.
    pub async fn put_schedule(
        &self,
        schedule: &(impl Serialize + ?Sized),
        if_match: Option<&str>,
    ) -> Result<Answer<ScheduleForm>, ClientError> {
        self.put(&Path::of(SCHEDULES), schedule, if_match).await
    }

    /// Removes a schedule.
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
        self.delete(&Path::of(SCHEDULES).segment(id).query("pending", pending).maybe("reason", reason)).await
    }

    /// What a schedule would make: its next `count` periods, and their times for at most `clusters` clusters; as if it were
    /// `now` (RFC 3339) when that is given. Nothing is stored.
    pub async fn preview(
        &self,
        schedule: &(impl Serialize + ?Sized),
        count: u32,
        clusters: u32,
        now: Option<&str>,
    ) -> Result<PreviewForm, ClientError> {
        let path = Path::of(SCHEDULES).segment("preview");
        let path = path.query("count", count.to_string()).query("clusters", clusters.to_string());
        Ok(self.post(&path.maybe("now", now), schedule).await?.value)
    }
}
