//! The rules of MachineSets.

use serde_json::{Value, json};

use super::rules::facts;
use crate::webhooks::facts::{Platform, PlatformFacts};
use crate::webhooks::{WebhookKind, defaults, validate};

/// A MachineSet with this selector and these labels of its template.
fn machine_set(selector: Value, labels: Value) -> Value {
    json!({
        "metadata": {"name": "s1", "namespace": "n1"},
        "spec": {
            "replicas": 1, "selector": selector,
            "template": {"metadata": {"labels": labels}, "spec": {"providerSpec": {"value": {}}}}
        }
    })
}

#[track_caller]
fn check(old: Option<&Value>, new: &Value, expected: &[&str]) {
    let verdict = validate(WebhookKind::MachineSet, old, new, &PlatformFacts::default());
    let errors: Vec<String> = verdict.errors.iter().map(ToString::to_string).collect();
    assert_eq!(errors, expected);
}

#[test]
fn the_selector_matches_the_labels_of_the_template() {
    let labels = json!({"a": "1", "b": "2"});
    for selector in [
        Value::Null,
        json!({}),
        json!({"matchLabels": {"a": "1"}}),
        json!({"matchExpressions": [
            {"key": "a", "operator": "In", "values": ["1", "2"]}, {"key": "b", "operator": "NotIn", "values": ["1"]},
            {"key": "b", "operator": "Exists"}, {"key": "c", "operator": "DoesNotExist"},
            {"key": "c", "operator": "NotIn", "values": ["1"]}
        ]}),
    ] {
        check(None, &machine_set(selector, labels.clone()), &[]);
    }
    for selector in [
        json!({"matchLabels": {"a": "2"}}),
        json!({"matchLabels": {"c": "1"}}),
        json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["2"]}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}),
        json!({"matchExpressions": [{"key": "c", "operator": "Exists"}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
    ] {
        check(
            None,
            &machine_set(selector, labels.clone()),
            &[
                r#"spec.template.metadata.labels: Invalid value: {"a":"1","b":"2"}: `selector` does not match template `labels`"#,
            ],
        );
    }
}

#[test]
fn a_selector_that_cannot_be_evaluated_is_invalid() {
    let requirement = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
    check(
        None,
        &machine_set(requirement("Near", json!(["1"])), json!({})),
        &[
            r#"spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"Near","values":["1"]}]}: could not convert label selector to selector: "Near" is not a valid label selector operator"#,
        ],
    );
    check(
        None,
        &machine_set(requirement("In", json!([])), json!({})),
        &[
            r#"spec.selector: Invalid value: {"matchExpressions":[{"key":"a","operator":"In","values":[]}]}: could not convert label selector to selector: values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"#,
        ],
    );
    check(
        None,
        &machine_set(json!({"matchLabels": "text"}), json!({})),
        &[
            r#"spec.selector: Invalid value: {"matchLabels":"text"}: could not convert label selector to selector: matchLabels: invalid type: string "text", expected a map"#,
        ],
    );
}

#[test]
fn the_selector_is_immutable() {
    let old = machine_set(json!({"matchLabels": {"a": "1"}}), json!({"a": "1", "b": "2"}));
    check(Some(&old), &old, &[]);
    // Another form of the same selector.
    let same = json!({"matchLabels": {"a": "1"}, "matchExpressions": []});
    check(Some(&old), &machine_set(same, json!({"a": "1"})), &[]);
    check(
        Some(&old),
        &machine_set(json!({"matchLabels": {"b": "2"}}), json!({"b": "2"})),
        &["spec.selector: Forbidden: selector is immutable"],
    );
    check(
        Some(&old),
        &machine_set(json!({"matchLabels": {"b": "2"}}), json!({})),
        &[
            "spec.selector: Forbidden: selector is immutable",
            "spec.template.metadata.labels: Invalid value: {}: `selector` does not match template `labels`",
        ],
    );
}

#[test]
fn replicas_are_not_negative() {
    let mut set = machine_set(json!({}), json!({}));
    let old = set.clone();
    set["spec"]["replicas"] = json!(-1);
    let text = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    check(None, &set, &[text]);
    check(Some(&old), &set, &[text]);
    check(Some(&set), &set, &[]);
    set["spec"]["replicas"] = json!(0);
    check(None, &set, &[]);
}

#[test]
fn defaults_are_applied_to_the_template_only() {
    let mut set = machine_set(json!({}), json!({}));
    let patch = defaults(WebhookKind::MachineSet, &set, &facts(Platform::VSphere)).unwrap();
    json_patch::patch(&mut set, &patch).unwrap();
    let mut expected = machine_set(json!({}), json!({}));
    expected["spec"]["template"]["spec"]["providerSpec"]["value"] = json!({
        "userDataSecret": {"name": "worker-user-data"}, "credentialsSecret": {"name": "vsphere-cloud-credentials"}
    });
    assert_eq!(set, expected);
}

#[test]
fn the_provider_rules_see_a_machine_without_name_and_role() {
    // The name of the set would make this name of a disk too long.
    let mut set = machine_set(json!({}), json!({}));
    set["metadata"]["name"] = json!("s".repeat(60));
    set["spec"]["template"]["metadata"]["name"] = json!("m".repeat(60));
    set["spec"]["template"]["spec"]["providerSpec"]["value"] =
        json!({"dataDisks": [{"nameSuffix": "d".repeat(60), "diskSizeGB": 4, "deletionPolicy": "Delete"}]});
    let verdict = validate(WebhookKind::MachineSet, None, &set, &facts(Platform::Azure));
    assert!(verdict.errors.iter().all(|it| !it.path.contains("dataDisks")), "{verdict:?}");
    // A role in the labels of the template does not count either.
    set["spec"]["template"]["metadata"]["labels"] =
        json!({"machine.openshift.io/cluster-api-machine-role": "master"});
    set["spec"]["template"]["spec"]["providerSpec"]["value"] =
        json!({"placement": {"tenancy": "host", "host": {"affinity": "AnyAvailable"}}});
    let verdict = validate(WebhookKind::MachineSet, None, &set, &facts(Platform::Aws));
    assert!(verdict.errors.iter().all(|it| !it.path.contains("host")), "{verdict:?}");
}
