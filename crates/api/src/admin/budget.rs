//! Limits on how much runs at once.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A limit and its use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BudgetForm {
    /// `fleet`, `region/L`, `subscription/S` or `task/T`.
    pub key: String,
    /// At most so many at once; 0 stops new starts; null is no limit.
    pub limit: Option<u32>,
    /// So many run now.
    pub used: u32,
    /// So many clusters wait for it.
    pub parked: u32,
}

/// A wish for a limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// At most so many at once; 0 stops new starts; null removes the limit.
    pub limit: Option<u32>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
