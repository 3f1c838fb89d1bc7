//! What the engine decides, as functions of what it knows: which step is next, whether a failed try is followed by another,
//! what an error means for the attempt, what is undone and in which order. No clock, no store, no await.

use std::time::Duration;

use api::work::Ending;
use uuid::Uuid;

use super::{Body, Journal, Plan, Retry, StepError, StepErrorKind, Waiting, WaitingCode};

/// So often work is attempted when nobody said otherwise.
pub const ATTEMPTS_MAX: i32 = 5;
/// The rest after the first failed attempt; it doubles with each.
const BACK_OFF: Duration = Duration::from_secs(30);
/// The longest rest after a failed attempt.
const BACK_OFF_MAX: Duration = Duration::from_secs(30 * 60);
/// The first rest of work whose cluster does not answer; it doubles with each.
const UNREACHABLE_REST: Duration = Duration::from_secs(30);
/// The longest rest of work whose cluster does not answer: it may be back any minute.
const UNREACHABLE_REST_MAX: Duration = Duration::from_secs(5 * 60);
/// The rest of work that waits for what its task requires.
const PRECONDITION_REST: Duration = Duration::from_secs(60);
/// The longest pause between two tries of a step: a step's pauses are meant for hiccups.
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// What an error means for the attempt that met it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The work ends, after its undo.
    End(Ending),
    /// The work is given back to be tried again after a rest.
    Rest {
        /// Why it rests.
        code: WaitingCode,
        /// How long.
        rest: Duration,
        /// Whether the attempt counts.
        spent: bool,
    },
}

/// The first step that is not done. Done steps that the plan no longer has are passed over; a step that was put in before
/// others that are done is run now.
pub(super) fn next_step<C>(plan: &Plan<C>, journal: &Journal) -> Option<usize> {
    plan.steps.iter().position(|step| !journal.is_done(&step.name))
}

/// Whether the work may be handed back before the step at `index` begins. Not when that step may have been interrupted half
/// way (`half_way`): the cluster is then as no author of the plan meant to leave it. A wait is never half done.
pub(super) fn safe_before<C>(plan: &Plan<C>, index: usize, half_way: bool) -> bool {
    let after_the_last = index.checked_sub(1).is_none_or(|last| plan.steps[last].safe_point);
    let half_done =
        half_way && plan.steps.get(index).is_some_and(|step| matches!(step.body, Body::Action(_)));
    after_the_last && !half_done
}

/// The pause before the next try of a step that failed `tried` times, or none when it is not tried again.
pub fn next_try(kind: StepErrorKind, tried: u32, retry: Retry, wished: Option<Duration>) -> Option<Duration> {
    if kind != StepErrorKind::Transient || tried >= retry.attempts {
        return None;
    }
    let doubled = retry.backoff.saturating_mul(2_u32.saturating_pow(tried.saturating_sub(1)));
    Some(doubled.max(wished.unwrap_or_default()).min(PAUSE_MAX))
}

/// What an error means for an attempt. `before` is why the work rested before, when no step came to its end since.
pub fn verdict(
    error: &StepError,
    attempt: i32,
    attempts_max: i32,
    before: Option<&Waiting>,
    work: Uuid,
) -> Verdict {
    match error.kind() {
        StepErrorKind::Terminal => Verdict::End(Ending::Failed),
        StepErrorKind::Transient if attempt >= attempts_max => Verdict::End(Ending::RetriesExceeded),
        StepErrorKind::Transient => Verdict::Rest {
            code: WaitingCode::BackingOff,
            rest: back_off(attempt, work).max(error.retry_after().unwrap_or_default()).min(BACK_OFF_MAX),
            spent: true,
        },
        StepErrorKind::Unreachable => Verdict::Rest {
            code: WaitingCode::Unreachable,
            rest: park(WaitingCode::Unreachable, before),
            spent: false,
        },
        StepErrorKind::Precondition => Verdict::Rest {
            code: WaitingCode::Precondition,
            rest: error.retry_after().unwrap_or_else(|| park(WaitingCode::Precondition, before)),
            spent: false,
        },
    }
}

/// The rest after a failed attempt: it doubles, and differs by up to a fifth from work to work, so that what failed together
/// does not come back together.
pub fn back_off(attempt: i32, work: Uuid) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(0);
    let even = BACK_OFF.saturating_mul(2_u32.saturating_pow(doublings)).min(BACK_OFF_MAX);
    // The last bytes of an id are its least ordered ones, whatever its version.
    let share =
        f64::from(u16::from_be_bytes([work.as_bytes()[14], work.as_bytes()[15]])) / f64::from(u16::MAX);
    even.mul_f64(0.8 + 0.4 * share).min(BACK_OFF_MAX)
}

/// The rest of parked work: longer each time for a cluster that does not answer.
pub fn park(code: WaitingCode, before: Option<&Waiting>) -> Duration {
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

/// Which steps are taken back, in order: the one in hand first, then those that are done, the last one first. Those without
/// an undo, and those that were dealt with, are left out.
pub(super) fn undo_order<C>(plan: &Plan<C>, journal: &Journal) -> Vec<usize> {
    let Some(undoing) = &journal.undo else { return Vec::new() };
    let begun = undoing.step.iter().map(String::as_str);
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
