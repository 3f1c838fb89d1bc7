//! The rules of the MachineSet controller, each with a test named after it.

use std::sync::Arc;
use std::time::Duration;

use api::crd::machine::{DeletePolicy, Machine, MachineSet, names};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{
    Scaling, adopted, authority, concerns_set, concerns_status, look_again, machine_set_of, members,
    name_prefix, new_machine, next_status, scaling, validate,
};
use super::priority;
use crate::merge::merge_over;

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn set(over: Value) -> MachineSet {
    let mut value = json!({
        "metadata": {"name": "web", "namespace": "m", "uid": "set-1", "generation": 4},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"set": "web"}},
            "template": {"metadata": {"labels": {"set": "web", "tier": "a"}}, "spec": {"providerID": null}},
        },
    });
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn machine(name: &str, over: Value) -> Arc<Machine> {
    let mut value = json!({
        "metadata": {"name": name, "namespace": "m", "uid": name, "labels": {"set": "web"},
            "creationTimestamp": "2026-03-01T00:00:00Z",
            "ownerReferences": [{"apiVersion": "a", "kind": "MachineSet", "name": "web", "uid": "set-1",
                "controller": true}]},
        "spec": {},
        "status": {"nodeRef": {"name": name}},
    });
    merge_over(&mut value, &over);
    Arc::new(serde_json::from_value(value).unwrap())
}

fn names_of(machines: &[Arc<Machine>]) -> Vec<String> {
    machines.iter().map(|machine| machine.name_any()).collect()
}

#[test]
fn rule_6_1_2_the_authority_is_as_for_a_machine() {
    let authority = |over: Value| authority(&set(over), now());
    assert_eq!(
        authority(json!({"spec": {"authoritativeAPI": "MachineAPI"}}))
            .unwrap()
            .unwrap()
            .authoritative_api
            .unwrap()
            .as_str(),
        "MachineAPI"
    );
    let paused = authority(json!({"status": {"authoritativeAPI": "Migrating"}})).unwrap().unwrap();
    assert_eq!(paused.conditions[0].status.as_str(), "True");
    let ours = authority(json!({"status": {"authoritativeAPI": "MachineAPI"}})).unwrap().unwrap();
    assert_eq!(ours.conditions[0].status.as_str(), "False");
}

#[test]
fn rule_6_1_3_the_selector_is_valid_not_empty_and_matches_the_template() {
    assert!(validate(&set(json!({}))).is_ok());
    let check = |over: Value, expect: &str| {
        let error = validate(&set(over)).unwrap_err();
        assert!(error.contains(expect), "{error}");
    };
    check(json!({"spec": {"selector": {"matchLabels": null}}}), "must not be empty");
    check(json!({"spec": {"selector": {"matchLabels": {"set": "db"}}}}), "must match spec.selector (set=db)");
    let operator = json!([{"key": "k", "operator": "Like"}]);
    check(json!({"spec": {"selector": {"matchExpressions": operator}}}), "\"Like\"");
    check(json!({"spec": {"replicas": null}}), "spec.replicas");
    check(json!({"spec": {"replicas": -1}}), "must not be negative");
}

#[test]
fn rule_6_1_4_to_6_members_match_are_alive_and_have_no_other_controller() {
    let set = set(json!({}));
    let selector = validate(&set).unwrap();
    let other = json!({"metadata": {"ownerReferences": [{"apiVersion": "a", "kind": "MachineSet", "name": "o", "uid": "set-2", "controller": true}]}});
    let machines = vec![
        machine("c", json!({})),
        machine("a", json!({})),
        machine("deleted", json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}})),
        machine("released", json!({"metadata": {"labels": {"set": "db"}}})),
        machine("other", other),
        machine("orphan", json!({"metadata": {"ownerReferences": []}})),
    ];
    let members = members(&set, &selector, machines);
    assert_eq!(names_of(&members.owned), ["a", "c"]);
    assert_eq!(names_of(&members.orphans), ["orphan"]);
    let adopted = adopted(&set, &members.orphans[0]);
    let owner = &adopted.owner_references()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), ("set-1", Some(true)));
}

