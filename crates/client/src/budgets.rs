//! Limits on how much runs at once.

use api::admin::{BudgetForm, BudgetRequest};

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

const BUDGETS: &str = "/admin/maintenancebudgets";

impl Client {
    /// Every limit that is set or used.
    pub fn budgets(&self) -> Pages<BudgetForm> {
        Pages::of(self, &Path::of(BUDGETS))
    }

    /// One limit and its use: `fleet`, `region/L`, `subscription/S` or `task/T`.
    pub async fn budget(&self, key: &str) -> Result<Answer<BudgetForm>, ClientError> {
        self.get(&Path::of(BUDGETS).segment(key)).await
    }

    /// Sets a limit; 0 stops new starts, none removes it.
    pub async fn set_budget(
        &self,
        key: &str,
        request: &BudgetRequest,
    ) -> Result<Answer<BudgetForm>, ClientError> {
        self.put(&Path::of(BUDGETS).segment(key), request, None).await
    }
}
