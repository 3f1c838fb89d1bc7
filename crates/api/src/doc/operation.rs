//! Asynchronous operation of the ARM API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_with::skip_serializing_none;
use uuid::Uuid;

use super::{Document, ProvisioningState};

/// One create, update or delete of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The operation's own uuid, which is also that of its work.
    pub id: Uuid,
    /// Uuid of the cluster.
    pub cluster: Uuid,
    /// That cluster's path, which outlives the cluster.
    pub cluster_path: String,
    /// Its verb.
    pub verb: Verb,
    /// The cluster's provisioning state during the operation.
    pub initial_status: ProvisioningState,
    /// Its status.
    pub status: ProvisioningState,
    /// When it started.
    pub start_time: Timestamp,
    /// When it finished.
    #[serde(default)]
    pub end_time: Option<Timestamp>,
    /// The error with which it failed.
    #[serde(default)]
    pub error: Option<OperationError>,
    /// The cluster at the end of the operation, for the result endpoint; none after a delete.
    #[serde(default)]
    pub snapshot: Option<Value>,
    /// Correlation id of the request.
    #[serde(default)]
    pub correlation_id: Option<Uuid>,
    /// Request id that the client chose.
    #[serde(default)]
    pub client_request_id: Option<String>,
}

/// Verb of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verb {
    /// Create the cluster.
    Create,
    /// Update the cluster at its customer's request.
    Update,
    /// Update the cluster at an operator's request.
    AdminUpdate,
    /// Delete the cluster.
    Delete,
}

/// Error for a customer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationError {
    /// A code of the ARM contract.
    pub code: String,
    /// Message for the customer, one sentence.
    pub message: String,
    /// The invalid field of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Causes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<OperationError>,
}

impl Document for Operation {
    const KIND: &'static str = "operation";

    fn path(&self) -> String {
        format!("/operations/{}", self.id)
    }

    fn scope(&self) -> String {
        self.cluster.to_string()
    }
}
