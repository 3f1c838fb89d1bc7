//! The maintenance plan.

use api::admin::{PlanForm, PlanGrouping};
use api::duration::TimeSpan;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::pages::next_page;
use crate::path::ApiPath;

/// Filters of the plan; the default has none.
#[derive(Debug, Clone, Default)]
pub struct PlanQuery {
    /// Horizon; the server's default when absent.
    pub horizon: Option<TimeSpan>,
    /// Only this cluster, by resource id.
    pub cluster: Option<String>,
    /// Only this schedule.
    pub schedule: Option<String>,
    /// Only this task, by id.
    pub task: Option<String>,
    /// Only runs that would miss their window.
    pub only_misses: bool,
    /// Grouping of runs into entries.
    pub grouping: PlanGrouping,
}

impl PlanQuery {
    fn path(&self) -> ApiPath {
        let grouping = (self.grouping != PlanGrouping::default()).then(|| self.grouping.as_str());
        ApiPath::new("/admin/maintenanceplan")
            .optional_query("horizon", self.horizon.map(|horizon| horizon.to_string()))
            .optional_query("cluster", self.cluster.as_deref())
            .optional_query("schedule", self.schedule.as_deref())
            .optional_query("task", self.task.as_deref())
            .optional_query("outcome", self.only_misses.then_some("misses"))
            .optional_query("groupBy", grouping)
    }
}

impl Client {
    /// Gets the plan with the entries of all pages.
    pub async fn plan(&self, query: &PlanQuery) -> Result<PlanForm, ClientError> {
        let mut from = query.path().to_uri();
        let mut plan: PlanForm = self.get_at(&from).await?.value;
        while let Some(next) = next_page(self, &from, &plan.next_link)? {
            let page: PlanForm = self.get_at(&next).await?.value;
            plan.entries.extend(page.entries);
            plan.next_link = page.next_link;
            from = next;
        }
        Ok(plan)
    }

    /// Gets one page of the plan: `limit` entries after the first `skip`.
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
