//! The audit log: its records, and the verification of its chain.

use std::sync::Arc;
use std::time::Duration;

use api::admin::{AuditChainForm, Page};
use api::audit::AuditRecord;
use axum::extract::State;
use store::{AuditPosition, AuditQuery};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::AdminState;
use super::params::{MaybeVersion, Paging};
use crate::wire::{ApiError, ApiRequest, ApiResponse, LIMIT_DEFAULT, PageRequest};

/// Time for which a verification of the whole chain is reused.
const CHAIN_AGE_MAX: Duration = Duration::from_secs(30);

/// The result of the last verification.
#[derive(Debug, Clone, Default)]
pub(super) struct ChainCache(Arc<Mutex<Option<(Instant, AuditChainForm)>>>);

/// Lists the audit log, newest first.
#[utoipa::path(
    get, path = "/admin/audit", operation_id = "listAudit", tag = "audit",
    params(
        MaybeVersion, Paging,
        ("actor" = Option<String>, Query, description = "Only of this actor."),
        ("action" = Option<String>, Query, description = "Only of actions that begin with this, such as `manifest.`."),
        ("target" = Option<String>, Query, description = "Only of targets that begin with this."),
    ),
    responses((status = 200, description = "A page of the log.", body = Page<AuditRecord>))
)]
pub(super) async fn list(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = request.page::<AuditPosition>(LIMIT_DEFAULT)?;
    let value = |name: &'static str| Ok::<_, ApiError>(request.query.get(name)?.map(str::to_owned));
    let query = AuditQuery {
        actor: value("actor")?,
        target: value("target")?,
        action: value("action")?,
        before: from,
        limit,
    };
    let rows = state.store.audit_list(query).await?;
    let next = rows.last().filter(|_| rows.len() == limit).map(|row| row.place);
    Ok(request.page_response(rows.into_iter().map(|row| row.record).collect(), next))
}

/// Verifies the chain of the audit log from its beginning.
#[utoipa::path(
    get, path = "/admin/audit/chain", operation_id = "verifyAudit", tag = "audit",
    params(MaybeVersion),
    responses((status = 200, description = "The result of the verification.", body = AuditChainForm))
)]
pub(super) async fn chain(
    State(state): State<AdminState>,
    _request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    // Requests during a verification wait for its result.
    let mut found = state.chain_cache.0.lock().await;
    if let Some((at, form)) = found.as_ref()
        && at.elapsed() < CHAIN_AGE_MAX
    {
        return Ok(ApiResponse::ok(form));
    }
    let verified = state.store.verify_audit(None).await?;
    let form = AuditChainForm {
        records: verified.records,
        unsealed: verified.unsealed as u64,
        head: verified.head.to_string(),
        faults: verified.faults,
        checked_at: state.clock.now(),
    };
    *found = Some((Instant::now(), form.clone()));
    Ok(ApiResponse::ok(&form))
}
