//! Details of a health sample: what was observed of a cluster when it was last contacted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use super::members::take;

/// Details of a health sample. Any JSON value can be read; members that this release does not know, or that have another
/// form, are kept in `other`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(from = "Value", into = "Value")]
pub struct HealthDetails {
    /// Kubernetes version of the API server. It stays while the cluster is unreachable.
    pub version: Option<String>,
    /// Why the cluster is unreachable.
    pub message: Option<String>,
    /// What the monitor observed; none of a cluster that was only contacted by others. It stays while the cluster is unreachable.
    pub observed: Option<Box<ObservedHealth>>,
    /// Members that other releases wrote.
    pub other: Map<String, Value>,
}

/// What the monitor observed of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObservedHealth {
    /// Why the API server does not answer.
    pub failure: Option<ReachabilityFailure>,
    /// OpenShift's version that the cluster has reached.
    pub openshift_version: Option<String>,
    /// The version that the cluster is to reach.
    pub desired_version: Option<String>,
    /// Version of our operator in the cluster.
    pub operator_version: Option<String>,
    /// Nodes by role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<String, NodeCount>,
    /// ClusterOperators that are degraded or not available; none if the cluster has no such kind.
    pub degraded_operators: Option<Vec<String>>,
    /// Machine config pools; none if the cluster has no such kind.
    pub pools: Option<PoolHealth>,
    /// Names of firing critical alerts; none if alerts could not be read.
    pub critical_alerts: Option<Vec<String>>,
    /// Days until the first certificate ends.
    pub certificate_days: Option<i64>,
    /// The manifest that is running on the cluster.
    pub maintenance: Option<Uuid>,
    /// Conditions of our operator that are not as they should be, as `type=status`.
    pub operator_conditions: Option<Vec<String>>,
    /// What blocks or endangers drains of nodes: budgets that allow no disruption, workloads of a single replica.
    pub drain_risks: Option<Vec<String>>,
    /// Why the cluster is not healthy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<HealthCause>,
    /// Collectors that failed, with their errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collector_errors: Vec<CollectorError>,
    /// The worker that wrote this.
    pub observer: Option<Uuid>,
    /// Members that other releases wrote.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl ObservedHealth {
    /// Ready nodes, and all.
    pub fn node_totals(&self) -> (u32, u32) {
        let sum = |of: fn(&NodeCount) -> u32| self.nodes.values().map(of).fold(0, u32::saturating_add);
        (sum(|it| it.ready), sum(|it| it.total))
    }
}

/// Why an API server does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ReachabilityFailure {
    /// Its name has no address.
    Dns,
    /// No connection could be opened, or it was lost.
    Connect,
    /// TLS failed.
    Tls,
    /// It rejects the credential.
    Auth,
    /// It answers with an error, or what answers is no API server.
    Http,
    /// It did not answer in time.
    Timeout,
}

impl ReachabilityFailure {
    /// Every failure.
    pub const ALL: [ReachabilityFailure; 6] = [
        ReachabilityFailure::Dns,
        ReachabilityFailure::Connect,
        ReachabilityFailure::Tls,
        ReachabilityFailure::Auth,
        ReachabilityFailure::Http,
        ReachabilityFailure::Timeout,
    ];

    /// Its name in metrics and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            ReachabilityFailure::Dns => "dns",
            ReachabilityFailure::Connect => "connect",
            ReachabilityFailure::Tls => "tls",
            ReachabilityFailure::Auth => "auth",
            ReachabilityFailure::Http => "http",
            ReachabilityFailure::Timeout => "timeout",
        }
    }
}

/// Nodes of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeCount {
    /// Those that are ready.
    pub ready: u32,
    /// All.
    pub total: u32,
}

/// Machine config pools that need attention.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolHealth {
    /// Names of those that are updating.
    pub updating: Vec<String>,
    /// Names of those that are degraded.
    pub degraded: Vec<String>,
}

/// A reason why a cluster is not healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCause {
    /// What it is about: `nodes`, `operators`, `certificates`, ...
    pub kind: String,
    /// A sentence for people.
    pub message: String,
    /// Whether the maintenance that is running explains it.
    #[serde(default)]
    pub expected: bool,
}

/// A collector that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectorError {
    /// Its name.
    pub collector: String,
    /// What failed.
    pub message: String,
}

