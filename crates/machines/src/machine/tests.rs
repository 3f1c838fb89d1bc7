//! The rules of the machine controller, each with a test named after it.

use std::time::Duration;

use api::crd::machine::{Machine, MachinePhase, find_condition, names};
use cloud::{AddressKind, Instance, InstanceAddress, InstanceError};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::{
    AfterDelete, Deletion, Next, REQUEUE, Removal, Start, after_create, after_delete, after_deleted_find,
    after_find, after_update, deletion, is_refreshed, may_create, start,
};
use super::status::{StatusChange, next_status};
use crate::conditions;
use crate::merge::merge_over;

fn now() -> Timestamp {
    "2026-03-01T12:00:00.5Z".parse().unwrap()
}

/// A valid Machine with a finalizer, changed by `over`.
fn machine(over: Value) -> Machine {
    let mut value = json!({
        "metadata": {
            "name": "worker-0", "namespace": "openshift-machine-api", "uid": "uid-1",
            "labels": {names::CLUSTER_LABEL: "cluster"},
            "finalizers": [names::MACHINE_FINALIZER],
        },
        "spec": {"providerSpec": {"value": {"vmSize": "Standard_D4s_v3"}}},
    });
    merge_over(&mut value, &over);
    serde_json::from_value(value).unwrap()
}

fn with_status(status: Value) -> Machine {
    machine(json!({"status": status}))
}

/// A Machine that is being deleted, with its conditions written.
fn deleting(over: Value) -> Machine {
    let mut machine = machine(json!({
        "metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"},
        "status": {"phase": "Deleting"},
    }));
    let mut value = serde_json::to_value(&machine).unwrap();
    merge_over(&mut value, &over);
    machine = serde_json::from_value(value).unwrap();
    if let Some(status) = next_status(&machine, &StatusChange::default(), now()) {
        machine.status = Some(status);
    }
    machine
}

fn drained(mut machine: Machine) -> Machine {
    let change = StatusChange {
        conditions: vec![conditions::drained("Node drain skipped")],
        ..StatusChange::default()
    };
    machine.status = next_status(&machine, &change, now());
    machine
}

fn instance() -> Instance {
    Instance {
        provider_id: "azure:///vm/worker-0".to_owned(),
        addresses: vec![InstanceAddress { kind: AddressKind::InternalIp, address: "10.0.0.4".to_owned() }],
        state: "Running".to_owned(),
        provider_status: json!({"vmId": "v", "vmState": "Running"}),
        region: Some("westeurope".to_owned()),
        zone: Some("1".to_owned()),
        instance_type: Some("Standard_D4s_v3".to_owned()),
        interruptible: false,
    }
}

fn invalid() -> InstanceError {
    InstanceError::InvalidConfiguration("providerSpec.value.vmSize: \"huge\" is not a size".to_owned())
}

fn condition(machine: &Machine, type_: &str) -> (String, String) {
    let found = find_condition(&machine.status.as_ref().unwrap().conditions, type_).unwrap();
    (found.status.to_string(), found.reason.clone().unwrap_or_default())
}

/// The Machine after an outcome was written.
fn written(machine: &Machine, outcome: &super::decide::Outcome) -> Machine {
    let mut after = outcome.object.as_deref().unwrap_or(machine).clone();
    after.status = outcome.status.as_deref().or(machine.status.as_ref()).cloned();
    after
}

#[test]
fn rule_3_1_2_without_the_gate_the_authority_is_not_looked_at() {
    let other = with_status(json!({"authoritativeAPI": "ClusterAPI"}));
    assert_eq!(start(&other, false, now()), Start::Find);
}

