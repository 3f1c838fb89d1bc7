//! The rules of the MachineHealthCheck controller, each with a test named after it.

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{Machine, MachineHealthCheck, names};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::ResourceExt;
use kube::core::DynamicObject;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{
    Evaluation, NodeState, Remediation, Target, Verdict, concerns_health, is_paused, policy, remediation,
    unhealthy_limit, verdict,
};
use super::external;
use crate::merge::merge_over;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn check(over: Value) -> MachineHealthCheck {
    let mut value = json!({
        "metadata": {"name": "workers", "namespace": "m"},
        "spec": {
            "selector": {},
            "unhealthyConditions": [
                {"type": "Ready", "status": "False", "timeout": "300s"},
                {"type": "Ready", "status": "Unknown", "timeout": "1m"},
            ],
        },
    });
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn machine(over: Value) -> Machine {
    let mut value = json!({
        "metadata": {"name": "w", "namespace": "m", "uid": "u",
            "ownerReferences": [{"apiVersion": "a", "kind": "MachineSet", "name": "s", "uid": "s", "controller": true}]},
        "spec": {},
        "status": {"phase": "Running", "nodeRef": {"name": "n"}},
    });
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

/// A Node that has been in this state for so many seconds.
fn node(ready: &str, seconds: i64) -> NodeState {
    let since = Timestamp::from_second(now().as_second() - seconds).unwrap();
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
    let node = json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}});
    NodeState::Found(Arc::new(serde_json::from_value(node).unwrap()))
}

fn judge(check: &MachineHealthCheck, machine: Machine, node: NodeState) -> Verdict {
    let target = Target { machine: Arc::new(machine), node };
    verdict(&target, &policy(check).unwrap(), now())
}

fn judged(over: Value, node: NodeState) -> Verdict {
    judge(&check(json!({})), machine(over), node)
}

fn after(seconds: u64) -> Verdict {
    Verdict::CheckAfter(Duration::from_secs(seconds))
}

#[test]
fn rule_7_1_2_a_paused_check_does_nothing() {
    assert!(is_paused(&check(json!({"metadata": {"annotations": {names::PAUSED: ""}}}))));
    assert!(!is_paused(&check(json!({}))));
}

#[test]
fn rule_7_2_1_a_failed_machine_is_remediated() {
    assert_eq!(judged(json!({"status": {"phase": "Failed"}}), node("True", 9)), Verdict::Remediate);
}

#[test]
fn rule_7_2_2_to_5_a_machine_without_a_node_has_time_to_start() {
    let unlinked = |updated: Value| {
        let status = json!({"nodeRef": null, "phase": "Provisioned", "lastUpdated": updated});
        machine(json!({"status": status}))
    };
    let of = |timeout: &str, updated: Value| {
        let check = check(json!({"spec": {"nodeStartupTimeout": timeout}}));
        judge(&check, unlinked(updated), NodeState::None)
    };
    assert_eq!(of("0", json!("2020-01-01T00:00:00Z")), Verdict::Unhealthy);
    assert_eq!(of("10m", Value::Null), after(600));
    assert_eq!(of("10m", json!("2026-03-01T11:49:59Z")), Verdict::Remediate);
    assert_eq!(of("10m", json!("2026-03-01T11:51:00Z")), after(61));
    let unset = judge(&check(json!({})), unlinked(json!("2026-03-01T11:49:59Z")), NodeState::None);
    assert_eq!(unset, Verdict::Remediate);
}

#[test]
fn rule_7_2_6_a_machine_whose_node_is_gone_is_remediated_at_once() {
    assert_eq!(judged(json!({}), NodeState::Missing), Verdict::Remediate);
}

#[test]
fn rule_7_2_7_and_8_a_condition_counts_after_its_timeout() {
    assert_eq!(judged(json!({}), node("False", 301)), Verdict::Remediate);
    assert_eq!(judged(json!({}), node("False", 100)), after(201));
    assert_eq!(judged(json!({}), node("Unknown", 61)), Verdict::Remediate);
    assert_eq!(judged(json!({}), node("Unknown", 10)), after(51));
}

