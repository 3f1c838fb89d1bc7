use serde_json::json;
use uuid::Uuid;

use super::*;

fn cluster(state: ProvisioningState) -> Cluster {
    Cluster {
        id: "/subscriptions/S/resourceGroups/g/providers/Microsoft.RedHatOpenShift/openShiftClusters/c"
            .to_owned(),
        subscription_id: "s".to_owned(),
        name: "c".to_owned(),
        location: "here".to_owned(),
        labels: [].into(),
        provisioning_state: state,
        last_provisioning_state: Some(ProvisioningState::Failed),
        failed_provisioning_state: Some(ProvisioningState::Updating),
        operation: Some(Uuid::from_u128(7)),
        credential: None,
        managed_resource_group: None,
        imported: false,
        created_at: Timestamp::UNIX_EPOCH,
        provisioned: None,
    }
}

fn operation(verb: Verb, state: ProvisioningState) -> Operation {
    Operation {
        id: Uuid::from_u128(7),
        cluster: Uuid::from_u128(1),
        cluster_path: "/c".to_owned(),
        verb,
        initial_status: state,
        status: state,
        start_time: Timestamp::UNIX_EPOCH,
        end_time: None,
        error: None,
        snapshot: None,
        correlation_id: None,
        client_request_id: None,
    }
}

fn finished(verb: Verb, ending: Ending, result: &Value) -> FinishedOperation {
    let state = match verb {
        Verb::Create => ProvisioningState::Creating,
        Verb::Update => ProvisioningState::Updating,
        Verb::AdminUpdate => ProvisioningState::AdminUpdating,
        Verb::Delete => ProvisioningState::Deleting,
    };
    finish_operation(
        &operation(verb, state),
        &cluster(state),
        ending,
        &result.clone().into(),
        Timestamp::UNIX_EPOCH,
        "r1",
    )
}

#[test]
fn the_cluster_follows_its_operation() {
    use ProvisioningState as S;
    for (verb, doing) in [(Verb::Create, S::Creating), (Verb::Update, S::Updating)] {
        let good = finished(verb, Ending::Completed, &json!({})).cluster.unwrap();
        assert_eq!((good.provisioning_state, good.failed_provisioning_state), (S::Succeeded, None));
        assert_eq!((good.operation, good.last_provisioning_state), (None, None));
        let bad = finished(verb, Ending::Failed, &json!({})).cluster.unwrap();
        assert_eq!((bad.provisioning_state, bad.failed_provisioning_state), (S::Failed, Some(doing)));
    }
    assert_eq!(finished(Verb::Delete, Ending::Completed, &json!({})).cluster, None);
    let stuck = finished(Verb::Delete, Ending::RetriesExceeded, &json!({})).cluster.unwrap();
    assert_eq!((stuck.provisioning_state, stuck.failed_provisioning_state), (S::Failed, Some(S::Deleting)));
    for ending in [Ending::Completed, Ending::Failed] {
        let admin = finished(Verb::AdminUpdate, ending, &json!({})).cluster.unwrap();
        assert_eq!(admin.provisioning_state, S::Failed, "an operator's update leaves the state as it was");
        assert_eq!(admin.failed_provisioning_state, Some(S::Updating));
    }
}

#[test]
fn a_finished_operation_has_its_result_and_a_snapshot_of_the_cluster() {
    let good = finished(Verb::Create, Ending::Completed, &json!({})).operation;
    assert_eq!((good.status, good.error), (ProvisioningState::Succeeded, None));
    assert_eq!(good.snapshot.unwrap()["provisioningState"], "Succeeded");
    let gone = finished(Verb::Delete, Ending::Completed, &json!({})).operation;
    assert_eq!((gone.status, gone.snapshot), (ProvisioningState::Succeeded, None));
    let bad = finished(Verb::Create, Ending::Failed, &json!({})).operation;
    assert_eq!((bad.status, bad.end_time), (ProvisioningState::Failed, Some(Timestamp::UNIX_EPOCH)));
}