#[test]
fn rule_3_1_2_with_the_gate_another_authority_pauses_the_machine() {
    let write = |machine: &Machine| match start(machine, true, now()) {
        Start::WriteStatus(status) => *status,
        other => panic!("{other:?}"),
    };
    let fresh = machine(json!({"spec": {"authoritativeAPI": "ClusterAPI"}}));
    assert_eq!(write(&fresh).authoritative_api.unwrap().as_str(), "ClusterAPI");
    for other in ["ClusterAPI", "Migrating"] {
        let mut paused = with_status(json!({"authoritativeAPI": other}));
        paused.status = Some(write(&paused));
        assert_eq!(
            condition(&paused, "Paused"),
            ("True".to_owned(), "AuthoritativeAPINotMachineAPI".to_owned())
        );
        assert!(matches!(start(&paused, true, now()), Start::Rest(_)));
    }
    let mut ours = with_status(json!({"authoritativeAPI": "MachineAPI"}));
    ours.status = Some(write(&ours));
    assert_eq!(condition(&ours, "Paused"), ("False".to_owned(), "AuthoritativeAPIMachineAPI".to_owned()));
    assert_eq!(start(&ours, true, now()), Start::Find);
    assert!(matches!(start(&with_status(json!({"authoritativeAPI": "New"})), true, now()), Start::Rest(_)));
}

#[test]
fn rule_3_1_3_a_machine_without_cluster_label_or_provider_spec_is_invalid() {
    let check = |machine: &Machine, expect: &str| match start(machine, false, now()) {
        Start::Invalid(message) => assert!(message.contains(expect), "{message}"),
        other => panic!("{other:?}"),
    };
    check(&machine(json!({"metadata": {"labels": {names::CLUSTER_LABEL: ""}}})), names::CLUSTER_LABEL);
    check(&machine(json!({"metadata": {"labels": null}})), names::CLUSTER_LABEL);
    check(&machine(json!({"spec": {"providerSpec": null}})), "spec.providerSpec.value");
}

#[test]
fn rule_3_1_4_a_new_machine_gets_its_finalizer_first() {
    assert_eq!(start(&machine(json!({"metadata": {"finalizers": []}})), false, now()), Start::AddFinalizer);
}

#[test]
fn rule_3_1_6_a_failed_machine_rests_until_it_is_deleted() {
    let failed = with_status(json!({"phase": "Failed"}));
    assert!(matches!(start(&failed, false, now()), Start::Rest(_)));
    let gone = deleting(json!({"status": {"phase": "Failed"}}));
    assert_eq!(start(&gone, false, now()), Start::Delete);
}

#[test]
fn rule_3_1_7_a_provider_that_cannot_be_asked_leaves_the_phase() {
    let running = with_status(json!({"phase": "Running"}));
    let outcome = after_find(&running, Err(InstanceError::Unavailable("throttled".into())), now());
    let after = written(&running, &outcome);
    assert_eq!(
        condition(&after, "InstanceExists"),
        ("Unknown".to_owned(), "ErrorCheckingProvider".to_owned())
    );
    assert_eq!(after.status.unwrap().phase, Some(MachinePhase::Running));
    assert!(matches!(outcome.next, Next::Retry(message) if message == "throttled"));
}

#[test]
fn rule_3_1_7_a_provider_that_asks_to_wait_is_asked_again_and_nothing_is_written() {
    let running = with_status(json!({"phase": "Running"}));
    let wait = InstanceError::RequeueAfter(Duration::from_secs(20), "not listed yet".into());
    let outcome = after_find(&running, Err(wait), now());
    assert_eq!((outcome.next, outcome.status), (Next::Wait(Duration::from_secs(20)), None));
}

#[test]
fn rule_3_1_7_a_configuration_that_became_invalid_does_not_fail_a_machine_that_exists() {
    let running = with_status(json!({"phase": "Running"}));
    let outcome = after_find(&running, Err(invalid()), now());
    let after = written(&running, &outcome);
    assert_eq!(condition(&after, "InstanceExists").1, "ErrorCheckingProvider");
    assert_eq!(after.status.unwrap().phase, Some(MachinePhase::Running));
}

#[test]
fn rule_3_1_8a_a_failed_update_is_repeated_without_backoff() {
    let machine = with_status(json!({"phase": "Provisioned"}));
    let outcome = after_update(&machine, Err(InstanceError::Update("no".into())), now());
    assert_eq!(outcome.next, Next::After(REQUEUE));
    assert_eq!(written(&machine, &outcome).status.unwrap().phase, Some(MachinePhase::Provisioned));
}

