//! Limits on how much runs at once: for the fleet, a region, a subscription, a task. A limit of 0 is the kill switch.

use api::admin::{BudgetForm, BudgetRequest, Page};
use axum::extract::State;
use serde_json::{Map, Value, json};
use store::Budget;
use uuid::Uuid;

use super::AdminState;
use super::params::{Paging, Reason, Version};
use crate::wire::{ApiError, ApiRequest, ApiResponse, LIMIT_DEFAULT, PageRequest};

/// Longest name of a region.
const REGION_BYTES_MAX: usize = 100;

const NO_SUCH_KEY: &str =
    "The key of a budget must be fleet, region/LOCATION, subscription/UUID or task/UUID.";

/// Lists the limits that are set.
#[utoipa::path(
    get, path = "/admin/maintenancebudgets", operation_id = "listBudgets", tag = "budgets",
    params(Version, Paging),
    responses((status = 200, description = "A page of limits.", body = Page<BudgetForm>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<String>(LIMIT_DEFAULT)?;
    let mut budgets = state.store.budgets().await?;
    budgets.sort_by(|a, b| a.key.cmp(&b.key));
    budgets.retain(|budget| from.as_ref().is_none_or(|from| budget.key > *from));
    let next = (budgets.len() > limit).then(|| budgets[limit - 1].key.clone());
    budgets.truncate(limit);
    Ok(request.page_response(budgets.into_iter().map(form).collect(), next))
}

fn form(budget: Budget) -> BudgetForm {
    BudgetForm { key: budget.key, limit: Some(budget.limit), used: budget.used, parked: budget.parked }
}

/// Shows a limit and its use. Without a limit, use is not counted.
#[utoipa::path(
    get, path = "/admin/maintenancebudgets/{key}", operation_id = "getBudget", tag = "budgets",
    params(
        Version,
        ("key" = String, Path, description = "`fleet`, or `region/L`, `subscription/S`, `task/T` with the slash escaped."),
    ),
    responses((status = 200, description = "The limit.", body = BudgetForm))
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let key = key(&request).map_err(|_| ApiError::not_found(NO_SUCH_KEY))?;
    Ok(ApiResponse::ok(&shown(&state, key).await?))
}

/// Shows a limit and its use; the slash of the key is not escaped.
#[utoipa::path(
    get, path = "/admin/maintenancebudgets/{scope}/{name}", operation_id = "getScopedBudget", tag = "budgets",
    params(
        Version,
        ("scope" = String, Path, description = "`region`, `subscription` or `task`."),
        ("name" = String, Path, description = "Which one."),
    ),
    responses((status = 200, description = "The limit.", body = BudgetForm))
)]
pub(super) async fn show_scoped(
    state: State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    show(state, request).await
}

/// Sets a limit, or removes it.
#[utoipa::path(
    put, path = "/admin/maintenancebudgets/{key}", operation_id = "setBudget", tag = "budgets",
    params(
        Version, Reason,
        ("key" = String, Path, description = "`fleet`, or `region/L`, `subscription/S`, `task/T` with the slash escaped."),
    ),
    request_body = BudgetRequest,
    responses((status = 200, description = "The limit.", body = BudgetForm))
)]
pub(super) async fn set(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let key = key(&request)?;
    let members: Map<String, Value> = request.json()?;
    if !members.contains_key("limit") {
        let message = "The limit must be given: a number, or null to remove it.";
        return Err(ApiError::invalid_parameter("limit", message));
    }
    let body: BudgetRequest = request.json()?;
    if body.limit.is_some_and(|limit| i32::try_from(limit).is_err()) {
        return Err(ApiError::invalid_parameter("limit", format!("The limit must be at most {}.", i32::MAX)));
    }
    let by = request.by(body.reason.as_deref())?;
    let before = shown(&state, key.clone()).await?;
    let entry = by.entry("budget.set", &key, Some(&json!(before.limit)), Some(&json!(body.limit)));
    state.store.set_budget(&key, body.limit, Some(entry)).await?;
    Ok(ApiResponse::ok(&shown(&state, key).await?))
}

/// Sets a limit, or removes it; the slash of the key is not escaped.
#[utoipa::path(
    put, path = "/admin/maintenancebudgets/{scope}/{name}", operation_id = "setScopedBudget", tag = "budgets",
    params(
        Version, Reason,
        ("scope" = String, Path, description = "`region`, `subscription` or `task`."),
        ("name" = String, Path, description = "Which one."),
    ),
    request_body = BudgetRequest,
    responses((status = 200, description = "The limit.", body = BudgetForm))
)]
pub(super) async fn set_scoped(
    state: State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    set(state, request).await
}

async fn shown(state: &AdminState, key: String) -> Result<BudgetForm, ApiError> {
    let found = state.store.budgets().await?.into_iter().find(|budget| budget.key == key);
    Ok(found.map_or(BudgetForm { key, limit: None, used: 0, parked: 0 }, form))
}

/// The budget's key from the path, in lower case.
fn key(request: &ApiRequest) -> Result<String, ApiError> {
    let whole = match request.path_param("scope") {
        "" => request.path_param("key").to_lowercase(),
        scope => format!("{scope}/{}", request.path_param("name").to_lowercase()),
    };
    is_key(&whole).then_some(whole).ok_or_else(|| ApiError::invalid_parameter("key", NO_SUCH_KEY))
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        None => key == "fleet",
        Some(("region", name)) => {
            let accepted = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
            (1..=REGION_BYTES_MAX).contains(&name.len()) && name.bytes().all(accepted)
        }
        Some(("subscription" | "task", id)) => id.len() == 36 && Uuid::try_parse(id).is_ok(),
        Some(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_four_kinds_of_keys_are_valid() {
        let id = "0192d0e0-0000-7000-8000-000000000001";
        for good in ["fleet", "region/west-1", &format!("task/{id}"), &format!("subscription/{id}")] {
            assert!(is_key(good), "{good}");
        }
        for bad in
            ["", "flet", "fleet/", "region/", "region/a/b", "region/A b", "task/x", "zone/a", "region/\u{0}"]
        {
            assert!(!is_key(bad), "{bad}");
        }
    }
}
