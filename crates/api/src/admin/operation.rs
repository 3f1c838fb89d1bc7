//! Operations of customers in the Admin API.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use utoipa::ToSchema;
use uuid::Uuid;

use super::StepProgress;
use crate::doc::{OperationError, ProvisioningState, Verb};

/// One create, update or delete of a cluster.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperationForm {
    /// Its id.
    pub id: Uuid,
    /// Its verb.
    #[schema(value_type = String)]
    pub verb: Verb,
    /// Its status.
    #[schema(value_type = String)]
    pub status: ProvisioningState,
    /// When it started.
    #[schema(value_type = String, format = DateTime)]
    pub start_time: Timestamp,
    /// When it finished.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub end_time: Option<Timestamp>,
    /// The error with which it failed.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub error: Option<OperationError>,
    /// The current or last step.
    #[serde(default)]
    pub step: Option<StepProgress>,
    /// Attempts so far.
    pub attempt: i32,
}
