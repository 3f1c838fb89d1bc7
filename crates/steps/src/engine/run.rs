//! Walking a plan, from wherever it stood to its end.

use std::sync::Arc;
use std::time::Duration;

use api::admin::EntryEvent;
use api::clock::SharedClock;
use api::doc::{ResultCode, WorkResult};
use api::error::{Class, Classify as _};
use api::work::Ending;
use store::{ClaimedWork, Completion, Release, Store};
use tokio::time::{Instant, sleep};

use super::decide::{ATTEMPTS_MAX, Verdict, back_off, next_step, park, safe_before, verdict};
use super::ledger::{Ledger, Lost};
use super::step::{StepEnd, carry_out};
use super::undo::{give_up, take_back};
use super::{Control, Journal, Plan, StepError, Undoing, WaitingCode};

/// So many entries of a work's log are looked through for who asked for its end.
const LOG_PAGE: usize = 200;
/// The first pause before a log that could not be read is read again; it doubles.
const READ_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a log that could not be read is read again.
const READ_PAUSE_MAX: Duration = Duration::from_secs(5);

/// What is needed to walk a plan.
pub struct Order<'a, C> {
    /// Where everything is remembered.
    pub store: &'a Store,
    /// The work, as it was claimed.
    pub claimed: &'a ClaimedWork,
    /// The plan.
    pub plan: &'a Plan<C>,
    /// What its steps are given.
    pub context: Arc<C>,
    /// The checkpoint, with the version and definition that the work began with.
    pub journal: Journal,
    /// The reins.
    pub control: Control,
    /// The clock by which entries are dated.
    pub clock: SharedClock,
    /// Who walks, in entries: a service by its name.
    pub actor: &'a str,
    /// So often the work is attempted.
    pub attempts_max: i32,
}

/// How a run ended. What it brings back is for the caller to write, together with others.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// The work is at its end.
    Finished(Completion),
    /// The work is to be continued later.
    HandedBack {
        /// The hand-back.
        yielding: Release,
        /// Why.
        why: WaitingCode,
    },
    /// The work is not ours any more; nothing is to be written.
    Lost,
}

/// Walks a plan for whoever holds the work: goes on after the last checkpoint, leaves every outcome in the store under the
/// fence, and returns when the plan is at its end, is to be continued later, or is not ours any more.
pub async fn run<C: Send + Sync + 'static>(order: Order<'_, C>) -> Ended {
    let Order { store, claimed, plan, context, journal, control, clock, actor, attempts_max } = order;
    control.hear(claimed.signals);
    let ledger = Ledger::open(store, claimed, journal, control, clock, actor);
    // Somebody may have asked for the end while it rested, or in the very moment in which it was handed back.
    if !claimed.first {
        match Box::pin(who_asked(&ledger)).await {
            Ok((Some(_), _)) => ledger.control.cancel.cancel(),
            Ok((None, _)) => {}
            Err(Lost) => return Ended::Lost,
        }
    }
    let walk = Walk { plan, context, taken_over: claimed.taken_over, attempts_max };
    walk.on(ledger).await.unwrap_or(Ended::Lost)
}

/// Ends or sets aside work whose plan cannot be made: its task is not known, its cluster is gone, what its task requires is
/// not so.
///
/// What has taken no effect ends when somebody asked for that. What has begun is owed its undo, and there is no plan to do it
/// by: it is set aside until there is one, whoever asked for its end. Where there never will be one, its end says what was not
/// taken back.
pub async fn refuse(
    store: &Store,
    claimed: &ClaimedWork,
    journal: Journal,
    control: Control,
    clock: SharedClock,
    actor: &str,
    refusal: &Refusal,
) -> Ended {
    control.hear(claimed.signals);
    let mut ledger = Ledger::open(store, claimed, journal, control, clock, actor);
    // A lost holder may have begun a step of which nothing is written; which one, only the plan knows.
    if claimed.taken_over && !ledger.journal.has_begun() {
        ledger.enter("", 0, 0, "");
    }
    match refusal {
        Refusal::Withdrawn { code, message } => {
            Ended::Finished(ledger.finish(Ending::Cancelled, WorkResult::new(code.clone(), message)))
        }
        Refusal::Error(error) => set_aside(ledger, error).await.unwrap_or(Ended::Lost),
        Refusal::Unreadable(error) => {
            let code = WaitingCode::Precondition;
            let rest = park(code, ledger.rested.as_ref());
            hand_on(ledger, code, error, rest, false, true)
        }
    }
}

