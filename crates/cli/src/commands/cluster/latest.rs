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
    NotRequested,
    /// There is none: finished operations are removed after a while.
    Gone,
    /// The operation.
    Known(Box<OperationForm>),
    /// The request failed.
    Unknown(String),
}

impl LatestOperation {
    /// Requests the latest operation of a cluster.
    pub(super) async fn fetch(client: &Client, cluster: &str) -> LatestOperation {
        match client.operations_page(cluster).await {
            Ok(page) => LatestOperation::from_page(page),
            Err(error) => LatestOperation::Unknown(error.to_string()),
        }
    }

    /// The list starts with the oldest operation, so only a complete list contains the latest.
    fn from_page(page: Page<OperationForm>) -> LatestOperation {
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
            LatestOperation::NotRequested => Vec::new(),
            LatestOperation::Gone => {
                vec![("Operation", "none; finished operations are removed after a while".to_owned())]
            }
            LatestOperation::Unknown(why) => vec![("Operation", format!("unknown: {why}"))],
            LatestOperation::Known(operation) => operation_details(operation, view),
        }
    }
}

fn operation_details(operation: &OperationForm, view: &View) -> Vec<(&'static str, String)> {
    let (when, step) = match operation.end_time {
        Some(ended) => (format!("finished {}", with_age(ended, view.now)), String::new()),
        None => (format!("started {}", with_age(operation.start_time, view.now)), progress_text(operation)),
    };
    let (verb, status) = (wire_name(operation.verb), wire_name(operation.status));
    vec![
        ("Operation", format!("{}, {verb}, {status}, {when}", operation.id)),
        ("Step", step),
        ("Error", operation.error.as_ref().map(operation::reason).unwrap_or_default()),
    ]
}

/// Progress of a running operation.
fn progress_text(operation: &OperationForm) -> String {
    match &operation.step {
        None if operation.attempt == 0 => "queued".to_owned(),
        None => "started".to_owned(),
        Some(step) => {
            let progress = format!("{}, {}% done", step.name, percent(step));
            if step.message.is_empty() { progress } else { format!("{progress}: {}", step.message) }
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

    fn rendered(page: Value) -> String {
        let view = View { now: "2026-01-01T00:09:00Z".parse().unwrap(), wide: false };
        table::details(&LatestOperation::from_page(serde_json::from_value(page).unwrap()).details(&view))
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
    fn a_running_operation_shows_its_step_and_progress() {
        let step = |message: &str| json!({ "name": "nodes-ready", "index": 3, "of": 8, "since": "2026-01-01T00:08:00Z", "message": message });
        let check = |step: Value, attempt: u32, expect: &str| {
            // In any order: the latest is the one that started last.
            let text = rendered(json!({ "value": [updating(step, attempt), created()], "nextLink": "" }));
            let line = "Operation:  01890000-0000-7000-8000-000000000002, Update, Updating, started 2026-01-01T00:07:00Z (2m ago)";
            assert_eq!(text, format!("{line}\nStep:       {expect}\n"));
        };
        check(step("2 of 3 masters ready"), 1, "nodes-ready, 25% done: 2 of 3 masters ready");
        check(step(""), 1, "nodes-ready, 25% done");
        check(Value::Null, 1, "started");
        check(Value::Null, 0, "queued");
    }

    #[test]
    fn a_failed_operation_shows_its_error_and_a_succeeded_one_its_time() {
        let mut failed = created();
        failed["status"] = json!("Failed");
        failed["error"] = json!({
            "code": "InvalidLinkedVNet", "message": "The network was not found.", "target": "properties.masterProfile.subnetId",
        });
        assert_eq!(
            rendered(json!({ "value": [failed] })),
            "Operation:  01890000-0000-7000-8000-000000000001, Create, Failed, finished 2026-01-01T00:05:00Z (4m ago)\n\
             Error:      The network was not found (InvalidLinkedVNet, properties.masterProfile.subnetId)\n"
        );
        assert_eq!(
            rendered(json!({ "value": [created()] })),
            "Operation:  01890000-0000-7000-8000-000000000001, Create, Succeeded, finished 2026-01-01T00:05:00Z (4m ago)\n"
        );
    }

    #[test]
    fn an_incomplete_list_has_no_latest_operation_and_an_empty_one_has_none() {
        let more = json!({ "value": [created()], "nextLink": "https://server/next" });
        assert_eq!(
            rendered(more),
            "Operation:  unknown: there are more than 1 operations; the portal lists them\n"
        );
        assert_eq!(
            rendered(json!({ "value": [] })),
            "Operation:  none; finished operations are removed after a while\n"
        );
    }
}
