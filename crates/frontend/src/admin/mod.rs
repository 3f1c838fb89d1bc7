//! The Admin API: what operators and their tools ask. One file for each subject; the OpenAPI document is made from the
//! same routes that answer.

mod audit;
mod budgets;
mod catalogue;
mod clusters;
mod create;
mod events;
mod fleet;
mod forms;
mod import;
mod lines;
mod manifest_form;
mod manifests;
mod objects;
mod openapi;
mod operations;
mod outlook;
pub(crate) mod params;
mod role_sets;
mod schedules;
mod tasks;
mod timeline;
mod versions;

use std::sync::Arc;

use api::clock::SharedClock;
use axum::Router;
use axum::extract::{MatchedPath, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{HeaderValue, StatusCode, header};
use kubelink::{Allow, LinksLimits};
use planner::task::Catalogue;
use steps::lifecycle::Ways;
use store::{Store, StoreError};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

pub use openapi::openapi;

use crate::config::Config;
use crate::metrics::Metrics;
use crate::offer::Offer;
use crate::server::Deps;
use crate::wire::{Answer, Ask, Code, Refusal};

/// So many plans are computed at once; others wait.
const PLANS_MAX: usize = 2;

/// What the routes work with.
#[derive(Debug, Clone)]
pub(crate) struct Desk {
    store: Store,
    clock: SharedClock,
    metrics: Metrics,
    locations: Arc<[String]>,
    allow: Allow,
    shelf: catalogue::Shelf,
    offer: Offer,
    /// What is known of the clusters.
    roll: lines::Roll,
    /// What was found of the audit log's chain.
    chain: audit::Chain,
    /// The ways to clusters, for those who look into one.
    ways: Arc<Ways>,
    /// Turns for what keeps a core busy.
    planning: Arc<Semaphore>,
    /// Cancelled when the door closes; event streams end then.
    closing: CancellationToken,
}

impl Desk {
    pub(crate) fn new(config: &Config, deps: &Deps, offer: Offer, closing: CancellationToken) -> Desk {
        Desk {
            store: deps.store.clone(),
            clock: deps.clock.clone(),
            metrics: deps.metrics.clone(),
            locations: config.locations.clone().into(),
            allow: config.allow_kubeconfig.clone(),
            shelf: catalogue::Shelf::default(),
            offer,
            roll: lines::Roll::default(),
            chain: audit::Chain::default(),
            ways: Arc::new(Ways::new(
                deps.store.reader(),
                LinksLimits::default(),
                config.allow_kubeconfig.clone(),
                deps.clock.clone(),
            )),
            planning: Arc::new(Semaphore::new(PLANS_MAX)),
            closing,
        }
    }

    /// All tasks that there are now.
    async fn catalogue(&self) -> Result<Arc<Catalogue>, StoreError> {
        self.shelf.catalogue(&self.store).await
    }

    /// The names of these tasks; one that is gone has none.
    fn names(&self, catalogue: &Catalogue, tasks: impl Iterator<Item = Uuid>) -> manifest_form::Names {
        let named = |id: Uuid| catalogue.get(id).map(|task| (id, task.name().to_owned()));
        tasks.filter_map(named).collect()
    }
}

/// Does a check that computes off the threads that serve others.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    steps::check_aside(move |_| work()).await.ok_or_else(|| Refusal::internal("a check ended early"))
}

/// Every route, with its description.
fn routes() -> OpenApiRouter<Desk> {
    let cluster = OpenApiRouter::new()
        .routes(routes!(import::import, import::forget))
        .routes(routes!(clusters::label))
        .routes(routes!(clusters::selectors))
        .routes(routes!(operations::list))
        .routes(routes!(operations::history))
        .routes(routes!(objects::show))
        .routes(routes!(manifests::list, create::create))
        .routes(routes!(manifests::show, manifests::delete))
        .routes(routes!(manifests::history))
        .routes(routes!(outlook::why))
        .routes(routes!(manifests::cancel))
        .routes(routes!(manifests::expedite));
    OpenApiRouter::new()
        .nest(params::CLUSTER, cluster)
        .routes(routes!(clusters::show_admin))
        .routes(routes!(clusters::list))
        .routes(routes!(clusters::overview))
        .routes(routes!(lines::fleet))
        .routes(routes!(manifests::list_all))
        .routes(routes!(manifests::queued))
        .routes(routes!(manifests::show_any))
        .routes(routes!(manifests::cancel_batch))
        .routes(routes!(schedules::list, schedules::put))
        .routes(routes!(schedules::preview))
        .routes(routes!(schedules::show, schedules::delete))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::show, tasks::put, tasks::delete))
        .routes(routes!(outlook::plan))
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

/// What answers: the Admin API, the resource manager's beside it, and what both have in common. `ready` says what is not
/// ready yet.
pub(crate) fn router(
    desk: Desk,
    arm: Router,
    ready: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
) -> Router {
    let (router, _) = routes().split_for_parts();
    let document: Arc<str> = openapi::text().into();
    let ready = move || {
        let missing = ready();
        async move {
            match missing {
                None => Answer::done().into_response(),
                Some(why) => Refusal::internal(format!("not ready: {why}")).into_response(),
            }
        }
    };
    router
        .with_state(desk)
        .merge(arm)
        .route("/openapi.json", get(move || describe(document.clone())))
        .route("/healthz/ready", get(ready))
        .route_layer(from_fn(remember_route))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_that_way)
}

/// One cluster in the admin form, at whatever path.
pub(crate) async fn show_cluster(desk: &Desk, ask: &Ask) -> Result<Answer, Refusal> {
    clusters::show_one(desk, ask).await
}

async fn describe(document: Arc<str>) -> Response {
    let mut response = document.to_string().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Tells the gate which route it was, for the metrics.
async fn remember_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}

/// A path that no route has.
async fn nothing_here() -> Refusal {
    Refusal::not_found("There is nothing at this path.")
}

async fn not_that_way() -> Refusal {
    Refusal::new(
        StatusCode::METHOD_NOT_ALLOWED,
        Code::MethodNotAllowed,
        "This path does not know that method; the header Allow lists those it knows.",
    )
}
