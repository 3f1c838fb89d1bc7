//! Budgets: limits on how much runs at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A budget and its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetForm {
    /// `fleet`, `region/L`, `subscription/S` or `task/T`.
    pub key: String,
    /// Maximum number at once; 0 stops new starts; null is no limit.
    pub limit: Option<u32>,
    /// Number that runs now.
    pub used: u32,
    /// Number of clusters that wait for it.
    pub parked: u32,
}

/// Request to set a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// Maximum number at once; 0 stops new starts; null removes the limit.
    pub limit: Option<u32>,
    /// Reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
