//! The API server's version, and how far the kubelets are behind it.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{Collector, Fact, Findings, Profile};
use crate::series::{Metric, Series};

const VERSION: Metric = Metric { name: "kubernetes_version", help: "Version of the API server" };
const SKEW: Metric = Metric {
    name: "node_version_skew",
    help: "Minor versions that the oldest kubelet is behind the API server; negative if one is ahead",
};

/// How many minor versions a kubelet may be behind.
const SKEW_MAX: i64 = 3;

pub(super) const COLLECTOR: Collector = Collector {
    name: "version",
    profile: Profile::Any,
    every: 1,
    run: |visit| {
        Box::pin(async move {
            let version: Version = visit.fetcher.object("/version").await?.unwrap_or_default();
            let nodes = visit.nodes().await?;
            let kubelets =
                nodes.items.iter().map(|it| it.status.node_info.kubelet_version.as_str()).collect();
            Ok(decide(&version.git_version, &kubelets))
        })
    },
};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Version {
    git_version: String,
}

/// Major and minor number of `v1.37.1`.
fn numbers(version: &str) -> Option<(i64, i64)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).split('.');
    let (major, minor) = (parts.next()?, parts.next()?);
    let digits: String = minor.chars().take_while(char::is_ascii_digit).take(6).collect();
    Some((major.parse().ok()?, digits.parse().ok()?))
}

fn decide(version: &str, kubelets: &BTreeSet<&str>) -> Findings {
    let mut findings = Findings::default();
    if version.is_empty() {
        return findings;
    }
    findings.facts.push(Fact::Version(version.chars().take(64).collect()));
    findings.add(Series::new(VERSION, 1.0).label("version", version.to_owned()));
    let Some((major, minor)) = numbers(version) else { return findings };
    let behind =
        kubelets.iter().filter_map(|it| numbers(it)).filter(|it| it.0 == major).map(|it| minor - it.1);
    let skews: Vec<i64> = behind.collect();
    // A kubelet that is ahead is worse than one that is behind: it is not supported at all.
    let ahead = skews.iter().copied().filter(|it| *it < 0).min();
    if let Some(skew) = ahead.or_else(|| skews.iter().copied().max()) {
        findings.gauge(SKEW, skew as f64);
        if skew > SKEW_MAX {
            findings.cause(
                "version",
                format!("the oldest kubelet is {skew} minor versions behind {version}"),
                false,
            );
        } else if skew < 0 {
            findings.cause("version", format!("a kubelet is newer than the API server, {version}"), false);
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::testing::{causes, lines};

    #[test]
    fn kubelets_may_be_three_minor_versions_behind_and_none_ahead() {
        let check = |kubelets: &[&str], skew: Option<&str>, cause: &[&str]| {
            let findings = decide("v1.37.1", &kubelets.iter().copied().collect());
            let expect: Vec<String> = ["kubernetes_version{version=v1.37.1} 1".to_owned()]
                .into_iter()
                .chain(skew.map(|it| format!("node_version_skew{{}} {it}")))
                .collect();
            assert_eq!(lines(&findings), expect, "{kubelets:?}");
            assert_eq!(causes(&findings), cause, "{kubelets:?}");
        };
        check(&["v1.37.0", "v1.34.9"], Some("3"), &[]);
        check(&["v1.33.0+k3s1"], Some("4"), &["the oldest kubelet is 4 minor versions behind v1.37.1"]);
        check(&["v1.38.0", "v1.30.0"], Some("-1"), &["a kubelet is newer than the API server, v1.37.1"]);
        check(&[], None, &[]);
        check(&["", "odd", "v2.x"], None, &[]);
        assert!(decide("", &BTreeSet::new()).series.is_empty());
        assert_eq!(numbers("1.37+"), Some((1, 37)));
    }
}
