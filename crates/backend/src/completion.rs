//! The effect of completed work on its operation and cluster. Pure.

use api::doc::{
    Cluster, Operation, OperationError, ProvisioningState, ResultCode, StepName, Verb, WorkResult,
};
use api::work::Ending;
use jiff::Timestamp;
use serde_json::Value;
use steps::lifecycle::fault::{
    DEPLOYMENT_FAILED, INTERNAL, QUOTA_EXCEEDED, can_be_fixed_by_customer, customer_error,
};

use crate::plan::step_names;

/// Largest snapshot in an operation. A document may have 1 MiB, which includes the operation's own fields and its error.
const SNAPSHOT_BYTES_MAX: usize = 768 * 1024;

/// A finished operation and its cluster.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FinishedOperation {
    /// The operation with its final state.
    pub(crate) operation: Operation,
    /// The cluster after the operation; `None` if it is deleted.
    pub(crate) cluster: Option<Cluster>,
}

/// The operation and the cluster after the work completed.
pub(crate) fn finish_operation(
    operation: &Operation,
    cluster: &Cluster,
    ending: Ending,
    result: &WorkResult,
    now: Timestamp,
    release: &str,
) -> FinishedOperation {
    let error = (ending != Ending::Completed).then(|| operation_error(ending, result));
    let after = cluster_after(operation, cluster, error.as_ref(), release);
    let status = if error.is_none() { ProvisioningState::Succeeded } else { ProvisioningState::Failed };
    // A snapshot that is too large is left out: the store would reject the completion, and the operation would never finish.
    let fits = |snapshot: &Value| snapshot.to_string().len() <= SNAPSHOT_BYTES_MAX;
    let snapshot = after.as_ref().and_then(|cluster| serde_json::to_value(cluster).ok()).filter(fits);
    let operation = Operation { status, end_time: Some(now), error, snapshot, ..operation.clone() };
    FinishedOperation { operation, cluster: after }
}

fn cluster_after(
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

/// The customer's error: that of the failed step, or an internal error. The details are in the log of the work.
fn operation_error(ending: Ending, result: &WorkResult) -> OperationError {
    if ending == Ending::Cancelled {
        let reason = result.reason.as_deref().unwrap_or("cancellation was requested");
        return customer_error("OperationCanceled", format!("The operation was cancelled: {reason}."), None);
    }
    if let Some(error) = &result.customer {
        // The customer cannot cause a principal id that the cloud does not understand.
        if !error.message.to_lowercase().contains("nullorinvalidguidexcludeprincipalid") {
            return error.clone();
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

const SUBNETS_INCOMPLETE: &str = "The changes of the cluster's subnets have not completed.";

/// Customer messages for waits that timed out.
const TIMEOUT_MESSAGES: [(StepName, &str); 16] = [
    (step_names::CREATE_DNS, "The DNS zone of the cluster has not become ready."),
    (step_names::ENSURE_RESOURCE_GROUP, "The resource group of the cluster has not become ready."),
    (step_names::ENSURE_SERVICE_ENDPOINTS, SUBNETS_INCOMPLETE),
    (step_names::SET_MASTER_SUBNET_POLICIES, SUBNETS_INCOMPLETE),
    (step_names::ATTACH_NSGS, SUBNETS_INCOMPLETE),
    (
        step_names::DEPLOY_BASE_RESOURCE_TEMPLATE,
        "The addresses, load balancers and storage accounts of the cluster are not all ready.",
    ),
    (
        step_names::CREATE_API_SERVER_PRIVATE_ENDPOINT,
        "The private endpoint of the cluster's API server has not become ready.",
    ),
    (step_names::CREATE_CERTIFICATES, "The certificates of the cluster are not all issued."),
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

/// Classifies an error by its code as the user's or the server's: the input of service level objectives.
pub(crate) fn result_type(error: Option<&OperationError>) -> &'static str {
    match error {
        None => "Success",
        Some(error) if error.code == DEPLOYMENT_FAILED && !can_be_fixed_by_customer(error) => "ServerError",
        // The contract's status of both is 500: the quota for the workers was validated before, so the service must provide it.
        Some(error) if error.code == INTERNAL || error.code == QUOTA_EXCEEDED => "ServerError",
        Some(_) => "UserError",
    }
}

#[cfg(test)]
#[path = "completion/tests.rs"]
mod tests;
