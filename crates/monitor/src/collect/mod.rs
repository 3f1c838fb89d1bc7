//! Collectors: each reads some objects of a cluster and returns what it found. The table [`COLLECTORS`] lists them; how to add one is in
//! `docs/how-to/add-a-collector.md`.
//!
//! A collector reads through the [`Visit`] only, decides by a pure function and returns [`Findings`]. It writes nothing, keeps
//! nothing, and does not know the others.

mod alerts;
mod api_extensions;
mod certificates;
mod cluster_certificates;
mod cluster_operators;
mod cluster_version;
mod drain_risk;
mod log_shippers;
mod machine_config_pools;
mod machines;
mod network;
mod nodes;
mod operator;
mod pods;
mod system_workloads;
#[cfg(test)]
pub(crate) mod testing;
mod version;
mod virtual_machines;

use std::collections::BTreeMap;
use std::sync::Arc;

use api::doc::{HealthCause, NodeCount, ObservedHealth, PoolHealth};
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::fleet::MonitoredCluster;
use crate::series::{Metric, Series};
use crate::visit::{FetchError, Fetcher};

pub(crate) use cluster_version::ClusterVersion;

/// Every collector.
pub(crate) static COLLECTORS: &[Collector] = &[
    // Any cluster.
    nodes::COLLECTOR,
    version::COLLECTOR,
    pods::COLLECTOR,
    machines::COLLECTOR,
    certificates::COLLECTOR,
    drain_risk::COLLECTOR,
    // OpenShift.
    cluster_version::COLLECTOR,
    cluster_operators::COLLECTOR,
    machine_config_pools::COLLECTOR,
    operator::COLLECTOR,
    log_shippers::COLLECTOR,
    alerts::COLLECTOR,
    network::COLLECTOR,
    cluster_certificates::COLLECTOR,
    virtual_machines::COLLECTOR,
    // Kubernetes without operators.
    system_workloads::COLLECTOR,
    api_extensions::COLLECTOR,
];

/// A collector.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collector {
    /// Its name in metrics.
    pub(crate) name: &'static str,
    /// Clusters that it is for.
    pub(crate) profile: Profile,
    /// Visits after which it runs again. What it found stays until then.
    pub(crate) every: u32,
    /// What it does.
    pub(crate) run: for<'a> fn(&'a Visit) -> BoxFuture<'a, Result<Findings, FetchError>>,
}

/// Kinds of clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// All.
    Any,
    /// Those that serve `config.openshift.io`.
    OpenShift,
    /// Those that do not.
    Kubernetes,
}

impl Collector {
    /// Whether it is for this cluster.
    pub(crate) fn is_for(&self, is_openshift: bool) -> bool {
        match self.profile {
            Profile::Any => true,
            Profile::OpenShift => is_openshift,
            Profile::Kubernetes => !is_openshift,
        }
    }
}

/// What collectors of one visit share.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) fetcher: Fetcher,
    pub(crate) cluster: Arc<MonitoredCluster>,
    /// Time of the visit.
    pub(crate) now: Timestamp,
    /// The manifest that is running on the cluster.
    pub(crate) maintenance: Option<Uuid>,
    /// `ClusterVersion/version`; none if the cluster is not one of OpenShift.
    pub(crate) cluster_version: Option<ClusterVersion>,
    /// Nodes, which several collectors read.
    pub(crate) nodes: OnceCell<Arc<nodes::Nodes>>,
}

/// What a collector found.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Findings {
    pub(crate) series: Vec<Series>,
    pub(crate) facts: Vec<Fact>,
    pub(crate) causes: Vec<HealthCause>,
    /// Objects that could not be read.
    pub(crate) unreadable: usize,
}

impl Findings {
    /// Adds a series.
    pub(crate) fn add(&mut self, series: Series) {
        self.series.push(series);
    }

    /// Adds a series without labels.
    pub(crate) fn gauge(&mut self, metric: Metric, value: f64) {
        self.add(Series::new(metric, value));
    }

    /// Adds a reason why the cluster is not healthy.
    pub(crate) fn cause(&mut self, kind: &str, message: String, expected: bool) {
        self.causes.push(HealthCause { kind: kind.to_owned(), message, expected });
    }
}

/// A fact for the health record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fact {
    Version(String),
    OpenShiftVersion(String),
    DesiredVersion(String),
    Nodes(BTreeMap<String, NodeCount>),
    DegradedOperators(Vec<String>),
    Pools(PoolHealth),
    CertificateDays(i64),
    CriticalAlerts(Vec<String>),
    OperatorConditions(Vec<String>),
    OperatorVersion(String),
    DrainRisks(Vec<String>),
}

impl Fact {
    /// Writes it into the record; of certificates the first to end counts.
    pub(crate) fn apply(self, version: &mut Option<String>, observed: &mut ObservedHealth) {
        match self {
            Fact::Version(it) => *version = Some(it),
            Fact::OpenShiftVersion(it) => observed.openshift_version = Some(it),
            Fact::DesiredVersion(it) => observed.desired_version = Some(it),
            Fact::Nodes(it) => observed.nodes = it,
            Fact::DegradedOperators(it) => observed.degraded_operators = Some(it),
            Fact::Pools(it) => observed.pools = Some(it),
            Fact::CriticalAlerts(it) => observed.critical_alerts = Some(it),
            Fact::OperatorConditions(it) => observed.operator_conditions = Some(it),
            Fact::OperatorVersion(it) => observed.operator_version = Some(it),
            Fact::DrainRisks(it) => observed.drain_risks = Some(it),
            Fact::CertificateDays(it) => {
                observed.certificate_days = Some(observed.certificate_days.map_or(it, |first| first.min(it)));
            }
        }
    }
}

/// Names for people, at most five of them.
pub(crate) fn some_names(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// `True` and `False` as they are in conditions.
pub(crate) fn as_label(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn collectors_have_different_names_and_run_now_and_then() {
        let names: BTreeSet<&str> = COLLECTORS.iter().map(|it| it.name).collect();
        assert_eq!(names.len(), COLLECTORS.len());
        assert!(COLLECTORS.iter().all(|it| (1..=60).contains(&it.every)));
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names: Vec<String> = (1..8).map(|it| format!("n{it}")).collect();
        assert_eq!(some_names(&names[..2]), "n1, n2");
        assert_eq!(some_names(&names), "n1, n2, n3, n4, n5 and 2 more");
    }
}
