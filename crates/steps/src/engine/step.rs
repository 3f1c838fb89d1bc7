//! The run of one step: its tries, its timeout, its cancellation, and its progress.

use std::any::Any;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::doc::ResultCode;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use store::{CommitResult, StoreError};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::decide::next_try_delay;
use super::recorder::{LeaseLost, RunRecorder, StatusMessage, entry_text, error_text, is_retryable, millis};
use super::{
    Body, CompletedStep, Plan, ProgressReporter, Step, StepContext, StepError, StepErrorKind, StepOutcome,
    WaitingCode,
};

/// Time after which a running step is shown.
pub(super) const SHOW_AFTER: Duration = Duration::from_millis(250);
/// Shortest interval between two writes of progress.
pub(super) const SHOW_EVERY: Duration = Duration::from_secs(1);
/// Time that a cancelled step has to clean up before it is dropped.
const GRACE: Duration = Duration::from_secs(2);
/// Largest memory of a step, since it is part of every later checkpoint.
const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// How a step ended.
pub(super) enum StepResult {
    /// It completed; it is in the journal, which is not written yet.
    Done(Option<String>),
    /// It failed.
    Failed(StepError),
    /// It was stopped by a cancel.
    Cancelled,
    /// It was left at a safe point, or dropped because the process exits.
    Left(WaitingCode),
}

/// Progress of a running step that is not in the recorder yet.
#[derive(Default)]
pub(super) struct ProgressBuffer {
    notes: Mutex<BufferedProgress>,
    pub(super) changed: Notify,
}

#[derive(Default)]
struct BufferedProgress {
    said: Option<StatusMessage>,
    failed: Vec<(String, Duration)>,
}

impl ProgressBuffer {
    fn lock(&self) -> MutexGuard<'_, BufferedProgress> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_status(&self, status: StatusMessage) {
        self.lock().said = Some(status);
        self.changed.notify_one();
    }
}

/// Runs the step at `index` until it ends or a signal ends it.
pub(super) async fn run_step<C: Send + Sync + 'static>(
    recorder: &mut RunRecorder<'_>,
    plan: &Plan<C>,
    index: usize,
    context: &Arc<C>,
    attempt_ends: Instant,
) -> Result<StepResult, LeaseLost> {
    let step = &plan.steps[index];
    let left = step.timeout.min(attempt_ends.saturating_duration_since(Instant::now()));
    recorder.enter_step(&step.name, index, plan.steps.len(), "");
    recorder.set_deadline(left);
    recorder.add_entry(recorder.step_entry(EntryEvent::StepStarted, &step.name, None));
    let progress = Arc::new(ProgressBuffer::default());
    let stop = CancellationToken::new();
    let cx = step_context(recorder, step, &progress, &stop);
    let begun = Instant::now();
    let result =
        watch(recorder, step, run_tries(step, context, &cx, &progress), &progress, &stop, attempt_ends)
            .await?;
    take_progress(recorder, &step.name, &progress);
    let took = Some(millis(begun.elapsed()));
    let result = match result {
        BodyResult::Out(result) => result.and_then(|outcome| within_bounds(step, outcome)),
        BodyResult::Cancelled => {
            let entry = recorder.step_entry(
                EntryEvent::StepFailed,
                &step.name,
                Some("stopped by a cancel".to_owned()),
            );
            recorder.add_entry(Entry { duration_ms: took, ..entry });
            return Ok(StepResult::Cancelled);
        }
        BodyResult::Left(code) => return Ok(StepResult::Left(code)),
    };
    match result {
        Ok(outcome) => {
            let entry = recorder.step_entry(EntryEvent::StepFinished, &step.name, entry_text(&outcome));
            recorder.add_entry(Entry { duration_ms: took, ..entry });
            recorder.complete_step();
            recorder.journal.done.push(CompletedStep { name: step.name.clone(), memory: outcome.memory });
            if let Some(message) = &outcome.message {
                recorder.set_status(message.clone().into());
            }
            Ok(StepResult::Done(outcome.message))
        }
        Err(error) => {
            let entry = recorder.step_entry(EntryEvent::StepFailed, &step.name, error_text(&error));
            recorder.add_entry(Entry { duration_ms: took, ..entry });
            recorder.set_status(StatusMessage::from(&error));
            recorder.customer_failures =
                recorder.customer_failures.saturating_add(u32::from(error.customer_error().is_some()));
            Ok(StepResult::Failed(error))
        }
    }
}

