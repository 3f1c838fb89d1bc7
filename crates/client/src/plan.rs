//! The maintenance of the coming time.

use api::admin::PlanForm;
use api::duration::TimeSpan;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::pages::follow;
use crate::path::Path;

/// Which part of the plan is wanted; all of it when nothing is said.
#[derive(Debug, Clone, Default)]
pub struct PlanQuery {
    /// How far ahead; the server's own measure when absent.
    pub horizon: Option<TimeSpan>,
    /// Only of this cluster, by its resource id.
    pub cluster: Option<String>,
    /// Only of this schedule.
    pub schedule: Option<String>,
    /// Only of this task, by its id.
    pub task: Option<String>,
}

impl Client {
    /// The plan, with the entries of all its pages.
    pub async fn plan(&self, query: &PlanQuery) -> Result<PlanForm, ClientError> {
        let path = Path::of("/admin/maintenanceplan")
            .maybe("horizon", query.horizon.map(|horizon| horizon.to_string()))
            .maybe("cluster", query.cluster.as_deref())
            .maybe("schedule", query.schedule.as_deref())
            .maybe("task", query.task.as_deref());
        let mut from = path.text();
        let mut plan: PlanForm = self.get_at(&from).await?.value;
        while let Some(next) = follow(self, &from, &plan.next_link)? {
            let page: PlanForm = self.get_at(&next).await?.value;
            plan.entries.extend(page.entries);
            plan.next_link = page.next_link;
            from = next;
        }
        Ok(plan)
    }
}
