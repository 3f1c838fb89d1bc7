//! The resource manager's API, for customers. One file for each subject. The types, validation rules and converters of its versions are
//! in `api::rest`.

mod cloud_checks;
mod clusters;
mod credentials;
mod delete;
mod headers;
mod link;
mod operations;
mod params;
mod preflight;
mod provider;
mod response_cache;
mod role_sets;
mod state_rules;
mod subscriptions;
mod versions;
mod write;

use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use api::rest::{ApiVersion, ValidationContext};
use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use store::{Reader, Store};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::cluster_form::ClusterForms;
use crate::config::Config;
use crate::install_catalog::InstallCatalog;
use crate::server::{CloudRoles, Deps};
use crate::wire::{ApiError, ApiRequest, Code};
use response_cache::ResponseCache;

/// The release of this service, as stored in the clusters it creates.
const BUILD: &str = env!("CARGO_PKG_VERSION");

/// The provider's name in generated ids.
const PROVIDER: &str = "Microsoft.RedHatOpenShift";

/// The state that the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct ArmState {
    store: Store,
    clock: SharedClock,
    cloud: Option<CloudRoles>,
    install_catalog: InstallCatalog,
    settings: Arc<ArmSettings>,
    responses: ResponseCache,
    /// For requests with `api-version=admin`.
    cluster_forms: ClusterForms,
}

/// The configuration that the handlers need.
#[derive(Debug)]
struct ArmSettings {
    locations: Vec<String>,
    zone: Option<String>,
    small_workers: bool,
    retry_after: u32,
}

impl ArmState {
    pub(crate) fn new(
        config: &Config,
        deps: &Deps,
        install_catalog: InstallCatalog,
        cluster_forms: ClusterForms,
    ) -> ArmState {
        ArmState {
            store: deps.store.clone(),
            clock: deps.clock.clone(),
            cloud: deps.cloud.clone(),
            install_catalog,
            responses: ResponseCache::default(),
            settings: Arc::new(ArmSettings {
                locations: config.locations.clone(),
                zone: config.zone.clone(),
                small_workers: config.small_workers,
                retry_after: config.retry_after_seconds,
            }),
            cluster_forms,
        }
    }

    fn reader(&self) -> &Reader {
        &self.store
    }

    /// The context of the validation rules.
    fn validation_context<'a>(
        &'a self,
        path: &'a str,
        stored: Option<&'a api::doc::Cluster>,
    ) -> ValidationContext<'a> {
        ValidationContext {
            path,
            locations: &self.settings.locations,
            zone: self.settings.zone.as_deref(),
            small_workers: self.settings.small_workers,
            stored,
        }
    }
}

/// The api-version of a request.
fn version(request: &ApiRequest) -> Result<ApiVersion, ApiError> {
    let mut named = request.query.get_all("api-version");
    match (named.next().and_then(ApiVersion::named), named.next()) {
        (Some(version), None) => Ok(version),
        _ => {
            let known = ApiVersion::ALL.map(ApiVersion::as_str).join(", ");
            let message = format!("The api-version is missing, or is none that this resource has: {known}.");
            Err(ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidResourceType, message)
                .with_target("api-version"))
        }
    }
}

/// Whether a request has `api-version=admin`.
fn is_admin(request: &ApiRequest) -> bool {
    let mut named = request.query.get_all("api-version");
    named.next() == Some("admin") && named.next().is_none()
}

/// A response without a body, with the content type of every response.
fn empty(status: StatusCode) -> Response {
    let json = HeaderValue::from_static("application/json");
    (status, [(header::CONTENT_TYPE, json)]).into_response()
}

/// Wait before the next attempt at a write after another writer was faster.
fn retry_delay(attempt: u32) -> Duration {
    Duration::from_millis(100) * attempt
}

/// All routes with their OpenAPI descriptions.
pub(crate) fn routes() -> OpenApiRouter<ArmState> {
    OpenApiRouter::new()
        .routes(routes!(provider::operations))
        .routes(routes!(subscriptions::put))
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::list_in_group))
        .routes(routes!(clusters::show, write::put, write::patch, delete::delete))
        .routes(routes!(credentials::list_credentials))
        .routes(routes!(credentials::list_admin_credentials))
        .routes(routes!(operations::status))
        .routes(routes!(operations::result))
        .routes(routes!(versions::list))
        .routes(routes!(versions::show))
        .routes(routes!(role_sets::list))
        .routes(routes!(role_sets::show))
        .routes(routes!(preflight::preflight))
}
