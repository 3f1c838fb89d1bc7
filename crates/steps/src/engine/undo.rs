//! The undo of a plan: the interrupted step first, then the completed ones from last to first. Each is recorded, so that an
//! undo continues after a crash.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::doc::{ResultCode, StepName, WorkResult};
use api::work::Ending;
use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use store::{CommitResult, Completion, StoreError};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::decide::undo_order;
use super::recorder::{LeaseLost, RunRecorder, millis};
use super::step::{ProgressBuffer, SHOW_AFTER, SHOW_EVERY, catch_panic, step_context, take_progress};
use super::{Plan, RunOutcome, Step, StepContext, StepError, StepErrorKind, Undo, UndoState, WaitingCode};

/// Delay before the second try of an undo; it doubles.
const DELAY: Duration = Duration::from_secs(1);
/// Longest delay between two tries: a cluster may be back any moment, and somebody waits for the outcome.
const DELAY_MAX: Duration = Duration::from_secs(30);

/// Undoes the work and finishes it. `cause` is the reason, unless the journal has it already.
pub(super) async fn undo_steps<C: Send + Sync + 'static>(
    mut recorder: RunRecorder<'_>,
    plan: &Plan<C>,
    context: &Arc<C>,
    cause: Option<UndoState>,
) -> Result<RunOutcome, LeaseLost> {
    recorder.record_entries();
    if let Some(cause) = cause {
        recorder.journal.undo = Some(cause);
        if !undo_order(plan, &recorder.journal).is_empty() {
            recorder.save().await?;
        }
    }
    let order = undo_order(plan, &recorder.journal);
    for (nth, index) in order.iter().enumerate() {
        if recorder.control.shutdown.is_cancelled() {
            return Ok(leave(recorder));
        }
        let step = &plan.steps[*index];
        let Some(undo) = &step.undo else { continue };
        recorder.enter_step(&step.name, *index, plan.steps.len(), "undoing");
        recorder.set_deadline(undo.timeout);
        let begun = Instant::now();
        let Some(undone) = undone(&mut recorder, step, undo, context).await? else {
            return Ok(leave(recorder));
        };
        settle(&mut recorder, &step.name, undone, millis(begun.elapsed()));
        if nth + 1 < order.len() {
            recorder.save().await?;
        }
    }
    Ok(RunOutcome::Finished(finish(recorder)))
}

/// Result of an undo; none if the worker is stopped before.
type Undone = Option<Result<Option<String>, StepError>>;

/// Runs one undo and writes its progress.
async fn undone<C: Send + Sync + 'static>(
    recorder: &mut RunRecorder<'_>,
    step: &Step<C>,
    undo: &Undo<C>,
    context: &Arc<C>,
) -> Result<Undone, LeaseLost> {
    let stop = CancellationToken::new();
    let _ends_with_us = stop.clone().drop_guard();
    let progress = Arc::new(ProgressBuffer::default());
    let cx = step_context(recorder, step, &progress, &stop);
    let memory = recorder.journal.memory(&step.name);
    let control = recorder.control.clone();
    let mut body = pin!(run_tries(step, undo, context, &cx, &memory, &control.shutdown));
    let mut show_at = Some(Instant::now() + SHOW_AFTER);
    let mut showing: Option<Showing> = None;
    let undone = loop {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(LeaseLost),
            undone = &mut body => break undone,
            () = control.halt.cancelled() => break None,
            shown = async { showing.as_mut().expect("only polled when it is there").await }, if showing.is_some() => {
                showing = None;
                // Progress that was not written is part of the next write.
                if let Ok((count, committed)) = shown {
                    recorder.mark_written(count, &committed);
                }
            }
            () = progress.changed.notified() => show_at = show_at.or(Some(Instant::now() + SHOW_EVERY)),
            () = async { sleep_until(show_at.expect("only polled when it is there")).await },
                if show_at.is_some() && showing.is_none() =>
            {
                show_at = None;
                take_progress(recorder, &step.name, &progress);
                let (write, count) = recorder.pending_write();
                let store = recorder.store.clone();
                showing = Some(async move { store.commit(write).await.map(|committed| (count, committed)) }.boxed());
            }
        }
    };
    // A pending write must not overtake the next one.
    if let Some(showing) = showing {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(LeaseLost),
            shown = showing => if let Ok((count, committed)) = shown {
                recorder.mark_written(count, &committed);
            },
        }
    }
    Ok(undone)
}

/// A pending write of progress, with the number of entries in it.
type Showing = BoxFuture<'static, Result<(usize, CommitResult), StoreError>>;

