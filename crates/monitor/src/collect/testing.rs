//! For tests of collectors: findings as text.

use serde::de::DeserializeOwned;

use super::Findings;
use crate::visit::Listed;

/// A list as if read from a cluster.
pub(crate) fn listed<T: DeserializeOwned>(items: serde_json::Value) -> Listed<T> {
    Listed { items: serde_json::from_value(items).unwrap(), unreadable: 0 }
}

/// Series as `name{label=value,...} value`, sorted.
pub(crate) fn lines(findings: &Findings) -> Vec<String> {
    let mut lines: Vec<String> = findings
        .series
        .iter()
        .map(|one| {
            let labels: Vec<String> =
                one.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("{}{{{}}} {}", one.metric.name, labels.join(","), one.value)
        })
        .collect();
    lines.sort();
    lines
}

/// The messages of the causes.
pub(crate) fn causes(findings: &Findings) -> Vec<&str> {
    findings.causes.iter().map(|it| it.message.as_str()).collect()
}
