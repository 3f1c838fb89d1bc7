//! The run of a plan, from its last checkpoint to its end.

use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use api::doc::{ResultCode, StepName, WorkResult};
use api::error::{Class, Classify as _};
use api::work::{Cancellation, Ending};
use backon::BackoffBuilder as _;
use store::{ClaimedWork, Completion, Release, Store};
use tokio::time::{Instant, sleep};

use crate::backoff::store_backoff;

use super::decide::{
    ATTEMPTS_MAX, AttemptDecision, decide_attempt, is_safe_before, next_step, park_duration, retry_backoff,
};
use super::recorder::{LeaseLost, RunRecorder};
use super::step::{StepResult, run_step};
use super::undo::{finish_without_undo, undo_steps};
use super::{Journal, Plan, RunControl, StepError, UndoState, WaitingCode};

/// Input of a run.
pub struct RunRequest<'a, C> {
    /// Stores checkpoints and entries.
    pub store: &'a Store,
    /// The work as it was claimed.
    pub claimed: &'a ClaimedWork,
    /// The plan.
    pub plan: &'a Plan<C>,
    /// The context of its steps.
    pub context: Arc<C>,
    /// The checkpoint, with the version and definition with which the work started.
    pub journal: Journal,
    /// Stops or releases the run.
    pub control: RunControl,
    /// The clock by which entries are dated.
    pub clock: SharedClock,
    /// The actor of entries: the name of a service.
    pub actor: &'a str,
    /// Limit of attempts of the work.
    pub attempts_max: i32,
}

/// The outcome of a run, which the caller writes together with others.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one per run, and most runs finish: a box would cost each an allocation"
)]
pub enum RunOutcome {
    /// The work has finished.
    Finished(Completion),
    /// The work is to be continued later.
    Released {
        /// The release to write.
        yielding: Release,
        /// Why the work waits.
        reason: WaitingCode,
    },
    /// The lease is lost; nothing is to be written.
    LeaseLost,
}

/// Runs a plan: continues after the last checkpoint, writes every outcome to the store under the fence, and returns when the
/// work has finished, is to be continued later, or the lease is lost.
pub async fn run<C: Send + Sync + 'static>(order: RunRequest<'_, C>) -> RunOutcome {
    let RunRequest { store, claimed, plan, context, journal, control, clock, actor, attempts_max } = order;
    control.apply_signals(claimed.signals);
    let recorder = RunRecorder::open(store, claimed, journal, control, clock, actor);
    // A cancel may have been requested while the work waited, or at the moment of its release.
    if claimed.cancellation.is_some() {
        recorder.control.cancel.cancel();
    }
    let runner = PlanRunner { plan, context, taken_over: claimed.taken_over, attempts_max };
    runner.run(recorder).await.unwrap_or(RunOutcome::LeaseLost)
}

/// Finishes or parks work whose plan cannot be made: its task is unknown, its cluster is gone, or a precondition is not met.
///
/// Work that has taken no effect finishes if a cancel was requested. Work that has started needs its undo, for which there is
/// no plan: it is parked until there is one, even if a cancel was requested. If there never will be one, the result lists what
/// was not undone.
pub async fn finish_without_plan(
    store: &Store,
    claimed: &ClaimedWork,
    journal: Journal,
    control: RunControl,
    clock: SharedClock,
    actor: &str,
    refusal: &PlanError,
) -> RunOutcome {
    control.apply_signals(claimed.signals);
    let mut recorder = RunRecorder::open(store, claimed, journal, control, clock, actor);
    // A lost worker may have started a step without a checkpoint; only the plan knows which.
    if claimed.taken_over && !recorder.journal.has_begun() {
        recorder.enter_step("", 0, 0, "");
    }
    match refusal {
        PlanError::Gone { code, message } => {
            RunOutcome::Finished(recorder.finish(Ending::Cancelled, WorkResult::new(code.clone(), message)))
        }
        PlanError::Step(error) => settle_without_plan(recorder, error).await.unwrap_or(RunOutcome::LeaseLost),
        PlanError::Unsupported(error) => {
            let code = WaitingCode::Precondition;
            let rest = park_duration(code, recorder.previous_wait.as_ref());
            release_without_plan(recorder, code, error, rest, false, true)
        }
    }
}

