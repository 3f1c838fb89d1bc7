//! Taking back what was done: the step in hand first, then the done ones from the last to the first, each remembered, so
//! that a crash while undoing goes on undoing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::doc::{ResultCode, StepName, WorkResult};
use api::work::Ending;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use store::{CommitResult, Completion, StoreError};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::decide::undo_order;
use super::ledger::{Ledger, Lost, millis};
use super::step::{Board, SHOW_AFTER, SHOW_EVERY, caught, note, step_context};
use super::{Ended, Plan, Step, StepContext, StepError, StepErrorKind, Undo, Undoing, WaitingCode};

/// The pause before the second try of an undo; it doubles.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between two tries: a cluster may be back any moment, and somebody waits for the end.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Takes back what was done and ends the work. The journal says why, since before or from now on.
pub(super) async fn take_back<C: Send + Sync + 'static>(
    mut ledger: Ledger<'_>,
    plan: &Plan<C>,
    context: &Arc<C>,
    cause: Option<Undoing>,
) -> Result<Ended, Lost> {
    ledger.speak();
    if let Some(cause) = cause {
        ledger.journal.undo = Some(cause);
        if !undo_order(plan, &ledger.journal).is_empty() {
            ledger.save().await?;
        }
    }
    let order = undo_order(plan, &ledger.journal);
    for (nth, index) in order.iter().enumerate() {
        if ledger.control.shutdown.is_cancelled() {
            return Ok(leave(ledger));
        }
        let step = &plan.steps[*index];
        let Some(undo) = &step.undo else { continue };
        ledger.enter(&step.name, *index, plan.steps.len(), "undoing");
        ledger.ends_within(undo.timeout);
        let begun = Instant::now();
        let Some(undone) = undone(&mut ledger, step, undo, context).await? else { return Ok(leave(ledger)) };
        settle(&mut ledger, &step.name, undone, millis(begun.elapsed()));
        if nth + 1 < order.len() {
            ledger.save().await?;
        }
    }
    Ok(Ended::Finished(finish(ledger)))
}

/// How an undo went; nothing when its worker leaves before that is known.
type Undone = Option<Result<Option<String>, StepError>>;

/// Runs one undo to its end, and shows what it says meanwhile.
async fn undone<C: Send + Sync + 'static>(
    ledger: &mut Ledger<'_>,
    step: &Step<C>,
    undo: &Undo<C>,
    context: &Arc<C>,
) -> Result<Undone, Lost> {
    let stop = CancellationToken::new();
    let _ends_with_us = stop.clone().drop_guard();
    let board = Arc::new(Board::default());
    let cx = step_context(ledger, step, &board, &stop);
    let memory = ledger.journal.memory(&step.name);
    let control = ledger.control.clone();
    let mut body = pin!(tries(step, undo, context, &cx, &memory, &control.shutdown));
    let mut show_at = Some(Instant::now() + SHOW_AFTER);
    let mut showing: Option<Showing> = None;
    let undone = loop {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(Lost),
            undone = &mut body => break undone,
            () = control.halt.cancelled() => break None,
            shown = async { showing.as_mut().expect("only polled when it is there").await }, if showing.is_some() => {
                showing = None;
                // What was not shown is told with the end of the undo.
                if let Ok((told, committed)) = shown {
                    ledger.drafted(told, &committed);
                }
            }
            () = board.changed.notified() => show_at = show_at.or(Some(Instant::now() + SHOW_EVERY)),
            () = async { sleep_until(show_at.expect("only polled when it is there")).await },
                if show_at.is_some() && showing.is_none() =>
            {
                show_at = None;
                note(ledger, &step.name, &board);
                let (write, told) = ledger.draft();
                let store = ledger.store.clone();
                showing = Some(async move { store.commit(write).await.map(|committed| (told, committed)) }.boxed());
            }
        }
    };
    // A write under way is waited for: it must not come behind the next one.
    if let Some(showing) = showing {
        tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(Lost),
            shown = showing => if let Ok((told, committed)) = shown {
                ledger.drafted(told, &committed);
            },
        }
    }
    Ok(undone)
}

/// A showing that is being written: how many entries are in it, and the answer.
type Showing = BoxFuture<'static, Result<(usize, CommitResult), StoreError>>;