#[test]
fn rule_7_2_8_of_several_conditions_the_next_to_time_out_counts() {
    let two = json!([
        {"type": "Ready", "status": "False", "timeout": "300s"},
        {"type": "DiskPressure", "status": "True", "timeout": "100s"},
    ]);
    let check = check(json!({"spec": {"unhealthyConditions": two}}));
    let since = Timestamp::from_second(now().as_second() - 60).unwrap();
    let with = |pressure: &str| {
        let condition =
            |type_: &str, status: &str| json!({"type": type_, "status": status, "lastTransitionTime": since});
        let conditions = [condition("Ready", "False"), condition("DiskPressure", pressure)];
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}});
        judge(&check, machine(json!({})), NodeState::Found(Arc::new(serde_json::from_value(node).unwrap())))
    };
    assert_eq!((with("True"), with("False")), (after(41), after(241)));
}

#[test]
fn rule_7_2_9_an_absent_condition_never_matches() {
    let absent = json!([{"type": "Other", "status": "Unknown", "timeout": "0s"}]);
    let check = check(json!({"spec": {"unhealthyConditions": absent}}));
    assert_eq!(judge(&check, machine(json!({})), node("False", 999)), Verdict::Healthy);
}

#[test]
fn rule_7_2_10_a_healthy_machine_is_not_deleted_and_not_remediated_by_others() {
    assert_eq!(judged(json!({}), node("True", 1)), Verdict::Healthy);
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}});
    assert_eq!(judged(deleted, node("True", 1)), Verdict::Unhealthy);
    let external = json!({"metadata": {"annotations": {names::EXTERNAL_REMEDIATION: ""}}});
    assert_eq!(judged(external, node("True", 1)), Verdict::Unhealthy);
}

#[test]
fn rule_7_1_8_the_limit_is_a_number_or_a_share_rounded_down() {
    let limit = |value: Value, expected: usize| {
        unhealthy_limit(&check(json!({"spec": {"maxUnhealthy": value}})), expected)
    };
    assert_eq!(limit(Value::Null, 7), Ok(7));
    assert_eq!(limit(json!(2), 7), Ok(2));
    assert_eq!(limit(json!("2"), 7), Ok(2));
    assert_eq!(limit(json!(-3), 7), Ok(0));
    assert_eq!(limit(json!("40%"), 7), Ok(2));
    assert_eq!(limit(json!("0%"), 7), Ok(0));
    assert_eq!(limit(json!("100%"), 7), Ok(7));
    for invalid in ["150%", "abc", "%", ""] {
        let error = limit(json!(invalid), 7).unwrap_err();
        assert!(error.contains(&format!("{invalid:?}")), "{error}");
    }
}

/// The evaluation of so many healthy and unhealthy Machines.
fn evaluation(check: &MachineHealthCheck, healthy: usize, unhealthy: usize) -> Evaluation {
    let targets: Vec<Target> = (0..healthy + unhealthy)
        .map(|number| {
            let node = if number < healthy { node("True", 1) } else { node("False", 999) };
            Target { machine: Arc::new(machine(json!({}))), node }
        })
        .collect();
    Evaluation::new(check, &policy(check).unwrap(), &targets, now())
}

#[test]
fn rule_7_1_5_a_machine_has_ten_minutes_to_start_unless_another_time_or_none_is_given() {
    let booting =
        || machine(json!({"status": {"nodeRef": null, "phase": "Provisioned", "lastUpdated": null}}));
    let with = |timeout: Value| {
        judge(&check(json!({"spec": {"nodeStartupTimeout": timeout}})), booting(), NodeState::None)
    };
    assert_eq!(with(Value::Null), after(600));
    assert_eq!(with(json!("90s")), after(90));
    assert_eq!(with(json!("0")), Verdict::Unhealthy);
    assert_eq!(with(json!("0s")), Verdict::Unhealthy);
}

#[test]
fn rule_7_1_7_machines_that_boot_are_deleted_or_remediated_by_others_count_as_unhealthy() {
    let target = |over: Value, node: NodeState| Target { machine: Arc::new(machine(over)), node };
    let targets = [
        target(json!({}), node("True", 9)),
        target(json!({"status": {"nodeRef": null, "phase": "Provisioning"}}), NodeState::None),
        target(json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}), node("True", 9)),
        target(json!({"metadata": {"annotations": {names::EXTERNAL_REMEDIATION: ""}}}), node("True", 9)),
        target(json!({}), node("False", 9)),
    ];
    let check = check(json!({"spec": {"maxUnhealthy": 3}}));
    let evaluation = Evaluation::new(&check, &policy(&check).unwrap(), &targets, now());
    assert_eq!((evaluation.expected, evaluation.healthy), (5, 1));
    assert!(evaluation.allowed().unwrap_err().contains("(total: 5, unhealthy: 4, maxUnhealthy: 3)"));
}

