//! Subscriptions, as the resource manager reports them. The document is stored and returned unchanged except for the owner's address;
//! nothing of it is logged.

use api::doc::{Subscription, SubscriptionState};
use axum::extract::State;
use http::StatusCode;
use serde_json::Value;
use store::StoreError;

use super::params::SubscriptionPath;
use super::{ArmState, retry_delay};
use crate::wire::{ApiError, ApiRequest, ApiResponse, Code, WRITE_ATTEMPTS_MAX};

/// Reports the state of a subscription. The api-version is ignored.
#[utoipa::path(
    put, path = "/subscriptions/{subscriptionId}", operation_id = "putSubscription", tag = "resource manager",
    params(SubscriptionPath), request_body = Object,
    responses(
        (status = 200, description = "It was known.", body = Object),
        (status = 201, description = "It was created.", body = Object),
    )
)]
pub(super) async fn put(State(state): State<ArmState>, request: ApiRequest) -> Result<ApiResponse, ApiError> {
    let body = request.object()?;
    let wanted = subscription(request.path_param("subscriptionId"), body)?;
    let by = request.by(Some(""))?;
    for attempt in 1..=WRITE_ATTEMPTS_MAX {
        let path = format!("/subscriptions/{}", wanted.subscription_id);
        let found = state.store.subscriptions().find(&path).await?;
        let was_deleted = found.as_ref().is_some_and(|it| it.document.state == SubscriptionState::Deleted);
        if was_deleted && wanted.state != SubscriptionState::Deleted {
            let message = "Request is not allowed in subscription in state 'Deleted'.";
            return Err(ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidSubscriptionState, message));
        }
        let subscriptions = state.store.subscriptions();
        // The write is conditional on the version that was read: a subscription that was deleted meanwhile stays deleted.
        let written = match &found {
            Some(read) => subscriptions.put(&wanted, Some(read.etag), &by).await,
            None => subscriptions.create(&wanted, &by).await.map(|(uuid, etag)| (uuid, etag, true)),
        };
        match written {
            Ok((_, etag, is_new)) => return Ok(ApiResponse::put(is_new, &wanted.body).with_etag(etag)),
            Err(StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. }) => {
                tokio::time::sleep(retry_delay(attempt)).await;
            }
            Err(other) => return Err(other.into()),
        }
    }
    Err(ApiError::internal("the subscription was changed by other requests several times"))
}

fn subscription(id: &str, mut body: Value) -> Result<Subscription, ApiError> {
    let state = match body["state"].as_str() {
        Some("Registered") => SubscriptionState::Registered,
        Some("Unregistered") => SubscriptionState::Unregistered,
        Some("Warned") => SubscriptionState::Warned,
        Some("Suspended") => SubscriptionState::Suspended,
        Some("Deleted") => SubscriptionState::Deleted,
        _ => {
            let message = "The state must be Registered, Unregistered, Warned, Suspended or Deleted.";
            return Err(ApiError::invalid_parameter("state", message));
        }
    };
    if let Some(address) = body.pointer_mut("/properties/accountOwner/email") {
        *address = Value::String(String::new());
    }
    let properties = &body["properties"];
    let is_registered = |feature: &&Value| feature["state"] == "Registered";
    let features = properties["registeredFeatures"].as_array().into_iter().flatten().filter(is_registered);
    let registered_features =
        features.filter_map(|feature| feature["name"].as_str()).map(str::to_owned).collect();
    Ok(Subscription {
        subscription_id: id.to_lowercase(),
        state,
        tenant_id: properties["tenantId"].as_str().map(str::to_owned),
        registered_features,
        body,
    })
}
