//! Polling of long-running operations.

use std::time::Duration;

use api::rest::OperationStatus;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::path::ApiPath;

/// Response header with the status address of the operation.
const OPERATION_HEADER: &str = "azure-asyncoperation";

/// Poll interval when the server does not send `Retry-After`.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Longest poll interval; the ARM API has no longer one.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(600);

/// Longest outage of the server that polling tolerates; a restart is shorter.
const OUTAGE_MAX: Duration = Duration::from_secs(300);

/// Id and status address of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationHandle {
    /// Operation id.
    pub id: Uuid,
    /// Delay before the first poll, as the server requests.
    pub retry_after: Duration,
    path: String,
}

/// Result of polling an operation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationPoll {
    /// Status of the operation.
    pub status: OperationStatus,
    /// Delay before the next poll, as the server requests; none when the operation has finished.
    pub retry_after: Option<Duration>,
}

impl OperationHandle {
    /// Reads the headers of a response. The host of the address is ignored, so that the credential is sent to no other server.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<OperationHandle, String> {
        let address = headers.get(OPERATION_HEADER).ok_or("it has no azure-asyncoperation header")?;
        let address: Uri = address
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or("the address of its operation is invalid")?;
        let id = address.path().rsplit('/').next().and_then(|last| Uuid::parse_str(last).ok());
        let id = id.ok_or("the address of its operation does not end with an id")?;
        let path = address.path_and_query().ok_or("the address of its operation has no path")?.to_string();
        Ok(OperationHandle { id, retry_after: retry_after(headers).unwrap_or(POLL_INTERVAL), path })
    }

    /// Operation with this id in a subscription and a location.
    pub fn new(subscription: &str, location: &str, id: Uuid) -> OperationHandle {
        let scope =
            format!("subscriptions/{subscription}/providers/Microsoft.RedHatOpenShift/locations/{location}");
        let path = ApiPath::from_resource_id("", &scope).segment("operationsStatus").segment(&id.to_string());
        OperationHandle { id, retry_after: Duration::ZERO, path: path.with_arm_version().to_uri() }
    }
}

impl Client {
    /// Polls an operation once.
    pub async fn poll_operation(&self, operation: &OperationHandle) -> Result<OperationPoll, ClientError> {
        let (head, body) = self.exchange(Method::GET, &operation.path, Bytes::new(), None).await?;
        let status: OperationStatus = self.parse(&operation.path, &body)?;
        let retry_after =
            (!is_finished(&status)).then(|| retry_after(&head.headers).unwrap_or(POLL_INTERVAL));
        Ok(OperationPoll { status, retry_after })
    }

    /// Polls an operation until it finishes, at the interval that the server requests, and tolerates an outage of the server.
    /// Dropping this future stops the polling; the operation continues.
    pub async fn wait_for_operation(
        &self,
        operation: &OperationHandle,
        mut on_status: impl FnMut(&OperationStatus),
    ) -> Result<OperationStatus, ClientError> {
        let mut pause = operation.retry_after;
        let mut outage: Option<Instant> = None;
        loop {
            tokio::time::sleep(pause).await;
            match self.poll_operation(operation).await {
                Ok(OperationPoll { status, retry_after }) => {
                    outage = None;
                    on_status(&status);
                    match retry_after {
                        Some(retry_after) => pause = retry_after,
                        None => return Ok(status),
                    }
                }
                Err(error) if error.is_transient() => {
                    if outage.get_or_insert_with(Instant::now).elapsed() > OUTAGE_MAX {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether an operation has a terminal status of the ARM API.
fn is_finished(status: &OperationStatus) -> bool {
    ["succeeded", "failed", "canceled"].iter().any(|end| status.status.eq_ignore_ascii_case(end))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(POLL_INTERVAL_MAX))
}