pub(super) fn step_context<C>(
    recorder: &RunRecorder<'_>,
    step: &Step<C>,
    progress: &Arc<ProgressBuffer>,
    stop: &CancellationToken,
) -> StepContext {
    let progress = progress.clone();
    StepContext {
        hold: recorder.hold,
        attempt: recorder.attempt,
        customer_failures: recorder.customer_failures,
        step: step.name.clone(),
        memory: Arc::new(recorder.journal.memories()),
        reporter: ProgressReporter::new(move |report| progress.set_status(report.into())),
        clock: recorder.clock.clone(),
        stop: stop.clone(),
    }
}

/// How the body of a step ended.
enum BodyResult {
    Out(Result<StepOutcome, StepError>),
    Cancelled,
    Left(WaitingCode),
}

/// Waits for the body and for the signals that may end it; writes its progress.
async fn watch<C>(
    recorder: &mut RunRecorder<'_>,
    step: &Step<C>,
    body: impl Future<Output = Result<StepOutcome, StepError>>,
    progress: &ProgressBuffer,
    stop: &CancellationToken,
    attempt_ends: Instant,
) -> Result<BodyResult, LeaseLost> {
    let mut body = pin!(body);
    let control = recorder.control.clone();
    let begun = Instant::now();
    let ends = (begun + step.timeout).min(attempt_ends);
    let leaves = step.safe_point && matches!(step.body, Body::Wait { .. });
    // The first write is due by time, later ones when there is news.
    let mut show_at = Some(begun + SHOW_AFTER);
    let mut shown = begun;
    let mut showing: Option<(BoxFuture<'static, Result<CommitResult, StoreError>>, usize)> = None;
    let ran = loop {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(LeaseLost),
            result = &mut body => break BodyResult::Out(result),
            () = control.cancel.cancelled() => {
                stop.cancel();
                // A poll changes nothing, so that there is nothing to clean up.
                if matches!(step.body, Body::Wait { .. }) {
                    break BodyResult::Cancelled;
                }
                tokio::select! {
                    biased;
                    () = control.lost.cancelled() => return Err(LeaseLost),
                    result = &mut body => match result {
                        // It completed after all; the next safe point decides.
                        Ok(outcome) => break BodyResult::Out(Ok(outcome)),
                        Err(_) => break BodyResult::Cancelled,
                    },
                    () = sleep(GRACE) => break BodyResult::Cancelled,
                }
            }
            () = control.halt.cancelled() => break BodyResult::Left(WaitingCode::Shutdown),
            () = control.preempt.cancelled(), if leaves => break BodyResult::Left(WaitingCode::Preempted),
            () = control.shutdown.cancelled(), if leaves => break BodyResult::Left(WaitingCode::Shutdown),
            () = sleep_until(ends) => break BodyResult::Out(Err(late(step, ends == attempt_ends))),
            committed = async { showing.as_mut().expect("only polled when it is there").0.as_mut().await },
                if showing.is_some() =>
            {
                let count = showing.take().map_or(0, |(_, count)| count);
                shown = Instant::now();
                match committed {
                    Ok(committed) => recorder.mark_written(count, &committed),
                    Err(error) if is_retryable(&error) => show_at = Some(shown + SHOW_EVERY),
                    Err(_) => return Err(LeaseLost),
                }
            }
            () = progress.changed.notified() => show_at = show_at.or(Some(shown + SHOW_EVERY)),
            () = async { sleep_until(show_at.expect("only polled when it is there")).await },
                if show_at.is_some() && showing.is_none() =>
            {
                show_at = None;
                take_progress(recorder, &step.name, progress);
                let (write, count) = recorder.pending_write();
                let store = recorder.store.clone();
                showing = Some((async move { store.commit(write).await }.boxed(), count));
            }
        }
    };
    stop.cancel();
    // A pending write must not overtake the next one.
    if let Some((write, count)) = showing {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(LeaseLost),
            committed = write => match committed {
                Ok(committed) => recorder.mark_written(count, &committed),
                Err(error) if is_retryable(&error) => {}
                Err(_) => return Err(LeaseLost),
            },
        }
    }
    Ok(ran)
}

