//! `cluster-health`: checks the health of a cluster; changes nothing.
//!
//! Each step checks one subject and records the problems; the last one fails with all of them. So the message names every
//! problem, not only the first.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kubelink::facts::{self, CertificateFacts};
use planner::task::TaskProblem;
use planner::task::builtin::cluster_health::{ClusterHealthParameters, STEPS};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use steps::ClusterContext;
use steps::engine::{Step, StepContext, StepError, StepOutcome};

/// Most problems of one kind that are named; the rest is a number.
const NAMED_MAX: usize = 20;

pub(super) fn steps(parameters: &Map<String, Value>) -> Result<Vec<Step<ClusterContext>>, TaskProblem> {
    let days = ClusterHealthParameters::read(parameters)?.certificate_days;
    Ok(vec![
        Step::action(STEPS[0], |cx: Arc<ClusterContext>, _| async move {
            let version = facts::version(&cx.link).await?;
            Ok(StepOutcome::with_message(format!("the API server is reachable; version {version}")))
        }),
        Step::action(STEPS[1], |cx: Arc<ClusterContext>, _| async move { nodes(&cx).await }),
        Step::action(STEPS[2], |cx: Arc<ClusterContext>, _| async move { critical_pods(&cx).await }),
        Step::action(STEPS[3], |cx: Arc<ClusterContext>, _| async move { operators(&cx).await }),
        Step::action(
            STEPS[4],
            move |cx: Arc<ClusterContext>, _| async move { certificates(&cx, days).await },
        ),
        Step::action(STEPS[5], |_, step: StepContext| async move { verdict(&step.memory) }),
    ])
}

async fn nodes(cx: &ClusterContext) -> Result<StepOutcome, StepError> {
    let nodes = facts::nodes(&cx.link).await?;
    if nodes.is_empty() {
        return Ok(found("there are no nodes", vec!["the cluster has no nodes".to_owned()]));
    }
    let problems = nodes.iter().filter(|node| !node.ready).map(|node| {
        let condition =
            node.conditions.get("Ready").map(|(status, reason)| format!(" (Ready is {status}, {reason})"));
        format!("node {} is not ready{}", node.name, condition.unwrap_or_default())
    });
    let problems: Vec<String> = problems.collect();
    Ok(found(&format!("{} of {} nodes are ready", nodes.len() - problems.len(), nodes.len()), problems))
}

async fn critical_pods(cx: &ClusterContext) -> Result<StepOutcome, StepError> {
    let pods = facts::critical_pods_not_ready(&cx.link).await?;
    let problems: Vec<String> =
        pods.iter().map(|(pod, reason)| format!("pod {pod} is not ready ({reason})")).collect();
    Ok(found(&format!("{} critical pods are not ready", problems.len()), problems))
}

async fn operators(cx: &ClusterContext) -> Result<StepOutcome, StepError> {
    let Some(operators) = facts::operators(&cx.link).await? else {
        return Ok(StepOutcome::with_message("the cluster has no ClusterOperators"));
    };
    let problems = operators.iter().filter(|it| !it.available || it.degraded).map(|it| {
        let state = if it.available { "is degraded" } else { "is not available" };
        let detail = if it.message.is_empty() { String::new() } else { format!(": {}", it.message) };
        format!("operator {} {state}{detail}", it.name)
    });
    let problems: Vec<String> = problems.collect();
    Ok(found(
        &format!("{} of {} operators are healthy", operators.len() - problems.len(), operators.len()),
        problems,
    ))
}

async fn certificates(cx: &ClusterContext, days: i64) -> Result<StepOutcome, StepError> {
    let certificates = facts::certificates(&cx.link).await?;
    let problems = expiring(&certificates, cx.clock.now(), days);
    let first = match certificates.earliest_end() {
        Some(end) => format!("the first certificate expires at {end}"),
        None => "the connection uses no certificates".to_owned(),
    };
    Ok(found(&first, problems))
}

/// Problems of certificates that expire within `days` days.
fn expiring(certificates: &CertificateFacts, now: Timestamp, days: i64) -> Vec<String> {
    let until = now.saturating_add(SignedDuration::from_hours(days * 24)).unwrap_or(Timestamp::MAX);
    let certificates = [
        ("the API server's certificate", &certificates.serving),
        ("the client certificate", &certificates.client),
    ];
    let problems = certificates.iter().filter_map(|(what, validity)| {
        let end = validity.as_ref()?.not_after;
        match (end < now, end < until) {
            (true, _) => Some(format!("{what} expired at {end}")),
            (false, true) => Some(format!("{what} expires at {end}, within {days} days")),
            (false, false) => None,
        }
    });
    problems.collect()
}

/// What a check leaves for the verdict.
#[derive(Serialize, Deserialize)]
struct Findings {
    wrong: Vec<String>,
}

fn found(message: &str, problems: Vec<String>) -> StepOutcome {
    let more = problems.len().saturating_sub(NAMED_MAX);
    let mut named: Vec<String> = problems.into_iter().take(NAMED_MAX).collect();
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    StepOutcome::with_message(message).with_memory(&Findings { wrong: named })
}

/// Fails with the problems of all steps, if there are any.
fn verdict(memory: &Map<String, Value>) -> Result<StepOutcome, StepError> {
    let findings = STEPS.iter().filter_map(|step| Findings::deserialize(memory.get(*step)?).ok());
    let problems: Vec<String> = findings.flat_map(|it| it.wrong).collect();
    match problems.as_slice() {
        [] => Ok(StepOutcome::with_message("the cluster is healthy")),
        problems => Err(StepError::terminal(
            "Unhealthy",
            format!("the cluster is unhealthy: {}", problems.join("; ")),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_verdict_names_every_problem() {
        let memory = json!({"nodes-ready": {"wrong": ["node a is not ready"]}, "critical-pods": {"wrong": []},
            "certificates": {"wrong": ["the client certificate expires soon"]}});
        let error = verdict(memory.as_object().unwrap()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the cluster is unhealthy: node a is not ready; the client certificate expires soon"
        );
        assert!(verdict(&Map::new()).is_ok());
    }

    #[test]
    fn certificates_that_expire_soon_are_named() {
        let until = |end: &str| {
            let (not_before, not_after) = (Timestamp::UNIX_EPOCH, end.parse().unwrap());
            Some(kubelink::certificate::Validity { subject: String::new(), not_before, not_after })
        };
        let facts = CertificateFacts {
            serving: until("2026-03-01T00:00:00Z"),
            client: until("2026-02-01T00:00:00Z"),
        };
        let at = |now: &str, days| expiring(&facts, now.parse().unwrap(), days);
        assert!(at("2026-01-01T00:00:00Z", 14).is_empty());
        assert_eq!(
            at("2026-01-20T00:00:00Z", 14),
            ["the client certificate expires at 2026-02-01T00:00:00Z, within 14 days"]
        );
        assert_eq!(at("2026-02-20T00:00:00Z", 5), ["the client certificate expired at 2026-02-01T00:00:00Z"]);
        assert_eq!(at("2026-02-20T00:00:00Z", 14).len(), 2);
        assert!(
            expiring(&CertificateFacts { serving: None, client: None }, Timestamp::UNIX_EPOCH, 14).is_empty()
        );
    }

    #[test]
    fn a_thousand_problems_are_shortened_to_a_number() {
        let found = found("x", (0..1000).map(|n| format!("node {n}")).collect());
        assert_eq!(found.memory["wrong"].as_array().unwrap().len(), NAMED_MAX + 1);
        assert_eq!(found.memory["wrong"][NAMED_MAX], "and 980 more");
    }
}
