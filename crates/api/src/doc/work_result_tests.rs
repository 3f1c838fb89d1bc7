use proptest::prelude::*;
use serde_json::json;

use super::*;

/// What the engine of the release before writes at the end of a cancelled run.
#[test]
fn the_result_of_a_cancelled_run_is_read() {
    let stored = json!({
        "code": "Cancelled", "message": "cancelled by ada: wrong cluster", "step": "drain", "by": "ada",
        "reason": "wrong cluster", "undone": ["node a was uncordoned"], "undoFailed": ["drain: no answer"],
    });
    let result = WorkResult::from(stored.clone());
    assert!(result.has_code(&ResultCode::CANCELLED) && !result.has_code(&ResultCode::PANIC));
    assert_eq!(result.step.as_ref().map(StepName::as_str), Some("drain"));
    assert_eq!((result.by.as_deref(), result.reason.as_deref()), (Some("ada"), Some("wrong cluster")));
    assert_eq!(result.undone.as_deref(), Some(&["node a was uncordoned".to_owned()][..]));
    assert_eq!(result.undo_failed.as_deref(), Some(&["drain: no answer".to_owned()][..]));
    assert_eq!(result.other, Map::new());
    assert_eq!(result.to_json(), stored);
}

#[test]
fn the_results_of_the_release_before_are_read_and_written_unchanged() {
    for stored in [
        json!({}),
        json!({"code": "Completed", "message": "b is marked", "step": "b", "undone": []}),
        json!({"code": "Superseded", "message": "Cancelled by Scheduler as did not match current schedule settings"}),
        json!({"code": "ClusterGone", "message": "the cluster was forgotten"}),
        json!({"code": "TimedOut", "message": "timed out at 2026-01-01T00:00:00Z"}),
        json!({"code": "Cancelled", "message": "cancelled", "by": "ada"}),
        json!({"code": "Cancelled", "message": "cancelled", "by": "ada", "reason": "not today"}),
        json!({"code": "QuotaExceeded", "message": "no cores", "step": "machines", "undone": [],
               "customer": {"code": "QuotaExceeded", "message": "No cores.", "target": "properties.workerProfiles"}}),
    ] {
        assert_eq!(WorkResult::from(stored.clone()).to_json(), stored);
        let parsed: WorkResult = serde_json::from_value(stored.clone()).unwrap();
        assert_eq!(serde_json::to_value(parsed).unwrap(), stored);
    }
}

#[test]
fn a_text_is_read_as_the_message() {
    let result = WorkResult::from(json!("the cluster is gone"));
    assert_eq!((result.message(), &result.code), ("the cluster is gone", &None));
}

#[test]
fn values_that_are_neither_text_nor_object_are_read_as_empty() {
    for value in [json!(null), json!(7), json!(true), json!(["a"])] {
        assert_eq!(WorkResult::from(value), WorkResult::default());
    }
}

#[test]
fn unknown_members_and_members_of_another_form_survive_a_change() {
    let stored = json!({"code": "Busy", "undone": true, "customer": "ask support", "retries": {"left": 2}});
    let mut result = WorkResult::from(stored);
    assert_eq!((&result.undone, &result.customer), (&None, &None));
    result.message = Some("no slot".to_owned());
    let expect = json!({
        "code": "Busy", "message": "no slot", "undone": true, "customer": "ask support", "retries": {"left": 2},
    });
    assert_eq!(result.to_json(), expect);
}

#[test]
fn an_unknown_code_survives_and_equals_itself() {
    let result = WorkResult::from(json!({"code": "FromTheFuture"}));
    assert_eq!(result.code, Some(ResultCode::from("FromTheFuture")));
    assert_eq!(ResultCode::from("Panic".to_owned()), ResultCode::PANIC);
}

#[test]
fn a_cancellation_names_its_actor_and_reason() {
    let expect = json!({"code": "Cancelled", "message": "cancelled", "by": "ada", "reason": "not today"});
    assert_eq!(WorkResult::cancelled("ada", Some("not today")).to_json(), expect);
    let expect = json!({"code": "Cancelled", "message": "cancelled", "by": "ada"});
    assert_eq!(WorkResult::cancelled("ada", None).to_json(), expect);
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[a-zA-Z ]{0,8}")
}

fn texts() -> impl Strategy<Value = Option<Vec<String>>> {
    prop::option::of(prop::collection::vec("[a-z]{0,5}", 0..3))
}

prop_compose! {
    fn results()(
        texts in (text(), text(), text(), text(), text()),
        lists in (texts(), texts()),
        customer in prop::option::of(("[a-z]{0,5}", text())),
        other in prop::collection::btree_map("x[a-z]{0,4}", 0..9i64, 0..3),
    ) -> WorkResult {
        let (code, message, step, by, reason) = texts;
        WorkResult {
            code: code.map(ResultCode::from),
            message,
            step: step.map(StepName::from),
            by,
            reason,
            undone: lists.0,
            undo_failed: lists.1,
            customer: customer.map(|(code, target)| OperationError {
                code, message: "sorry".to_owned(), target, details: Vec::new(),
            }),
            other: other.into_iter().map(|(name, value)| (name, Value::from(value))).collect(),
        }
    }
}

proptest! {
    #[test]
    fn a_result_is_read_back_as_written(result in results()) {
        let text = serde_json::to_string(&result).unwrap();
        prop_assert_eq!(serde_json::from_str::<WorkResult>(&text).unwrap(), result);
    }
}
