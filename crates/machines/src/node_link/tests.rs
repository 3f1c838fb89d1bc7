//! The rules of the controller of links, each with a test named after it.

use std::sync::Arc;

use api::crd::machine::Machine;
use api::crd::machine::names::MACHINE_ANNOTATION;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::decide::{Ambiguous, find, linked_machine, linked_node, machine_addresses, may_link};
use crate::merge::merge_over;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn machine(over: Value) -> Machine {
    let mut value = json!({"metadata": {"name": "w", "namespace": "m", "uid": "mu"}, "spec": {}});
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn node(over: Value) -> Node {
    let mut value = json!({"metadata": {"name": "n", "uid": "nu"}});
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn ready(status: &str) -> Node {
    node(json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}))
}

#[test]
fn rule_8_a_match_is_by_provider_id_and_then_by_the_first_internal_address() {
    let named = |name: &str| Arc::new(machine(json!({"metadata": {"name": name}})));
    let of = |id: Option<&str>, addresses: &[&str]| {
        let addresses: Vec<String> = addresses.iter().map(|it| (*it).to_owned()).collect();
        let by_id = |id: &str| match id {
            "one" => vec![named("by-id")],
            "two" => vec![named("a"), named("b")],
            _ => Vec::new(),
        };
        let by_address = |address: &str| match address {
            "10.0.0.1" => vec![named("by-address")],
            "10.0.0.2" => vec![named("c"), named("d")],
            _ => Vec::new(),
        };
        let found = find("Node n", "Machine", id, &addresses, by_id, by_address);
        found.map(|found| found.map(|machine| machine.name_any())).map_err(|error| error.to_string())
    };
    assert_eq!(of(Some("one"), &["10.0.0.1"]), Ok(Some("by-id".to_owned())));
    assert_eq!(of(Some("none"), &["10.0.0.1"]), Ok(Some("by-address".to_owned())));
    assert_eq!(of(None, &["10.0.0.9", "10.0.0.1"]), Ok(None));
    assert_eq!(of(None, &[]), Ok(None));
    let twice = "Node n matches more than one Machine by providerID two: a, b";
    assert_eq!(of(Some("two"), &["10.0.0.1"]), Err(twice.to_owned()));
    assert!(of(None, &["10.0.0.2"]).unwrap_err().contains("internal address 10.0.0.2"));
}

#[test]
fn rule_8_only_internal_addresses_identify() {
    let addresses = json!([
        {"type": "Hostname", "address": "h"}, {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "1.1.1.1"}, {"type": "InternalIP", "address": "fd00::1"},
    ]);
    assert_eq!(
        machine_addresses(&machine(json!({"status": {"addresses": addresses}}))),
        ["10.0.0.1", "fd00::1"]
    );
}

#[test]
fn rule_8_2_a_readiness_flip_touches_the_machine() {
    let linked = machine(json!({"status": {"nodeRef": {"kind": "Node", "name": "n", "uid": "nu"}}}));
    assert_eq!(linked_machine(&linked, &ready("True"), Some(true), now()), None);
    let touched = linked_machine(&linked, &ready("False"), Some(true), now()).unwrap();
    assert_eq!(touched.status.unwrap().last_updated.unwrap().0, now());
    assert!(linked_machine(&linked, &ready("True"), Some(false), now()).is_some());
}

#[test]
fn rule_15_a_node_ref_is_repaired_and_a_restart_writes_nothing() {
    let linked = machine(json!({"status": {"nodeRef": {"kind": "Node", "name": "n", "uid": "nu"}}}));
    assert_eq!(linked_machine(&linked, &ready("True"), None, now()), None);
    for stale in [
        json!(null),
        json!({"kind": "Node", "name": "n", "uid": "old"}),
        json!({"kind": "Node", "name": "x", "uid": "nu"}),
    ] {
        let stale = machine(json!({"status": {"nodeRef": stale}}));
        let repaired = linked_machine(&stale, &ready("True"), Some(true), now()).unwrap();
        let reference = repaired.status.unwrap().node_ref.unwrap();
        assert_eq!((reference.name.as_deref(), reference.uid.as_deref()), (Some("n"), Some("nu")));
    }
}