#[test]
fn rule_7_1_8_a_limit_that_cannot_be_read_allows_nothing_and_is_shown() {
    for text in ["150%", "abc"] {
        let check = check(json!({"spec": {"maxUnhealthy": text}}));
        let evaluation = evaluation(&check, 3, 1);
        let status = evaluation.status(&check, now());
        assert_eq!(status.remediations_allowed, Some(0));
        let condition = &status.conditions[0];
        let expect = format!("spec.maxUnhealthy: {text:?} must be a number or a percentage from 0% to 100%");
        assert_eq!(
            (condition.reason.as_deref(), condition.message.as_deref()),
            (Some("TooManyUnhealthy"), Some(expect.as_str()))
        );
        assert_eq!(evaluation.look_again(), Some(Duration::from_secs(30)));
    }
}

#[test]
fn rule_7_1_11_the_limit_is_a_gate_and_not_a_budget() {
    let check = check(json!({"spec": {"maxUnhealthy": "100%"}}));
    let all = evaluation(&check, 0, 9);
    assert_eq!(all.allowed(), Ok(()));
    assert!(all.verdicts.iter().all(|verdict| *verdict == Verdict::Remediate));
}

#[test]
fn rule_7_1_9_too_many_unhealthy_machines_stop_remediation() {
    let check = check(json!({"spec": {"maxUnhealthy": "40%"}}));
    let many = evaluation(&check, 2, 3);
    assert!(many.allowed().unwrap_err().contains("(total: 5, unhealthy: 3, maxUnhealthy: 2)"));
    let status = many.status(&check, now());
    assert_eq!((status.expected_machines, status.current_healthy), (Some(5), Some(2)));
    assert_eq!(status.remediations_allowed, Some(0));
    let condition = &status.conditions[0];
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("False", Some("TooManyUnhealthy")));
}

#[test]
fn rule_15_a_restricted_check_looks_again_after_half_a_minute() {
    let check = check(json!({"spec": {"maxUnhealthy": 0}}));
    assert_eq!(evaluation(&check, 0, 1).look_again(), Some(Duration::from_secs(30)));
}

#[test]
fn rule_7_1_10_remediations_allowed_is_what_remains_of_the_limit() {
    let check = check(json!({"spec": {"maxUnhealthy": 3}}));
    let some = evaluation(&check, 4, 1);
    assert_eq!(some.allowed(), Ok(()));
    assert_eq!(some.status(&check, now()).remediations_allowed, Some(2));
}

#[test]
fn rule_7_1_13_the_next_check_is_the_earliest_and_within_an_hour() {
    let over =
        json!({"spec": {"unhealthyConditions": [{"type": "Ready", "status": "False", "timeout": "48h"}]}});
    let check = check(over);
    let look_again = |targets: &[NodeState]| {
        let target = |node: &NodeState| Target { machine: Arc::new(machine(json!({}))), node: node.clone() };
        let targets: Vec<Target> = targets.iter().map(target).collect();
        Evaluation::new(&check, &policy(&check).unwrap(), &targets, now()).look_again()
    };
    assert_eq!(look_again(&[node("False", 60), node("False", 48 * 3600 - 9)]), Some(Duration::from_secs(10)));
    assert_eq!(look_again(&[node("False", 60)]), Some(Duration::from_secs(3600)));
    assert_eq!(look_again(&[node("True", 60)]), None);
}

#[test]
fn rule_7_3_the_way_of_remediation_follows_from_check_and_machine() {
    let plain = check(json!({}));
    assert_eq!(remediation(&plain, &machine(json!({}))), Remediation::Delete);
    let orphan = machine(json!({"metadata": {"ownerReferences": []}}));
    assert_eq!(remediation(&plain, &orphan), Remediation::SkipWithoutController);
    let metal =
        check(json!({"metadata": {"annotations": {names::REMEDIATION_STRATEGY: names::EXTERNAL_BAREMETAL}}}));
    assert_eq!(remediation(&metal, &orphan), Remediation::Annotate { present: false });
    let annotated = machine(json!({"metadata": {"annotations": {names::EXTERNAL_REMEDIATION: ""}}}));
    assert_eq!(remediation(&metal, &annotated), Remediation::Annotate { present: true });
    let failed = machine(json!({"status": {"phase": "Failed"}}));
    assert_eq!(remediation(&metal, &failed), Remediation::Delete);
    let template =
        check(json!({"spec": {"remediationTemplate": {"kind": "T", "name": "t", "apiVersion": "g/v1"}}}));
    assert!(matches!(remediation(&template, &failed), Remediation::Request(_)));
}

