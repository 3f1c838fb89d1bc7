//! One log line for each finished operation: the input of service level objectives.

use std::time::Duration;

use api::doc::Operation;

use crate::completion::result_type;
use crate::installer::verb_name;

/// Logs a finished operation.
pub(crate) fn log_operation(operation: &Operation, attempt: i32, took: Duration) {
    let error = operation.error.as_ref();
    let result = result_type(error);
    let code = error.map(|it| it.code.as_str()).unwrap_or_default();
    let details = error.map(|it| it.message.as_str()).unwrap_or_default();
    let verb = verb_name(operation.verb);
    let lasted = operation.end_time.map(|end| end.duration_since(operation.start_time).as_millis());
    tracing::info!(
        LOGKIND = "asyncqos",
        operation.id = %operation.id,
        cluster.id = %operation.cluster,
        correlation.id = operation.correlation_id.map(|it| it.to_string()),
        client.request.id = operation.client_request_id,
        resultType = result,
        operationType = verb,
        errorCode = code,
        errorDetails = details,
        attempt,
        duration_ms = u64::try_from(lasted.unwrap_or(0)).unwrap_or(0),
        attempt_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "{verb} of {} finished: {result}",
        operation.cluster_path
    );
}
