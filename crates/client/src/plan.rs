//! The maintenance of the coming time.

use api::admin::{PlanForm, PlanGrouping};
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
    /// Only runs that do not begin in time.
    pub only_misses: bool,
    /// What is one entry.
    pub grouping: PlanGrouping,
}

impl PlanQuery {
    fn path(&self) -> Path {
        let grouping = (self.grouping != PlanGrouping::default()).then(|| self.grouping.as_str());
        Path::of("/admin/maintenanceplan")
            .maybe("horizon", self.horizon.map(|horizon| horizon.to_string()))
            .maybe("cluster", self.cluster.as_deref())
            .maybe("schedule", self.schedule.as_deref())
            .maybe("task", self.task.as_deref())
            .maybe("outcome", self.only_misses.then_some("misses"))
            .maybe("groupBy", grouping)
    }
}

impl Client {
    /// The plan, with the entries of all its pages.
    pub async fn plan(&self, query: &PlanQuery) -> Result<PlanForm, ClientError> {
        let mut from = query.path().text();
        let mut plan: PlanForm = self.get_at(&from).await?.value;
        while let Some(next) = follow(self, &from, &plan.next_link)? {
            let page: PlanForm = self.get_at(&next).await?.value;
            plan.entries.extend(page.entries);
            plan.next_link = page.next_link;
            from = next;
        }
        Ok(plan)
    }

    /// One page of the plan: so many entries behind the first `skip`.
    pub async fn plan_page(
        &self,
        query: &PlanQuery,
        skip: usize,
        limit: usize,
    ) -> Result<PlanForm, ClientError> {
        let path = query.path().query("skip", skip.to_string()).query("limit", limit.to_string());
        Ok(self.get(&path).await?.value)
    }
}
