//! The engine's decisions as pure functions: which step is next, whether a failed try is repeated, what an error means for the
//! attempt, what is undone and in which order. No clock, no store, no await.

use std::time::Duration;

use api::doc::StepName;
use api::work::Ending;
use uuid::Uuid;

use super::{Body, Journal, Plan, Retry, StepError, StepErrorKind, WaitState, WaitingCode};

/// Default limit of attempts of one work.
pub const ATTEMPTS_MAX: i32 = 5;
/// Delay after the first failed attempt; it doubles with each.
const BACK_OFF: Duration = Duration::from_secs(30);
/// Longest delay after a failed attempt.
const BACK_OFF_MAX: Duration = Duration::from_secs(30 * 60);
/// First delay of work whose cluster is unreachable; it doubles with each.
const UNREACHABLE_REST: Duration = Duration::from_secs(30);
/// Longest delay of work whose cluster is unreachable: it may be back any minute.
const UNREACHABLE_REST_MAX: Duration = Duration::from_secs(5 * 60);
/// Delay of work whose preconditions are not met.
const PRECONDITION_REST: Duration = Duration::from_secs(60);
/// Longest delay between two tries of a step: a step retries short disturbances only.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// What follows from an error of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptDecision {
    /// The work finishes, after its undo.
    End(Ending),
    /// The work is released and retried after a delay.
    Rest {
        /// Why the work waits.
        code: WaitingCode,
        /// The delay.
        rest: Duration,
        /// Whether the attempt counts.
        spent: bool,
    },
}

/// The first step that is not done. Done steps that the plan no longer contains are skipped; a new step that was inserted
/// before done ones is run now.
pub(super) fn next_step<C>(plan: &Plan<C>, journal: &Journal) -> Option<usize> {
    plan.steps.iter().position(|step| !journal.is_done(&step.name))
}

/// Whether the work may be released before the step at `index` starts. It may not if that step may have been interrupted
/// (`half_way`): its author did not intend to leave the cluster in that state. A wait is never half done.
pub(super) fn is_safe_before<C>(plan: &Plan<C>, index: usize, half_way: bool) -> bool {
    let after_the_last = index.checked_sub(1).is_none_or(|last| plan.steps[last].safe_point);
    let half_done =
        half_way && plan.steps.get(index).is_some_and(|step| matches!(step.body, Body::Action(_)));
    after_the_last && !half_done
}

/// The delay before the next try of a step that failed `tried` times; none if it is not retried.
pub fn next_try_delay(
    kind: StepErrorKind,
    tried: u32,
    retry: Retry,
    wished: Option<Duration>,
) -> Option<Duration> {
    if kind != StepErrorKind::Transient || tried >= retry.attempts {
        return None;
    }
    let doubled = retry.backoff.saturating_mul(2_u32.saturating_pow(tried.saturating_sub(1)));
    Some(doubled.max(wished.unwrap_or_default()).min(PAUSE_MAX))
}

/// What follows from an error of an attempt. `before` is why the work waited before, if no step has completed since.
pub fn decide_attempt(
    error: &StepError,
    attempt: i32,
    attempts_max: i32,
    before: Option<&WaitState>,
    work: Uuid,
) -> AttemptDecision {
    match error.kind() {
        StepErrorKind::Terminal => AttemptDecision::End(Ending::Failed),
        StepErrorKind::Transient if attempt >= attempts_max => AttemptDecision::End(Ending::RetriesExceeded),
        StepErrorKind::Transient => AttemptDecision::Rest {
            code: WaitingCode::BackingOff,
            rest: retry_backoff(attempt, work).max(error.retry_after().unwrap_or_default()).min(BACK_OFF_MAX),
            spent: true,
        },
        StepErrorKind::Unreachable => AttemptDecision::Rest {
            code: WaitingCode::Unreachable,
            rest: park_duration(WaitingCode::Unreachable, before),
            spent: false,
        },
        StepErrorKind::Precondition => AttemptDecision::Rest {
            code: WaitingCode::Precondition,
            rest: error.retry_after().unwrap_or_else(|| park_duration(WaitingCode::Precondition, before)),
            spent: false,
        },
    }
}

/// The delay after a failed attempt. It doubles with each, and differs by up to a fifth between works, so that works that
/// failed together are not retried together.
pub fn retry_backoff(attempt: i32, work: Uuid) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(0);
    let even = BACK_OFF.saturating_mul(2_u32.saturating_pow(doublings)).min(BACK_OFF_MAX);
    // The last bytes of an id vary most, whatever its version.
    let share =
        f64::from(u16::from_be_bytes([work.as_bytes()[14], work.as_bytes()[15]])) / f64::from(u16::MAX);
    even.mul_f64(0.8 + 0.4 * share).min(BACK_OFF_MAX)
}

/// The delay of parked work; it grows while the cluster is unreachable.
pub fn park_duration(code: WaitingCode, before: Option<&WaitState>) -> Duration {
    let times = before.filter(|it| it.code == code).map_or(0, |it| it.times);
    match code {
        WaitingCode::Unreachable => {
            UNREACHABLE_REST.saturating_mul(2_u32.saturating_pow(times)).min(UNREACHABLE_REST_MAX)
        }
        WaitingCode::Precondition => PRECONDITION_REST,
        WaitingCode::BackingOff | WaitingCode::Preempted | WaitingCode::Shutdown | WaitingCode::Other => {
            Duration::ZERO
        }
    }
}

/// The steps to undo, in order: the interrupted one first, then the completed ones from last to first. Steps without an undo,
/// and those whose undo was handled already, are left out.
pub(super) fn undo_order<C>(plan: &Plan<C>, journal: &Journal) -> Vec<usize> {
    let Some(undoing) = &journal.undo else { return Vec::new() };
    let begun = undoing.step.iter().map(StepName::as_str);
    let done = journal.done.iter().rev().map(|it| it.name.as_str());
    let mut order = Vec::new();
    for name in begun.chain(done) {
        let index = plan.steps.iter().position(|step| step.name == name && step.undo.is_some());
        let settled = undoing.settled.iter().any(|it| it == name);
        if let Some(index) = index.filter(|index| !settled && !order.contains(index)) {
            order.push(index);
        }
    }
    order
}

#[cfg(test)]
#[path = "decide/tests.rs"]
mod tests;