impl HealthDetails {
    /// Details after the API server answered with its version.
    #[must_use]
    pub fn answered(self, version: impl Into<String>) -> HealthDetails {
        HealthDetails { version: Some(version.into()), message: None, ..self }
    }

    /// Details after the API server did not answer.
    #[must_use]
    pub fn unreachable(self, message: Option<String>) -> HealthDetails {
        HealthDetails { message, ..self }
    }

    /// The stored form.
    pub fn to_json(&self) -> Value {
        Value::from(self.clone())
    }
}

impl From<Value> for HealthDetails {
    fn from(value: Value) -> HealthDetails {
        let Value::Object(mut members) = value else { return HealthDetails::default() };
        HealthDetails {
            version: take(&mut members, VERSION),
            message: take(&mut members, MESSAGE),
            observed: take(&mut members, OBSERVED),
            other: members,
        }
    }
}

impl From<HealthDetails> for Value {
    fn from(details: HealthDetails) -> Value {
        let HealthDetails { version, message, observed, other } = details;
        let mut members = other;
        members.extend(version.map(|it| (VERSION.to_owned(), Value::from(it))));
        members.extend(message.map(|it| (MESSAGE.to_owned(), Value::from(it))));
        let observed = observed.and_then(|it| serde_json::to_value(it).ok());
        members.extend(observed.map(|it| (OBSERVED.to_owned(), it)));
        Value::Object(members)
    }
}

const VERSION: &str = "version";
const MESSAGE: &str = "message";
const OBSERVED: &str = "observed";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn samples_of_the_release_before_are_read_and_written_unchanged() {
        for stored in [
            json!({}),
            json!({"version": "v1.30.4"}),
            json!({"message": "no answer"}),
            json!({"version": "v1.30.4", "message": "no answer"}),
        ] {
            assert_eq!(HealthDetails::from(stored.clone()).to_json(), stored);
        }
        assert_eq!(HealthDetails::from(json!("fine")), HealthDetails::default());
        assert_eq!(HealthDetails::from(json!(null)), HealthDetails::default());
    }

    #[test]
    fn the_version_and_unknown_members_survive_an_unreachable_cluster() {
        let stored = json!({"version": "v1.30.4", "nodes": {"ready": 3}, "message": 7});
        let away = HealthDetails::from(stored).unreachable(Some("no answer".to_owned()));
        let expect = json!({"version": "v1.30.4", "nodes": {"ready": 3}, "message": "no answer"});
        assert_eq!(away.to_json(), expect);
        let back = HealthDetails::from(expect).answered("v1.31.0");
        assert_eq!(back.to_json(), json!({"version": "v1.31.0", "nodes": {"ready": 3}}));
    }

    #[test]
    fn what_was_observed_is_read_back_with_members_of_other_releases() {
        let stored = json!({"observed": {"failure": "dns", "nodes": {"worker": {"ready": 1, "total": 2}},
            "causes": [{"kind": "nodes", "message": "1 of 2 not ready", "expected": true}], "later": [1]}});
        let details = HealthDetails::from(stored.clone());
        let observed = details.observed.as_deref().unwrap();
        assert_eq!((observed.failure, observed.node_totals()), (Some(ReachabilityFailure::Dns), (1, 2)));
        assert_eq!(details.to_json(), stored);
        // Another form is kept as it is.
        let other = json!({"observed": {"nodes": 3}});
        assert_eq!(HealthDetails::from(other.clone()).observed, None);
        assert_eq!(HealthDetails::from(other.clone()).to_json(), other);
        for failure in ReachabilityFailure::ALL {
            assert_eq!(json!(failure), failure.as_str());
        }
    }

    proptest! {
        #[test]
        fn details_are_read_back_as_written(
            version in prop::option::of("[a-z0-9.]{0,8}"),
            message in prop::option::of("[a-z ]{0,8}"),
            other in prop::collection::btree_map("x[a-z]{0,4}", 0..9i64, 0..3),
        ) {
            let other = other.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
            let details = HealthDetails { version, message, observed: None, other };
            let text = serde_json::to_string(&details).unwrap();
            prop_assert_eq!(serde_json::from_str::<HealthDetails>(&text).unwrap(), details);
        }
    }
}
