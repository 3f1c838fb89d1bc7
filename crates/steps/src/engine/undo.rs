//! Taking back what was done: the step in hand first, then the done ones from the last to the first, each remembered, so
//! that a crash while undoing goes on undoing.

use std::sync::Arc;
use std::time::Duration;

use api::admin::{Entry, EntryEvent};
use api::work::Ending;
use serde_json::{Map, Value};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::decide::undo_order;
use super::ledger::{Ledger, Lost, millis};
use super::step::caught;
use super::{Ended, Plan, Step, StepContext, StepError, StepErrorKind, Teller, Undo, Undoing, WaitingCode};

/// So often an undo that fails is tried.
const TRIES: u32 = 3;
/// The pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_secs(1);

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
        let begun = Instant::now();
        let control = ledger.control.clone();
        let undone = tokio::select! {
            biased;
            () = control.lost.cancelled() => return Err(Lost),
            undone = undone(&ledger, step, undo, context) => undone,
            () = control.halt.cancelled() => return Ok(leave(ledger)),
        };
        settle(&mut ledger, &step.name, undone, millis(begun.elapsed()));
        if nth + 1 < order.len() {
            ledger.save().await?;
        }
    }
    Ok(Ended::Finished(finish(ledger)))
}

/// Runs one undo, a few times if it must be.
async fn undone<C: Send + Sync + 'static>(
    ledger: &Ledger<'_>,
    step: &Step<C>,
    undo: &Undo<C>,
    context: &Arc<C>,
) -> Result<Option<String>, StepError> {
    let stop = CancellationToken::new();
    let _ends_with_us = stop.clone().drop_guard();
    let cx = StepContext {
        hold: ledger.hold,
        attempt: ledger.attempt,
        step: step.name.clone(),
        memory: Arc::new(ledger.journal.memories()),
        teller: Teller::silent(),
        clock: ledger.clock.clone(),
        stop,
    };
    let memory = ledger.journal.memory(&step.name);
    let tries = async {
        for tried in 1.. {
            let body = || (undo.body)(context.clone(), cx.clone(), memory.clone());
            match caught(step, body).await {
                Err(error) if tried < TRIES && error.kind() != StepErrorKind::Terminal => {
                    sleep(PAUSE * 2_u32.pow(tried - 1)).await;
                }
                outcome => return outcome,
            }
        }
        unreachable!("the last try returns")
    };
    let late =
        |_| StepError::transient("UndoTimeout", format!("undoing took longer than {:?}", undo.timeout));
    timeout(undo.timeout, tries).await.map_err(late).and_then(|outcome| outcome)
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

fn finish(mut ledger: Ledger<'_>) -> store::Completion {
    let Some(undoing) = ledger.journal.undo.take() else {
        return ledger.finish(
            Ending::Failed,
            "Broken",
            "the journal does not say why it was undone",
            Map::new(),
        );
    };
    let texts = |list: Vec<String>| Value::from(list);
    let mut more = Map::new();
    if let Some(step) = undoing.step {
        more.insert("step".to_owned(), Value::from(step));
    }
    more.extend(undoing.by.map(|by| ("by".to_owned(), Value::from(by))));
    more.extend(undoing.reason.map(|reason| ("reason".to_owned(), Value::from(reason))));
    more.insert("undone".to_owned(), texts(undoing.undone));
    if !undoing.failed.is_empty() {
        more.insert("undoFailed".to_owned(), texts(undoing.failed));
    }
    ledger.finish(undoing.ending, &undoing.code, &undoing.message, more)
}
