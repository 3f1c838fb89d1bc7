//! One step under its limits: its tries, its time, its cancellation, and what is seen of it while it runs.

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

use super::decide::next_try;
use super::ledger::{Ledger, Lost, Saying, account, complaint, millis, worth_repeating};
use super::{Body, Done, Outcome, Plan, Step, StepContext, StepError, StepErrorKind, Teller, WaitingCode};

/// A step that takes longer than this shows that it runs.
pub(super) const SHOW_AFTER: Duration = Duration::from_millis(250);
/// What a step says is written at most so often.
pub(super) const SHOW_EVERY: Duration = Duration::from_secs(1);
/// So long a cancelled step may put things in order before it is dropped.
const GRACE: Duration = Duration::from_secs(2);
/// What a step leaves is part of every later checkpoint; more than this is no memory but a document.
const MEMORY_BYTES_MAX: usize = 64 * 1024;

/// How a step left the engine's hands.
pub(super) enum StepEnd {
    /// It is done; it is in the journal, and not yet written.
    Done(Option<String>),
    /// It failed.
    Failed(StepError),
    /// It was stopped because somebody asked for the work's end.
    Cancelled,
    /// It was left at a safe point, or dropped because the process ends.
    Left(WaitingCode),
}

/// What a step says while it runs.
#[derive(Default)]
pub(super) struct Board {
    notes: Mutex<Notes>,
    pub(super) changed: Notify,
}

#[derive(Default)]
struct Notes {
    said: Option<Saying>,
    failed: Vec<(String, Duration)>,
}

impl Board {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, saying: Saying) {
        self.notes().said = Some(saying);
        self.changed.notify_one();
    }
}

/// Runs the step at `index` to its end, or until something outside ends it.
pub(super) async fn carry_out<C: Send + Sync + 'static>(
    ledger: &mut Ledger<'_>,
    plan: &Plan<C>,
    index: usize,
    context: &Arc<C>,
    attempt_ends: Instant,
) -> Result<StepEnd, Lost> {
    let step = &plan.steps[index];
    let left = step.timeout.min(attempt_ends.saturating_duration_since(Instant::now()));
    ledger.enter(&step.name, index, plan.steps.len(), "");
    ledger.ends_within(left);
    ledger.tell(ledger.of_step(EntryEvent::StepStarted, &step.name, None));
    let board = Arc::new(Board::default());
    let stop = CancellationToken::new();
    let cx = step_context(ledger, step, &board, &stop);
    let begun = Instant::now();
    let result = watch(ledger, step, tries(step, context, &cx, &board), &board, &stop, attempt_ends).await?;
    note(ledger, &step.name, &board);
    let took = Some(millis(begun.elapsed()));
    let result = match result {
        Ran::Out(result) => result.and_then(|outcome| within_bounds(step, outcome)),
        Ran::Cancelled => {
            let entry =
                ledger.of_step(EntryEvent::StepFailed, &step.name, Some("stopped by a cancel".to_owned()));
            ledger.tell(Entry { duration_ms: took, ..entry });
            return Ok(StepEnd::Cancelled);
        }
        Ran::Left(code) => return Ok(StepEnd::Left(code)),
    };
    match result {
        Ok(outcome) => {
            let entry = ledger.of_step(EntryEvent::StepFinished, &step.name, account(&outcome));
            ledger.tell(Entry { duration_ms: took, ..entry });
            ledger.get_on();
            ledger.journal.done.push(Done { name: step.name.clone(), memory: outcome.memory });
            if let Some(message) = &outcome.message {
                ledger.say(message.clone().into());
            }
            Ok(StepEnd::Done(outcome.message))
        }
        Err(error) => {
            let entry = ledger.of_step(EntryEvent::StepFailed, &step.name, complaint(&error));
            ledger.tell(Entry { duration_ms: took, ..entry });
            ledger.say(Saying::from(&error));
            ledger.theirs = ledger.theirs.saturating_add(u32::from(error.customer().is_some()));
            Ok(StepEnd::Failed(error))
        }
    }
}

pub(super) fn step_context<C>(
    ledger: &Ledger<'_>,
    step: &Step<C>,
    board: &Arc<Board>,
    stop: &CancellationToken,
) -> StepContext {
    let board = board.clone();
    StepContext {
        hold: ledger.hold,
        attempt: ledger.attempt,
        theirs: ledger.theirs,
        step: step.name.clone(),
        memory: Arc::new(ledger.journal.memories()),
        teller: Teller::new(move |report| board.say(report.into())),
        clock: ledger.clock.clone(),
        stop: stop.clone(),
    }
}

/// How the body of a step ended.
enum Ran {
    Out(Result<Outcome, StepError>),
    Cancelled,
    Left(WaitingCode),
}

