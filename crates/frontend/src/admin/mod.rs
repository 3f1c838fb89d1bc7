//! The Admin API, for operators and their tools. One file for each subject. The OpenAPI document is generated from the same routes.

mod audit;
mod budgets;
mod catalogue;
mod clusters;
mod events;
mod fleet;
mod forms;
mod health;
mod import;
mod manifest_create;
mod manifest_form;
mod manifests;
mod members;
mod objects;
mod operations;
mod params;
mod plan;
mod planning;
mod role_sets;
mod schedules;
mod tasks;
mod timeline;
mod versions;

use std::sync::Arc;

use api::clock::SharedClock;
use kubelink::{AllowedRisks, LinksLimits};
use planner::task::Catalogue;
use steps::ClusterConnections;
use store::{Store, StoreError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use crate::cluster_form::ClusterForms;
use crate::config::Config;
use crate::install_catalog::InstallCatalog;
use crate::metrics::Metrics;
use crate::server::Deps;
use crate::wire::{ApiError, ApiRequest, ApiResponse, PageRequest};

/// Plans that are computed at the same time; others wait.
const PLANS_MAX: usize = 2;

/// The state that the handlers share.
#[derive(Debug, Clone)]
pub(crate) struct AdminState {
    store: Store,
    clock: SharedClock,
    metrics: Metrics,
    locations: Arc<[String]>,
    allow: AllowedRisks,
    catalogue_cache: catalogue::CatalogueCache,
    install_catalog: InstallCatalog,
    cluster_forms: ClusterForms,
    /// The clusters of the fleet list.
    fleet_cache: fleet::FleetCache,
    /// The last verification of the audit log's chain.
    chain_cache: audit::ChainCache,
    /// Connections to clusters, for reads of their objects.
    connections: Arc<ClusterConnections>,
    /// Permits for computations that occupy a core.
    planning: Arc<Semaphore>,
    /// Cancelled at shutdown, so that event streams end.
    closing: CancellationToken,
}

impl AdminState {
    pub(crate) fn new(
        config: &Config,
        deps: &Deps,
        install_catalog: InstallCatalog,
        cluster_forms: ClusterForms,
        closing: CancellationToken,
    ) -> AdminState {
        AdminState {
            store: deps.store.clone(),
            clock: deps.clock.clone(),
            metrics: deps.metrics.clone(),
            locations: config.locations.clone().into(),
            allow: config.allow_kubeconfig.clone(),
            catalogue_cache: catalogue::CatalogueCache::default(),
            install_catalog,
            cluster_forms,
            fleet_cache: fleet::FleetCache::default(),
            chain_cache: audit::ChainCache::default(),
            connections: Arc::new(ClusterConnections::new(
                deps.store.reader(),
                LinksLimits::default(),
                config.allow_kubeconfig.clone(),
                deps.clock.clone(),
            )),
            planning: Arc::new(Semaphore::new(PLANS_MAX)),
            closing,
        }
    }

    /// The current catalogue of tasks.
    async fn catalogue(&self) -> Result<Arc<Catalogue>, StoreError> {
        self.catalogue_cache.catalogue(&self.store).await
    }

    /// The names of these tasks; a deleted task has none.
    fn names(&self, catalogue: &Catalogue, tasks: impl Iterator<Item = Uuid>) -> manifest_form::Names {
        let named = |id: Uuid| catalogue.get(id).map(|task| (id, task.name().to_owned()));
        tasks.filter_map(named).collect()
    }
}

/// A page of the history of a piece of work.
async fn history_page(
    state: &AdminState,
    request: &ApiRequest,
    work: Uuid,
    page: PageRequest<i64>,
) -> Result<ApiResponse, ApiError> {
    let PageRequest { limit, from } = page;
    let entries = state.store.entries(work, from, limit).await?;
    let next = entries.last().filter(|_| entries.len() == limit).map(|(number, _)| *number);
    Ok(request.page_response(entries.into_iter().map(|(_, entry)| entry).collect(), next))
}

/// Runs a check that computes on a thread of its own, so that it does not delay other requests.
async fn offload<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, ApiError> {
    steps::offload_check(move |_| work()).await.ok_or_else(|| ApiError::internal("a check did not complete"))
}

/// All routes with their OpenAPI descriptions.
pub(crate) fn routes() -> OpenApiRouter<AdminState> {
    let cluster = OpenApiRouter::new()
        .routes(routes!(import::import, import::forget))
        .routes(routes!(clusters::label))
        .routes(routes!(clusters::selectors))
        .routes(routes!(health::show))
        .routes(routes!(operations::list))
        .routes(routes!(operations::history))
        .routes(routes!(objects::show))
        .routes(routes!(manifests::list, manifest_create::create))
        .routes(routes!(manifests::show, manifests::delete))
        .routes(routes!(manifests::history))
        .routes(routes!(plan::why))
        .routes(routes!(manifests::cancel))
        .routes(routes!(manifests::expedite));
    OpenApiRouter::new()
        .nest(params::CLUSTER, cluster)
        .routes(routes!(clusters::show_admin))
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::overview))
        .routes(routes!(fleet::fleet))
        .routes(routes!(manifests::list_all))
        .routes(routes!(manifests::queued))
        .routes(routes!(manifests::show_any))
        .routes(routes!(manifests::cancel_batch))
        .routes(routes!(schedules::list, schedules::put))
        .routes(routes!(schedules::preview))
        .routes(routes!(schedules::show, schedules::delete))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::show, tasks::put, tasks::delete))
        .routes(routes!(plan::plan))
        .routes(routes!(timeline::timeline))
        .routes(routes!(audit::list))
        .routes(routes!(audit::chain))
        .routes(routes!(budgets::list))
        .routes(routes!(budgets::show, budgets::set))
        .routes(routes!(budgets::show_scoped, budgets::set_scoped))
        .routes(routes!(events::events))
        .routes(routes!(versions::list, versions::put))
        .routes(routes!(role_sets::list, role_sets::put))
        .routes(routes!(role_sets::sizes))
}
