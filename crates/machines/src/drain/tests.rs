//! The rules of the drain controller, each with a test named after it.

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{Machine, names};
use controller::RetryRate;
use k8s_openapi::api::core::v1::Node;
use kubelink::drain::{DrainGoal, EmptyDirPolicy, UnmanagedPolicy};
use serde_json::{Value, json};

use super::decide::{CORDON_REQUEUE, Step, cordoned_for, deadline, may_cordon, options, step};
use super::{BACKOFF, RETRIES};
use crate::merge::merge_over;

fn machine(over: Value) -> Machine {
    let mut value = json!({
        "metadata": {"name": "w", "namespace": "m", "uid": "u1", "deletionTimestamp": "2026-03-01T11:00:00Z"},
        "status": {"phase": "Deleting", "nodeRef": {"kind": "Node", "name": "n", "uid": "nu"}},
    });
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn node(name: &str, role: &str, unschedulable: bool) -> Arc<Node> {
    let labels = json!({format!("node-role.kubernetes.io/{role}"): ""});
    let node =
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"unschedulable": unschedulable}});
    Arc::new(serde_json::from_value(node).unwrap())
}

#[test]
fn rule_4_only_a_machine_in_phase_deleting_that_is_not_drained_is_drained() {
    assert_eq!(step(&machine(json!({}))), Step::Drain { node: "n", uid: Some("nu") });
    for over in [
        json!({"metadata": {"deletionTimestamp": null}}),
        json!({"status": {"phase": "Running"}}),
        json!({"status": {"conditions": [
            {"type": "Drained", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"}]}}),
    ] {
        assert!(matches!(step(&machine(over.clone())), Step::Rest(_)), "{over}");
    }
}

#[test]
fn rule_4_a_drain_is_skipped_by_annotation_or_without_a_node_even_with_hooks() {
    let hooks = json!({"lifecycleHooks": {"preDrain": [{"name": "Hook", "owner": "me!"}]}});
    let annotated = json!({"annotations": {names::EXCLUDE_NODE_DRAINING: ""}});
    assert_eq!(step(&machine(json!({"metadata": annotated, "spec": hooks}))), Step::Skip);
    assert_eq!(step(&machine(json!({"status": {"nodeRef": null}, "spec": hooks}))), Step::Skip);
}

#[test]
fn rule_4_pre_drain_hooks_hold_the_drain() {
    let hooks = json!({"lifecycleHooks": {"preDrain": [{"name": "Hook", "owner": "me!"}]}});
    assert!(matches!(step(&machine(json!({"spec": hooks}))), Step::Blocked([hook]) if hook.name == "Hook"));
}

#[test]
fn rule_4_neither_a_pause_nor_the_finalizer_matters() {
    let paused = json!([{"type": "Paused", "status": "True", "lastTransitionTime": "2026-03-01T11:00:00Z"}]);
    let paused = machine(json!({"status": {"authoritativeAPI": "ClusterAPI", "conditions": paused}}));
    assert!(matches!(step(&paused), Step::Drain { .. }));
    let bare = machine(json!({"metadata": {"finalizers": []}}));
    assert!(matches!(step(&bare), Step::Drain { .. }));
}

#[test]
fn rule_4_a_failed_drain_is_repeated_after_5_to_1000_seconds_and_all_at_10_per_second() {
    assert_eq!((BACKOFF.base, BACKOFF.max), (Duration::from_secs(5), Duration::from_secs(1000)));
    assert_eq!(RETRIES, RetryRate { per_second: 10.0, burst: 100 });
    assert_eq!(CORDON_REQUEUE, Duration::from_secs(20));
}

#[test]
fn rule_4_2_one_control_plane_node_at_a_time_is_cordoned() {
    let check = |node: &Arc<Node>, others: &[Arc<Node>], allowed: bool| {
        assert_eq!(may_cordon(node, others).is_ok(), allowed, "{node:?} {others:?}");
    };
    let cordoned = [node("m1", "master", true), node("w1", "worker", true)];
    check(&node("m0", "master", false), &cordoned, false);
    check(&node("m0", "control-plane", false), &cordoned, false);
    check(&node("m0", "master", true), &cordoned, true);
    check(&node("w0", "worker", false), &cordoned, true);
    check(&node("m0", "master", false), &[node("m1", "master", false), node("w1", "worker", true)], true);
    check(&node("m1", "master", false), &[node("m1", "master", true)], true);
    let refused = may_cordon(&node("m0", "master", false), &cordoned).unwrap_err();
    assert!(refused.contains("m0") && refused.contains("m1"), "{refused}");
}

#[test]
fn rule_4_4_pods_without_a_controller_and_with_empty_dirs_are_evicted_with_their_own_grace_period() {
    let options = options(&machine(json!({})), &Node::default());
    assert!(matches!(options.empty_dir, EmptyDirPolicy::Delete));
    assert!(matches!(options.unmanaged, UnmanagedPolicy::Delete));
    assert!(matches!(options.until, DrainGoal::Gone));
    assert_eq!(options.grace, None);
}

#[test]
fn rule_4_4_pods_of_a_node_that_does_not_respond_are_not_waited_for() {
    let ready = |status: &str| -> Node {
        let condition = json!({"type": "Ready", "status": status});
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}))
            .unwrap()
    };
    let machine = machine(json!({}));
    let reachable = options(&machine, &ready("False"));
    assert_eq!((reachable.grace, reachable.skip_terminating_after), (None, None));
    assert_eq!(reachable.time_limit, Duration::from_secs(20));
    let unreachable = options(&machine, &ready("Unknown"));
    let second = Some(Duration::from_secs(1));
    assert_eq!((unreachable.grace, unreachable.skip_terminating_after), (second, second));
}

#[test]
fn rule_15_a_deadline_is_an_annotation_and_off_without_it() {
    let with = |text: &str| machine(json!({"metadata": {"annotations": {names::DRAIN_DEADLINE: text}}}));
    assert_eq!(deadline(&machine(json!({}))), Ok(None));
    assert_eq!(deadline(&with("30m")).unwrap().unwrap().to_string(), "2026-03-01T11:30:00Z");
    assert!(deadline(&with("soon")).unwrap_err().contains("\"soon\""));
}

#[test]
fn the_cordon_of_a_drain_names_its_machine() {
    let holder = options(&machine(json!({})), &Node::default()).holder;
    let annotations = json!({kubelink::cordon::CORDONED_BY: holder.id});
    let cordoned: Node = serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap();
    assert_eq!(cordoned_for(&cordoned), Some((controller::ObjectKey::namespaced("m", "w"), "u1")));
    assert_eq!(cordoned_for(&Node::default()), None);
    assert_eq!(holder.reason, "Machine m/w is being deleted");
}
