//! The rules of Machines on every platform.

use serde_json::{Value, json};

use super::rules::{facts, machine};
use crate::webhooks::facts::{Platform, PlatformFacts};
use crate::webhooks::verdict::SecretReference;
use crate::webhooks::{WebhookKind, defaults, validate};

const FINALIZER: &str = "machine.machine.openshift.io";

fn with_defaults(mut machine: Value, facts: &PlatformFacts) -> Value {
    let patch = defaults(WebhookKind::Machine, &machine, facts).unwrap();
    json_patch::patch(&mut machine, &patch).unwrap();
    machine
}

fn errors(old: Option<&Value>, new: &Value, facts: &PlatformFacts) -> Vec<String> {
    validate(WebhookKind::Machine, old, new, facts).errors.iter().map(ToString::to_string).collect()
}

/// A Machine that is being deleted, with an invalid provider spec, finalizers and hooks.
fn deleting(finalizers: Value, hooks: Value) -> Value {
    let mut machine = machine(json!({}));
    machine["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    machine["metadata"]["finalizers"] = finalizers;
    machine["spec"]["lifecycleHooks"] = hooks;
    machine
}

#[test]
fn a_machine_without_the_cluster_label_gets_it_and_one_with_another_value_keeps_it() {
    let facts = facts(Platform::Other);
    let label =
        |machine: &Value| machine["metadata"]["labels"]["machine.openshift.io/cluster-api-cluster"].clone();
    for labels in [Value::Null, json!({}), json!({"a": "b"})] {
        let mut machine = machine(json!({}));
        machine["metadata"]["labels"] = labels;
        assert_eq!(label(&with_defaults(machine, &facts)), "c1");
    }
    let mut other = machine(json!({}));
    other["metadata"]["labels"] = json!({"machine.openshift.io/cluster-api-cluster": "c2"});
    assert_eq!(label(&with_defaults(other, &facts)), "c2");
}

#[test]
fn other_platforms_admit_every_provider_spec() {
    let facts = PlatformFacts::default();
    for spec in [Value::Null, json!({}), json!({"any": "thing"}), json!("text")] {
        let machine = machine(spec);
        assert_eq!(with_defaults(machine.clone(), &facts), machine);
        assert_eq!(errors(None, &machine, &facts), [""; 0]);
    }
}

#[test]
fn a_missing_provider_spec_is_an_error_of_defaulting_and_of_validation() {
    let text = "providerSpec.value: Required value: a value must be provided";
    for platform in [
        Platform::Aws,
        Platform::Azure,
        Platform::Gcp,
        Platform::VSphere,
        Platform::Nutanix,
        Platform::PowerVs,
    ] {
        for machine in [json!({}), json!({"spec": 5}), machine(Value::Null)] {
            let facts = facts(platform);
            assert_eq!(errors(None, &machine, &facts), [text]);
            assert_eq!(defaults(WebhookKind::Machine, &machine, &facts).unwrap_err().to_string(), text);
        }
        let machine = machine(json!("text"));
        let [error] = <[String; 1]>::try_from(errors(None, &machine, &facts(platform))).unwrap();
        assert!(
            error.starts_with("providerSpec.value: Invalid value: invalid type: string \"text\""),
            "{error}"
        );
    }
}

#[test]
fn defaulting_drops_unknown_fields_and_keeps_the_form_of_the_others() {
    let given = json!({"vmSize": "Standard_D2s_v5", "publicIP": false, "unknown": 1, "osDisk": {"speed": 2}});
    let machine = with_defaults(machine(given), &facts(Platform::Azure));
    let spec = &machine["spec"]["providerSpec"]["value"];
    assert_eq!(spec["vmSize"], "Standard_D2s_v5");
    assert_eq!(spec["publicIP"], false);
    assert_eq!(spec["osDisk"], json!({}));
    assert_eq!(spec.get("unknown"), None);
}

#[test]
fn the_credentials_secret_is_to_be_looked_up() {
    let spec = json!({"credentialsSecret": {"name": "s", "namespace": "n"}});
    let credentials = |platform, spec: &Value| {
        validate(WebhookKind::Machine, None, &machine(spec.clone()), &facts(platform)).credentials
    };
    let reference =
        |namespace: &str| SecretReference { namespace: namespace.to_owned(), name: "s".to_owned() };
    assert_eq!(credentials(Platform::Azure, &spec), Some(reference("n")));
    for platform in [Platform::Aws, Platform::Gcp, Platform::VSphere, Platform::Nutanix, Platform::PowerVs] {
        assert_eq!(credentials(platform, &spec), Some(reference("openshift-machine-api")));
        assert_eq!(credentials(platform, &json!({})), None);
    }
    assert_eq!(
        reference("n").missing_warning(),
        "providerSpec.credentialsSecret: Invalid value: \"s\": not found. Expected CredentialsSecret to exist"
    );
}

#[test]
fn only_the_removal_of_all_finalizers_skips_validation() {
    let facts = facts(Platform::Aws);
    let old = deleting(json!([FINALIZER]), json!({}));
    let mut new = old.clone();
    new["metadata"]["finalizers"] = json!([]);
    new["metadata"]["managedFields"] = json!([{"manager": "m"}]);
    assert_eq!(errors(Some(&old), &new, &facts), [""; 0]);
    new["metadata"].as_object_mut().unwrap().remove("finalizers");
    assert_eq!(errors(Some(&old), &new, &facts), [""; 0]);

    // Another change besides it.
    new["metadata"]["annotations"] = json!({"a": "b"});
    assert!(!errors(Some(&old), &new, &facts).is_empty());
    // One of two.
    let old = deleting(json!([FINALIZER, "other"]), json!({}));
    let new = deleting(json!(["other"]), json!({}));
    assert!(!errors(Some(&old), &new, &facts).is_empty());
    // Nothing changes.
    assert!(!errors(Some(&old), &old, &facts).is_empty());
    // A Machine that is not being deleted.
    let old = {
        let mut machine = machine(json!({}));
        machine["metadata"]["finalizers"] = json!([FINALIZER]);
        machine
    };
    assert!(!errors(Some(&old), &machine(json!({})), &facts).is_empty());
}

#[test]
fn hooks_of_a_deleting_machine_can_be_removed_but_not_added_or_changed() {
    let facts = PlatformFacts::default();
    let hook = |name: &str, owner: &str| json!({"name": name, "owner": owner});
    let old =
        deleting(json!([FINALIZER]), json!({"preDrain": [hook("a", "o")], "preTerminate": [hook("b", "o")]}));
    let check = |hooks: Value, expected: &[&str]| {
        assert_eq!(errors(Some(&old), &deleting(json!([FINALIZER]), hooks), &facts), expected);
    };
    check(json!({"preDrain": [hook("a", "o")]}), &[]);
    check(json!({}), &[]);
    check(
        json!({"preDrain": [hook("a", "o"), hook("c", "p"), hook("d", "p")], "preTerminate": [hook("b", "other")]}),
        &[
            "spec.lifecycleHooks.preDrain: Forbidden: pre-drain hooks are immutable when machine is marked for deletion: the following \
             hooks are new or changed: [{Name:c Owner:p} {Name:d Owner:p}]",
            "spec.lifecycleHooks.preTerminate: Forbidden: pre-terminate hooks are immutable when machine is marked for deletion: the \
             following hooks are new or changed: [{Name:b Owner:other}]",
        ],
    );
    // Before the deletion every change is allowed.
    let mut living = old.clone();
    living["metadata"].as_object_mut().unwrap().remove("deletionTimestamp");
    let mut changed = living.clone();
    changed["spec"]["lifecycleHooks"] = json!({"preDrain": [hook("new", "o")]});
    assert_eq!(errors(Some(&living), &changed, &facts), [""; 0]);
}
