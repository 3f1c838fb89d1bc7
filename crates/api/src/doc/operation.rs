//! A long-running request of a customer, as the asynchronous part of the ARM contract shows it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::{Document, ProvisioningState};

/// One create, update or delete of a cluster, from the answer of the frontend to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// The operation's own uuid, which is also that of its work.
    pub id: Uuid,
    /// The cluster that it is for.
    pub cluster: Uuid,
    /// That cluster's path, which outlives the cluster.
    pub cluster_path: String,
    /// What is to be done.
    pub verb: Verb,
    /// What the cluster's state was set to when it began.
    pub initial_status: ProvisioningState,
    /// Where it stands.
    pub status: ProvisioningState,
    /// When it began.
    pub start_time: Timestamp,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Timestamp>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<OperationError>,
    /// The cluster as it was at the end, for the result endpoint; none after a delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Value>,
    /// The request that asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<Uuid>,
    /// What its caller named that request, in their own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_request_id: Option<String>,
}

/// What an operation does to its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Verb {
    /// Make it.
    Create,
    /// Change it as its customer asked.
    Update,
    /// Change it as an operator asked.
    AdminUpdate,
    /// Remove it.
    Delete,
}

/// What a customer is told about a failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationError {
    /// A code of the ARM contract.
    pub code: String,
    /// One sentence for the customer.
    pub message: String,
    /// The field of the request that is at fault, if one is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The faults beneath it.
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
