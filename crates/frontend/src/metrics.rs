//! What is counted at the door.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::rest::ApiVersion;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::wire::Query;

/// From a millisecond to half a minute.
const BUCKETS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The metrics of the HTTP API; register them in the registry of this room.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    refused: Counter,
    connections: Gauge,
    streams: Arc<AtomicU64>,
    open_streams: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    method: &'static str,
    route: String,
    version: &'static str,
    code: u16,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            refused: Counter::default(),
            connections: Gauge::default(),
            streams: Arc::default(),
            open_streams: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Registers all of them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests answered, by route and status", self.requests.clone());
        registry.register("request_seconds", "How long answers took", self.seconds.clone());
        registry.register("refused", "Requests of strangers", self.refused.clone());
        registry.register("connections", "Connections that are open", self.connections.clone());
        registry.register("event_streams", "Event streams that are open", self.open_streams.clone());
    }

    /// A request was answered. `route` is a pattern, never a path: labels must not grow with the fleet.
    pub(crate) fn answered(
        &self,
        method: &http::Method,
        route: &str,
        query: Option<&str>,
        code: u16,
        took: Duration,
    ) {
        let (method, version) = (method_name(method), version_name(query));
        let labels = Labels { method, route: route.to_owned(), version, code };
        self.requests.get_or_create(&labels).inc();
        self.seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    pub(crate) fn refused(&self) {
        self.refused.inc();
    }

    pub(crate) fn connections(&self, open: usize) {
        self.connections.set(i64::try_from(open).unwrap_or(i64::MAX));
    }

    /// Counts an event stream in until the guard is dropped; none when as many are open as may.
    pub(crate) fn stream(&self, most: u64) -> Option<StreamGuard> {
        let room = |open: u64| (open < most).then_some(open + 1);
        self.streams.fetch_update(Ordering::SeqCst, Ordering::SeqCst, room).ok()?;
        self.open_streams.inc();
        Some(StreamGuard { metrics: self.clone() })
    }
}

/// Counts one open event stream.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    metrics: Metrics,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.metrics.streams.fetch_sub(1, Ordering::SeqCst);
        self.metrics.open_streams.dec();
    }
}

/// The api-version that a request names. Those that nobody knows share one label.
fn version_name(query: Option<&str>) -> &'static str {
    let Ok(query) = Query::parse(query) else { return "other" };
    let Some(named) = query.all("api-version").next() else { return "none" };
    let others = ["admin", "2.0"];
    let known = ApiVersion::ALL.into_iter().map(ApiVersion::as_str).chain(others);
    known.into_iter().find(|it| *it == named).unwrap_or("other")
}

/// Methods that nobody knows share one label.
fn method_name(method: &http::Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "PUT" => "PUT",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_nobody_knows_share_one_label() {
        for (query, expect) in [
            (None, "none"),
            (Some("a=b"), "none"),
            (Some("api-version=2025-07-25&a=b"), "2025-07-25"),
            (Some("api-version=admin"), "admin"),
            (Some("api-version=2031-01-01"), "other"),
            (Some("api-version=%ff"), "other"),
        ] {
            assert_eq!(version_name(query), expect, "{query:?}");
        }
    }
}