/// Finishes or parks work whose plan failed with an error.
async fn settle_without_plan(recorder: RunRecorder<'_>, error: &StepError) -> Result<RunOutcome, LeaseLost> {
    let begun = recorder.journal.has_begun();
    let asked = recorder.control.cancel.is_cancelled() || (begun && recorder.cancellation.is_some());
    match decide_attempt(
        error,
        recorder.attempt,
        ATTEMPTS_MAX,
        recorder.previous_wait.as_ref(),
        recorder.hold.work,
    ) {
        // Nothing was done, and the work is no longer wanted.
        _ if asked && !begun => {
            let cause = cancellation(&recorder, None).await?;
            Ok(RunOutcome::Finished(finish_without_undo(recorder, cause, &error.full_message())))
        }
        // The undo is due however often there was no plan for it.
        AttemptDecision::End(Ending::RetriesExceeded) if begun => {
            let rest = retry_backoff(recorder.attempt, recorder.hold.work);
            Ok(release_without_plan(recorder, WaitingCode::BackingOff, error, rest, false, asked))
        }
        AttemptDecision::End(_) if asked => {
            let cause = cancellation(&recorder, None).await?;
            Ok(RunOutcome::Finished(finish_without_undo(recorder, cause, &error.full_message())))
        }
        AttemptDecision::End(ending) => {
            let cause = UndoState::new(ending, error.code(), error.full_message());
            let mut completion = finish_without_undo(recorder, cause, &error.full_message());
            add_customer_error(&mut completion, error);
            Ok(RunOutcome::Finished(completion))
        }
        AttemptDecision::Rest { code, rest, spent } => {
            Ok(release_without_plan(recorder, code, error, rest, spent, begun && asked))
        }
    }
}

/// Releases work until its plan may be made. A known cancel request stays in the history, where the next worker finds it; it
/// does not keep the work here.
fn release_without_plan(
    recorder: RunRecorder<'_>,
    code: WaitingCode,
    error: &StepError,
    rest: Duration,
    spent: bool,
    asked: bool,
) -> RunOutcome {
    let mut yielding = recorder.release(code, &error.full_message(), rest, spent);
    yielding.unless_cancelled &= !asked;
    RunOutcome::Released { yielding, reason: code }
}

/// Why no step of a work can run.
#[derive(Debug)]
pub enum PlanError {
    /// The subject of the work is gone.
    Gone {
        /// The machine-readable code.
        code: ResultCode,
        /// The reason as a sentence.
        message: String,
    },
    /// The plan failed with an error, transient or terminal.
    Step(StepError),
    /// This release does not understand the documents of the work, so that no outcome could be written. The work is parked for
    /// a release that does, and uses up no attempts.
    Unsupported(StepError),
}

struct PlanRunner<'a, C> {
    plan: &'a Plan<C>,
    context: Arc<C>,
    taken_over: bool,
    attempts_max: i32,
}

impl<C: Send + Sync + 'static> PlanRunner<'_, C> {
    /// Runs the plan. Rare branches are boxed, so that the common future stays small.
    async fn run(&self, mut recorder: RunRecorder<'_>) -> Result<RunOutcome, LeaseLost> {
        if recorder.journal.is_undoing() {
            return Box::pin(undo_steps(recorder, self.plan, &self.context, None)).await;
        }
        let attempt_ends = Instant::now() + self.plan.time_limit;
        // A lost worker may have started the step after its last checkpoint; a release records that.
        let mut open = self.taken_over;
        // A worker that was stopped within a step left the cluster in a state that the author of the plan did not intend.
        let shut_down = recorder.previous_wait.as_ref().is_some_and(|it| it.code == WaitingCode::Shutdown);
        let mut half_way = self.taken_over || shut_down;
        let mut said = None;
        loop {
            let Some(index) = next_step(self.plan, &recorder.journal) else {
                let message = said.unwrap_or_else(|| "done".to_owned());
                let result = WorkResult::new(ResultCode::COMPLETED, message);
                return Ok(RunOutcome::Finished(recorder.finish(Ending::Completed, result)));
            };
            let step = &self.plan.steps[index];
            open = open || recorder.journal.is_open(&step.name);
            let in_hand = open.then(|| step.name.clone());
            if recorder.control.lost.is_cancelled() {
                return Err(LeaseLost);
            }
            if recorder.control.cancel.is_cancelled() {
                return Box::pin(self.cancel(recorder, in_hand)).await;
            }
            if self.taken_over && open && recorder.attempt > self.attempts_max {
                let error = StepError::transient(ResultCode::WORKER_LOST, "its worker was lost too often");
                return Box::pin(self.fail(recorder, in_hand, &error, Ending::RetriesExceeded)).await;
            }
            if let Some(code) = self.release_reason(&recorder, index, half_way && open) {
                return Ok(leave(recorder, code));
            }
            if Instant::now() >= attempt_ends {
                let message = format!("the attempt's time ran out before step {}", step.name);
                let error = StepError::transient(ResultCode::TIME_LIMIT, message);
                return Box::pin(self.settle(recorder, in_hand, &error)).await;
            }
            (open, half_way) = (false, false);
            match run_step(&mut recorder, self.plan, index, &self.context, attempt_ends).await? {
                StepResult::Done(message) => {
                    said = message;
                    if next_step(self.plan, &recorder.journal).is_some() {
                        recorder.save().await?;
                    }
                }
                StepResult::Failed(error) => {
                    return Box::pin(self.settle(recorder, Some(step.name.clone()), &error)).await;
                }
                StepResult::Cancelled => {
                    return Box::pin(self.cancel(recorder, Some(step.name.clone()))).await;
                }
                StepResult::Left(code) => return Ok(leave(recorder, code)),
            }
        }
    }