/// What becomes of work whose plan could not be made.
async fn set_aside(ledger: Ledger<'_>, error: &StepError) -> Result<Ended, Lost> {
    let begun = ledger.journal.has_begun();
    let asked = ledger.control.cancel.is_cancelled() || (begun && who_asked(&ledger).await?.0.is_some());
    match verdict(error, ledger.attempt, ATTEMPTS_MAX, ledger.rested.as_ref(), ledger.hold.work) {
        // Nothing was done, and nobody wants it any more.
        _ if asked && !begun => {
            let cause = wish(&ledger, None).await?;
            Ok(Ended::Finished(give_up(ledger, cause, &error.whole())))
        }
        // Its undo is owed however often there was no plan to do it by.
        Verdict::End(Ending::RetriesExceeded) if begun => {
            let rest = back_off(ledger.attempt, ledger.hold.work);
            Ok(hand_on(ledger, WaitingCode::BackingOff, error, rest, false, asked))
        }
        Verdict::End(_) if asked => {
            let cause = wish(&ledger, None).await?;
            Ok(Ended::Finished(give_up(ledger, cause, &error.whole())))
        }
        Verdict::End(ending) => {
            let cause = Undoing::new(ending, error.code(), error.whole());
            let mut completion = give_up(ledger, cause, &error.whole());
            tell_customer(&mut completion, error);
            Ok(Ended::Finished(completion))
        }
        Verdict::Rest { code, rest, spent } => Ok(hand_on(ledger, code, error, rest, spent, begun && asked)),
    }
}

/// Gives work back until its plan may be made. A wish for its end that is known stays in its log, where the next holder finds
/// it: it does not keep the work here.
fn hand_on(
    ledger: Ledger<'_>,
    code: WaitingCode,
    error: &StepError,
    rest: Duration,
    spent: bool,
    asked: bool,
) -> Ended {
    let mut yielding = ledger.give_back(code, &error.whole(), rest, spent);
    yielding.unless_cancelled &= !asked;
    Ended::HandedBack { yielding, why: code }
}

/// Why no step of a piece of work can be run.
#[derive(Debug)]
pub enum Refusal {
    /// What it was for is gone.
    Withdrawn {
        /// Reason for machines.
        code: ResultCode,
        /// In a sentence.
        message: String,
    },
    /// Something stands in the way, for now or for good.
    Error(StepError),
    /// What it is about is not understood by this release: no end of it could be written, whoever asks for one. It is set aside
    /// for a release that understands it, and spends nothing.
    Unreadable(StepError),
}

struct Walk<'a, C> {
    plan: &'a Plan<C>,
    context: Arc<C>,
    taken_over: bool,
    attempts_max: i32,
}

impl<C: Send + Sync + 'static> Walk<'_, C> {
    /// The way to the end; what seldom happens is put aside, so that the many do not carry the room for it about.
    async fn on(&self, mut ledger: Ledger<'_>) -> Result<Ended, Lost> {
        if ledger.journal.is_undoing() {
            return Box::pin(take_back(ledger, self.plan, &self.context, None)).await;
        }
        let attempt_ends = Instant::now() + self.plan.time_limit;
        // A holder that was lost may have begun the step after its last checkpoint; one that handed back said so.
        let mut open = self.taken_over;
        // Whoever was stopped in the middle of a step left the cluster as no author of the plan meant to leave it.
        let shut_down = ledger.rested.as_ref().is_some_and(|it| it.code == WaitingCode::Shutdown);
        let mut half_way = self.taken_over || shut_down;
        let mut said = None;
        loop {
            let Some(index) = next_step(self.plan, &ledger.journal) else {
                let message = said.unwrap_or_else(|| "done".to_owned());
                let result = WorkResult::new(ResultCode::COMPLETED, message);
                return Ok(Ended::Finished(ledger.finish(Ending::Completed, result)));
            };
            let step = &self.plan.steps[index];
            open = open || ledger.journal.is_open(&step.name);
            let in_hand = open.then(|| step.name.clone());
            if ledger.control.lost.is_cancelled() {
                return Err(Lost);
            }
            if ledger.control.cancel.is_cancelled() {
                return Box::pin(self.cancel(ledger, in_hand)).await;
            }
            if self.taken_over && open && ledger.attempt > self.attempts_max {
                let error =
                    StepError::transient(ResultCode::WORKER_LOST, "its worker was lost again and again");
                return Box::pin(self.fail(ledger, in_hand, &error, Ending::RetriesExceeded)).await;
            }
            if let Some(code) = self.asked_to_leave(&ledger, index, half_way && open) {
                return Ok(leave(ledger, code));
            }
            if Instant::now() >= attempt_ends {
                let message = format!("the attempt's time ran out before step {}", step.name);
                let error = StepError::transient(ResultCode::TIME_LIMIT, message);
                return Box::pin(self.settle(ledger, in_hand, &error)).await;
            }
            (open, half_way) = (false, false);
            match carry_out(&mut ledger, self.plan, index, &self.context, attempt_ends).await? {
                StepEnd::Done(message) => {
                    said = message;
                    if next_step(self.plan, &ledger.journal).is_some() {
                        ledger.save().await?;
                    }
                }
                StepEnd::Failed(error) => {
                    return Box::pin(self.settle(ledger, Some(step.name.clone()), &error)).await;
                }
                StepEnd::Cancelled => return Box::pin(self.cancel(ledger, Some(step.name.clone()))).await,
                StepEnd::Left(code) => return Ok(leave(ledger, code)),
            }
        }
    }