#[test]
fn rule_6_1_a_released_machine_is_replaced_and_keeps_its_owner() {
    let set = set(json!({"spec": {"replicas": 2}}));
    let selector = validate(&set).unwrap();
    let released = machine("a", json!({"metadata": {"labels": {"set": "db"}}}));
    let members = members(&set, &selector, vec![released.clone(), machine("b", json!({}))]);
    // It is no orphan either: nobody takes the owner away.
    assert_eq!((names_of(&members.owned), members.orphans.len()), (vec!["b".to_owned()], 0));
    assert_eq!(scaling(&set, &members.owned, now()).unwrap(), Scaling::Create(1));
    assert_eq!(released.owner_references()[0].uid, "set-1");
}

#[test]
fn rule_6_1_failed_machines_count_and_those_that_are_deleted_do_not() {
    let set = set(json!({"spec": {"replicas": 2}}));
    let selector = validate(&set).unwrap();
    let failed = machine("a", json!({"status": {"phase": "Failed", "errorMessage": "m"}}));
    let deleted = machine("b", json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}));
    let with = |machines: Vec<Arc<Machine>>| {
        scaling(&set, &members(&set, &selector, machines).owned, now()).unwrap()
    };
    assert_eq!(with(vec![failed.clone(), machine("c", json!({}))]), Scaling::None);
    assert_eq!(with(vec![failed, deleted]), Scaling::Create(1));
}

#[test]
fn rule_6_2_a_set_without_replicas_is_an_error_and_not_a_set_of_none() {
    let error = validate(&set(json!({"spec": {"replicas": null}}))).unwrap_err();
    assert_eq!(error, "spec.replicas: Required value");
}

#[test]
fn rule_6_2_the_number_is_reached_by_creation_or_deletion() {
    let machines: Vec<_> = ["a", "b", "c"].map(|name| machine(name, json!({}))).into();
    let of =
        |replicas: i32| scaling(&set(json!({"spec": {"replicas": replicas}})), &machines, now()).unwrap();
    assert_eq!(of(3), Scaling::None);
    assert_eq!(of(5), Scaling::Create(2));
    assert!(matches!(of(1), Scaling::Delete(machines) if names_of(&machines) == ["a", "b"]));
    assert!(matches!(of(0), Scaling::Delete(machines) if machines.len() == 3));
}

#[test]
fn rule_6_2_a_new_machine_is_a_copy_of_the_template() {
    let template =
        json!({"metadata": {"annotations": {"note": "x"}}, "spec": {"providerSpec": {"value": {"a": 1}}}});
    let set = set(json!({"spec": {"template": template}}));
    let machine = new_machine(&set, "web-abcde".to_owned());
    assert_eq!(machine.metadata.generate_name.as_deref(), Some("web-"));
    assert_eq!(machine.labels()["tier"], "a");
    assert_eq!(machine.annotations()["note"], "x");
    assert_eq!(machine.spec.provider_spec.clone().unwrap().value.unwrap(), json!({"a": 1}));
    let owner = &machine.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.block_owner_deletion), ("MachineSet", Some(true)));
    let long = MachineSet {
        metadata: kube::core::ObjectMeta { name: Some("x".repeat(253)), ..Default::default() },
        ..set
    };
    assert_eq!(name_prefix(&long).len(), 58);
}

fn selected(machines: &[Arc<Machine>], count: usize, policy: DeletePolicy) -> Vec<String> {
    names_of(&priority::select(machines, count, Some(&policy), now()).unwrap())
}

#[test]
fn rule_6_3_random_prefers_marked_and_failed_then_those_without_a_node() {
    let machines = [
        machine("a-linked", json!({})),
        machine("b-unlinked", json!({"status": {"nodeRef": null}})),
        machine("c-failed", json!({"status": {"errorMessage": "m"}})),
        machine("d-marked", json!({"metadata": {"annotations": {names::DELETE_MACHINE: "yes"}}})),
        machine("e-marked-empty", json!({"metadata": {"annotations": {names::DELETE_MACHINE: ""}}})),
        machine("f-deleted", json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}})),
        machine("g-marked-old", json!({"metadata": {"annotations": {names::DELETE_MACHINE_OLD: "yes"}}})),
    ];
    let expect =
        ["f-deleted", "c-failed", "d-marked", "g-marked-old", "b-unlinked", "a-linked", "e-marked-empty"];
    assert_eq!(selected(&machines, 9, DeletePolicy::Random), expect);
    assert_eq!(selected(&machines, 2, DeletePolicy::Random), expect[..2]);
    assert!(selected(&machines, 0, DeletePolicy::Random).is_empty());
    let none = priority::select(&machines, 1, None, now()).unwrap();
    let empty = DeletePolicy::Unrecognized(String::new());
    assert_eq!(
        (names_of(&none), selected(&machines, 1, empty)),
        (vec!["f-deleted".into()], vec!["f-deleted".to_owned()])
    );
}

