//! The latest operation of a cluster, for `cluster show`: its progress or its error.
//!
//! It takes one request. An error of this request does not prevent the description of the cluster: it becomes a line of the
//! description.

use api::admin::{OperationForm, Page, StepProgress};
use client::Client;

use super::super::operation;
use super::super::table::{View, wire_name, with_age};

/// The latest operation of a cluster.
#[derive(Debug)]
pub(super) enum LatestOperation {
    /// Not requested.
    Unasked,
    /// There is none: finished operations are removed after a while.
    Gone,
    /// The operation.
    Known(Box<OperationForm>),
    /// The request failed.
    Unknown(String),
}

impl LatestOperation {
    /// Requests the latest operation of a cluster.
    pub(super) async fn of(client: &Client, cluster: &str) -> LatestOperation {
        match client.operations_page(cluster).await {
            Ok(page) => LatestOperation::in_page(page),
            Err(error) => LatestOperation::Unknown(error.to_string()),
        }
    }

    /// The list starts with the oldest operation, so only a complete list contains the latest.
    fn in_page(page: Page<OperationForm>) -> LatestOperation {
        if !page.next_link.is_empty() {
            let count = page.value.len();
            return LatestOperation::Unknown(format!(
                "there are more than {count} operations; the portal lists them"
            ));
        }
        match page.value.into_iter().max_by_key(|it| (it.start_time, it.id)) {
            Some(operation) => LatestOperation::Known(Box::new(operation)),
            None => LatestOperation::Gone,
        }
    }

    /// Lines of the description.
    pub(super) fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        match self {
            LatestOperation::Unasked => Vec::new(),
            LatestOperation::Gone => {
                vec![("Operation", "none; finished operations are removed after a while".to_owned())]
            }
            LatestOperation::Unknown(why) => vec![("Operation", format!("unknown: {why}"))],
            LatestOperation::Known(operation) => resource_details(operation, view),
        }
    }
}

fn resource_details(operation: &OperationForm, view: &View) -> Vec<(&'static str, String)> {
    let (when, step) = match operation.end_time {
        Some(ended) => (format!("finished {}", with_age(ended, view.now)), String::new()),
        None => (format!("started {}", with_age(operation.start_time, view.now)), standing(operation)),
    };
    let (verb, status) = (wire_name(operation.verb), wire_name(operation.status));
    vec![
        ("Operation", format!("{}, {verb}, {status}, {when}", operation.id)),
        ("Step", step),
        ("Error", operation.error.as_ref().map(operation::reason).unwrap_or_default()),
    ]
}

/// Progress of a running operation.
fn standing(operation: &OperationForm) -> String {
    match &operation.step {
        None if operation.attempt == 0 => "queued".to_owned(),
        None => "started".to_owned(),
        Some(step) => {
            let so_far = format!("{}, {}% done", step.name, percent(step));
            if step.message.is_empty() { so_far } else { format!("{so_far}: {}", step.message) }
        }
    }
}

/// Percentage of completed steps, as in `shipshape operation show`.
fn percent(step: &StepProgress) -> u64 {
    let done = u64::from(step.index.saturating_sub(1)) * 100;
    done.checked_div(u64::from(step.of)).unwrap_or(0).min(100)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::table;
    use super::*;

    const CREATE: &str = "01890000-0000-7000-8000-000000000001";
    const UPDATE: &str = "01890000-0000-7000-8000-000000000002";

    fn told(page: Value) -> String {
        let view = View { now: "2026-01-01T00:09:00Z".parse().unwrap(), wide: false };
        table::details(&LatestOperation::in_page(serde_json::from_value(page).unwrap()).details(&view))
    }

    fn created() -> Value {
        json!({
            "id": CREATE, "verb": "Create", "status": "Succeeded", "attempt": 1,
            "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:05:00Z",
            "step": { "name": "done", "index": 8, "of": 8, "since": "2026-01-01T00:04:00Z" },
        })
    }

    fn updating(step: Value, attempt: u32) -> Value {
        json!({
            "id": UPDATE, "verb": "Update", "status": "Updating", "attempt": attempt,
            "startTime": "2026-01-01T00:07:00Z", "step": step,
        })
    }

    #[test]
    fn an_operation_that_runs_says_its_step_and_how_much_is_done() {
        let step = |message: &str| json!({ "name": "nodes-ready", "index": 3, "of": 8, "since": "2026-01-01T00:08:00Z", "message": message });
        let check = |step: Value, attempt: u32, expect: &str| {
            // In any order: the latest is the one that started last.
            let said = told(json!({ "value": [updating(step, attempt), created()], "nextLink": "" }));
            let line = "Operation:  01890000-0000-7000-8000-000000000002, Update, Updating, started 2026-01-01T00:07:00Z (2m ago)";
            assert_eq!(said, format!("{line}\nStep:       {expect}\n"));
        };
        check(step("2 of 3 masters ready"), 1, "nodes-ready, 25% done: 2 of 3 masters ready");
        check(step(""), 1, "nodes-ready, 25% done");
        check(Value::Null, 1, "started");
        check(Value::Null, 0, "queued");
    }

    #[test]
    fn an_operation_that_failed_says_why_and_one_that_succeeded_only_when() {
        let mut failed = created();
        failed["status"] = json!("Failed");
        failed["error"] = json!({
            "code": "InvalidLinkedVNet", "message": "The network was not found.", "target": "properties.masterProfile.subnetId",
        });
        assert_eq!(
            told(json!({ "value": [failed] })),
            "Operation:  01890000-0000-7000-8000-000000000001, Create, Failed, finished 2026-01-01T00:05:00Z (4m ago)\n\
             Error:      The network was not found (InvalidLinkedVNet, properties.masterProfile.subnetId)\n"
        );
        assert_eq!(
            told(json!({ "value": [created()] })),
            "Operation:  01890000-0000-7000-8000-000000000001, Create, Succeeded, finished 2026-01-01T00:05:00Z (4m ago)\n"
        );
    }

    #[test]
    fn an_old_operation_is_not_taken_for_the_newest_and_none_is_said_to_be_none() {
        let more = json!({ "value": [created()], "nextLink": "https://server/next" });
        assert_eq!(
            told(more),
            "Operation:  unknown: there are more than 1 operations; the portal lists them\n"
        );
        assert_eq!(
            told(json!({ "value": [] })),
            "Operation:  none; finished operations are removed after a while\n"
        );
    }
}