/// Waits for the body and for everything that may end it sooner; shows what it says.
async fn watch<C>(
    ledger: &mut Ledger<'_>,
    step: &Step<C>,
    body: impl Future<Output = Result<Outcome, StepError>>,
    board: &Board,
    stop: &CancellationToken,
    attempt_ends: Instant,
) -> Result<Ran, Lost> {
    let mut body = pin!(body);
    let control = ledger.control.clone();
    let begun = Instant::now();
    let ends = (begun + step.timeout).min(attempt_ends);
    let leaves = step.safe_point && matches!(step.body, Body::Wait { .. });
    // The first showing comes by itself, later ones when there is something new.
    let mut show_at = Some(begun + SHOW_AFTER);
    let mut shown = begun;
    let mut showing: Option<(BoxFuture<'static, Result<CommitResult, StoreError>>, usize)> = None;
    let ran = loop {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(Lost),
            result = &mut body => break Ran::Out(result),
            () = control.cancel.cancelled() => {
                stop.cancel();
                // A look changes nothing, so that there is nothing to put in order.
                if matches!(step.body, Body::Wait { .. }) {
                    break Ran::Cancelled;
                }
                tokio::select! {
                    biased;
                    () = control.lost.cancelled() => return Err(Lost),
                    result = &mut body => match result {
                        // It came to its end after all; the next safe point decides.
                        Ok(outcome) => break Ran::Out(Ok(outcome)),
                        Err(_) => break Ran::Cancelled,
                    },
                    () = sleep(GRACE) => break Ran::Cancelled,
                }
            }
            () = control.halt.cancelled() => break Ran::Left(WaitingCode::Shutdown),
            () = control.preempt.cancelled(), if leaves => break Ran::Left(WaitingCode::Preempted),
            () = control.shutdown.cancelled(), if leaves => break Ran::Left(WaitingCode::Shutdown),
            () = sleep_until(ends) => break Ran::Out(Err(late(step, ends == attempt_ends))),
            committed = async { showing.as_mut().expect("only polled when it is there").0.as_mut().await },
                if showing.is_some() =>
            {
                let told = showing.take().map_or(0, |(_, told)| told);
                shown = Instant::now();
                match committed {
                    Ok(committed) => ledger.drafted(told, &committed),
                    Err(error) if worth_repeating(&error) => show_at = Some(shown + SHOW_EVERY),
                    Err(_) => return Err(Lost),
                }
            }
            () = board.changed.notified() => show_at = show_at.or(Some(shown + SHOW_EVERY)),
            () = async { sleep_until(show_at.expect("only polled when it is there")).await },
                if show_at.is_some() && showing.is_none() =>
            {
                show_at = None;
                note(ledger, &step.name, board);
                let (write, told) = ledger.draft();
                let store = ledger.store.clone();
                showing = Some((async move { store.commit(write).await }.boxed(), told));
            }
        }
    };
    stop.cancel();
    // A write under way is waited for: it must not come behind the next one.
    if let Some((write, told)) = showing {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(Lost),
            committed = write => match committed {
                Ok(committed) => ledger.drafted(told, &committed),
                Err(error) if worth_repeating(&error) => {}
                Err(_) => return Err(Lost),
            },
        }
    }
    Ok(ran)
}

/// Takes what the step said and which of its tries failed into the ledger.
pub(super) fn note(ledger: &mut Ledger<'_>, step: &str, board: &Board) {
    let notes = std::mem::take(&mut *board.notes());
    if notes.said.is_some() || !notes.failed.is_empty() {
        ledger.speak();
    }
    for (complaint, rest) in notes.failed {
        let message = format!("{complaint}; tried again after {rest:?}");
        ledger.tell(ledger.of_step(EntryEvent::StepFailed, step, Some(message)));
    }
    if let Some(saying) = notes.said {
        ledger.say(saying);
    }
}

/// The tries of a step, with pauses between them.
async fn tries<C: Send + Sync + 'static>(
    step: &Step<C>,
    context: &Arc<C>,
    cx: &StepContext,
    board: &Board,
) -> Result<Outcome, StepError> {
    let mut tried = 0;
    loop {
        let error = match &step.body {
            Body::Action(body) => match caught(step, || body(context.clone(), cx.clone())).await {
                Ok(outcome) => return Ok(outcome),
                Err(error) => error,
            },
            Body::Wait { every, look } => match caught(step, || look(context.clone(), cx.clone())).await {
                Ok(look) => match look.waiting() {
                    Ok(outcome) => return Ok(outcome),
                    Err(report) => {
                        // A good look ends a row of failed ones.
                        tried = 0;
                        cx.teller.report(report);
                        pause(*every, cx).await?;
                        continue;
                    }
                },
                Err(error) if error.is_waited_out() => {
                    tried = 0;
                    board.say(Saying::from(&error));
                    pause(*every, cx).await?;
                    continue;
                }
                Err(error) => error,
            },
        };
        tried += 1;
        let Some(rest) = next_try(error.kind(), tried, step.retry, error.retry_after()) else {
            return Err(error);
        };
        board.notes().failed.push((error.whole(), rest));
        board.changed.notify_one();
        pause(rest, cx).await?;
    }
}

/// Nothing is put in order between two tries or looks: a stop is obeyed at once.
async fn pause(span: Duration, cx: &StepContext) -> Result<(), StepError> {
    match cx.stop.run_until_cancelled(sleep(span)).await {
        Some(()) => Ok(()),
        None => Err(StepError::transient("Stopped", "stopped while it waited")),
    }
}

/// Runs a body; a panic in it is an error of the step, not the end of a worker.
pub(super) async fn caught<C, T>(
    step: &Step<C>,
    body: impl FnOnce() -> BoxFuture<'static, Result<T, StepError>>,
) -> Result<T, StepError> {
    let ran = AssertUnwindSafe(async move { body().await }).catch_unwind().await;
    ran.unwrap_or_else(|panic| {
        let message = format!("step {} panicked: {}", step.name, words(&*panic));
        Err(StepError::new(step.on_panic, ResultCode::PANIC, message))
    })
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no words were left")
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

fn within_bounds<C>(step: &Step<C>, outcome: Outcome) -> Result<Outcome, StepError> {
    let memory = outcome.memory.to_string();
    if memory.len() > MEMORY_BYTES_MAX || memory.contains("\\u0000") {
        let message = format!(
            "step {} leaves {} bytes to remember; at most {MEMORY_BYTES_MAX} are kept, without the character NUL",
            step.name,
            memory.len()
        );
        return Err(StepError::new(StepErrorKind::Terminal, "MemoryTooLarge", message));
    }
    Ok(outcome)
}
