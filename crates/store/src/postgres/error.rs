//! Maps errors of the server and of connections to the store's errors.

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

use crate::{Etag, StoreError};

/// What to do after a failed statement, besides reporting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// Nothing was written, and a retry is likely to succeed.
    Retry,
    /// The same, but on another connection.
    RetryElsewhere,
    /// Close this connection.
    Discard,
    /// Report the error.
    Fail,
}

/// Chooses the action after a failure.
pub(super) fn failure_action(error: &Error) -> FailureAction {
    let Some(code) = error.code() else {
        return if is_connection(error) { FailureAction::Discard } else { FailureAction::Fail };
    };
    match code {
        &SqlState::T_R_DEADLOCK_DETECTED | &SqlState::T_R_SERIALIZATION_FAILURE => FailureAction::Retry,
        // A statement prepared before a migration changed the objects that it names.
        &SqlState::FEATURE_NOT_SUPPORTED | &SqlState::INVALID_SQL_STATEMENT_NAME => {
            FailureAction::RetryElsewhere
        }
        _ if is_unavailable(code) => FailureAction::Discard,
        _ => FailureAction::Fail,
    }
}

/// Converts a failed statement to the store's error; `what` is the operation.
pub(super) fn store_error(what: &'static str, error: Error) -> StoreError {
    if let Some(raised_error) = raised_error(&error) {
        return raised_error;
    }
    let unavailable = match error.code() {
        Some(&SqlState::DISK_FULL) => return StoreError::DiskFull,
        Some(code) => is_unavailable(code) || matches!(failure_action(&error), FailureAction::Retry),
        None => is_connection(&error),
    };
    let source = Some(Box::new(error) as Box<dyn std::error::Error + Send + Sync>);
    match unavailable {
        true => StoreError::Unavailable { what: what.to_owned(), source },
        false => StoreError::Broken { what: what.to_owned(), source },
    }
}

/// Converts a failure to get a connection.
pub(super) fn pool_error(what: &'static str, error: PoolError) -> StoreError {
    let why = match &error {
        PoolError::Timeout(TimeoutType::Wait) => "all connections are busy",
        PoolError::Timeout(_) => "the server does not respond",
        PoolError::Closed => "the store is closed",
        PoolError::Backend(_) | PoolError::PostCreateHook(_) | PoolError::NoRuntimeSpecified => {
            "no connection"
        }
    };
    StoreError::Unavailable { what: format!("{what}: {why}"), source: Some(Box::new(error)) }
}

/// The server took longer than any statement may.
pub(super) fn late(what: &'static str) -> StoreError {
    StoreError::Unavailable { what: format!("{what}: the server does not respond"), source: None }
}

/// Whether the failure is temporary rather than a rejection.
fn is_unavailable(code: &SqlState) -> bool {
    let class = code.code().get(..2).unwrap_or_default();
    // Connection exceptions, insufficient resources (a full disk is separate), operator intervention and failed
    // authentication: all of them may heal without a change here.
    matches!(class, "08" | "53" | "57" | "28")
        || [
            SqlState::READ_ONLY_SQL_TRANSACTION, // a primary that was demoted
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            SqlState::INVALID_CATALOG_NAME,
        ]
        .contains(code)
}

fn is_connection(error: &Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    let mut is_io = false;
    while let Some(it) = cause {
        is_io |= it.is::<std::io::Error>();
        cause = it.source();
    }
    is_io || error.is_closed()
}

/// Errors raised by the store's own functions; their detail names the object.
fn raised_error(error: &Error) -> Option<StoreError> {
    let db = error.as_db_error()?;
    let detail = db.detail().unwrap_or_default();
    let (first, second) = detail.split_once(' ').unwrap_or((detail, ""));
    let uuid = || first.parse::<Uuid>().unwrap_or_default();
    Some(match db.code().code() {
        "SH001" => StoreError::LostLease { work: uuid() },
        "SH002" => StoreError::Exists { kind: "work".to_owned(), id: first.to_owned() },
        "SH003" if second.is_empty() => StoreError::NoSuchWork { work: uuid() },
        "SH003" => StoreError::WrongState {
            work: uuid(),
            // An unknown name is reported as the server's error.
            state: second.parse().ok()?,
            required: db.hint()?.parse().ok()?,
        },
        // The caller knows the expected version; `commit` fills it in.
        "SH004" => StoreError::Changed {
            uuid: uuid(),
            expected: Etag(0),
            found: Etag(second.parse().unwrap_or_default()),
        },
        "SH005" => StoreError::Gone { uuid: uuid() },
        "SH006" => StoreError::Exists { kind: "document".to_owned(), id: first.to_owned() },
        "SH007" => StoreError::KeyTaken { key: detail.to_owned() },
        "SH008" => StoreError::StaleKey { current: detail.to_owned(), used: String::new() },
        "SH009" => StoreError::LostNamedLease { name: detail.to_owned() },
        "23505" if db.constraint() == Some("work_pkey") => {
            let id =
                detail.split_once("=(").and_then(|(_, rest)| rest.split_once(')')).map_or("", |(id, _)| id);
            StoreError::Exists { kind: "work".to_owned(), id: id.to_owned() }
        }
        _ => return None,
    })
}