    fn release_reason(
        &self,
        recorder: &RunRecorder<'_>,
        index: usize,
        half_way: bool,
    ) -> Option<WaitingCode> {
        let control = &recorder.control;
        if control.halt.is_cancelled() {
            return Some(WaitingCode::Shutdown);
        }
        if !is_safe_before(self.plan, index, half_way) {
            return None;
        }
        let preempt = control.preempt.is_cancelled().then_some(WaitingCode::Preempted);
        preempt.or(control.shutdown.is_cancelled().then_some(WaitingCode::Shutdown))
    }

    /// Finishes or releases the work after a failed attempt.
    async fn settle(
        &self,
        recorder: RunRecorder<'_>,
        step: Option<StepName>,
        error: &StepError,
    ) -> Result<RunOutcome, LeaseLost> {
        let verdict = decide_attempt(
            error,
            recorder.attempt,
            self.attempts_max,
            recorder.previous_wait.as_ref(),
            recorder.hold.work,
        );
        match verdict {
            AttemptDecision::End(ending) => self.fail(recorder, step, error, ending).await,
            AttemptDecision::Rest { code, rest, spent } => {
                let yielding = recorder.release(code, &error.full_message(), rest, spent);
                Ok(RunOutcome::Released { yielding, reason: code })
            }
        }
    }

    async fn fail(
        &self,
        recorder: RunRecorder<'_>,
        step: Option<StepName>,
        error: &StepError,
        ending: Ending,
    ) -> Result<RunOutcome, LeaseLost> {
        let message = match ending {
            Ending::RetriesExceeded => {
                let times = self.attempts_max.min(recorder.attempt);
                format!("did not succeed after {times} times, failing -- {}", error.full_message())
            }
            Ending::Completed | Ending::Failed | Ending::Cancelled => error.full_message(),
        };
        let cause = UndoState { step, ..UndoState::new(ending, error.code(), message) };
        let mut ended = undo_steps(recorder, self.plan, &self.context, Some(cause)).await?;
        if let RunOutcome::Finished(completion) = &mut ended {
            add_customer_error(completion, error);
        }
        Ok(ended)
    }

    async fn cancel(
        &self,
        recorder: RunRecorder<'_>,
        step: Option<StepName>,
    ) -> Result<RunOutcome, LeaseLost> {
        let cause = cancellation(&recorder, step).await?;
        undo_steps(recorder, self.plan, &self.context, Some(cause)).await
    }
}

/// Adds the customer's error to the result, beside the operator's message.
fn add_customer_error(completion: &mut Completion, error: &StepError) {
    if let Some(customer) = error.customer_error() {
        completion.result.customer = Some(customer.clone());
    }
}

fn leave(recorder: RunRecorder<'_>, code: WaitingCode) -> RunOutcome {
    let message = match code {
        WaitingCode::Preempted => "a customer's operation goes first",
        _ => "its worker was shut down",
    };
    let yielding = recorder.release(code, message, Duration::ZERO, false);
    RunOutcome::Released { yielding, reason: code }
}

/// The undo that a cancel request starts; `step` is the interrupted one.
async fn cancellation(recorder: &RunRecorder<'_>, step: Option<StepName>) -> Result<UndoState, LeaseLost> {
    let request = cancel_request(recorder).await?;
    let (by, reason) = request.map(|it| (it.requested_by, it.reason)).unzip();
    let reason = reason.flatten();
    let mut message = "cancelled".to_owned();
    message.extend(by.iter().map(|by| format!(" by {by}")));
    message.extend(reason.iter().map(|reason| format!(": {reason}")));
    Ok(UndoState { step, by, reason, ..UndoState::new(Ending::Cancelled, ResultCode::CANCELLED, message) })
}

/// The request to cancel the work: as it was claimed, or as it is stored now. There is none if the signal came without one. An
/// accepted request must not be ignored: the read is retried while the store does not answer.
async fn cancel_request(recorder: &RunRecorder<'_>) -> Result<Option<Cancellation>, LeaseLost> {
    if let Some(claimed) = &recorder.cancellation {
        return Ok(Some(claimed.clone()));
    }
    let work = recorder.hold.work;
    let mut delays = store_backoff().build();
    loop {
        let read = tokio::select! {
            biased;
            () = recorder.control.lost.cancelled() => return Err(LeaseLost),
            read = recorder.store.work(work) => read,
        };
        match read {
            Ok(view) => return Ok(view.and_then(|it| it.cancellation)),
            Err(error) if error.class() == Class::Transient => {
                tracing::info!(work.id = %work, error = %error, "Reading the cancel request of work {work} failed; retrying");
            }
            Err(error) => {
                // A retry cannot help, and the work must finish nevertheless.
                tracing::error!(work.id = %work, error = %error, "The cancel request of work {work} cannot be read");
                return Ok(None);
            }
        }
        tokio::select! {
            biased;
            () = recorder.control.lost.cancelled() => return Err(LeaseLost),
            // The process exits and the store does not answer: the worker that takes over reads it again.
            () = recorder.control.halt.cancelled() => return Err(LeaseLost),
            () = sleep(delays.next().unwrap_or_default()) => {}
        }
    }
}