#[test]
fn rule_6_3_newest_and_oldest_go_by_age_after_the_marked() {
    let aged = |name: &str, created: &str| machine(name, json!({"metadata": {"creationTimestamp": created}}));
    let machines = [
        aged("a-old", "2025-01-01T00:00:00Z"),
        aged("b-new", "2026-03-01T11:59:59Z"),
        aged("c-middle", "2026-01-01T00:00:00Z"),
        aged("d-future", "2027-01-01T00:00:00Z"),
    ];
    assert_eq!(selected(&machines, 4, DeletePolicy::Oldest), ["a-old", "c-middle", "b-new", "d-future"]);
    assert_eq!(selected(&machines, 4, DeletePolicy::Newest)[2..], ["c-middle", "a-old"]);
}

#[test]
fn rule_15_a_marked_machine_goes_before_the_newest() {
    let fresh = machine("a-fresh", json!({"metadata": {"creationTimestamp": "2026-03-01T12:00:00Z"}}));
    let marked = machine(
        "b-marked",
        json!({"metadata": {"creationTimestamp": "2024-01-01T00:00:00Z", "annotations": {names::DELETE_MACHINE: "y"}}}),
    );
    assert_eq!(selected(&[fresh, marked], 1, DeletePolicy::Newest), ["b-marked"]);
}

#[test]
fn rule_6_3_an_unknown_policy_is_an_error() {
    let unknown = DeletePolicy::Unrecognized("Best".to_owned());
    let error = priority::select(&[], 1, Some(&unknown), now()).unwrap_err();
    assert_eq!(error, "unsupported delete policy Best");
}

fn node(ready: &str, since: &str) -> Arc<Node> {
    let condition = json!({"type": "Ready", "status": ready, "lastTransitionTime": since});
    Arc::new(
        serde_json::from_value(json!({"metadata": {"name": "n"}, "status": {"conditions": [condition]}}))
            .unwrap(),
    )
}

#[test]
fn rule_6_4_the_status_counts_machines_by_labels_and_nodes() {
    let set = set(json!({"spec": {"minReadySeconds": 60, "replicas": 3}}));
    let selector = validate(&set).unwrap();
    let labelled = json!({"metadata": {"labels": {"tier": "a"}}});
    let machines = [
        machine("long", labelled),
        machine("short", json!({})),
        machine("unready", json!({})),
        machine("unlinked", json!({"status": {"nodeRef": null}})),
        machine("gone", json!({})),
    ];
    let find = |name: &str| match name {
        "long" => Some(node("True", "2026-03-01T11:58:59Z")),
        "short" => Some(node("True", "2026-03-01T11:59:00Z")),
        "unready" => Some(node("Unknown", "2026-03-01T11:00:00Z")),
        _ => None,
    };
    let status = next_status(&set, &selector, &machines, find, now());
    let counts =
        (status.replicas, status.fully_labeled_replicas, status.ready_replicas, status.available_replicas);
    assert_eq!(counts, (Some(5), Some(1), Some(2), Some(1)));
    assert_eq!((status.observed_generation, status.label_selector.as_deref()), (Some(4), Some("set=web")));
}

#[test]
fn rule_6_4_an_unchanged_status_is_not_written() {
    let mut set = set(json!({"spec": {"replicas": 1}}));
    let selector = validate(&set).unwrap();
    let machines = [machine("a", json!({}))];
    let at = |set: &MachineSet, now| {
        next_status(set, &selector, &machines, |_| Some(node("True", "2026-03-01T11:00:00Z")), now)
    };
    let first = at(&set, now());
    assert_ne!(set.status.as_ref(), Some(&first));
    set.status = Some(first.clone());
    assert_eq!(at(&set, now() + SignedDuration::from_hours(1)), first);
}

#[test]
fn rule_6_4_without_min_ready_seconds_a_ready_machine_is_available_at_once() {
    let set = set(json!({"spec": {"replicas": 1}}));
    let selector = validate(&set).unwrap();
    let ready = |_: &str| Some(node("True", &now().to_string()));
    let status = next_status(&set, &selector, &[machine("a", json!({}))], ready, now());
    assert_eq!((status.ready_replicas, status.available_replicas), (Some(1), Some(1)));
}