/// Moves the progress of the step and its failed tries into the recorder.
pub(super) fn take_progress(recorder: &mut RunRecorder<'_>, step: &str, progress: &ProgressBuffer) {
    let notes = std::mem::take(&mut *progress.lock());
    if notes.said.is_some() || !notes.failed.is_empty() {
        recorder.record_entries();
    }
    for (text, rest) in notes.failed {
        let message = format!("{text}; retrying after {rest:?}");
        recorder.add_entry(recorder.step_entry(EntryEvent::StepFailed, step, Some(message)));
    }
    if let Some(status) = notes.said {
        recorder.set_status(status);
    }
}

/// The tries of a step, with delays between them.
async fn run_tries<C: Send + Sync + 'static>(
    step: &Step<C>,
    context: &Arc<C>,
    cx: &StepContext,
    progress: &ProgressBuffer,
) -> Result<StepOutcome, StepError> {
    let mut tried = 0;
    loop {
        let error = match &step.body {
            Body::Action(body) => match catch_panic(step, || body(context.clone(), cx.clone())).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            },
            Body::Wait { interval, poll } => {
                match catch_panic(step, || poll(context.clone(), cx.clone())).await {
                    Ok(status) => match status.waiting() {
                        Ok(outcome) => return Ok(outcome),
                        Err(report) => {
                            // A successful poll resets the count of failed ones.
                            tried = 0;
                            cx.reporter.report(report);
                            pause(*interval, cx).await?;
                            continue;
                        }
                    },
                    Err(error) if error.keeps_waiting() => {
                        tried = 0;
                        progress.set_status(StatusMessage::from(&error));
                        pause(*interval, cx).await?;
                        continue;
                    }
                    Err(error) => error,
                }
            }
        };
        tried += 1;
        let Some(rest) = next_try_delay(error.kind(), tried, step.retry, error.retry_after()) else {
            return Err(error);
        };
        progress.lock().failed.push((error.full_message(), rest));
        progress.changed.notify_one();
        pause(rest, cx).await?;
    }
}

/// Waits between two tries or polls. There is nothing to clean up there: a stop is obeyed at once.
async fn pause(span: Duration, cx: &StepContext) -> Result<(), StepError> {
    match cx.stop.run_until_cancelled(sleep(span)).await {
        Some(()) => Ok(()),
        None => Err(StepError::transient("Stopped", "stopped while it waited")),
    }
}

/// Runs a body and turns a panic into an error of the step, so that the worker survives.
pub(super) async fn catch_panic<C, T>(
    step: &Step<C>,
    body: impl FnOnce() -> BoxFuture<'static, Result<T, StepError>>,
) -> Result<T, StepError> {
    let ran = AssertUnwindSafe(async move { body().await }).catch_unwind().await;
    ran.unwrap_or_else(|panic| {
        let message = format!("step {} panicked: {}", step.name, panic_message(&*panic));
        Err(StepError::new(step.on_panic, ResultCode::PANIC, message))
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

fn late<C>(step: &Step<C>, attempt: bool) -> StepError {
    if attempt {
        return StepError::transient(
            ResultCode::TIME_LIMIT,
            format!("the attempt's time ran out in step {}", step.name),
        );
    }
    let message = format!("step {} took longer than {:?}", step.name, step.timeout);
    StepError::transient(ResultCode::STEP_TIMEOUT, message)
}

fn within_bounds<C>(step: &Step<C>, outcome: StepOutcome) -> Result<StepOutcome, StepError> {
    let memory = outcome.memory.to_string();
    if memory.len() > MEMORY_BYTES_MAX || memory.contains("\\u0000") {
        let message = format!(
            "step {} left a memory of {} bytes; at most {MEMORY_BYTES_MAX} without NUL are allowed",
            step.name,
            memory.len()
        );
        return Err(StepError::new(StepErrorKind::Terminal, "MemoryTooLarge", message));
    }
    Ok(outcome)
}
