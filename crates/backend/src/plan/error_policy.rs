//! The meaning of a step's errors for its operation: whether the operation retries, waits or fails.
//!
//! Maintenance is parked while its cluster is unreachable, because nobody waits for it. A customer waits for the end of an
//! operation, and can neither change nor delete the cluster until then. So each failure to reach the cluster costs an attempt,
//! and the error of the last attempt is reported.
//!
//! A removal is retried until it is complete, with delays that grow to half an hour. It fails for one reason only: its customer
//! blocks it (a lock, a permission that was revoked) for several attempts. The customer then reads the error, and requests the
//! removal again once it is unblocked. Nobody can request it again for a deleted subscription, so that its removals are retried
//! even then.

use std::future::Future;
use std::sync::Arc;

use api::doc::SubscriptionState;
use futures_util::future::BoxFuture;
use steps::engine::{ATTEMPTS_MAX, StepContext, StepError, StepErrorKind};
use steps::lifecycle::fault::{DEPLOYMENT_FAILED, customer_error};

use crate::Context;

/// Attempts that a customer may block before their removal fails.
const BLOCKED_ATTEMPTS_MAX: u32 = ATTEMPTS_MAX.unsigned_abs();

/// How a plan treats the errors of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorPolicy {
    /// The operation fails after a number of attempts; an unreachable cluster costs attempts.
    Bounded,
    /// The operation is retried until it is complete, unless its customer blocks it.
    Persistent,
}

impl ErrorPolicy {
    /// Wraps the body of a step so that its errors are classified by this policy.
    pub(crate) fn apply<F, Fut, T: Send + 'static>(
        self,
        body: F,
    ) -> impl Fn(Arc<Context>, StepContext) -> BoxFuture<'static, Result<T, StepError>> + Send + Sync + 'static
    where
        F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, StepError>> + Send + 'static,
    {
        move |cx, step| {
            // Attempts that failed for another reason are not counted against the customer.
            let blocked_attempts = step.customer_failures.saturating_add(1);
            let result = body(cx.clone(), step);
            Box::pin(async move {
                match (result.await, self) {
                    (Ok(done), _) => Ok(done),
                    (Err(error), ErrorPolicy::Bounded) => Err(classify_bounded(error)),
                    (Err(error), ErrorPolicy::Persistent) => {
                        let abandoned = error.customer_error().is_some() && is_abandoned(&cx).await;
                        Err(classify_persistent(error, blocked_attempts, abandoned))
                    }
                }
            })
        }
    }
}

/// The error of a step of an operation that must come to an end.
fn classify_bounded(error: StepError) -> StepError {
    match error.kind() {
        _ if error.keeps_waiting() => error,
        StepErrorKind::Terminal | StepErrorKind::Transient => error,
        StepErrorKind::Unreachable | StepErrorKind::Precondition => {
            let unavailable = customer_error(
                DEPLOYMENT_FAILED,
                "The Kubernetes API of the cluster is unavailable. Please retry, and if the issue persists, raise a support ticket.",
                None,
            );
            let transient = StepError::transient(error.code().to_owned(), error.to_string());
            transient
                .with_retry_after(error.retry_after())
                .with_customer_error(unavailable)
                .with_source(error)
        }
    }
}

/// Whether the subscription is deleted, so that nobody can request the removal again. If the store fails the answer is no, and
/// the next attempt queries it again.
async fn is_abandoned(cx: &Context) -> bool {
    let Ok(snapshot) = cx.life.snapshot().await else { return false };
    let path = format!("/subscriptions/{}", snapshot.document().subscription_id.to_lowercase());
    let found = cx.life.records.store.subscriptions().find(&path).await;
    matches!(found, Ok(Some(it)) if it.document.state == SubscriptionState::Deleted)
}

/// The error of a step of a removal. `blocked_attempts` counts the attempts of this step that failed with an error of the
/// customer, this one included.
fn classify_persistent(error: StepError, blocked_attempts: u32, abandoned: bool) -> StepError {
    let is_customers = error.customer_error().is_some() && !abandoned;
    let kind = match error.kind() {
        StepErrorKind::Terminal if !is_customers => StepErrorKind::Transient,
        StepErrorKind::Transient if is_customers && blocked_attempts >= BLOCKED_ATTEMPTS_MAX => {
            StepErrorKind::Terminal
        }
        StepErrorKind::Terminal
        | StepErrorKind::Transient
        | StepErrorKind::Unreachable
        | StepErrorKind::Precondition => return error,
    };
    let customer = error.customer_error().cloned();
    let classified = StepError::new(kind, error.code().to_owned(), error.to_string())
        .with_retry_after(error.retry_after());
    customer.into_iter().fold(classified, StepError::with_customer_error).with_source(error)
}

#[cfg(test)]
mod tests {
    use steps::lifecycle::fault::user_error;

    use super::*;

    #[test]
    fn an_unreachable_cluster_costs_an_operation_attempts_and_is_reported() {
        use StepErrorKind::{Precondition, Terminal, Transient, Unreachable};
        let error = |kind| StepError::new(kind, "Refused", "the API server refuses connections");
        for kind in [Unreachable, Precondition] {
            let classified = classify_bounded(error(kind));
            assert_eq!((classified.kind(), classified.code().as_str()), (Transient, "Refused"));
            assert_eq!(classified.full_message(), "the API server refuses connections");
            assert_eq!(classified.customer_error().map(|it| it.code.as_str()), Some(DEPLOYMENT_FAILED));
        }
        for kind in [Terminal, Transient] {
            let classified = classify_bounded(error(kind));
            assert!(classified.kind() == kind && classified.customer_error().is_none());
        }
        let keep_waiting = classify_bounded(error(Unreachable).keep_waiting());
        assert!(
            keep_waiting.keeps_waiting() && keep_waiting.kind() == Unreachable,
            "a wait has its own limit"
        );
    }

    #[test]
    fn a_removal_fails_only_when_its_customer_blocks_it() {
        use StepErrorKind::{Terminal, Transient};
        let internal = |kind| StepError::new(kind, "Strange", "an unknown response");
        let denied = || {
            StepError::transient("Forbidden", "no").with_customer_error(customer_error(
                "Forbidden",
                "no",
                None,
            ))
        };
        let locked = || user_error("ScopeLocked", "it is locked", None);
        let check = |error: StepError, attempts: u32, abandoned: bool, expect: StepErrorKind| {
            let before = (error.code().to_owned(), error.full_message(), error.customer_error().cloned());
            let after = classify_persistent(error, attempts, abandoned);
            assert_eq!(after.kind(), expect, "{before:?}, {attempts} attempts");
            assert_eq!(
                (after.code().to_owned(), after.full_message(), after.customer_error().cloned()),
                before
            );
        };
        for attempts in [1, BLOCKED_ATTEMPTS_MAX, 1000] {
            check(internal(Terminal), attempts, false, Transient);
            check(internal(Transient), attempts, false, Transient);
            check(internal(StepErrorKind::Unreachable), attempts, false, StepErrorKind::Unreachable);
            check(locked(), attempts, false, Terminal);
            check(locked(), attempts, true, Transient);
            check(denied(), attempts, true, Transient);
        }
        check(denied(), BLOCKED_ATTEMPTS_MAX - 1, false, Transient);
        check(denied(), BLOCKED_ATTEMPTS_MAX, false, Terminal);
    }
}
