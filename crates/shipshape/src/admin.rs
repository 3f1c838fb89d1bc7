//! The health and metrics endpoint: `/livez`, `/readyz`, `/metrics`, `/version`.
//!
//! It must answer when everything else is in trouble and must never be the trouble itself: connections
//! are few, short and never kept, so neither a slow client nor many of them delay a shutdown. It asks for
//! no credentials, and so says nothing that a stranger on the network should not hear.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::listening::Listen;
use crate::metrics::Metrics;
use crate::readiness::Readiness;
use crate::version::Version;

/// Probes and scrapers are a handful; more wait in the system's queue.
const CONNECTIONS_MAX: usize = 64;

/// A client that has not said what it wants by then is not a probe.
const HEADER_TIME_MAX: Duration = Duration::from_secs(5);

/// A whole exchange takes milliseconds; this ends those that never read their answer.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long answers under way may still take when the endpoint closes.
const CLOSING_TIME_MAX: Duration = Duration::from_millis(500);

/// How long to wait when the system has no connection to give, such as when files run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The endpoint, bound but not yet answering.
#[derive(Debug)]
pub(crate) struct Admin {
    listener: TcpListener,
    address: SocketAddr,
    router: Router,
}

#[derive(Debug, Clone)]
struct Facts {
    readiness: Readiness,
    metrics: Metrics,
}

impl Admin {
    /// Takes the address, or says in a sentence why it cannot be had.
    pub(crate) async fn bind(
        listen: SocketAddr,
        readiness: Readiness,
        metrics: Metrics,
    ) -> anyhow::Result<Admin> {
        let listener = Listen { key: "health.listen", flag: "--health", address: listen }.bind().await?;
        let address = listener.local_addr()?;
        Ok(Admin { listener, address, router: router(Facts { readiness, metrics }) })
    }

    /// The base URL at which a client on this machine reaches the endpoint.
    pub(crate) fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // "All addresses" is for listening; a client needs one of them.
            let loopback: (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
            address.set_ip(if address.is_ipv4() { loopback.0 } else { loopback.1 });
        }
        format!("http://{address}")
    }

    /// Answers until `shutdown`.
    pub(crate) async fn serve(self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(exchange(stream, self.router.clone(), shutdown.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(error = %error, "The health endpoint could not accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        let closed = async { while connections.join_next().await.is_some() {} };
        // Whatever is left after that is a client that does not read; dropping the set ends it.
        let _ = tokio::time::timeout(CLOSING_TIME_MAX, closed).await;
        Ok(())
    }
}

/// One request and its answer on one connection.
async fn exchange(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let answered = async {
        let mut connection = pin!(connection);
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    // That a client went away or was too slow concerns nobody.
    let _ = tokio::time::timeout(EXCHANGE_TIME_MAX, answered).await;
}

fn router(facts: Facts) -> Router {
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
        .with_state(facts)
}

async fn ready(State(facts): State<Facts>) -> Response {
    let obstacles = facts.readiness.obstacles();
    if obstacles.is_empty() {
        return "ready\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", obstacles.join("\n"))).into_response()
}

async fn metrics(State(facts): State<Facts>) -> Response {
    match facts.metrics.to_text() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics could not be written\n").into_response(),
    }
}

async fn version() -> Response {
    axum::Json(Version::current()).into_response()
}

#[cfg(test)]
mod tests;
