//! What keeps a removal going: nobody wants to keep what was to be removed, so it is attempted until it is done, with rests that
//! grow to half an hour.
//!
//! It comes to a bad end for one reason only: its customer is in the way (a lock, a right that was taken from us), and has not
//! made way for a while. Then they are told, and ask again when they have. Of a subscription that is deleted nobody could ask
//! again, so that its removals go on even then.

use std::future::Future;
use std::sync::Arc;

use api::doc::SubscriptionState;
use futures_util::future::BoxFuture;
use steps::engine::{ATTEMPTS_MAX, StepContext, StepError, StepErrorKind};

use crate::Context;

/// So often a customer may stand in the way before they are told.
const TIMES_MAX: u32 = ATTEMPTS_MAX.unsigned_abs();

/// A body whose failures are judged as those of a removal.
pub(crate) fn of<F, Fut, T: Send + 'static>(
    body: F,
) -> impl Fn(Arc<Context>, StepContext) -> BoxFuture<'static, Result<T, StepError>> + Send + Sync + 'static
where
    F: Fn(Arc<Context>, StepContext) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<T, StepError>> + Send + 'static,
{
    move |cx, step| {
        // Only those attempts count that its customer stood in the way of; what else may have cost some is not their doing.
        let times = step.customer_failures.saturating_add(1);
        let ran = body(cx.clone(), step);
        Box::pin(async move {
            match ran.await {
                Ok(done) => Ok(done),
                Err(error) => {
                    let abandoned = error.customer_error().is_some() && is_abandoned(&cx).await;
                    Err(judged(error, times, abandoned))
                }
            }
        })
    }
}

/// Whether nobody is left who could ask again. A store that gives no answer says no: the next attempt asks it anew.
async fn is_abandoned(cx: &Context) -> bool {
    let Ok(ours) = cx.life.snapshot().await else { return false };
    let path = format!("/subscriptions/{}", ours.document().subscription_id.to_lowercase());
    let found = cx.life.records.store.subscriptions().find(&path).await;
    matches!(found, Ok(Some(it)) if it.document.state == SubscriptionState::Deleted)
}

/// What an error means for a removal; `times` is how often its customer has stood in the way of this step, if it is theirs.
fn judged(error: StepError, times: u32, abandoned: bool) -> StepError {
    let is_theirs = error.customer_error().is_some() && !abandoned;
    let kind = match error.kind() {
        StepErrorKind::Terminal if !is_theirs => StepErrorKind::Transient,
        StepErrorKind::Transient if is_theirs && times >= TIMES_MAX => StepErrorKind::Terminal,
        StepErrorKind::Terminal
        | StepErrorKind::Transient
        | StepErrorKind::Unreachable
        | StepErrorKind::Precondition => return error,
    };
    let customer = error.customer_error().cloned();
    let judged = StepError::new(kind, error.code().to_owned(), error.to_string())
        .with_retry_after(error.retry_after());
    customer.into_iter().fold(judged, StepError::with_customer_error).with_source(error)
}

#[cfg(test)]
mod tests {
    use steps::lifecycle::fault::{customer_error, user_error};

    use super::*;

    #[test]
    fn a_removal_ends_badly_only_when_its_customer_stands_in_the_way() {
        use StepErrorKind::{Terminal, Transient};
        let ours = |kind| StepError::new(kind, "Strange", "an answer that nobody understands");
        let theirs = || {
            StepError::transient("Forbidden", "no").with_customer_error(customer_error(
                "Forbidden",
                "no",
                None,
            ))
        };
        let locked = || user_error("ScopeLocked", "it is locked", None);
        let check = |error: StepError, times: u32, abandoned: bool, expect: StepErrorKind| {
            let said = (error.code().to_owned(), error.full_message(), error.customer_error().cloned());
            let judged = judged(error, times, abandoned);
            assert_eq!(judged.kind(), expect, "{said:?}, {times} times");
            assert_eq!(
                (judged.code().to_owned(), judged.full_message(), judged.customer_error().cloned()),
                said
            );
        };
        for times in [1, TIMES_MAX, 1000] {
            check(ours(Terminal), times, false, Transient);
            check(ours(Transient), times, false, Transient);
            check(ours(StepErrorKind::Unreachable), times, false, StepErrorKind::Unreachable);
            check(locked(), times, false, Terminal);
            check(locked(), times, true, Transient);
            check(theirs(), times, true, Transient);
        }
        check(theirs(), TIMES_MAX - 1, false, Transient);
        check(theirs(), TIMES_MAX, false, Terminal);
    }
}