/// The tries of an undo, as long as a retry may help and until its timeout. Between two tries nothing is half done, so that a
/// shutdown is obeyed there.
async fn run_tries<C: Send + Sync + 'static>(
    step: &Step<C>,
    undo: &Undo<C>,
    context: &Arc<C>,
    cx: &StepContext,
    memory: &Value,
    shutdown: &CancellationToken,
) -> Undone {
    let ends = Instant::now() + undo.timeout;
    let backoff = ExponentialBuilder::default().with_min_delay(DELAY).with_max_delay(DELAY_MAX);
    let mut delays = backoff.without_max_times().build();
    let mut last = None;
    loop {
        let body = || (undo.body)(context.clone(), cx.clone(), memory.clone());
        let error = match timeout_at(ends, catch_panic(step, body)).await {
            Ok(Err(error)) if error.kind() != StepErrorKind::Terminal => error,
            Ok(outcome) => return Some(outcome),
            Err(_) => return Some(Err(late(undo.timeout, last.as_ref()))),
        };
        let delay = delays.next().unwrap_or(DELAY_MAX);
        let rest = delay.max(error.retry_after().unwrap_or_default()).min(DELAY_MAX);
        if Instant::now() + rest >= ends {
            return Some(Err(late(undo.timeout, Some(&error))));
        }
        cx.reporter.message(format!("undoing: {}; retrying after {rest:?}", error.full_message()));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = sleep(rest) => {}
        }
        last = Some(error);
    }
}

/// The error of an undo at its timeout, with its last error.
fn late(limit: Duration, last: Option<&StepError>) -> StepError {
    match last {
        Some(error) => StepError::transient(error.code(), format!("{}, for {limit:?}", error.full_message())),
        None => StepError::transient(ResultCode::UNDO_TIMEOUT, format!("undoing took longer than {limit:?}")),
    }
}

/// Finishes work that needs an undo for which there will be no plan. `cause` is the reason, unless the journal has it already.
pub(super) fn finish_without_undo(mut recorder: RunRecorder<'_>, cause: UndoState, why: &str) -> Completion {
    recorder.record_entries();
    let in_hand = recorder.journal.step.as_ref().map(|it| it.name.clone());
    let step = in_hand.filter(|name| recorder.journal.is_open(name));
    let mut undoing = recorder.journal.undo.take().unwrap_or(UndoState { step, ..cause });
    let done = recorder.journal.done.iter().rev().map(|it| &it.name);
    let mut left: Vec<&StepName> = Vec::new();
    for name in undoing.step.iter().chain(done) {
        if !undoing.settled.contains(name) && !left.contains(&name) {
            left.push(name);
        }
    }
    undoing.failed.extend(left.into_iter().map(|name| format!("{}: not undone: {why}", label(name))));
    undoing.step = undoing.step.filter(|name| !name.is_empty());
    recorder.journal.undo = Some(undoing);
    finish(recorder)
}

/// The name of a step for messages. A step without one was started by a worker that is lost.
fn label(step: &StepName) -> &str {
    if step.is_empty() { "the interrupted step" } else { step }
}

/// Records the result of an undo.
fn settle(recorder: &mut RunRecorder<'_>, step: &str, undone: Result<Option<String>, StepError>, took: u64) {
    let entry = match &undone {
        Ok(None) => None,
        Ok(Some(sentence)) => Some(recorder.step_entry(EntryEvent::Undone, step, Some(sentence.clone()))),
        Err(error) => {
            let message = format!("could not be undone: {}", error.full_message());
            Some(recorder.step_entry(EntryEvent::StepFailed, step, Some(message)))
        }
    };
    if let Some(entry) = entry {
        recorder.add_entry(Entry { duration_ms: Some(took), ..entry });
    }
    if let Some(undoing) = &mut recorder.journal.undo {
        undoing.settled.push(step.into());
        match undone {
            Ok(sentence) => undoing.undone.extend(sentence),
            Err(error) => undoing.failed.push(format!("{step}: {}", error.full_message())),
        }
    }
}

/// Releases the work during its undo; the next worker continues the undo.
fn leave(recorder: RunRecorder<'_>) -> RunOutcome {
    let yielding = recorder.release(WaitingCode::Shutdown, "its worker was shut down", Duration::ZERO, false);
    RunOutcome::Released { yielding, reason: WaitingCode::Shutdown }
}

fn finish(mut recorder: RunRecorder<'_>) -> Completion {
    let Some(undoing) = recorder.journal.undo.take() else {
        let message = "the journal has no reason for the undo";
        return recorder.finish(Ending::Failed, WorkResult::new(ResultCode::BROKEN, message));
    };
    let result = WorkResult {
        step: undoing.step,
        by: undoing.by,
        reason: undoing.reason,
        undone: Some(undoing.undone),
        undo_failed: Some(undoing.failed).filter(|it| !it.is_empty()),
        ..WorkResult::new(undoing.code, undoing.message)
    };
    recorder.finish(undoing.ending, result)
}