/// The tries of an undo: as long as trying again may help and its time is not over. Nothing is left half way between two of
/// them, so that a shutdown is obeyed there.
async fn tries<C: Send + Sync + 'static>(
    step: &Step<C>,
    undo: &Undo<C>,
    context: &Arc<C>,
    cx: &StepContext,
    memory: &Value,
    shutdown: &CancellationToken,
) -> Undone {
    let ends = Instant::now() + undo.timeout;
    let mut pause = PAUSE;
    let mut last = None;
    loop {
        let body = || (undo.body)(context.clone(), cx.clone(), memory.clone());
        let error = match timeout_at(ends, caught(step, body)).await {
            Ok(Err(error)) if error.kind() != StepErrorKind::Terminal => error,
            Ok(outcome) => return Some(outcome),
            Err(_) => return Some(Err(late(undo.timeout, last.as_ref()))),
        };
        let rest = pause.max(error.retry_after().unwrap_or_default()).min(PAUSE_MAX);
        if Instant::now() + rest >= ends {
            return Some(Err(late(undo.timeout, Some(&error))));
        }
        cx.teller.say(format!("undoing: {}; tried again after {rest:?}", error.whole()));
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = sleep(rest) => pause = (pause * 2).min(PAUSE_MAX),
        }
        last = Some(error);
    }
}

/// An undo whose time is over, with what it met last.
fn late(limit: Duration, last: Option<&StepError>) -> StepError {
    match last {
        Some(error) => StepError::transient(error.code(), format!("{}, for {limit:?}", error.whole())),
        None => StepError::transient(ResultCode::UNDO_TIMEOUT, format!("undoing took longer than {limit:?}")),
    }
}

/// Ends work that is owed an undo and cannot have it, because there will be no plan to do it by. `cause` is why it ends, unless
/// that was known before.
pub(super) fn give_up(mut ledger: Ledger<'_>, cause: Undoing, why: &str) -> Completion {
    ledger.speak();
    let in_hand = ledger.journal.step.as_ref().map(|it| it.name.clone());
    let step = in_hand.filter(|name| ledger.journal.is_open(name));
    let mut undoing = ledger.journal.undo.take().unwrap_or(Undoing { step, ..cause });
    let done = ledger.journal.done.iter().rev().map(|it| &it.name);
    let mut left: Vec<String> = Vec::new();
    for name in undoing.step.iter().chain(done) {
        if !undoing.settled.contains(name) && !left.contains(name) {
            left.push(name.clone());
        }
    }
    let named = |name: String| if name.is_empty() { "the step in hand".to_owned() } else { name };
    undoing.failed.extend(left.into_iter().map(|name| format!("{}: not taken back: {why}", named(name))));
    undoing.step = undoing.step.filter(|name| !name.is_empty());
    ledger.journal.undo = Some(undoing);
    finish(ledger)
}

/// Remembers how an undo went.
fn settle(ledger: &mut Ledger<'_>, step: &str, undone: Result<Option<String>, StepError>, took: u64) {
    let entry = match &undone {
        Ok(None) => None,
        Ok(Some(sentence)) => Some(ledger.of_step(EntryEvent::Undone, step, Some(sentence.clone()))),
        Err(error) => {
            let message = format!("could not be undone: {}", error.whole());
            Some(ledger.of_step(EntryEvent::StepFailed, step, Some(message)))
        }
    };
    if let Some(entry) = entry {
        ledger.tell(Entry { duration_ms: Some(took), ..entry });
    }
    if let Some(undoing) = &mut ledger.journal.undo {
        undoing.settled.push(step.to_owned());
        match undone {
            Ok(sentence) => undoing.undone.extend(sentence),
            Err(error) => undoing.failed.push(format!("{step}: {}", error.whole())),
        }
    }
}

/// Gives the work back in the middle of its undo; whoever takes it next goes on undoing.
fn leave(ledger: Ledger<'_>) -> Ended {
    let yielding = ledger.give_back(WaitingCode::Shutdown, "its worker was shut down", Duration::ZERO, false);
    Ended::HandedBack { yielding, why: WaitingCode::Shutdown }
}

fn finish(mut ledger: Ledger<'_>) -> Completion {
    let Some(undoing) = ledger.journal.undo.take() else {
        let message = "the journal does not say why it was undone";
        return ledger.finish(Ending::Failed, WorkResult::new(ResultCode::BROKEN, message));
    };
    let result = WorkResult {
        step: undoing.step.map(StepName::from),
        by: undoing.by,
        reason: undoing.reason,
        undone: Some(undoing.undone),
        undo_failed: Some(undoing.failed).filter(|it| !it.is_empty()),
        ..WorkResult::new(undoing.code, undoing.message)
    };
    ledger.finish(undoing.ending, result)
}
