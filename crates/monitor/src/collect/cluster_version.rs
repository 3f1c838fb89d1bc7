//! `ClusterVersion/version` of OpenShift: versions and conditions. It is read before all collectors.

use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile, Visit};
use crate::series::{Metric, Series};
use crate::visit::{Condition, FetchError, Fetcher};

const CONDITIONS: Metric = Metric {
    name: "clusterversion_conditions",
    help: "1 for each condition of the ClusterVersion that is not as it should be",
};
const VERSIONS: Metric = Metric { name: "cluster_versions", help: "Versions of the cluster" };
const MAJOR_5: Metric = Metric {
    name: "cluster_openshift5_versions",
    help: "Versions of a cluster that is, or is to be, OpenShift 5",
};
const SUMMARY: Metric = Metric { name: "cluster_summary", help: "What the cluster is" };

pub(super) const COLLECTOR: Collector = Collector {
    name: "cluster-version",
    profile: Profile::OpenShift,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let nodes = visit.nodes().await?;
            let count = |role: &str| nodes.items.iter().filter(|it| it.role() == role).count();
            Ok(visit.cluster_version.as_ref().map_or_else(Findings::default, |version| {
                decide(version, visit, count("master"), count("worker"))
            }))
        })
    },
};

/// The ClusterVersion, as far as it is read.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct ClusterVersion {
    spec: Spec,
    status: Status,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    desired_update: Option<Release>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Status {
    desired: Release,
    history: Vec<HistoryEntry>,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Release {
    version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
struct HistoryEntry {
    state: String,
    version: String,
}

impl ClusterVersion {
    /// Reads it; none if the cluster is not one of OpenShift.
    pub(crate) async fn read(fetcher: &Fetcher) -> Result<Option<ClusterVersion>, FetchError> {
        fetcher.object("/apis/config.openshift.io/v1/clusterversions/version").await
    }

    /// The version that was reached last; the history is newest first.
    pub(crate) fn actual(&self) -> &str {
        let completed = self.status.history.iter().find(|it| it.state == "Completed");
        completed.map_or("", |it| &it.version)
    }

    /// The version to reach.
    pub(crate) fn desired(&self) -> &str {
        let requested = self.spec.desired_update.as_ref().map(|it| it.version.as_str());
        requested.filter(|it| !it.is_empty()).unwrap_or(&self.status.desired.version)
    }
}

/// `4.17` of `4.17.3`.
fn minor(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn is_expected(condition: &Condition) -> bool {
    match condition.kind.as_str() {
        "Available" | "Upgradeable" => condition.status == "True",
        "Progressing" | "Degraded" | "Failing" => condition.status == "False",
        // Others say more about an update than about health.
        _ => true,
    }
}

fn decide(version: &ClusterVersion, visit: &Visit, masters: usize, workers: usize) -> Findings {
    let mut findings = Findings::default();
    let (actual, desired) = (version.actual(), version.desired());
    let provisioned = visit.cluster.provisioned.as_ref();
    findings.add(
        Series::new(VERSIONS, 1.0)
            .label("actualVersion", actual.to_owned())
            .label("desiredVersion", desired.to_owned())
            .label("actualMinorVersion", minor(actual))
            .label(
                "provisionedByResourceProviderVersion",
                provisioned.map_or(String::new(), |it| it.provisioned_by.clone()),
            )
            .label("resourceProviderVersion", env!("CARGO_PKG_VERSION")),
    );
    if [actual, desired].iter().any(|it| it.starts_with("5.")) {
        findings.add(
            Series::new(MAJOR_5, 1.0)
                .label("actualVersion", actual.to_owned())
                .label("desiredVersion", desired.to_owned()),
        );
    }
    findings.add(
        Series::new(SUMMARY, 1.0)
            .label("actualVersion", actual.to_owned())
            .label("actualMinorVersion", minor(actual))
            .label("desiredVersion", desired.to_owned())
            .label("masterCount", masters.to_string())
            .label("workerCount", workers.to_string())
            .label("provisioningState", format!("{:?}", visit.cluster.state)),
    );
    for condition in version.status.conditions.iter().filter(|it| !is_expected(it)) {
        findings.add(
            Series::new(CONDITIONS, 1.0)
                .label("status", condition.status_label())
                .label("type", condition.kind.clone())
                .label(
                    "expected",
                    super::as_label(visit.maintenance.is_some() && condition.kind == "Progressing"),
                ),
        );
        if matches!(condition.kind.as_str(), "Available" | "Degraded" | "Failing") {
            findings.cause(
                "version",
                format!("ClusterVersion is {}={}", condition.kind, condition.status),
                false,
            );
        }
    }
    if !actual.is_empty() {
        findings.facts.push(Fact::OpenShiftVersion(actual.to_owned()));
    }
    if !desired.is_empty() {
        findings.facts.push(Fact::DesiredVersion(desired.to_owned()));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn versions_are_the_newest_completed_and_the_requested_one() {
        let read = |value| serde_json::from_value::<ClusterVersion>(value).unwrap();
        let version = read(json!({
            "spec": {"desiredUpdate": {"version": "4.18.1"}},
            "status": {"desired": {"version": "4.17.9"}, "history": [
                {"state": "Partial", "version": "4.18.1"}, {"state": "Completed", "version": "4.17.9"}, {"state": "Completed", "version": "4.16.1"}]},
        }));
        assert_eq!((version.actual(), version.desired()), ("4.17.9", "4.18.1"));
        let version =
            read(json!({"spec": {"desiredUpdate": null}, "status": {"desired": {"version": "4.17.9"}}}));
        assert_eq!((version.actual(), version.desired()), ("", "4.17.9"));
        assert_eq!(minor("4.17.9"), "4.17");
        assert_eq!(minor(""), "");
    }
}
