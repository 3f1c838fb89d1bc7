//! The health of a cluster with its history, from the record that the monitor keeps.

use api::admin::{ClusterHealth, HealthForm, HealthTransition};
use api::health::{HealthEvent, availability};
use axum::extract::State;
use jiff::SignedDuration;

use super::AdminState;
use super::params::MaybeVersion;
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse};

/// Time over which availability is measured.
const AVAILABILITY_DAYS: i64 = 30;

/// Most transitions that availability is computed from.
const EVENTS_MAX: usize = 5_000;

/// Most transitions in a response.
const SHOWN_MAX: usize = 200;

/// Shows the health of a cluster: what the monitor observed last, and what changed in the last 30 days.
#[utoipa::path(
    get, path = "/health", operation_id = "getClusterHealth", tag = "clusters",
    params(ClusterPath, MaybeVersion),
    responses((status = 200, description = "The health, and transitions, newest first.", body = HealthForm))
)]
pub(super) async fn show(
    State(state): State<AdminState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let read = state.cluster_forms.find(&request.resource_id()?).await?;
    let now = state.clock.now();
    let from = now.saturating_sub(SignedDuration::from_hours(24 * AVAILABILITY_DAYS)).unwrap_or(now);
    let sample = state.store.health(vec![read.uuid]).await?.pop();
    let events = state.store.health_events(vec![read.uuid], from, EVENTS_MAX).await?;
    // Without a transition the present state has lasted all the time.
    let unchanged = sample.as_ref().filter(|_| events.is_empty());
    let unchanged = unchanged.map(|it| if it.reachable { 1.0 } else { 0.0 });
    let form = HealthForm {
        id: read.document.id.clone(),
        name: read.document.name.clone(),
        health: sample.as_ref().map(ClusterHealth::from),
        availability: availability(&events, from, now).or(unchanged),
        history: events.into_iter().take(SHOWN_MAX).map(transition).collect(),
    };
    Ok(ApiResponse::ok(&form))
}

fn transition(event: HealthEvent) -> HealthTransition {
    let HealthEvent { at, facet, previous, value, expected, .. } = event;
    HealthTransition { at, facet, previous, value, expected }
}
