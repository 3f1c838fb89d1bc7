//! Long operations. Their state follows from the time at which they end, so nothing has to run for one.

use cloud::{ResourceFailure, ResourceId};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use rusqlite::{OptionalExtension as _, params};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::error::ArmError;
use super::message::{ArmRequest, ArmResponse};
use super::{resources, store};
use crate::call_context::CallContext;
use crate::database::micros;
use crate::failure::Failure;

/// How long an operation can be read after its end.
const KEPT: SignedDuration = SignedDuration::from_hours(24);

/// The pace at which clients should ask. In milliseconds, because SDKs take `Retry-After: 0` for absent and wait 30 s.
const RETRY_AFTER_MILLIS: &str = "50";

/// A long operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) started: Timestamp,
    /// The end; the latest possible time for an operation that never ends.
    pub(crate) ends: Timestamp,
    #[serde(default)]
    pub(crate) failure: Option<OperationFailure>,
    pub(crate) result: OperationResult,
}

/// The error that an operation ends in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct OperationFailure {
    pub(crate) status: u16,
    pub(crate) error: Value,
}

impl From<&ArmError> for OperationFailure {
    fn from(error: &ArmError) -> OperationFailure {
        OperationFailure { status: error.status.as_u16(), error: error.error() }
    }
}

impl From<&ResourceFailure> for OperationFailure {
    fn from(failure: &ResourceFailure) -> OperationFailure {
        OperationFailure::from(&ArmError::conflict(&failure.code, failure.message.clone()))
    }
}

/// What the URL in `Location` answers at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum OperationResult {
    /// 204 without a body.
    Empty,
    /// 200 without a body.
    EmptyOk,
    /// 200 with this body.
    Body(Value),
    /// 200 with the resource as it then is.
    Resource(ResourceId),
}

/// The place of an operation in URLs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OperationScope<'a> {
    pub(crate) subscription: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) location: &'a str,
}

impl Operation {
    /// An operation that starts now.
    pub(crate) fn new(cx: &CallContext<'_>, ends: Timestamp, result: OperationResult) -> Operation {
        let id = Uuid::new_v4().to_string();
        Operation { id, started: cx.now, ends, failure: None, result }
    }

    fn status(&self, now: Timestamp) -> &'static str {
        match &self.failure {
            _ if now < self.ends => "InProgress",
            Some(_) => "Failed",
            None => "Succeeded",
        }
    }

    /// Stores it, unless a fault loses it.
    pub(crate) fn keep(&self, cx: &CallContext<'_>) -> Result<(), Failure> {
        cx.db.prepare_cached("delete from operation where expires <= ?")?.execute([micros(cx.now)])?;
        if cx.effects.operation_lost {
            return Ok(());
        }
        let expires = self.ends.saturating_add(KEPT).unwrap_or(Timestamp::MAX);
        cx.db
            .prepare_cached("insert or replace into operation (id, expires, doc) values (?, ?, ?)")?
            .execute(params![self.id, micros(expires), serde_json::to_string(self)?])?;
        Ok(())
    }

    /// The URL of its status.
    pub(crate) fn status_url(&self, request: &ArmRequest<'_>, scope: OperationScope<'_>) -> String {
        self.url(request, scope, "operations")
    }

    /// The URL of its result.
    pub(crate) fn result_url(&self, request: &ArmRequest<'_>, scope: OperationScope<'_>) -> String {
        self.url(request, scope, "operationResults")
    }

    fn url(&self, request: &ArmRequest<'_>, scope: OperationScope<'_>, word: &str) -> String {
        let OperationScope { subscription, namespace, location } = scope;
        let location = if location.is_empty() { "global" } else { location };
        let (base, id) = (request.base, &self.id);
        let version = request.parameter("api-version").unwrap_or_default();
        format!(
            "{base}/subscriptions/{subscription}/providers/{namespace}/locations/{location}/{word}/{id}?api-version={version}"
        )
    }

    /// The URL of the result of an operation on a group.
    pub(crate) fn group_url(&self, request: &ArmRequest<'_>, subscription: &str) -> String {
        let version = request.parameter("api-version").unwrap_or_default();
        format!(
            "{}/subscriptions/{subscription}/operationresults/{}?api-version={version}",
            request.base, self.id
        )
    }
}

/// Adds the pace of polls to a response.
pub(crate) fn paced(response: ArmResponse) -> ArmResponse {
    response.with_header("retry-after-ms", RETRY_AFTER_MILLIS)
}

fn find(cx: &CallContext<'_>, id: &str) -> Result<Operation, Failure> {
    let doc: Option<String> = cx
        .db
        .prepare_cached("select doc from operation where id = ? and expires > ?")?
        .query_row(params![id.to_lowercase(), micros(cx.now)], |row| row.get(0))
        .optional()?;
    match doc {
        Some(doc) => Ok(serde_json::from_str(&doc)?),
        None => {
            let message = format!("The operation '{id}' was not found.");
            Err(ArmError::not_found("OperationNotFound", message).into())
        }
    }
}

/// The status of an operation: 200 with `status`, whatever the outcome.
pub(crate) fn status(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    id: &str,
) -> Result<ArmResponse, Failure> {
    let operation = find(cx, id)?;
    let status = operation.status(cx.now);
    let mut body = json!({
        "id": request.path,
        "name": operation.id,
        "status": status,
        "startTime": operation.started.to_string(),
    });
    if status == "InProgress" {
        return Ok(paced(ArmResponse::ok(body)));
    }
    body["endTime"] = json!(operation.ends.to_string());
    match (operation.failure, operation.result) {
        (Some(failure), _) => body["error"] = failure.error,
        (None, OperationResult::Body(result)) => body["properties"] = json!({ "output": result }),
        (None, _) => {}
    }
    Ok(ArmResponse::ok(body))
}

/// The result of an operation: 202 until its end.
pub(crate) fn result(
    cx: &CallContext<'_>,
    request: &ArmRequest<'_>,
    id: &str,
) -> Result<ArmResponse, Failure> {
    let operation = find(cx, id)?;
    if operation.status(cx.now) == "InProgress" {
        let version = request.parameter("api-version").unwrap_or_default();
        let url = format!("{}{}?api-version={version}", request.base, request.path);
        return Ok(paced(ArmResponse::empty(StatusCode::ACCEPTED)).with_header("location", url));
    }
    if let Some(failure) = operation.failure {
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::CONFLICT);
        return Ok(ArmResponse::new(status, json!({ "error": failure.error })));
    }
    match operation.result {
        OperationResult::Empty => Ok(ArmResponse::empty(StatusCode::NO_CONTENT)),
        OperationResult::EmptyOk => Ok(ArmResponse::empty(StatusCode::OK)),
        OperationResult::Body(Value::Null) => Ok(ArmResponse::empty(StatusCode::OK)),
        OperationResult::Body(body) => Ok(ArmResponse::ok(body)),
        OperationResult::Resource(id) => match store::find(cx.db, &id.key())? {
            Some(resource) => Ok(ArmResponse::ok(Value::Object(resources::shown(cx, &resource, None)?))),
            None => Ok(ArmResponse::empty(StatusCode::NO_CONTENT)),
        },
    }
}
