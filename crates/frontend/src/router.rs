//! The routes of both APIs in one router, with the routes and errors that they have in common.

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};

use crate::admin::{self, AdminState};
use crate::arm::{self, ArmState};
use crate::openapi;
use crate::wire::{ApiError, ApiResponse, Code};

/// The router of the Admin API and the resource manager's API. `unready_reason` returns why the server is not ready yet.
pub(crate) fn router(
    admin_state: AdminState,
    arm_state: ArmState,
    unready_reason: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
) -> Router {
    let (admin, _) = admin::routes().split_for_parts();
    let (arm, _) = arm::routes().split_for_parts();
    let document: Arc<str> = openapi::text().into();
    let ready = move || {
        let reason = unready_reason();
        async move {
            match reason {
                None => ApiResponse::empty_object().into_response(),
                Some(why) => ApiError::internal(format!("not ready: {why}")).into_response(),
            }
        }
    };
    admin
        .with_state(admin_state)
        .merge(arm.with_state(arm_state))
        .route("/openapi.json", get(move || openapi_document(document.clone())))
        .route("/healthz/ready", get(ready))
        .route_layer(from_fn(attach_route))
        .fallback(path_not_found)
        .method_not_allowed_fallback(method_not_allowed)
}

async fn openapi_document(document: Arc<str>) -> Response {
    let mut response = document.to_string().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Passes the matched route to the request pipeline, for the metrics and the access log.
async fn attach_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}

async fn path_not_found() -> ApiError {
    ApiError::not_found("There is nothing at this path.")
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        Code::MethodNotAllowed,
        "This path does not know that method; the header Allow lists those it knows.",
    )
}
