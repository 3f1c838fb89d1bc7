//! Health of clusters, from the record that the monitor keeps.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;

use crate::doc::{CollectorError, HealthCause, NodeCount, ObservedHealth, PoolHealth, ReachabilityFailure};
use crate::health::{CURRENT_WITHIN, HealthSample, HealthStatus};

/// The health of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHealth {
    /// `healthy`, `degraded`, `unreachable` or `unknown`.
    #[schema(value_type = String)]
    pub status: HealthStatus,
    /// When it was observed last.
    #[schema(value_type = String, format = DateTime)]
    pub observed_at: Timestamp,
    /// Since when the API server responds, or does not.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// Why it is not healthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub causes: Vec<HealthCause>,
    /// Why the API server does not answer: `dns`, `connect`, `tls`, `auth`, `http` or `timeout`.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub failure: Option<ReachabilityFailure>,
    /// Nodes by role.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = Object)]
    pub nodes: BTreeMap<String, NodeCount>,
    /// Machine config pools that are updating or degraded.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub pools: Option<PoolHealth>,
    /// Firing critical alerts.
    #[serde(default)]
    pub critical_alerts: Option<Vec<String>>,
    /// Days until the first certificate ends.
    #[serde(default)]
    pub certificate_days: Option<i64>,
    /// What would block or endanger drains of nodes.
    #[serde(default)]
    pub drain_risks: Option<Vec<String>>,
    /// Collectors of the monitor that failed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub collector_errors: Vec<CollectorError>,
}

impl From<&HealthSample> for ClusterHealth {
    fn from(sample: &HealthSample) -> ClusterHealth {
        let observed = sample.details.observed.as_deref().cloned().unwrap_or_default();
        let status = sample.status();
        let ObservedHealth {
            failure,
            nodes,
            pools,
            critical_alerts,
            certificate_days,
            drain_risks,
            mut causes,
            collector_errors,
            ..
        } = observed;
        if let Some(message) = sample.details.message.clone().filter(|_| !sample.reachable) {
            causes.insert(0, HealthCause { kind: "apiserver".to_owned(), message, expected: false });
        }
        ClusterHealth {
            status,
            observed_at: sample.at,
            since: sample.since,
            causes,
            failure,
            nodes,
            pools,
            critical_alerts,
            certificate_days,
            drain_risks,
            collector_errors,
        }
    }
}

impl ClusterHealth {
    /// Whether nobody has observed the cluster for some minutes.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        now.duration_since(self.observed_at) > CURRENT_WITHIN
    }

    /// Ready nodes, and all.
    pub fn node_totals(&self) -> (u32, u32) {
        let sum = |of: fn(&NodeCount) -> u32| self.nodes.values().map(of).fold(0, u32::saturating_add);
        (sum(|it| it.ready), sum(|it| it.total))
    }

    /// The first cause that maintenance does not explain, else the first.
    pub fn main_cause(&self) -> Option<&str> {
        let unexpected = self.causes.iter().find(|it| !it.expected);
        unexpected.or(self.causes.first()).map(|it| it.message.as_str())
    }
}

/// The health of a cluster with its history.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthForm {
    /// The resource id of the cluster.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its health; absent until it was observed.
    #[serde(default)]
    pub health: Option<ClusterHealth>,
    /// Share of the last 30 days in which it was reachable, as far as it is known.
    #[serde(default)]
    pub availability: Option<f64>,
    /// Transitions, newest first.
    pub history: Vec<HealthTransition>,
}

/// A transition: something about the health of a cluster became different.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthTransition {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What: `status`, `reachability`, `version`, `nodes`, `operators`, `pools`, `alerts` or `certificates`.
    pub facet: String,
    /// The value before.
    #[serde(default)]
    pub previous: Option<String>,
    /// The value since.
    pub value: String,
    /// Whether maintenance was running on the cluster.
    pub expected: bool,
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_form_shows_the_record_and_why_a_cluster_is_unreachable() {
        let at: Timestamp = "2026-11-19T04:00:00Z".parse().unwrap();
        let details = json!({"message": "no response", "observed": {"failure": "timeout",
            "nodes": {"worker": {"ready": 2, "total": 3}}, "certificateDays": 50}});
        let sample =
            HealthSample { cluster: Uuid::nil(), at, reachable: false, since: at, details: details.into() };
        let health = ClusterHealth::from(&sample);
        assert_eq!((health.status, health.main_cause()), (HealthStatus::Unreachable, Some("no response")));
        assert_eq!((health.node_totals(), health.failure), ((2, 3), Some(ReachabilityFailure::Timeout)));
        assert!(!health.is_stale(at + SignedDuration::from_mins(3)));
        assert!(health.is_stale(at + SignedDuration::from_mins(4)));
        let text = serde_json::to_value(&health).unwrap();
        assert_eq!((&text["status"], &text["certificateDays"]), (&json!("unreachable"), &json!(50)));
        assert_eq!(serde_json::from_value::<ClusterHealth>(text).unwrap(), health);
    }
}
