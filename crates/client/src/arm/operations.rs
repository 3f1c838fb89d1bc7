//! Operations: what was begun, looked at until it ends.

use std::time::Duration;

use api::rest::OperationStatus;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri, header};
use tokio::time::Instant;
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::Client;
use crate::path::Path;

/// The header that names the operation which an answer began.
const OPERATION: &str = "azure-asyncoperation";

/// How often an operation is looked at when the server does not say.
const AGAIN: Duration = Duration::from_secs(10);

/// A server that asks for longer pauses is not believed: the contract knows none.
const AGAIN_MAX: Duration = Duration::from_secs(600);

/// A server that restarts is back sooner; one that stays away longer is not waited for.
const AWAY_MAX: Duration = Duration::from_secs(300);

/// An operation that was begun: how it is called, and where to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// Its id.
    pub id: Uuid,
    /// When to look, as the server asks.
    pub again_in: Duration,
    path: String,
}

/// How an operation stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// What the server says of it.
    pub status: OperationStatus,
    /// When to look again, as the server asks; none when it has ended.
    pub again_in: Option<Duration>,
}

impl Begun {
    /// What the headers of an answer say. Only the path of the address counts: a credential goes to no other server.
    pub(super) fn of(headers: &HeaderMap) -> Result<Begun, String> {
        let address = headers.get(OPERATION).ok_or("it names no operation to follow")?;
        let address: Uri = address
            .to_str()
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or("the address of its operation is none")?;
        let id = address.path().rsplit('/').next().and_then(|last| Uuid::parse_str(last).ok());
        let id = id.ok_or("the address of its operation does not end with an id")?;
        let path = address.path_and_query().ok_or("the address of its operation has no path")?.to_string();
        Ok(Begun { id, again_in: retry_after(headers).unwrap_or(AGAIN), path })
    }

    /// The operation with that id in a subscription and a location.
    pub fn at(subscription: &str, location: &str, id: Uuid) -> Begun {
        let place =
            format!("subscriptions/{subscription}/providers/Microsoft.RedHatOpenShift/locations/{location}");
        let path = Path::of_cluster("", &place).segment("operationsStatus").segment(&id.to_string());
        Begun { id, again_in: Duration::ZERO, path: path.for_customers().text() }
    }
}

impl Client {
    /// Looks at an operation once.
    pub async fn look(&self, operation: &Begun) -> Result<Look, ClientError> {
        let (head, body) = self.exchange(Method::GET, &operation.path, Bytes::new(), None).await?;
        let status: OperationStatus = self.read(&operation.path, &body)?;
        let again_in = (!has_ended(&status)).then(|| retry_after(&head.headers).unwrap_or(AGAIN));
        Ok(Look { status, again_in })
    }

    /// Looks at an operation as often as the server asks, until it ends. A server that is away for a while is waited for. Whoever
    /// drops this stops looking and nothing else: the operation goes on.
    pub async fn until_end(
        &self,
        operation: &Begun,
        mut seen: impl FnMut(&OperationStatus),
    ) -> Result<OperationStatus, ClientError> {
        let mut pause = operation.again_in;
        let mut away: Option<Instant> = None;
        loop {
            tokio::time::sleep(pause).await;
            match self.look(operation).await {
                Ok(Look { status, again_in }) => {
                    away = None;
                    seen(&status);
                    match again_in {
                        Some(again_in) => pause = again_in,
                        None => return Ok(status),
                    }
                }
                Err(error) if error.may_pass() => {
                    if away.get_or_insert_with(Instant::now).elapsed() > AWAY_MAX {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether an operation has ended, by the words that the contract ends on.
fn has_ended(status: &OperationStatus) -> bool {
    ["succeeded", "failed", "canceled"].iter().any(|end| status.status.eq_ignore_ascii_case(end))
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds: u64 = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(AGAIN_MAX))
}
