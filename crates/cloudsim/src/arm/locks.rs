//! Management locks at groups and resources.

use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::assignments::contains;
use super::error::ArmError;
use super::message::{ArmRequest, ArmResponse, method_not_allowed};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::{database, identities};

const LOCK: &str = "arm-lock";

/// What a lock forbids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum LockLevel {
    CanNotDelete,
    ReadOnly,
}

/// A lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct StoredLock {
    name: String,
    scope: String,
    level: LockLevel,
    #[serde(default)]
    notes: Option<String>,
}

impl StoredLock {
    fn shown(&self) -> Value {
        json!({
            "id": format!("{}/providers/Microsoft.Authorization/locks/{}", self.scope, self.name),
            "name": self.name,
            "type": "Microsoft.Authorization/locks",
            "properties": { "level": self.level, "notes": self.notes },
        })
    }
}

fn key(scope: &str, name: &str) -> String {
    format!("{} {}", scope.to_lowercase(), name.to_lowercase())
}

/// The locks, with those that were set in the simulator.
fn all(cx: &CallContext<'_>) -> Result<Vec<StoredLock>, Failure> {
    let mut locks: Vec<StoredLock> = database::records(cx.db, LOCK)?;
    for id in identities::locks(cx)? {
        let (name, scope) = ("simulator".to_owned(), id.to_string());
        locks.push(StoredLock { name, scope, level: LockLevel::ReadOnly, notes: None });
    }
    Ok(locks)
}

/// Rejects a write below a lock that makes its scope read-only.
pub(crate) fn check_write(cx: &CallContext<'_>, scope: &str) -> Result<(), Failure> {
    let locks = all(cx)?;
    match locks.iter().find(|it| it.level == LockLevel::ReadOnly && contains(&it.scope, scope)) {
        Some(lock) => Err(locked(scope, "write", lock)),
        None => Ok(()),
    }
}

/// Rejects a deletion below a lock, and one that would delete something locked.
pub(crate) fn check_delete(cx: &CallContext<'_>, scope: &str) -> Result<(), Failure> {
    let locks = all(cx)?;
    match locks.iter().find(|it| contains(&it.scope, scope) || contains(scope, &it.scope)) {
        Some(lock) => Err(locked(scope, "delete", lock)),
        None => Ok(()),
    }
}

fn locked(scope: &str, verb: &str, lock: &StoredLock) -> Failure {
    let message = format!(
        "The scope '{scope}' cannot perform {verb} operation because following scope(s) are locked: '{}'. Please remove the lock and try again.",
        lock.scope
    );
    ArmError::conflict("ScopeLocked", message).into()
}

/// Removes the locks of a scope that was deleted.
pub(crate) fn remove_within(cx: &CallContext<'_>, scope: &str) -> Result<(), Failure> {
    let locks: Vec<StoredLock> = database::records(cx.db, LOCK)?;
    for lock in locks.iter().filter(|it| contains(scope, &it.scope)) {
        database::delete(cx.db, LOCK, &key(&lock.scope, &lock.name))?;
    }
    Ok(())
}

/// Requests below `{scope}/providers/Microsoft.Authorization/locks`.
pub(crate) fn handle(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    scope: &str,
    name: Option<&str>,
) -> Result<ArmResponse, Failure> {
    let Some(name) = name else {
        let locks = all(cx)?;
        let shown = locks.iter().filter(|it| contains(scope, &it.scope)).map(StoredLock::shown);
        return Ok(ArmResponse::list(shown.collect()));
    };
    let found = all(cx)?
        .into_iter()
        .find(|it| it.scope.eq_ignore_ascii_case(scope) && it.name.eq_ignore_ascii_case(name));
    match *request.method {
        Method::GET => match found {
            Some(found) => Ok(ArmResponse::ok(found.shown())),
            None => {
                let message = format!("The lock '{name}' could not be found.");
                Err(ArmError::not_found("LockNotFound", message).into())
            }
        },
        Method::PUT => {
            let body = request.json()?;
            let level = body.pointer("/properties/level").cloned().unwrap_or_default();
            let level: LockLevel = serde_json::from_value(level).map_err(|_| {
                let message = "The lock level must be 'CanNotDelete' or 'ReadOnly'.";
                ArmError::bad_request("InvalidLockLevel", message)
            })?;
            let notes = body.pointer("/properties/notes").and_then(Value::as_str).map(str::to_owned);
            let lock = StoredLock { name: name.to_owned(), scope: scope.to_owned(), level, notes };
            database::write(cx.db, LOCK, &key(scope, name), &lock)?;
            let status = if found.is_some() { StatusCode::OK } else { StatusCode::CREATED };
            Ok(ArmResponse::new(status, lock.shown()))
        }
        Method::DELETE => match database::delete(cx.db, LOCK, &key(scope, name))? {
            true => Ok(ArmResponse::empty(StatusCode::OK)),
            false => Ok(ArmResponse::empty(StatusCode::NO_CONTENT)),
        },
        _ => Err(method_not_allowed(request)),
    }
}
