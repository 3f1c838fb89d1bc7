//! What an operation makes of a cluster that does not answer.
//!
//! Maintenance is parked until the cluster is back, for nobody waits for it. Of an operation its customer waits for the end, and
//! until then can neither change nor delete the cluster. So each time that the cluster cannot be reached is an attempt, and the
//! last one is told.

use std::future::Future;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use steps::engine::{StepContext, StepError, StepErrorKind};
use steps::lifecycle::fault::{DEPLOYMENT_FAILED, customer_error};

use crate::Context;

/// A body whose failures to reach the cluster spend attempts.
pub(crate) fn of<F, Fut, T: Send + 'static>(
    body: F,
) -> impl Fn(Arc<Context>, StepContext) -> BoxFuture<'static, Result<T, StepError>> + Send + Sync + 'static
where
    F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, StepError>> + Send + 'static,
{
    move |cx, step| {
        let ran = body(cx, step);
        Box::pin(async move { ran.await.map_err(judged) })
    }
}

/// What an error means for an operation that must come to an end.
fn judged(error: StepError) -> StepError {
    match error.kind() {
        _ if error.keeps_waiting() => error,
        StepErrorKind::Terminal | StepErrorKind::Transient => error,
        StepErrorKind::Unreachable | StepErrorKind::Precondition => {
            let unavailable = customer_error(
                DEPLOYMENT_FAILED,
                "The Kubernetes API of the cluster is unavailable. Please retry, and if the issue persists, raise a support ticket.",
                None,
            );
            let judged = StepError::transient(error.code().to_owned(), error.to_string());
            judged.with_retry_after(error.retry_after()).with_customer_error(unavailable).with_source(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_does_not_answer_costs_an_operation_attempts_and_is_told() {
        use StepErrorKind::{Precondition, Terminal, Transient, Unreachable};
        let error = |kind| StepError::new(kind, "Refused", "the API server refuses connections");
        for kind in [Unreachable, Precondition] {
            let judged = judged(error(kind));
            assert_eq!((judged.kind(), judged.code().as_str()), (Transient, "Refused"));
            assert_eq!(judged.full_message(), "the API server refuses connections");
            assert_eq!(judged.customer_error().map(|it| it.code.as_str()), Some(DEPLOYMENT_FAILED));
        }
        for kind in [Terminal, Transient] {
            let judged = judged(error(kind));
            assert!(judged.kind() == kind && judged.customer_error().is_none());
        }
        let keep_waiting = judged(error(Unreachable).keep_waiting());
        assert!(
            keep_waiting.keeps_waiting() && keep_waiting.kind() == Unreachable,
            "a wait has its own limit"
        );
    }
}
