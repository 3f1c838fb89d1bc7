//! Checks of one provider spec: a valid one, changed by a merge patch, and the texts that result.

use serde_json::{Value, json};

use crate::webhooks::facts::{Platform, PlatformFacts};
use crate::webhooks::verdict::Verdict;
use crate::webhooks::{WebhookKind, defaults, validate};

/// The facts of a cluster `c1` in the region `r1`.
pub(crate) fn facts(platform: Platform) -> PlatformFacts {
    PlatformFacts {
        platform,
        cluster_id: Some("c1".to_owned()),
        region: Some("r1".to_owned()),
        ..PlatformFacts::default()
    }
}

/// A Machine with this provider spec.
pub(crate) fn machine(provider_spec: Value) -> Value {
    json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {
            "name": "m1", "namespace": "openshift-machine-api",
            "labels": {"machine.openshift.io/cluster-api-cluster": "c1"}
        },
        "spec": {"providerSpec": {"value": provider_spec}}
    })
}

/// Applies the patch of the defaults to a Machine and compares its provider spec.
pub(crate) fn check_defaults(platform: Platform, given: Value, expected: Value) {
    check_defaults_of(&facts(platform), given, expected);
}

pub(crate) fn check_defaults_of(facts: &PlatformFacts, given: Value, expected: Value) {
    let mut machine = machine(given);
    let patch = defaults(WebhookKind::Machine, &machine, facts).unwrap();
    json_patch::patch(&mut machine, &patch).unwrap();
    assert_eq!(machine["spec"]["providerSpec"]["value"], expected);
    let again = defaults(WebhookKind::Machine, &machine, facts).unwrap();
    assert!(again.0.is_empty(), "defaults are complete: {again}");
}

fn verdict_of(facts: &PlatformFacts, mut spec: Value, change: &Value) -> Verdict {
    json_patch::merge(&mut spec, change);
    validate(WebhookKind::Machine, None, &machine(spec), facts)
}

pub(crate) fn errors_of(facts: &PlatformFacts, spec: Value, change: &Value) -> Vec<String> {
    verdict_of(facts, spec, change).errors.iter().map(ToString::to_string).collect()
}

/// Compares the errors of a provider spec after a change.
#[track_caller]
pub(crate) fn check_errors(platform: Platform, spec: Value, change: Value, expected: &[&str]) {
    assert_eq!(errors_of(&facts(platform), spec, &change), expected, "after {change}");
}

/// Compares the warnings of a provider spec after a change that violates no rule.
#[track_caller]
pub(crate) fn check_warnings(platform: Platform, spec: Value, change: Value, expected: &[&str]) {
    let verdict = verdict_of(&facts(platform), spec, &change);
    assert_eq!(verdict.errors, [], "after {change}");
    assert_eq!(verdict.warnings, expected, "after {change}");
}
