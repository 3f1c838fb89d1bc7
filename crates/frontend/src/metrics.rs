//! Metrics of the HTTP API.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::rest::ApiVersion;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use serve::ConnectionEvent;

use crate::wire::Query;

/// From a millisecond to half a minute.
const BUCKETS: [f64; 10] = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];

/// The metrics of the HTTP API.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
    seconds: Family<Labels, Histogram>,
    refused: Counter,
    connections: Gauge,
    displaced: Counter,
    turned_away: Counter,
    streams: Arc<Mutex<Streams>>,
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
            displaced: Counter::default(),
            turned_away: Counter::default(),
            streams: Arc::default(),
            open_streams: Gauge::default(),
        }
    }
}

impl Metrics {
    /// Registers all of them.
    pub fn register(&self, registry: &mut Registry) {
        registry.register("requests", "Requests by route and status", self.requests.clone());
        registry.register("request_seconds", "Duration of requests", self.seconds.clone());
        registry.register("refused", "Requests that failed authentication", self.refused.clone());
        registry.register("connections", "Connections that are open", self.connections.clone());
        let help = "Idle connections that new ones displaced";
        registry.register("connections_displaced", help, self.displaced.clone());
        let help = "New connections that were closed because all others had active requests";
        registry.register("connections_refused", help, self.turned_away.clone());
        registry.register("event_streams", "Event streams that are open", self.open_streams.clone());
    }

    /// Counts a request. `route` is a pattern, never a path: labels must not grow with the fleet.
    pub(crate) fn responded(
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

    pub(crate) fn connection(&self, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Open(count) => {
                self.connections.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
            ConnectionEvent::Displaced => {
                self.displaced.inc();
            }
            ConnectionEvent::Rejected => {
                self.turned_away.inc();
            }
        }
    }

    /// Counts an event stream until the guard is dropped; none when the limit is reached, in total or for `network`.
    pub(crate) fn stream(
        &self,
        network: Option<IpAddr>,
        total_max: usize,
        network_max: usize,
    ) -> Option<StreamGuard> {
        let mut streams = self.streams();
        let of_network = network.and_then(|it| streams.per_network.get(&it)).copied().unwrap_or_default();
        if streams.total >= total_max || of_network >= network_max {
            return None;
        }
        streams.total += 1;
        if let Some(network) = network {
            streams.per_network.insert(network, of_network + 1);
        }
        self.open_streams.inc();
        Some(StreamGuard { metrics: self.clone(), network })
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one open event stream.
#[derive(Debug)]
pub(crate) struct StreamGuard {
    metrics: Metrics,
    network: Option<IpAddr>,
}

/// Event streams that are open.
#[derive(Debug, Default)]
struct Streams {
    total: usize,
    per_network: HashMap<IpAddr, usize>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let mut streams = self.metrics.streams();
        streams.total -= 1;
        if let Some(network) = self.network
            && let Some(count) = streams.per_network.get_mut(&network)
        {
            *count -= 1;
            if *count == 0 {
                streams.per_network.remove(&network);
            }
        }
        drop(streams);
        self.metrics.open_streams.dec();
    }
}

/// The api-version label of a request. Unknown versions share one label.
fn version_name(query: Option<&str>) -> &'static str {
    let Ok(query) = Query::parse(query) else { return "other" };
    let Some(named) = query.get_all("api-version").next() else { return "none" };
    let others = ["admin", "2.0"];
    let known = ApiVersion::ALL.into_iter().map(ApiVersion::as_str).chain(others);
    known.into_iter().find(|it| *it == named).unwrap_or("other")
}

/// The method label. Unknown methods share one label.
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
    fn one_client_cannot_use_all_event_streams() {
        let metrics = Metrics::default();
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|it| it.parse::<IpAddr>().ok());
        let mut open: Vec<_> = std::iter::from_fn(|| metrics.stream(one, 5, 3)).collect();
        assert_eq!(open.len(), 3);
        let others = [metrics.stream(two, 5, 3), metrics.stream(None, 5, 3), metrics.stream(None, 5, 3)];
        assert_eq!(others.each_ref().map(Option::is_some), [true, true, false]);
        assert_eq!(metrics.open_streams.get(), 5);
        open.pop();
        assert!(metrics.stream(one, 5, 3).is_some());
        drop((open, others));
        assert_eq!((metrics.open_streams.get(), metrics.streams().per_network.len()), (0, 0));
    }

    #[test]
    fn unknown_versions_share_one_label() {
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
