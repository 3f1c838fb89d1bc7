//! The last observation of a cluster, and the transitions between observations.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::doc::{HealthDetails, ObservedHealth};

/// Most bytes of a facet's value; lists of names are cut.
const VALUE_MAX: usize = 200;

/// Certificates that end within this many days make a cluster degraded.
pub const CERTIFICATE_DAYS_MIN: i64 = 30;

/// The last observation of a cluster. It is stored apart from the document: a sample every minute must not raise
/// the etag or notify the readers of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthSample {
    /// The cluster.
    pub cluster: Uuid,
    /// Time of the observation; the store's clock when it is written.
    pub at: Timestamp,
    /// Whether the API server responded.
    pub reachable: bool,
    /// Since when `reachable` has this value; maintained by the store.
    pub since: Timestamp,
    /// Details of the observation.
    pub details: HealthDetails,
}

/// The health of a cluster in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HealthStatus {
    /// Nothing is wrong that maintenance does not explain.
    Healthy,
    /// Something is wrong; the causes say what.
    Degraded,
    /// Its API server does not answer.
    Unreachable,
    /// It was reached, and nothing more is known.
    Unknown,
}

impl HealthStatus {
    /// Its stored and displayed form.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthStatus::Healthy => "healthy",
            HealthStatus::Degraded => "degraded",
            HealthStatus::Unreachable => "unreachable",
            HealthStatus::Unknown => "unknown",
        }
    }
}

impl fmt::Display for HealthStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An aspect of a cluster's health whose transitions are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HealthFacet {
    /// Its status.
    Status,
    /// Why its API server does not answer.
    Reachability,
    /// Its version of Kubernetes.
    Version,
    /// Ready nodes of all.
    Nodes,
    /// Operators that are degraded or not available.
    Operators,
    /// Machine config pools that are updating or degraded.
    Pools,
    /// Critical alerts.
    Alerts,
    /// Whether certificates end soon.
    Certificates,
}

impl HealthFacet {
    /// Its stored form.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthFacet::Status => "status",
            HealthFacet::Reachability => "reachability",
            HealthFacet::Version => "version",
            HealthFacet::Nodes => "nodes",
            HealthFacet::Operators => "operators",
            HealthFacet::Pools => "pools",
            HealthFacet::Alerts => "alerts",
            HealthFacet::Certificates => "certificates",
        }
    }
}

/// The present value of a facet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthFacetValue {
    /// The facet.
    pub facet: HealthFacet,
    /// Its value, a short text.
    pub value: String,
    /// Whether maintenance was running on the cluster.
    pub expected: bool,
}

/// A transition: a facet got another value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HealthEvent {
    /// The cluster.
    pub cluster: Uuid,
    /// When it was written.
    pub at: Timestamp,
    /// Name of the facet; of other releases also one that this release does not know.
    pub facet: String,
    /// The value before; none for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
    /// The value since.
    pub value: String,
    /// Whether maintenance was running on the cluster.
    pub expected: bool,
}

/// Age up to which the monitor's record is current: three of its intervals.
pub const CURRENT_WITHIN: SignedDuration = SignedDuration::from_mins(3);

impl HealthSample {
    /// Whether the monitor has just observed the cluster, so that nobody else needs to contact it to learn how it is.
    pub fn is_monitored(&self, now: Timestamp) -> bool {
        let is_observed = self.details.observed.as_ref().is_some_and(|it| it.observer.is_some());
        is_observed && now.duration_since(self.at) <= CURRENT_WITHIN
    }

    /// The health in one word.
    pub fn status(&self) -> HealthStatus {
        if !self.reachable {
            return HealthStatus::Unreachable;
        }
        match &self.details.observed {
            None => HealthStatus::Unknown,
            Some(observed) if observed.causes.iter().any(|cause| !cause.expected) => HealthStatus::Degraded,
            Some(_) => HealthStatus::Healthy,
        }
    }

    /// The values whose transitions are recorded. A facet that was not observed is absent, so that it does not seem to change.
    pub fn facets(&self) -> Vec<HealthFacetValue> {
        let observed = self.details.observed.as_deref();
        let expected = observed.is_some_and(|it| it.maintenance.is_some());
        let mut facets = Vec::new();
        let mut add = |facet, value: String| facets.push(HealthFacetValue { facet, value, expected });
        add(HealthFacet::Status, self.status().as_str().to_owned());
        if self.reachable {
            add(HealthFacet::Reachability, "ok".to_owned());
        } else if let Some(failure) = observed.and_then(|it| it.failure) {
            add(HealthFacet::Reachability, failure.as_str().to_owned());
        }
        if let Some(version) = &self.details.version {
            add(HealthFacet::Version, cut(version.clone()));
        }
        // What an unreachable cluster showed last is not an observation.
        if let Some(observed) = observed.filter(|_| self.reachable) {
            add_observed(observed, &mut add);
        }
        facets
    }
}

fn add_observed(observed: &ObservedHealth, add: &mut impl FnMut(HealthFacet, String)) {
    if !observed.nodes.is_empty() {
        let (ready, total) = observed.node_totals();
        add(HealthFacet::Nodes, format!("{ready}/{total}"));
    }
    let names = |names: &[String]| if names.is_empty() { "ok".to_owned() } else { cut(names.join(", ")) };
    if let Some(operators) = &observed.degraded_operators {
        add(HealthFacet::Operators, names(operators));
    }
    if let Some(pools) = &observed.pools {
        let updating = pools.updating.iter().map(|it| format!("{it} updating"));
        let degraded = pools.degraded.iter().map(|it| format!("{it} degraded"));
        add(HealthFacet::Pools, names(&updating.chain(degraded).collect::<Vec<_>>()));
    }
    if let Some(alerts) = &observed.critical_alerts {
        add(HealthFacet::Alerts, names(alerts));
    }
    if let Some(days) = observed.certificate_days {
        // Not the number of days, which changes every day.
        let value = match days {
            ..0 => "expired",
            0..CERTIFICATE_DAYS_MIN => "expire within 30 days",
            CERTIFICATE_DAYS_MIN.. => "ok",
        };
        add(HealthFacet::Certificates, value.to_owned());
    }
}

