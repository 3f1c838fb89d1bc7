//! Budgets: limits on concurrent runs.

use api::admin::{BudgetForm, BudgetRequest};

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

const BUDGETS: &str = "/admin/maintenancebudgets";

impl Client {
    /// Lists the budgets that have a limit or a running manifest.
    pub fn budgets(&self) -> Pages<BudgetForm> {
        Pages::new(self, &ApiPath::new(BUDGETS))
    }

    /// Gets a budget and its use: `fleet`, `region/L`, `subscription/S` or `task/T`.
    pub async fn budget(&self, key: &str) -> Result<TypedResponse<BudgetForm>, ClientError> {
        self.get(&ApiPath::new(BUDGETS).segment(key)).await
    }

    /// Sets a limit: 0 prevents new runs, none removes the limit.
    pub async fn set_budget(
        &self,
        key: &str,
        request: &BudgetRequest,
    ) -> Result<TypedResponse<BudgetForm>, ClientError> {
        self.put(&ApiPath::new(BUDGETS).segment(key), request, None).await
    }
}