#[test]
fn rule_3_1_8c_an_instance_without_identity_and_addresses_is_not_provisioned() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let bare = Instance { provider_id: String::new(), addresses: Vec::new(), ..instance() };
    let outcome = after_update(&machine, Ok(bare), now());
    assert_eq!(outcome.next, Next::After(REQUEUE));
    assert_eq!(written(&machine, &outcome).status.unwrap().phase, Some(MachinePhase::Provisioning));
}

#[test]
fn rule_3_1_8c_a_machine_with_a_provider_id_is_provisioned_though_its_instance_reports_nothing() {
    let machine =
        machine(json!({"spec": {"providerID": "azure:///vm/worker-0"}, "status": {"phase": "Provisioning"}}));
    let bare = Instance { provider_id: String::new(), addresses: Vec::new(), ..instance() };
    let after = written(&machine, &after_update(&machine, Ok(bare), now()));
    assert_eq!(after.status.unwrap().phase, Some(MachinePhase::Provisioned));
}

#[test]
fn rule_3_1_8d_a_machine_with_an_instance_is_provisioned_and_has_what_it_reports() {
    let machine = with_status(json!({"phase": "Provisioning", "providerStatus": {"kept": 1}}));
    let outcome = after_update(&machine, Ok(instance()), now());
    assert_eq!(outcome.next, Next::After(REQUEUE));
    let after = written(&machine, &outcome);
    let labels = after.metadata.labels.unwrap();
    assert_eq!(labels[names::REGION_LABEL], "westeurope");
    assert_eq!(labels[names::ZONE_LABEL], "1");
    assert_eq!(labels[names::INSTANCE_TYPE_LABEL], "Standard_D4s_v3");
    assert_eq!(after.metadata.annotations.unwrap()[names::INSTANCE_STATE], "Running");
    assert_eq!(after.spec.provider_id.unwrap(), "azure:///vm/worker-0");
    let status = after.status.unwrap();
    assert_eq!(status.phase, Some(MachinePhase::Provisioned));
    assert_eq!(status.addresses[0].address, "10.0.0.4");
    assert_eq!(status.provider_status.unwrap(), json!({"kept": 1, "vmId": "v", "vmState": "Running"}));
}

#[test]
fn rule_3_1_8e_a_machine_with_a_node_runs_and_is_not_written_again() {
    let machine = with_status(json!({"phase": "Provisioned", "nodeRef": {"name": "n"}}));
    let outcome = after_update(&machine, Ok(instance()), now());
    assert_eq!(outcome.next, Next::Done);
    let running = written(&machine, &outcome);
    assert_eq!(running.status.as_ref().unwrap().phase, Some(MachinePhase::Running));
    let later = now() + jiff::SignedDuration::from_hours(1);
    let again = after_update(&running, Ok(instance()), later);
    assert_eq!((again.status, again.object.as_deref()), (None, Some(&running)));
}

#[test]
fn rule_3_1_8_an_interruptible_instance_is_labelled_on_machine_and_node() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let spot = Instance { interruptible: true, ..instance() };
    let after = written(&machine, &after_update(&machine, Ok(spot), now()));
    assert_eq!(after.metadata.labels.unwrap()[names::INTERRUPTIBLE_LABEL], "");
    assert_eq!(after.spec.metadata.unwrap().labels[names::INTERRUPTIBLE_LABEL], "");
}

#[test]
fn rule_3_1_8_a_value_that_is_no_label_is_left_out() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let odd = Instance { zone: Some("zone/1 ".into()), region: Some("x".repeat(64)), ..instance() };
    let after = written(&machine, &after_update(&machine, Ok(odd), now()));
    let labels = after.metadata.labels.unwrap();
    assert!(!labels.contains_key(names::ZONE_LABEL) && !labels.contains_key(names::REGION_LABEL));
}

