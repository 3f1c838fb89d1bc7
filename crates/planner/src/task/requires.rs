//! Requirements of a task on its cluster.

use std::cmp::Ordering;

use api::admin::RequiresForm;
use api::doc::ProvisioningState;
use api::health::{HealthSample, HealthStatus};
use jiff::Timestamp;
use steps::ClusterFacts;

use super::TaskProblem;

/// Rejects invalid requirements, and those that no cluster can meet.
pub(super) fn check_requires(requires: &RequiresForm) -> Result<(), TaskProblem> {
    for (index, state) in requires.provisioning_states.iter().enumerate() {
        let parsed: Result<ProvisioningState, _> = serde_json::from_value(serde_json::json!(state));
        if parsed.is_err() {
            let message = format!(
                "{state:?} is not a provisioning state; there are Creating, Updating, AdminUpdating, Deleting, Succeeded and Failed"
            );
            return Err(TaskProblem::at(format!("requires.provisioningStates[{index}]"), message));
        }
    }
    let bounds =
        [("minimumVersion", &requires.minimum_version), ("maximumVersion", &requires.maximum_version)];
    for (name, bound) in bounds {
        if let Some(bound) = bound
            && Version::read(bound).is_none()
        {
            let message = format!("{bound:?} is not a version such as 1.31 or v1.31.4");
            return Err(TaskProblem::at(format!("requires.{name}"), message));
        }
    }
    if let Some(health) = requires.health.as_ref().filter(|it| *it != HealthStatus::Healthy.as_str()) {
        let message = format!("{health:?} cannot be required of a cluster's health; it can be healthy");
        return Err(TaskProblem::at("requires.health", message));
    }
    let bound = |bound: &Option<String>| bound.as_deref().and_then(Version::read);
    match (bound(&requires.minimum_version), bound(&requires.maximum_version)) {
        (Some(minimum), Some(maximum)) if maximum.compare_to(&minimum) == Ordering::Less => {
            Err(TaskProblem::at(
                "requires.maximumVersion",
                "it is below minimumVersion, so no cluster can meet both",
            ))
        }
        _ => Ok(()),
    }
}

/// Checks the requirements of a task on a cluster with its last health sample; the error is the unmet one.
pub fn requires_met(
    requires: &RequiresForm,
    cluster: &ClusterFacts,
    health: Option<&HealthSample>,
    now: Timestamp,
) -> Result<(), String> {
    let state = serde_json::to_value(cluster.provisioning_state).unwrap_or_default();
    let state = state.as_str().unwrap_or_default();
    let states = &requires.provisioning_states;
    if !states.is_empty() && !states.iter().any(|it| it == state) {
        return Err(format!("the cluster is {state}, and the task requires {}", states.join(" or ")));
    }
    if requires.health.is_some() {
        health_met(health, now)?;
    }
    if requires.minimum_version.is_none() && requires.maximum_version.is_none() {
        return Ok(());
    }
    let Some(text) = &cluster.version else {
        return Err("the cluster's version is not known yet".to_owned());
    };
    let Some(version) = Version::read(text) else {
        return Err(format!("the cluster's version {text} cannot be compared"));
    };
    let bound = |bound: &Option<String>| Some((bound.clone()?, Version::read(bound.as_deref()?)?));
    match (bound(&requires.minimum_version), bound(&requires.maximum_version)) {
        (Some((minimum, bound)), _) if version.compare_to(&bound) == Ordering::Less => {
            Err(format!("the cluster has version {text}, and the task requires at least {minimum}"))
        }
        (_, Some((maximum, bound))) if version.compare_to(&bound) == Ordering::Greater => {
            Err(format!("the cluster has version {text}, and the task requires at most {maximum}"))
        }
        _ => Ok(()),
    }
}

/// Checks that a cluster was just observed to be healthy.
fn health_met(health: Option<&HealthSample>, now: Timestamp) -> Result<(), String> {
    let Some(sample) = health.filter(|it| it.is_monitored(now)) else {
        return Err("no monitor has observed the cluster in the last three minutes, and the task requires it to be healthy"
            .to_owned());
    };
    match sample.status() {
        HealthStatus::Healthy => Ok(()),
        status => {
            let causes = sample.details.observed.iter().flat_map(|it| &it.causes);
            let cause = causes.filter(|it| !it.expected).map(|it| format!(": {}", it.message)).next();
            let cause = cause.unwrap_or_default();
            Err(format!("the task requires a healthy cluster, and it is {status}{cause}"))
        }
    }
}

/// Version as a list of numbers, without a suffix after `-` or `+`.
struct Version(Vec<u64>);