fn cut(mut text: String) -> String {
    if text.len() > VALUE_MAX {
        let end = (0..=VALUE_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text.retain(|it| it != '\0');
    text
}

/// Share of the time from `from` to `to` in which the cluster was not unreachable, by the transitions of its status; none when its
/// status was not known for any of that time. Time before the first known status is not counted.
pub fn availability(events: &[HealthEvent], from: Timestamp, to: Timestamp) -> Option<f64> {
    let mut changes: Vec<&HealthEvent> =
        events.iter().filter(|it| it.facet == HealthFacet::Status.as_str()).collect();
    changes.sort_by_key(|it| it.at);
    let is_up = |value: &str| value != HealthStatus::Unreachable.as_str();
    // The status at `from` is that of the last change before it, or the one that the first change after it replaced.
    let (mut at, mut up) = match changes.iter().rev().find(|it| it.at <= from) {
        Some(last) => (from, is_up(&last.value)),
        None => {
            let first = changes.first().filter(|it| it.at < to)?;
            match &first.previous {
                Some(previous) => (from, is_up(previous)),
                None => (first.at, is_up(&first.value)),
            }
        }
    };
    let (mut available, mut known) = (0.0, 0.0);
    let start = at;
    let later = changes.iter().filter(|it| it.at > start && it.at < to).map(|it| (it.at, is_up(&it.value)));
    for (end, next) in later.chain([(to, up)]) {
        let seconds = end.duration_since(at).as_secs_f64().max(0.0);
        known += seconds;
        available += if up { seconds } else { 0.0 };
        (at, up) = (end, next);
    }
    (known > 0.0).then(|| available / known)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn sample(reachable: bool, details: serde_json::Value) -> HealthSample {
        let now = Timestamp::UNIX_EPOCH;
        HealthSample { cluster: Uuid::nil(), at: now, reachable, since: now, details: details.into() }
    }

    #[test]
    fn the_status_follows_from_reachability_and_unexpected_causes() {
        let cause = |expected| json!({"observed": {"causes": [{"kind": "nodes", "message": "1 of 3 not ready", "expected": expected}]}});
        for (sample, expect) in [
            (sample(false, cause(false)), HealthStatus::Unreachable),
            (sample(true, cause(false)), HealthStatus::Degraded),
            (sample(true, cause(true)), HealthStatus::Healthy),
            (sample(true, json!({"version": "v1"})), HealthStatus::Unknown),
        ] {
            assert_eq!(sample.status(), expect, "{sample:?}");
        }
    }

    #[test]
    fn a_record_of_the_monitor_is_current_for_three_of_its_intervals() {
        let observed = sample(false, json!({"observed": {"observer": Uuid::nil()}}));
        let after = |minutes| observed.at + SignedDuration::from_mins(minutes);
        assert!(observed.is_monitored(after(3)) && !observed.is_monitored(after(4)));
        // One that others wrote says nothing about the next minutes.
        assert!(!sample(false, json!({"version": "v1"})).is_monitored(after(0)));
    }

    #[test]
    fn facets_are_of_what_was_observed() {
        let observed = json!({"version": "v1.37.1", "observed": {
            "nodes": {"worker": {"ready": 2, "total": 3}, "master": {"ready": 3, "total": 3}},
            "degradedOperators": ["dns", "etcd"], "certificateDays": 12, "pools": {"updating": ["worker"], "degraded": []},
            "criticalAlerts": [], "causes": []}});
        let texts = |sample: HealthSample| {
            sample.facets().iter().map(|it| format!("{}={}", it.facet.as_str(), it.value)).collect::<Vec<_>>()
        };
        assert_eq!(
            texts(sample(true, observed.clone())),
            [
                "status=healthy",
                "reachability=ok",
                "version=v1.37.1",
                "nodes=5/6",
                "operators=dns, etcd",
                "pools=worker updating",
                "alerts=ok",
                "certificates=expire within 30 days",
            ]
        );
        assert_eq!(texts(sample(false, observed)), ["status=unreachable", "version=v1.37.1"]);
        let long = json!({"version": "é".repeat(300)});
        assert_eq!(sample(true, long).facets()[2].value.len(), VALUE_MAX);
    }

    #[test]
    fn availability_is_the_share_of_known_time() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let event = |second, previous: Option<&str>, value: &str| HealthEvent {
            cluster: Uuid::nil(),
            at: at(second),
            facet: "status".to_owned(),
            previous: previous.map(str::to_owned),
            value: value.to_owned(),
            expected: false,
        };
        let events = [
            event(100, None, "healthy"),
            event(200, Some("healthy"), "unreachable"),
            event(250, Some("unreachable"), "degraded"),
        ];
        let check = |events: &[HealthEvent], from, to, expect: Option<f64>| {
            assert_eq!(availability(events, at(from), at(to)), expect, "{from} to {to}");
        };
        check(&events, 0, 300, Some(0.75));
        check(&events, 200, 250, Some(0.0));
        check(&events, 225, 275, Some(0.5));
        check(&events, 260, 300, Some(1.0));
        check(&events[1..], 150, 250, Some(0.5));
        check(&events, 0, 50, None);
        check(&[], 0, 50, None);
    }
}