#[test]
fn a_customer_reads_errors_meant_for_customers_and_nothing_else() {
    let check = |ending: Ending, result: Value, code: &str, message: &str| {
        let error = finished(Verb::Create, ending, &result).operation.error.unwrap();
        assert_eq!((error.code.as_str(), error.message.as_str()), (code, message), "{result}");
    };
    let meant = json!({"code": "InvalidLinkedVNet", "message": "gone", "target": "properties.x"});
    check(Ending::Failed, json!({"code": "X", "customer": meant}), "InvalidLinkedVNet", "gone");
    check(Ending::RetriesExceeded, json!({"customer": meant}), "InvalidLinkedVNet", "gone");
    let innards = json!({"code": "Store", "message": "password=hunter2"});
    check(Ending::Failed, innards, INTERNAL, "Internal server error.");
    let odd = json!({"customer": {"code": "Forbidden", "message": "NullOrInvalidGuidExcludePrincipalId"}});
    check(Ending::Failed, odd, INTERNAL, "Internal server error.");
    check(
        Ending::RetriesExceeded,
        json!({"code": "StepTimeout", "step": "operator-console-ready"}),
        DEPLOYMENT_FAILED,
        "The console has not become ready. Please retry, and if the issue persists, raise a support ticket.",
    );
    check(
        Ending::RetriesExceeded,
        json!({"code": "StepTimeout", "step": "ensure-resource-group"}),
        DEPLOYMENT_FAILED,
        "The resource group of the cluster has not become ready. Please retry, and if the issue persists, raise a support ticket.",
    );
    check(
        Ending::Cancelled,
        json!({"reason": "its subscription is deleted"}),
        "OperationCanceled",
        "The operation was cancelled: its subscription is deleted.",
    );
}

#[test]
fn the_code_of_an_error_decides_whether_it_is_the_users_or_the_servers() {
    assert_eq!(result_type(None), "Success");
    assert_eq!(result_type(Some(&customer_error(INTERNAL, "", None))), "ServerError");
    assert_eq!(result_type(Some(&customer_error("InvalidLinkedVNet", "", None))), "UserError");
    let mut failed = customer_error(DEPLOYMENT_FAILED, "", None);
    assert_eq!(result_type(Some(&failed)), "ServerError");
    failed.details.push(customer_error("InternalExecutionError", "", None));
    assert_eq!(result_type(Some(&failed)), "ServerError");
    failed.details.push(customer_error("ZonalAllocationFailed", "", None));
    assert_eq!(result_type(Some(&failed)), "UserError");
}

#[test]
fn a_cluster_that_is_too_large_leaves_no_snapshot_in_its_operation() {
    let check = |bytes: usize, expect: bool| {
        let mut large = cluster(ProvisioningState::Updating);
        large.labels = [("a".to_owned(), "x".repeat(bytes))].into();
        let started = operation(Verb::Update, ProvisioningState::Updating);
        let finished = finish_operation(
            &started,
            &large,
            Ending::Completed,
            &json!({}).into(),
            Timestamp::UNIX_EPOCH,
            "r1",
        );
        assert_eq!(finished.operation.snapshot.is_some(), expect, "{bytes}");
        assert_eq!(finished.operation.status, ProvisioningState::Succeeded);
    };
    check(1000, true);
    check(SNAPSHOT_BYTES_MAX, false);
}

/// A message about a step that no plan has would never be shown.
#[test]
fn every_message_about_a_timeout_belongs_to_a_step_of_a_plan() {
    let plan = crate::plan::create(false, crate::OperationTiming::default());
    for (step, message) in &TIMEOUT_MESSAGES {
        assert!(
            plan.steps.iter().any(|it| *step == it.name.as_str()),
            "no step {step} for the message {message:?}"
        );
        assert_eq!(timeout_message(step), Some(*message));
    }
}

/// A step that timed out may have changed some of its resources, and the cloud may still complete the rest.
#[test]
fn no_message_about_a_timeout_says_that_nothing_was_done() {
    for (step, message) in &TIMEOUT_MESSAGES {
        for claim in ["have not been", "has not been"] {
            assert!(!message.contains(claim), "step {step}: {message:?}");
        }
    }
}

/// Names are in checkpoints and metrics of earlier releases.
#[test]
fn the_names_of_steps_with_messages_are_those_of_earlier_releases() {
    let names = TIMEOUT_MESSAGES.map(|(name, _)| String::from(name));
    let expect = [
        "create-dns",
        "ensure-resource-group",
        "ensure-service-endpoints",
        "set-master-subnet-policies",
        "attach-nsgs",
        "deploy-base-resource-template",
        "create-api-server-private-endpoint",
        "create-certificates",
        "api-servers-ready",
        "api-servers-ready-without-bootstrap",
        "api-servers-ready-with-certificate",
        "minimum-worker-nodes-ready",
        "operator-console-ready",
        "cluster-version-ready",
        "ingress-controller-ready",
        "cluster-operators-have-settled",
    ];
    assert_eq!(names, expect);
}
