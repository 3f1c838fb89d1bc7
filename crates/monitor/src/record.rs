//! The health record of a cluster, made from what its visits found.

use std::collections::BTreeMap;

use api::doc::{CollectorError, HealthCause, HealthDetails, ObservedHealth, ReachabilityFailure};
use api::health::HealthSample;
use jiff::Timestamp;
use uuid::Uuid;

use crate::collect::Fact;
use crate::visit::Probe;

/// Longest text of an error in the record.
const MESSAGE_MAX: usize = 300;

/// Most causes and errors in a record.
const CAUSES_MAX: usize = 50;

/// What a collector found last, for the record.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct LastFindings {
    pub(crate) facts: Vec<Fact>,
    pub(crate) causes: Vec<HealthCause>,
}

/// What the record of a visit is made from.
#[derive(Debug)]
pub(crate) struct Observation<'a> {
    pub(crate) cluster: Uuid,
    pub(crate) at: Timestamp,
    pub(crate) observer: Uuid,
    pub(crate) maintenance: Option<Uuid>,
    pub(crate) probe: &'a Probe,
    /// What each collector found last.
    pub(crate) kept: &'a BTreeMap<&'static str, LastFindings>,
    /// Collectors that failed in this visit.
    pub(crate) errors: Vec<CollectorError>,
}

/// The sample after an observation. Of an unreachable cluster it keeps what was observed last.
pub(crate) fn sample(before: Option<&HealthSample>, observation: Observation<'_>) -> HealthSample {
    let Observation { cluster, at, observer, maintenance, probe, kept, errors } = observation;
    let details = before.map(|it| it.details.clone()).unwrap_or_default();
    let reachable = probe.is_reachable();
    let failure = probe.failure.as_ref().map(|(failure, _)| *failure);
    let message = probe.failure.as_ref().map(|(_, message)| cut(message));
    let (mut version, other) = (details.version, details.other);
    let observed = if reachable {
        let mut observed = ObservedHealth::default();
        for found in kept.values() {
            found.facts.iter().for_each(|fact| fact.clone().apply(&mut version, &mut observed));
            observed.causes.extend(found.causes.iter().cloned());
        }
        if let Some(message) = &message {
            observed.causes.insert(0, api_server_cause(message, &probe.failed_checks));
        }
        observed.causes.truncate(CAUSES_MAX);
        observed.collector_errors = errors;
        observed.collector_errors.truncate(CAUSES_MAX);
        observed
    } else {
        let observed = details.observed.map(|it| *it).unwrap_or_default();
        ObservedHealth { causes: Vec::new(), collector_errors: Vec::new(), ..observed }
    };
    let observed = ObservedHealth { failure, maintenance, observer: Some(observer), ..observed };
    let message = message.filter(|_| !reachable);
    let details = HealthDetails { version, message, observed: Some(Box::new(observed)), other };
    HealthSample { cluster, at, reachable, since: at, details }
}

fn api_server_cause(message: &str, checks: &[String]) -> HealthCause {
    let checks =
        if checks.is_empty() { String::new() } else { format!("; failing checks: {}", checks.join(", ")) };
    let message = cut(&format!("{message}{checks}"));
    HealthCause { kind: "apiserver".to_owned(), message, expected: false }
}

/// The error of a collector.
pub(crate) fn collector_error(collector: &str, message: &str) -> CollectorError {
    CollectorError { collector: collector.to_owned(), message: cut(message) }
}

fn cut(text: &str) -> String {
    let end = (0..=MESSAGE_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text[..end].replace('\0', "")
}

/// Whether two samples say the same, apart from their times.
pub(crate) fn is_same(a: &HealthSample, b: &HealthSample) -> bool {
    a.reachable == b.reachable && a.details == b.details
}

/// The label of a failure in `apiserver_reachability`.
pub(crate) fn reachability_label(failure: Option<ReachabilityFailure>) -> &'static str {
    failure.map_or("ok", ReachabilityFailure::as_str)
}

#[cfg(test)]
mod tests {
    use api::health::HealthStatus;

    use super::*;

    fn probe(code: u16, ping: Option<u16>) -> Probe {
        let failure = (code != 200).then(|| (ReachabilityFailure::Http, format!("/healthz returned {code}")));
        Probe { code, ping, failed_checks: vec!["etcd".to_owned()], failure }
    }

    fn observe(
        before: Option<&HealthSample>,
        probe: &Probe,
        kept: &BTreeMap<&'static str, LastFindings>,
    ) -> HealthSample {
        let at = Timestamp::UNIX_EPOCH;
        let observation = Observation {
            cluster: Uuid::nil(),
            at,
            observer: Uuid::nil(),
            maintenance: None,
            probe,
            kept,
            errors: vec![collector_error("pods", &"x".repeat(1000))],
        };
        sample(before, observation)
    }

    #[test]
    fn a_record_holds_what_the_collectors_found_and_keeps_it_while_the_cluster_is_unreachable() {
        let cause = HealthCause { kind: "nodes".to_owned(), message: "one".to_owned(), expected: false };
        let found = LastFindings {
            facts: vec![
                Fact::Version("v1.37.1".to_owned()),
                Fact::CertificateDays(90),
                Fact::CertificateDays(50),
            ],
            causes: vec![cause],
        };
        let kept = BTreeMap::from([("nodes", found)]);
        let first = observe(None, &probe(200, None), &kept);
        let observed = first.details.observed.clone().unwrap();
        assert_eq!((first.status(), observed.certificate_days), (HealthStatus::Degraded, Some(50)));
        assert_eq!(observed.collector_errors[0].message.len(), MESSAGE_MAX);

        let away = observe(Some(&first), &probe(0, Some(0)), &BTreeMap::new());
        assert_eq!(
            (away.status(), away.details.version.as_deref()),
            (HealthStatus::Unreachable, Some("v1.37.1"))
        );
        assert_eq!(away.details.message.as_deref(), Some("/healthz returned 0"));
        let observed = away.details.observed.unwrap();
        assert_eq!((observed.certificate_days, observed.causes.len()), (Some(50), 0));
        assert_eq!(observed.failure, Some(ReachabilityFailure::Http));
    }

    #[test]
    fn a_server_that_answers_ping_and_fails_a_check_is_reachable_and_degraded() {
        let sample = observe(None, &probe(500, Some(200)), &BTreeMap::new());
        assert_eq!(sample.status(), HealthStatus::Degraded);
        let observed = sample.details.observed.unwrap();
        assert_eq!(observed.causes[0].message, "/healthz returned 500; failing checks: etcd");
        assert_eq!(sample.details.message, None);
    }
}