#[test]
fn rule_8_3_labels_and_annotations_are_copied_over_and_none_is_removed() {
    let metadata = json!({"labels": {"a": "machine", "b": "machine"}, "annotations": {"c": "machine"}});
    let wanted = linked_node(
        &node(json!({"metadata": {"labels": {"a": "node", "z": "node"}}})),
        &machine(json!({"spec": {"metadata": metadata}})),
    );
    let labels: Vec<(&str, &str)> =
        wanted.labels().iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [("a", "machine"), ("b", "machine"), ("z", "node")]);
    assert_eq!(wanted.annotations()[MACHINE_ANNOTATION], "m/w");
    assert_eq!(wanted.annotations()["c"], "machine");
}

#[test]
fn rule_8_4_a_taint_is_added_unless_its_key_and_effect_are_there() {
    let taints = |value: Value| json!({"spec": {"taints": value}});
    let on_node = node(taints(json!([{"key": "a", "effect": "NoSchedule", "value": "mine"}])));
    let on_machine = machine(taints(json!([
        {"key": "a", "effect": "NoSchedule", "value": "other"}, {"key": "a", "effect": "NoExecute"},
    ])));
    let wanted = linked_node(&on_node, &on_machine);
    let taints = wanted.spec.unwrap().taints.unwrap();
    let shown: Vec<_> = taints.iter().map(|it| (it.effect.as_str(), it.value.as_deref())).collect();
    assert_eq!(shown, [("NoSchedule", Some("mine")), ("NoExecute", None)]);
}

#[test]
fn rule_8_5_a_linked_node_is_not_written_again() {
    let machine = machine(
        json!({"spec": {"metadata": {"labels": {"a": "b"}}, "taints": [{"key": "t", "effect": "NoSchedule"}]}}),
    );
    let once = linked_node(&node(json!({})), &machine);
    assert_eq!(linked_node(&once, &machine), once);
}

/// A Machine that is linked to the Node `master`, and Nodes that match it.
fn contested() -> (Machine, Node, Node) {
    let over = |name: &str| json!({"metadata": {"name": name, "uid": name}, "spec": {"providerID": "p"}});
    let machine = machine(json!({
        "spec": {"providerID": "p"},
        "status": {"nodeRef": {"kind": "Node", "name": "master", "uid": "master"}},
    }));
    (machine, node(over("master")), node(over("other")))
}

fn both() -> Result<Option<Arc<Node>>, Ambiguous> {
    let names = vec!["master".to_owned(), "other".to_owned()];
    Err(Ambiguous {
        object: "Machine w".to_owned(),
        kind: "Node",
        by: "providerID",
        value: "p".to_owned(),
        names,
    })
}

#[test]
fn a_linked_node_keeps_its_machine_from_another_that_matches() {
    let (machine, master, other) = contested();
    assert_eq!(may_link(&machine, &master, Some(&master), both), Ok(()));
    let error = may_link(&machine, &other, Some(&master), both).unwrap_err().to_string();
    assert!(error.starts_with("Node other matches Machine w, which belongs to Node master"), "{error}");
}

#[test]
fn a_linked_node_keeps_its_machine_by_its_address() {
    let (mut machine, mut master, other) = contested();
    let address = json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]});
    machine.status.as_mut().unwrap().addresses =
        serde_json::from_value(address["addresses"].clone()).unwrap();
    master.spec = None;
    master.status = serde_json::from_value(address).unwrap();
    let found = || Ok(Some(Arc::new(other.clone())));
    assert!(may_link(&machine, &other, Some(&master), found).is_err());
    assert_eq!(may_link(&machine, &master, Some(&master), found), Ok(()));
}

#[test]
fn a_node_takes_over_from_one_that_is_gone_or_no_longer_matches() {
    let (machine, mut master, other) = contested();
    let only = || Ok(Some(Arc::new(other.clone())));
    assert_eq!(may_link(&machine, &other, None, only), Ok(()));
    master.metadata.uid = Some("recreated".to_owned());
    assert_eq!(may_link(&machine, &other, Some(&master), only), Ok(()));
    master.metadata.uid = Some("master".to_owned());
    master.spec = None;
    assert_eq!(may_link(&machine, &other, Some(&master), only), Ok(()));
}

#[test]
fn no_node_is_linked_to_a_machine_that_several_match() {
    let (mut machine, master, other) = contested();
    machine.status = None;
    for node in [&master, &other] {
        let error = may_link(&machine, node, None, both).unwrap_err().to_string();
        assert!(error.contains("matches more than one Node by providerID p: master, other"), "{error}");
    }
    let found = || Ok(Some(Arc::new(master.clone())));
    assert!(may_link(&machine, &other, None, found).is_err());
    assert_eq!(may_link(&machine, &other, None, || Ok(None)), Ok(()));
}
