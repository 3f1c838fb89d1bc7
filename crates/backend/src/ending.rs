//! What the end of an operation's work makes of the operation and its cluster. Pure.

use api::doc::{
    Cluster, Operation, OperationError, ProvisioningState, ResultCode, StepName, Verb, WorkResult,
};
use api::work::Ending;
use jiff::Timestamp;
use serde_json::Value;
use steps::lifecycle::fault::{DEPLOYMENT_FAILED, INTERNAL, customer_error};

use crate::plan::step_names;

/// A document may have a mebibyte; besides the copy there are the operation's own fields, and an error in words.
const SNAPSHOT_BYTES_MAX: usize = 768 * 1024;

/// What is written at the end of an operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Closed {
    /// The operation, ended.
    pub(crate) operation: Operation,
    /// The cluster from now on; none when it is gone.
    pub(crate) cluster: Option<Cluster>,
}

/// What an ending makes of an operation and its cluster.
pub(crate) fn close(
    operation: &Operation,
    cluster: &Cluster,
    ending: Ending,
    result: &WorkResult,
    now: Timestamp,
    release: &str,
) -> Closed {
    let error = (ending != Ending::Completed).then(|| operation_error(ending, result));
    let after = after(operation, cluster, error.as_ref(), release);
    let status = if error.is_none() { ProvisioningState::Succeeded } else { ProvisioningState::Failed };
    // What has no JSON form has no copy either; a cluster always has one. One that would not fit into the operation is left out:
    // an end that cannot be written would never come.
    let fits = |snapshot: &Value| snapshot.to_string().len() <= SNAPSHOT_BYTES_MAX;
    let snapshot = after.as_ref().and_then(|cluster| serde_json::to_value(cluster).ok()).filter(fits);
    let operation = Operation { status, end_time: Some(now), error, snapshot, ..operation.clone() };
    Closed { operation, cluster: after }
}

fn after(
    operation: &Operation,
    cluster: &Cluster,
    error: Option<&OperationError>,
    release: &str,
) -> Option<Cluster> {
    let mut after = cluster.clone();
    after.operation = None;
    after.last_provisioning_state = None;
    match (operation.verb, error) {
        (Verb::Delete, None) => return None,
        (Verb::Create | Verb::Update, None) => {
            after.provisioning_state = ProvisioningState::Succeeded;
            after.failed_provisioning_state = None;
        }
        (Verb::Create | Verb::Update | Verb::Delete, Some(_)) => {
            after.provisioning_state = ProvisioningState::Failed;
            after.failed_provisioning_state = Some(operation.initial_status);
        }
        (Verb::AdminUpdate, error) => {
            let before = cluster.last_provisioning_state.filter(|it| it.is_terminal());
            after.provisioning_state = before.unwrap_or(ProvisioningState::Succeeded);
            if let Some(provisioned) = &mut after.provisioned {
                provisioned.last_admin_update_error = error.map(|it| it.message.clone());
            }
        }
    }
    if error.is_none()
        && let Some(provisioned) = &mut after.provisioned
    {
        provisioned.provisioned_by = release.to_owned();
    }
    Some(after)
}

/// What the customer is told: what the step meant for them, or that something failed with us. The rest is in the work's log.
fn operation_error(ending: Ending, result: &WorkResult) -> OperationError {
    if ending == Ending::Cancelled {
        let why = result.reason.as_deref().unwrap_or("it was asked to end");
        return customer_error(
            "OperationCanceled",
            format!("The operation was ended before it was done: {why}."),
            None,
        );
    }
    if let Some(told) = &result.customer {
        // A principal's id that the cloud cannot make sense of is never the customer's doing.
        if !told.message.to_lowercase().contains("nullorinvalidguidexcludeprincipalid") {
            return told.clone();
        }
    }
    match result.step.as_ref().and_then(timeout_message) {
        Some(what) if result.has_code(&ResultCode::STEP_TIMEOUT) => customer_error(
            DEPLOYMENT_FAILED,
            format!("{what} Please retry, and if the issue persists, raise a support ticket."),
            None,
        ),
        _ => customer_error(INTERNAL, "Internal server error.", None),
    }
}

const API_UNAVAILABLE: &str = "The Kubernetes API has not initialised successfully and is unavailable.";

/// Messages for customers about waits that took too long.
const TIMEOUT_MESSAGES: [(StepName, &str); 8] = [
    (step_names::API_SERVERS_READY, API_UNAVAILABLE),
    (step_names::API_SERVERS_READY_WITHOUT_BOOTSTRAP, API_UNAVAILABLE),
    (step_names::API_SERVERS_READY_WITH_CERTIFICATE, API_UNAVAILABLE),
    (step_names::MINIMUM_WORKER_NODES_READY, "The minimum number of worker nodes have not become ready."),
    (step_names::OPERATOR_CONSOLE_READY, "The console has not become ready."),
    (step_names::CLUSTER_VERSION_READY, "The cluster version has not become available."),
    (step_names::INGRESS_CONTROLLER_READY, "The ingress controller has not become ready."),
    (step_names::CLUSTER_OPERATORS_HAVE_SETTLED, "The cluster operators have not settled."),
];

fn timeout_message(step: &StepName) -> Option<&'static str> {
    TIMEOUT_MESSAGES.iter().find(|(name, _)| name == step).map(|(_, message)| *message)
}

/// Whose fault an error is, by its code: the input of service level objectives.
pub(crate) fn result_type(error: Option<&OperationError>) -> &'static str {
    match error {
        None => "Success",
        // A deployment that failed for something that the customer can mend says what it was.
        Some(error) if error.code == DEPLOYMENT_FAILED && error.details.is_empty() => "ServerError",
        // The contract's status of both is 500: room for the workers was looked at before, and is ours to have kept.
        Some(error) if error.code == INTERNAL || error.code == "QuotaExceeded" => "ServerError",
        Some(_) => "UserError",
    }
}

#[cfg(test)]
#[path = "ending/tests.rs"]
mod tests;