    fn asked_to_leave(&self, ledger: &Ledger<'_>, index: usize, half_way: bool) -> Option<WaitingCode> {
        let control = &ledger.control;
        if control.halt.is_cancelled() {
            return Some(WaitingCode::Shutdown);
        }
        if !safe_before(self.plan, index, half_way) {
            return None;
        }
        let preempt = control.preempt.is_cancelled().then_some(WaitingCode::Preempted);
        preempt.or(control.shutdown.is_cancelled().then_some(WaitingCode::Shutdown))
    }

    /// Does with a failed attempt what its error calls for.
    async fn settle(
        &self,
        ledger: Ledger<'_>,
        step: Option<String>,
        error: &StepError,
    ) -> Result<Ended, Lost> {
        let verdict =
            verdict(error, ledger.attempt, self.attempts_max, ledger.rested.as_ref(), ledger.hold.work);
        match verdict {
            Verdict::End(ending) => self.fail(ledger, step, error, ending).await,
            Verdict::Rest { code, rest, spent } => {
                let yielding = ledger.give_back(code, &error.whole(), rest, spent);
                Ok(Ended::HandedBack { yielding, why: code })
            }
        }
    }

    async fn fail(
        &self,
        ledger: Ledger<'_>,
        step: Option<String>,
        error: &StepError,
        ending: Ending,
    ) -> Result<Ended, Lost> {
        let message = match ending {
            Ending::RetriesExceeded => {
                let times = self.attempts_max.min(ledger.attempt);
                format!("did not succeed after {times} times, failing -- {}", error.whole())
            }
            Ending::Completed | Ending::Failed | Ending::Cancelled => error.whole(),
        };
        let cause = Undoing { step, ..Undoing::new(ending, error.code(), message) };
        let mut ended = take_back(ledger, self.plan, &self.context, Some(cause)).await?;
        if let Ended::Finished(completion) = &mut ended {
            tell_customer(completion, error);
        }
        Ok(ended)
    }

    async fn cancel(&self, ledger: Ledger<'_>, step: Option<String>) -> Result<Ended, Lost> {
        let cause = wish(&ledger, step).await?;
        take_back(ledger, self.plan, &self.context, Some(cause)).await
    }
}

/// What a customer may know of a failure is kept beside what an operator should: under `customer` in the result.
fn tell_customer(completion: &mut Completion, error: &StepError) {
    if let Some(told) = error.customer() {
        completion.result.customer = Some(told.clone());
    }
}

fn leave(ledger: Ledger<'_>, code: WaitingCode) -> Ended {
    let message = match code {
        WaitingCode::Preempted => "a customer's operation goes first",
        _ => "its worker was shut down",
    };
    let yielding = ledger.give_back(code, message, Duration::ZERO, false);
    Ended::HandedBack { yielding, why: code }
}

/// The end that somebody asked for, with who did and in which words; `step` was in hand.
async fn wish(ledger: &Ledger<'_>, step: Option<String>) -> Result<Undoing, Lost> {
    let (by, reason) = who_asked(ledger).await?;
    let mut message = "cancelled".to_owned();
    message.extend(by.iter().map(|by| format!(" by {by}")));
    message.extend(reason.iter().map(|reason| format!(": {reason}")));
    Ok(Undoing { step, by, reason, ..Undoing::new(Ending::Cancelled, ResultCode::CANCELLED, message) })
}

/// Who asked for the work's end, and in which words; nobody when it is not in the log. A wish was accepted: while the log
/// cannot be read it is asked again, for going on would be to pass over it.
async fn who_asked(ledger: &Ledger<'_>) -> Result<(Option<String>, Option<String>), Lost> {
    let mut after = None;
    let mut asked = (None, None);
    let mut pause = READ_PAUSE;
    // A log is read from its beginning; it is short, and a cancel is rare.
    loop {
        let page = tokio::select! {
            biased;
            () = ledger.control.lost.cancelled() => return Err(Lost),
            page = ledger.store.entries(ledger.hold.work, after, LOG_PAGE) => page,
        };
        let page = match page {
            Ok(page) => page,
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(work.id = %ledger.hold.work, error = %error, "The log of work {} is read again", ledger.hold.work);
                tokio::select! {
                    biased;
                    () = ledger.control.lost.cancelled() => return Err(Lost),
                    // The process ends now and the store does not answer: whoever takes the work over asks again.
                    () = ledger.control.halt.cancelled() => return Err(Lost),
                    () = sleep(pause) => pause = (pause * 2).min(READ_PAUSE_MAX),
                }
                continue;
            }
            Err(error) => {
                // Asking again cannot help, and the work must come to its end all the same.
                tracing::error!(work.id = %ledger.hold.work, error = %error, "The log of work {} cannot be read", ledger.hold.work);
                return Ok(asked);
            }
        };
        after = page.last().map(|(place, _)| *place);
        let full = page.len() == LOG_PAGE;
        for (_, entry) in page {
            if entry.event == EntryEvent::CancelRequested {
                asked = (Some(entry.actor), entry.message.filter(|it| !it.is_empty()));
            }
        }
        if !full {
            return Ok(asked);
        }
    }
}