#[test]
fn rule_3_1_9_a_vanished_instance_fails_the_machine() {
    let by_id = machine(json!({"spec": {"providerID": "x"}, "status": {"phase": "Running"}}));
    let by_address = with_status(json!({
        "phase": "Running", "addresses": [{"type": "InternalIP", "address": "10.0.0.4"}],
        "providerStatus": {"vmState": "Running", "instanceState": 3},
    }));
    for machine in [by_id, by_address] {
        let outcome = after_find(&machine, Ok(None), now());
        assert_eq!(outcome.next, Next::Done);
        let after = written(&machine, &outcome);
        assert_eq!(condition(&after, "InstanceExists"), ("False".to_owned(), "InstanceMissing".to_owned()));
        assert_eq!(after.metadata.annotations.unwrap()[names::INSTANCE_STATE], "Unknown");
        let status = after.status.unwrap();
        assert_eq!(status.phase, Some(MachinePhase::Failed));
        assert_eq!(status.error_message.unwrap(), "can't find created instance");
        assert_eq!(status.error_reason, None);
        if let Some(provider_status) = status.provider_status {
            assert_eq!(provider_status, json!({"vmState": "Unknown", "instanceState": 3}));
        }
    }
}

#[test]
fn rule_3_1_10a_the_phase_is_stored_before_an_instance_is_created() {
    let fresh = machine(json!({}));
    let outcome = after_find(&fresh, Ok(None), now());
    assert_eq!(outcome.next, Next::Done);
    let after = written(&fresh, &outcome);
    assert_eq!(condition(&after, "InstanceExists"), ("False".to_owned(), "InstanceNotCreated".to_owned()));
    assert_eq!(after.status.as_ref().unwrap().phase, Some(MachinePhase::Provisioning));
    assert_eq!(after_find(&after, Ok(None), now()).next, Next::Create);
    let empty = after_find(&with_status(json!({"phase": ""})), Ok(None), now());
    assert_eq!(empty.status.unwrap().phase, Some(MachinePhase::Provisioning));
}

#[test]
fn rule_3_1_10b_an_invalid_configuration_fails_the_machine_for_good() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let outcome = after_create(&machine, Err(invalid()), now());
    assert_eq!(outcome.next, Next::Done);
    let after = written(&machine, &outcome);
    let status = after.status.as_ref().unwrap();
    assert_eq!(status.phase, Some(MachinePhase::Failed));
    assert_eq!(status.error_reason.as_deref(), Some("InvalidConfiguration"));
    assert!(status.error_message.as_ref().unwrap().contains("vmSize"));
    assert_eq!(status.provider_status.as_ref().unwrap()["conditions"][0]["reason"], "MachineCreationFailed");
}

#[test]
fn rule_3_1_10b_a_creation_that_has_to_wait_is_no_failure() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let wait = InstanceError::RequeueAfter(Duration::from_secs(7), "pending".into());
    let outcome = after_create(&machine, Err(wait), now());
    assert_eq!((outcome.next, outcome.status), (Next::Wait(Duration::from_secs(7)), None));
}

#[test]
fn rule_15_a_failed_creation_is_shown_and_keeps_the_phase() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let outcome = after_create(&machine, Err(InstanceError::Create("quota exceeded".into())), now());
    assert!(matches!(outcome.next, Next::Retry(_)));
    let after = written(&machine, &outcome);
    let status = after.status.unwrap();
    assert_eq!((status.phase, status.error_message), (Some(MachinePhase::Provisioning), None));
    let shown = find_condition(&status.conditions, "InstanceExists").unwrap();
    assert!(shown.message.as_ref().unwrap().contains("quota exceeded"));
}

#[test]
fn rule_3_1_10c_a_created_instance_is_recorded() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let outcome = after_create(&machine, Ok(instance()), now());
    assert_eq!(outcome.next, Next::After(REQUEUE));
    let after = written(&machine, &outcome);
    assert_eq!(after.spec.provider_id.unwrap(), "azure:///vm/worker-0");
    let provider_status = after.status.unwrap().provider_status.unwrap();
    assert_eq!(provider_status["conditions"][0]["type"], "MachineCreated");
    assert_eq!(provider_status["conditions"][0]["status"], "True");
}