#[test]
fn rule_7_3_machines_of_the_control_plane_are_no_exception() {
    let master = machine(json!({"metadata": {"labels": {names::ROLE_LABEL: "master"}}}));
    assert_eq!(remediation(&check(json!({})), &master), Remediation::Delete);
}

#[test]
fn rule_7_3_a_request_is_made_from_its_template() {
    let reference: ObjectReference = serde_json::from_value(json!({
        "apiVersion": "infra.example.com/v1beta1", "kind": "FenceTemplate", "name": "power",
    }))
    .unwrap();
    let kinds = external::kinds(&reference).unwrap();
    assert_eq!((kinds.request.kind.as_str(), kinds.template.kind.as_str()), ("Fence", "FenceTemplate"));
    let template: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "infra.example.com/v1beta1", "kind": "FenceTemplate", "metadata": {"name": "power"},
        "spec": {"template": {
            "metadata": {"uid": "x", "resourceVersion": "1", "finalizers": ["f"], "labels": {"a": "b"}},
            "spec": {"strategy": "reboot"},
        }},
    }))
    .unwrap();
    let request = external::request(&kinds, &template, &machine(json!({}))).unwrap();
    assert_eq!(request.data, json!({"spec": {"strategy": "reboot"}}));
    assert_eq!((request.name_any().as_str(), request.namespace().as_deref()), ("w", Some("m")));
    assert_eq!((request.uid(), request.resource_version(), request.finalizers().len()), (None, None, 0));
    assert_eq!(request.labels()["a"], "b");
    assert_eq!(request.annotations()[names::CLONED_FROM_NAME], "power");
    assert_eq!(request.annotations()[names::CLONED_FROM_GROUP_KIND], "FenceTemplate.infra.example.com");
    let owner = &request.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("Machine", "u", None));
    let bare: DynamicObject =
        serde_json::from_value(json!({"apiVersion": "v1", "kind": "T", "metadata": {"name": "p"}})).unwrap();
    assert!(external::request(&kinds, &bare, &machine(json!({}))).unwrap_err().contains("spec.template"));
}

#[test]
fn a_duration_that_cannot_be_read_names_its_field() {
    let startup = check(json!({"spec": {"nodeStartupTimeout": "0soon"}}));
    assert!(policy(&startup).unwrap_err().starts_with("spec.nodeStartupTimeout"));
    let condition =
        check(json!({"spec": {"unhealthyConditions": [{"type": "A", "status": "B", "timeout": "x"}]}}));
    assert!(policy(&condition).unwrap_err().contains("A=B"));
}

#[test]
fn a_machine_wakes_its_checks_when_its_verdict_can_change() {
    let before = machine(json!({}));
    let concerned = |before: &Machine, over: Value| {
        let mut value = serde_json::to_value(before).unwrap();
        merge_over(&mut value, &over);
        concerns_health(Some(before), Some(&serde_json::from_value(value).unwrap()))
    };
    assert!(concerns_health(None, Some(&before)) && concerns_health(Some(&before), None));
    for over in [
        json!({"metadata": {"labels": {"a": "b"}}}),
        json!({"metadata": {"ownerReferences": []}}),
        json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}),
        json!({"metadata": {"annotations": {names::EXTERNAL_REMEDIATION: ""}}}),
        json!({"status": {"phase": "Failed"}}),
        json!({"status": {"nodeRef": {"name": "other"}}}),
    ] {
        assert!(concerned(&before, over.clone()), "{over}");
    }
    let updated = json!({"status": {"lastUpdated": "2026-03-01T11:59:00Z"}});
    let state = json!({"metadata": {"annotations": {names::INSTANCE_STATE: "Running"}}});
    assert!(!concerned(&before, state) && !concerned(&before, updated.clone()));
    let starting = machine(json!({"status": {"nodeRef": null}}));
    assert!(concerned(&starting, updated));
}

proptest! {
    #[test]
    fn remediation_is_allowed_only_within_the_limit(healthy in 0_usize..20, unhealthy in 0_usize..20, percent in 0_usize..=100) {
        let check = check(json!({"spec": {"maxUnhealthy": format!("{percent}%")}}));
        let evaluation = evaluation(&check, healthy, unhealthy);
        let limit = percent * (healthy + unhealthy) / 100;
        prop_assert_eq!(evaluation.allowed().is_ok(), unhealthy <= limit);
    }
}