#[test]
fn rule_6_1_9_availability_is_looked_at_again_when_it_is_due() {
    let set = set(json!({"spec": {"minReadySeconds": 60, "replicas": 1}}));
    let selector = validate(&set).unwrap();
    let machines = [machine("a", json!({}))];
    let at = |since: SignedDuration| {
        let find = |_: &str| Some(node("True", &(now() - since).to_string()));
        next_status(&set, &selector, &machines, find, now())
    };
    assert_eq!(look_again(&set, &at(SignedDuration::from_secs(1))), Some(Duration::from_secs(60)));
    assert_eq!(look_again(&set, &at(SignedDuration::from_secs(99))), None);
}

#[test]
fn a_machine_that_never_becomes_ready_does_not_keep_others_from_becoming_available() {
    let set = set(json!({"spec": {"minReadySeconds": 60, "replicas": 2}}));
    let mut status = api::crd::machine::MachineSetStatus {
        ready_replicas: Some(1),
        available_replicas: Some(0),
        ..api::crd::machine::MachineSetStatus::default()
    };
    assert_eq!(look_again(&set, &status), Some(Duration::from_secs(60)));
    status.available_replicas = Some(1);
    assert_eq!(look_again(&set, &status), None);
}

#[test]
fn a_node_that_changes_its_readiness_or_is_gone_concerns_its_machine_set() {
    let (ready, later) = (node("True", "2026-03-01T11:00:00Z"), node("True", "2026-03-01T11:30:00Z"));
    let unready = node("False", "2026-03-01T11:30:00Z");
    assert!(!concerns_status(Some(&ready), Some(&later)));
    assert!(concerns_status(Some(&ready), Some(&unready)));
    assert!(concerns_status(Some(&ready), None) && concerns_status(None, Some(&ready)));
    let owner = |kind: &str| {
        let owner = json!([{"apiVersion": "a", "kind": kind, "name": "web", "uid": "u", "controller": true}]);
        machine_set_of(&machine("a", json!({"metadata": {"ownerReferences": owner}})))
    };
    assert_eq!(owner("MachineSet"), Some(controller::ObjectKey::namespaced("m", "web")));
    assert_eq!(owner("ControlPlaneMachineSet"), None);
}

#[test]
fn of_the_changes_of_a_machine_only_membership_deletion_and_node_concern_its_machine_set() {
    let before = machine("a", json!({}));
    let concerned = |over: Value| concerns_set(Some(&before), Some(&machine("a", over)));
    assert!(concerns_set(None, Some(&before)) && concerns_set(Some(&before), None));
    for over in [
        json!({"metadata": {"labels": {"set": "db"}}}),
        json!({"metadata": {"ownerReferences": []}}),
        json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}),
        json!({"metadata": {"uid": "another"}}),
        json!({"status": {"nodeRef": null}}),
    ] {
        assert!(concerned(over.clone()), "{over}");
    }
    for over in [
        json!({}),
        json!({"metadata": {"annotations": {"machine.openshift.io/instance-state": "Running"}}}),
        json!({"spec": {"providerID": "x"}}),
        json!({"status": {"phase": "Provisioned", "lastUpdated": "2026-03-01T11:00:00Z"}}),
    ] {
        assert!(!concerned(over.clone()), "{over}");
    }
}

proptest! {
    #[test]
    fn scaling_reaches_the_number_and_never_deletes_more(replicas in 0_i32..12, marked in proptest::collection::vec(any::<bool>(), 0..12)) {
        let machines: Vec<_> = marked.iter().enumerate().map(|(number, marked)| {
            let over = if *marked { json!({"metadata": {"annotations": {names::DELETE_MACHINE: "y"}}}) } else { json!({}) };
            machine(&format!("m{number:02}"), over)
        }).collect();
        let wanted = usize::try_from(replicas).unwrap();
        match scaling(&set(json!({"spec": {"replicas": replicas}})), &machines, now()).unwrap() {
            Scaling::None => prop_assert_eq!(machines.len(), wanted),
            Scaling::Create(count) => prop_assert_eq!(machines.len() + count, wanted),
            Scaling::Delete(selected) => {
                prop_assert_eq!(machines.len() - selected.len(), wanted);
                let is_marked = |machine: &Machine| machine.annotations().contains_key(names::DELETE_MACHINE);
                let kept_marked = machines.iter().filter(|it| is_marked(it)).count() - selected.iter().filter(|it| is_marked(it)).count();
                prop_assert!(kept_marked == 0 || selected.iter().all(|it| is_marked(it)));
            }
        }
    }
}