#[test]
fn nothing_is_created_for_a_machine_that_is_no_longer_as_it_was_seen() {
    let seen = with_status(json!({"phase": "Provisioning"}));
    assert!(may_create(&seen, Some(&seen)));
    assert!(!may_create(&seen, None));
    let over = |over: Value| {
        let mut value = serde_json::to_value(&seen).unwrap();
        merge_over(&mut value, &over);
        serde_json::from_value::<Machine>(value).unwrap()
    };
    for changed in [
        json!({"metadata": {"uid": "uid-2"}}),
        json!({"metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}}),
        json!({"metadata": {"finalizers": []}}),
        json!({"spec": {"providerID": "x"}}),
        json!({"status": {"phase": "Failed"}}),
    ] {
        assert!(!may_create(&seen, Some(&over(changed.clone()))), "{changed}");
    }
}

#[test]
fn rule_3_2_1_the_phase_becomes_deleting_and_errors_are_cleared() {
    let failed = machine(json!({
        "metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"},
        "status": {"phase": "Failed", "errorReason": "CreateError", "errorMessage": "m"},
    }));
    match deletion(&failed, now()) {
        Deletion::WriteStatus(status) => {
            assert_eq!(status.phase, Some(MachinePhase::Deleting));
            assert_eq!((status.error_reason, status.error_message), (None, None));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn rule_3_2_2_to_4_a_deletion_waits_for_drain_and_hooks() {
    let rests = |machine: &Machine, expect: &str| match deletion(machine, now()) {
        Deletion::Rest(why) => assert_eq!(why, expect),
        other => panic!("{other:?}"),
    };
    rests(&deleting(json!({"metadata": {"finalizers": ["other"]}})), "the finalizer is removed");
    rests(&deleting(json!({})), "the Node is not drained");
    let hook = json!({"spec": {"lifecycleHooks": {"preTerminate": [{"name": "Backup", "owner": "etcd"}]}}});
    let held = drained(deleting(hook));
    assert_eq!(condition(&held, "Terminable"), ("False".to_owned(), "HookPresent".to_owned()));
    rests(&held, "preTerminate hooks are present");
    assert_eq!(deletion(&drained(deleting(json!({}))), now()), Deletion::DeleteInstance);
}

#[test]
fn rule_3_2_5_an_instance_that_was_never_created_does_not_block_its_machine() {
    let never = deleting(json!({}));
    let once = deleting(json!({"status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.4"}]}}));
    assert_eq!(after_delete(&never, Err(invalid())), AfterDelete::Find);
    assert_eq!(after_deleted_find(&never, Err(invalid())), Removal::Remove);
    assert!(matches!(after_delete(&once, Err(invalid())), AfterDelete::Retry(_)));
    assert!(matches!(after_deleted_find(&once, Err(invalid())), Removal::Retry(_)));
    let failed = || Err(InstanceError::Delete("no".into()));
    assert!(matches!(after_delete(&never, failed()), AfterDelete::Retry(_)));
    let wait = || InstanceError::RequeueAfter(Duration::from_secs(3), "detaching".into());
    assert_eq!(after_delete(&never, Err(wait())), AfterDelete::After(Duration::from_secs(3)));
}

#[test]
fn rule_3_2_6_a_deletion_waits_until_the_instance_is_gone() {
    let machine = deleting(json!({}));
    assert_eq!(after_deleted_find(&machine, Ok(Some(instance()))), Removal::After(REQUEUE));
    assert_eq!(after_deleted_find(&machine, Ok(None)), Removal::Remove);
    let unavailable = Err(InstanceError::Unavailable("away".into()));
    assert!(matches!(after_deleted_find(&machine, unavailable), Removal::Retry(_)));
}

#[test]
fn rule_3_3_hooks_are_shown_whenever_the_status_is_written() {
    let hooked = machine(json!({"spec": {"lifecycleHooks": {
        "preDrain": [{"name": "Migrate", "owner": "storage"}, {"name": "Warn", "owner": "users"}],
    }}}));
    let after = written(&hooked, &after_find(&hooked, Ok(None), now()));
    let drainable = find_condition(&after.status.as_ref().unwrap().conditions, "Drainable").unwrap();
    assert_eq!(
        drainable.message.as_deref(),
        Some("Drain operation currently blocked by: [{Name:Migrate Owner:storage} {Name:Warn Owner:users}]")
    );
    assert_eq!(condition(&after, "Terminable").0, "True");
}

#[test]
fn rule_3_3_last_updated_changes_only_with_the_status() {
    let machine = with_status(json!({"phase": "Running"}));
    let status = next_status(&machine, &StatusChange::default(), now()).unwrap();
    assert_eq!(status.last_updated.as_ref().unwrap().0.to_string(), "2026-03-01T12:00:00Z");
    let after = Machine { status: Some(status), ..machine };
    let later = now() + jiff::SignedDuration::from_hours(1);
    assert_eq!(next_status(&after, &StatusChange::default(), later), None);
}

#[test]
fn rule_3_3_an_error_stays_only_while_the_machine_is_failed() {
    let stale = json!({"errorReason": "InvalidConfiguration", "errorMessage": "m", "phase": "Provisioning"});
    let cleared = next_status(&with_status(stale), &StatusChange::default(), now()).unwrap();
    assert_eq!((cleared.error_reason, cleared.error_message), (None, None));
    let failed = after_create(&with_status(json!({"phase": "Provisioning"})), Err(invalid()), now());
    let failed = failed.status.unwrap();
    assert_eq!(failed.error_reason.as_deref(), Some("InvalidConfiguration"));
    assert_eq!(failed.error_message, Some(invalid().to_string()));
}

#[test]
fn rule_3_3_a_pre_terminate_hook_is_named_with_its_owner() {
    let hook = json!({"preTerminate": [{"name": "Backup", "owner": "etcd"}]});
    let status =
        next_status(&machine(json!({"spec": {"lifecycleHooks": hook}})), &StatusChange::default(), now());
    let terminable = find_condition(&status.as_ref().unwrap().conditions, "Terminable").unwrap();
    assert_eq!(
        terminable.message.as_deref(),
        Some("Terminate operation currently blocked by: [{Name:Backup Owner:etcd}]")
    );
}

#[test]
fn rule_3_4_a_machine_whose_node_ref_vanished_is_provisioned_again() {
    let running = with_status(json!({"phase": "Running"}));
    let after = written(&running, &after_update(&running, Ok(instance()), now()));
    assert_eq!(after.status.unwrap().phase, Some(MachinePhase::Provisioned));
}

#[test]
fn rule_3_4_the_phase_of_a_deleted_machine_is_deleting_whatever_it_was() {
    for phase in ["", "Provisioning", "Provisioned", "Running", "Failed"] {
        let machine = machine(json!({
            "metadata": {"deletionTimestamp": "2026-03-01T11:00:00Z"}, "status": {"phase": phase},
        }));
        assert_eq!(start(&machine, false, now()), Start::Delete);
        match deletion(&machine, now()) {
            Deletion::WriteStatus(status) => assert_eq!(status.phase, Some(MachinePhase::Deleting)),
            other => panic!("{phase}: {other:?}"),
        }
    }
}

#[test]
fn rule_5_a_refresh_that_changes_nothing_is_no_update() {
    let machine = with_status(json!({"phase": "Provisioning"}));
    let outcome = after_update(&machine, Ok(instance()), now());
    assert!(is_refreshed(&machine, &outcome));
    let refreshed = written(&machine, &outcome);
    assert!(!is_refreshed(&refreshed, &after_update(&refreshed, Ok(instance()), now())));
    let moved = Instance { addresses: Vec::new(), ..instance() };
    assert!(is_refreshed(&refreshed, &after_update(&refreshed, Ok(moved), now())));
    let failed = after_update(&refreshed, Err(InstanceError::Update("no".into())), now());
    assert!(!is_refreshed(&refreshed, &failed));
}

#[test]
fn rule_5_a_changed_configuration_does_not_change_what_is_asked_of_a_running_instance() {
    let running = with_status(json!({"phase": "Running", "nodeRef": {"name": "n"}}));
    let mut resized = running.clone();
    resized.spec.provider_spec.as_mut().unwrap().value = Some(json!({"vmSize": "Standard_D64s_v3"}));
    for machine in [&running, &resized] {
        let next = after_find(machine, Ok(Some(instance())), now()).next;
        assert_eq!(next, Next::Update(Box::new(instance())));
    }
}
