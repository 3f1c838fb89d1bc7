//! The health and metrics endpoint: `/livez`, `/readyz`, `/metrics`, `/version`.
//!
//! It must respond when everything else fails and must never cause a failure itself: connections
//! are few, short and not kept alive, so neither a slow client nor many of them delay a shutdown. It requires
//! no credentials, so it reveals nothing confidential.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serve::{Listener, ListenerLimits, SharedService};
use tokio_util::sync::CancellationToken;

use crate::listening::Listen;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::version::Version;

/// Limits for a handful of probes and scrapers, which send and read quickly; connections are not kept alive.
fn limits() -> ListenerLimits {
    let probe_timeout = Duration::from_secs(5);
    ListenerLimits {
        connections: 64,
        connections_per_address: 32,
        first_byte: probe_timeout,
        head: probe_timeout,
        idle: Duration::ZERO,
        body_pause: probe_timeout,
        stall: 2 * probe_timeout,
        closing: Duration::from_millis(500),
        ..ListenerLimits::default()
    }
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The endpoint, bound but not yet serving.
#[derive(Debug)]
pub(crate) struct HealthServer {
    listener: Listener,
    router: Router,
}

#[derive(Debug, Clone)]
struct HealthState {
    readiness: Readiness,
    /// None where another endpoint serves them.
    metrics: Option<Metrics>,
}

impl HealthServer {
    /// Binds the address.
    pub(crate) async fn bind(
        listen: SocketAddr,
        readiness: Readiness,
        metrics: Option<Metrics>,
    ) -> anyhow::Result<HealthServer> {
        let listener = Listen { key: "health.listen", flag: "--health", address: listen }.bind().await?;
        Ok(HealthServer {
            listener: Listener::new(listener, limits())?,
            router: router(HealthState { readiness, metrics }),
        })
    }

    /// The base URL at which a client on this machine reaches the endpoint.
    pub(crate) fn url(&self) -> String {
        self.listener.url()
    }

    /// Serves until `shutdown`.
    pub(crate) async fn serve(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        self.listener.serve(SharedService(self.router), shutdown).await;
        Ok(())
    }
}

fn router(state: HealthState) -> Router {
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(ready))
        .route("/healthz", get(ready))
        .route("/healthz/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/version", get(version))
        .fallback(async || (StatusCode::NOT_FOUND, "not found; try /livez, /readyz, /metrics or /version\n"))
        .method_not_allowed_fallback(async || {
            (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed here\n")
        })
        .with_state(state)
}

async fn ready(State(state): State<HealthState>) -> Response {
    let obstacles = state.readiness.obstacles();
    if obstacles.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", obstacles.join("\n"))).into_response()
}

async fn metrics(State(state): State<HealthState>) -> Response {
    let Some(metrics) = state.metrics else {
        return (StatusCode::NOT_FOUND, "metrics are served at the address of --metrics\n").into_response();
    };
    match metrics.to_text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response(),
    }
}

async fn version() -> Response {
    axum::Json(Version::current()).into_response()
}

#[cfg(test)]
mod tests;