impl Version {
    fn read(text: &str) -> Option<Version> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let numbers = text.split(['-', '+']).next()?;
        let numbers: Option<Vec<u64>> = numbers.split('.').map(|number| number.parse().ok()).collect();
        numbers.filter(|numbers| (1..=4).contains(&numbers.len())).map(Version)
    }

    /// Compares only as many numbers as the bound has: 1.31.4 is neither below nor above 1.31.
    fn compare_to(&self, bound: &Version) -> Ordering {
        let numbers = |version: &Version, at: usize| version.0.get(at).copied().unwrap_or(0);
        let orders = (0..bound.0.len()).map(|at| numbers(self, at).cmp(&numbers(bound, at)));
        orders.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn cluster(version: Option<&str>, provisioning_state: ProvisioningState) -> ClusterFacts {
        ClusterFacts {
            uuid: uuid::Uuid::nil(),
            id: "/c".to_owned(),
            name: "c".to_owned(),
            location: "here".to_owned(),
            version: version.map(str::to_owned),
            provisioning_state,
            labels: BTreeMap::new(),
        }
    }

    #[test]
    fn every_requirement_is_checked() {
        let check = |states: &[&str],
                     minimum: Option<&str>,
                     maximum: Option<&str>,
                     cluster: &ClusterFacts,
                     expect: Option<&str>| {
            let requires = RequiresForm {
                provisioning_states: states.iter().map(ToString::to_string).collect(),
                minimum_version: minimum.map(str::to_owned),
                maximum_version: maximum.map(str::to_owned),
                health: None,
            };
            let met = requires_met(&requires, cluster, None, Timestamp::UNIX_EPOCH);
            assert_eq!(met.err().as_deref(), expect);
        };
        let it = cluster(Some("v1.37.1"), ProvisioningState::Succeeded);
        check(&[], None, None, &it, None);
        check(&["Succeeded"], Some("1.37"), Some("1.37"), &it, None);
        check(&["Failed"], None, None, &it, Some("the cluster is Succeeded, and the task requires Failed"));
        check(
            &[],
            Some("1.37.2"),
            None,
            &it,
            Some("the cluster has version v1.37.1, and the task requires at least 1.37.2"),
        );
        check(
            &[],
            None,
            Some("1.36"),
            &it,
            Some("the cluster has version v1.37.1, and the task requires at most 1.36"),
        );
        check(&[], Some("1.9"), None, &it, None);
        let unknown = cluster(None, ProvisioningState::Succeeded);
        check(&[], Some("1"), None, &unknown, Some("the cluster's version is not known yet"));
        check(&[], None, None, &unknown, None);
    }

    #[test]
    fn a_healthy_cluster_is_one_that_the_monitor_has_just_seen_so() {
        let at: Timestamp = "2026-11-19T04:00:00Z".parse().unwrap();
        let sample = |reachable, details: serde_json::Value| HealthSample {
            cluster: uuid::Uuid::nil(),
            at,
            reachable,
            since: at,
            details: details.into(),
        };
        let cause = |expected| {
            serde_json::json!({"observed": {"observer": uuid::Uuid::nil(),
            "causes": [{"kind": "nodes", "message": "1 of 3 nodes not ready: a", "expected": expected}]}})
        };
        let requires = RequiresForm { health: Some("healthy".to_owned()), ..RequiresForm::default() };
        let cluster = cluster(None, ProvisioningState::Succeeded);
        let check = |sample: Option<&HealthSample>, now: &str, expect: Option<&str>| {
            let met = requires_met(&requires, &cluster, sample, now.parse().unwrap());
            assert_eq!(met.err().as_deref(), expect);
        };
        let unseen = "no monitor has observed the cluster in the last three minutes, and the task requires it to be healthy";
        check(Some(&sample(true, cause(true))), "2026-11-19T04:02:00Z", None);
        check(Some(&sample(true, cause(true))), "2026-11-19T04:04:00Z", Some(unseen));
        check(None, "2026-11-19T04:00:00Z", Some(unseen));
        check(
            Some(&sample(true, cause(false))),
            "2026-11-19T04:02:00Z",
            Some("the task requires a healthy cluster, and it is degraded: 1 of 3 nodes not ready: a"),
        );
        check(
            Some(&sample(false, cause(true))),
            "2026-11-19T04:02:00Z",
            Some("the task requires a healthy cluster, and it is unreachable"),
        );
        let odd = RequiresForm { health: Some("fine".to_owned()), ..RequiresForm::default() };
        let error = check_requires(&odd).unwrap_err().to_string();
        assert!(error.starts_with("requires.health: \"fine\" cannot be required"), "{error}");
    }

    #[test]
    fn requirements_that_no_cluster_can_meet_are_rejected() {
        let error = |requires: RequiresForm| check_requires(&requires).unwrap_err().to_string();
        let states = RequiresForm { provisioning_states: vec!["Done".into()], ..RequiresForm::default() };
        assert!(error(states).starts_with("requires.provisioningStates[0]: \"Done\" is not"));
        let version = RequiresForm { minimum_version: Some("new".into()), ..RequiresForm::default() };
        assert!(error(version).starts_with("requires.minimumVersion: \"new\" is not a version"));
        let (minimum_version, maximum_version) = (Some("1.31".into()), Some("1.30.9".into()));
        let never = RequiresForm { minimum_version, maximum_version, ..RequiresForm::default() };
        assert!(error(never).starts_with("requires.maximumVersion: it is below"));
    }
}
