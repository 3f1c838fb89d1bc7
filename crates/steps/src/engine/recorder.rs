//! The state and the unwritten entries of a run, and their writes: under the fence, with as few commits as possible.

use std::time::Duration;

use api::admin::{Entry, EntryEvent, StepProgress, WaitingFor};
use api::clock::SharedClock;
use api::doc::WorkResult;
use api::error::{Class, Classify as _};
use api::work::{Cancellation, Ending, WorkState};
use backon::BackoffBuilder as _;
use jiff::{SignedDuration, Timestamp};
use store::{ClaimedWork, CommitResult, Completion, Release, Store, StoreError, Transaction, WorkLease};

use crate::backoff::store_backoff;

use super::{Journal, Obstacle, Report, RunControl, StepError, StepOutcome, WaitState, WaitingCode};

/// Most entries of work that is parked again and again, whatever the messages; further times are only counted.
const PARKED_ENTRIES_MAX: u32 = 20;
/// Longest text of one entry; only the end of a longer log is stored.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most things that a step is shown to wait for; its message gives their number.
const OBSTACLES_MAX: usize = 20;
/// What the customer sees of an error that has no customer error.
const TRIED_AGAIN: &str = "it has not succeeded yet and is being retried";

/// The lease is lost, or nothing can be written for the work: the caller stops at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeaseLost;

/// The state of a run and its unwritten entries.
pub(super) struct RunRecorder<'a> {
    pub(super) store: &'a Store,
    pub(super) hold: WorkLease,
    pub(super) attempt: i32,
    pub(super) control: RunControl,
    pub(super) clock: SharedClock,
    pub(super) journal: Journal,
    /// Why the work waited before; cleared when a step completes.
    pub(super) previous_wait: Option<WaitState>,
    /// Attempts that failed with an error for the customer since a step last completed.
    pub(super) customer_failures: u32,
    /// The request to cancel the work that was delivered with the claim.
    pub(super) cancellation: Option<Cancellation>,
    actor: &'a str,
    claimed_at: Timestamp,
    /// Entries that are not written yet, in order.
    unwritten: Vec<Entry>,
    /// Whether the work was parked before and has made no progress since. A cluster may be unreachable for days: no entries are
    /// written until something new happens.
    quiet: bool,
}

impl<'a> RunRecorder<'a> {
    pub(super) fn open(
        store: &'a Store,
        claimed: &ClaimedWork,
        mut journal: Journal,
        control: RunControl,
        clock: SharedClock,
        actor: &'a str,
    ) -> RunRecorder<'a> {
        let previous_wait = journal.waiting.take();
        let parked = previous_wait.as_ref().filter(|it| it.code.is_parked() && !claimed.taken_over);
        let times = parked.filter(|it| it.times > 1);
        let times = times.map(|it| format!("parked {} times since {}", it.times, it.since));
        let quiet = parked.is_some();
        let customer_failures = previous_wait.as_ref().map_or(0, |it| it.customer_failures);
        let mut recorder = RunRecorder {
            store,
            hold: claimed.lease,
            attempt: claimed.attempt,
            control,
            clock,
            journal,
            previous_wait,
            customer_failures,
            cancellation: claimed.cancellation.clone(),
            actor,
            claimed_at: claimed.claimed_at,
            unwritten: Vec::new(),
            quiet,
        };
        let (event, from) = match claimed.taken_over {
            true => (EntryEvent::TakenOver, WorkState::InProgress),
            false => (EntryEvent::Claimed, WorkState::Pending),
        };
        let message =
            claimed.taken_over.then(|| "its worker was lost; another takes over".to_owned()).or(times);
        let entry = Entry {
            time: claimed.claimed_at,
            from: Some(from),
            to: Some(WorkState::InProgress),
            message,
            ..recorder.entry(event)
        };
        recorder.add_entry(entry);
        recorder
    }

    /// An entry of this attempt, dated now.
    pub(super) fn entry(&self, event: EntryEvent) -> Entry {
        Entry::new(self.clock.now(), event, self.actor, self.attempt)
    }

    /// An entry of this attempt about a step.
    pub(super) fn step_entry(&self, event: EntryEvent, step: &str, message: Option<String>) -> Entry {
        Entry { step: Some(step.into()), message, ..self.entry(event) }
    }

    /// Adds an entry to the next write.
    pub(super) fn add_entry(&mut self, mut entry: Entry) {
        entry.message = entry.message.map(storable).filter(|it| !it.is_empty());
        self.unwritten.push(entry);
    }

    /// Records the current step.
    pub(super) fn enter_step(&mut self, name: &str, index: usize, of: usize, message: &str) {
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        self.journal.step = Some(StepProgress {
            name: name.into(),
            index: count(index + 1),
            of: count(of),
            since: self.clock.now(),
            message: storable(message.to_owned()),
            deadline: None,
            waiting_for: Vec::new(),
        });
        self.journal.customer = None;
    }

    /// Records that the current step must finish within `span` from now.
    pub(super) fn set_deadline(&mut self, span: Duration) {
        let deadline =
            SignedDuration::try_from(span).ok().and_then(|span| self.clock.now().checked_add(span).ok());
        if let Some(step) = &mut self.journal.step {
            step.deadline = deadline;
        }
    }

    /// Records the status of the current step.
    pub(super) fn set_status(&mut self, status: StatusMessage) {
        if let Some(step) = &mut self.journal.step {
            let before = std::mem::take(&mut step.waiting_for);
            step.waiting_for = waiting_for(status.obstacles, &before, self.clock.now());
            step.message = storable(status.message);
            self.journal.customer = status.customer.map(storable);
        }
    }

    /// Records that a step has completed, so that the previous wait is over.
    pub(super) fn complete_step(&mut self) {
        self.previous_wait = None;
        self.customer_failures = 0;
        self.record_entries();
    }

    /// Writes entries again, including those held back, since something new has happened.
    pub(super) fn record_entries(&mut self) {
        self.quiet = false;
    }

    /// The state and the unwritten entries as one write, and the number of entries in it.
    pub(super) fn pending_write(&self) -> (Transaction, usize) {
        let write = Transaction::new().checkpoint(self.hold, self.checkpoint_name(), self.journal.write());
        let count = if self.quiet { 0 } else { self.unwritten.len() };
        let entries = self.unwritten[..count].iter().cloned();
        (entries.fold(write, |write, entry| write.record(self.hold.work, entry)), count)
    }

    /// Removes the first `count` entries, which are written, and applies the signals of the store.
    pub(super) fn mark_written(&mut self, count: usize, committed: &CommitResult) {
        self.unwritten.drain(..count);
        self.control.apply_signals(committed.signals(self.hold.work));
    }

    /// Writes the state and the unwritten entries. Retries while the store does not answer, until the lease is lost.
    pub(super) async fn save(&mut self) -> Result<(), LeaseLost> {
        let mut delays = store_backoff().build();
        loop {
            let (write, count) = self.pending_write();
            let committed = tokio::select! {
                biased;
                () = self.control.lost.cancelled() => return Err(LeaseLost),
                committed = self.store.commit(write) => committed,
            };
            match committed {
                Ok(committed) => {
                    self.mark_written(count, &committed);
                    return Ok(());
                }
                Err(error) if !is_retryable(&error) => return Err(LeaseLost),
                Err(error) => {
                    tracing::info!(work.id = %self.hold.work, error = %error, "Writing a checkpoint of work {} failed; retrying", self.hold.work);
                }
            }
            tokio::select! {
                biased;
                () = self.control.lost.cancelled() => return Err(LeaseLost),
                // The process exits and the store does not answer: the worker that takes over repeats this step.
                () = self.control.halt.cancelled() => return Err(LeaseLost),
                () = tokio::time::sleep(delays.next().unwrap_or_default()) => {}
            }
        }
    }

    /// Completes the work, with all unwritten entries.
    pub(super) fn finish(mut self, ending: Ending, mut result: WorkResult) -> Completion {
        let message = storable(result.message.take().unwrap_or_default());
        let mut entry = self.entry(EntryEvent::Finished);
        entry.from = Some(WorkState::InProgress);
        entry.to = Some(ending.state());
        entry.message = Some(message.clone());
        entry.duration_ms = Some(millis_between(self.claimed_at, entry.time));
        self.add_entry(entry);
        result.message = Some(message);
        result.step = result.step.or_else(|| self.journal.step.map(|it| it.name));
        result.undone.get_or_insert_default();
        Completion { entries: self.unwritten, ..Completion::new(self.hold, ending, result) }
    }

    /// Releases the work, to be continued after `rest`.
    pub(super) fn release(
        mut self,
        code: WaitingCode,
        message: &str,
        rest: Duration,
        spent: bool,
    ) -> Release {
        let event = if spent { EntryEvent::Retried } else { EntryEvent::Yielded };
        let message = storable(message.to_owned());
        let entry = Entry {
            from: Some(WorkState::InProgress),
            to: Some(WorkState::Pending),
            message: Some(message.clone()),
            step: self.journal.step.as_ref().map(|step| step.name.clone()),
            ..self.entry(event)
        };
        let duration = millis_between(self.claimed_at, entry.time);
        let same = self.previous_wait.take().filter(|it| it.code == code);
        let before = same.as_ref().filter(|_| self.quiet);
        let silent = before.is_some_and(|it| it.message == message || it.logged >= PARKED_ENTRIES_MAX);
        self.journal.waiting = Some(WaitState {
            code,
            message,
            since: same.as_ref().map_or(entry.time, |it| it.since),
            times: same.as_ref().map_or(0, |it| it.times).saturating_add(1),
            logged: same.map_or(0, |it| it.logged).saturating_add(u32::from(!silent)),
            customer_failures: self.customer_failures,
        });
        if silent {
            // The work has made no progress and waits for the same reason: no new entry.
            self.unwritten.clear();
        } else {
            self.add_entry(Entry { duration_ms: Some(duration), ..entry });
        }
        let checkpoint = Some((self.checkpoint_name(), self.journal.write()));
        // A step that was entered may have taken effect; work parked before its first step has not.
        let begun = self.journal.step.is_some() || !self.journal.done.is_empty();
        // Work that is being undone has already handled a cancel request, or needs none.
        let unless_cancelled = !self.journal.is_undoing();
        Release {
            checkpoint,
            started: begun,
            unless_cancelled,
            entries: self.unwritten,
            ..Release::new(self.hold, rest, spent)
        }
    }

    /// The name under which the checkpoint is stored.
    fn checkpoint_name(&self) -> String {
        let step = self.journal.step.as_ref().map(|step| step.name.clone());
        step.filter(|name| !name.is_empty()).map_or_else(|| "begun".to_owned(), String::from)
    }
}

/// The status of a step: `message` for operators, and for customers unless `customer` is set.
#[derive(Debug, Clone)]
pub(super) struct StatusMessage {
    message: String,
    customer: Option<String>,
    obstacles: Vec<Obstacle>,
}

impl From<String> for StatusMessage {
    fn from(message: String) -> StatusMessage {
        Report::from(message).into()
    }
}

impl From<Report> for StatusMessage {
    fn from(report: Report) -> StatusMessage {
        StatusMessage { message: report.message, customer: None, obstacles: report.obstacles }
    }
}

impl From<&StepError> for StatusMessage {
    fn from(error: &StepError) -> StatusMessage {
        let customer = error.customer_error().map_or(TRIED_AGAIN, |error| &error.message);
        StatusMessage {
            message: error.full_message(),
            customer: Some(customer.to_owned()),
            obstacles: Vec::new(),
        }
    }
}

/// What is waited for now; what was waited for before keeps its start time.
fn waiting_for(obstacles: Vec<Obstacle>, before: &[WaitingFor], now: Timestamp) -> Vec<WaitingFor> {
    let all = obstacles.into_iter().take(OBSTACLES_MAX).map(|it| {
        let what = storable(it.what);
        let since = before.iter().find(|known| known.what == what).map_or(now, |known| known.since);
        WaitingFor { what, message: storable(it.message), owner: it.owner, since }
    });
    all.collect()
}

/// Whether a failed write may be retried. A lost lease and a rejected write may not.
pub(super) fn is_retryable(error: &StoreError) -> bool {
    match error.class() {
        Class::Transient => true,
        Class::Terminal => {
            if !matches!(error, StoreError::LostLease { .. }) {
                // No checkpoint can be stored for this work: its lease expires, and the next worker gets the same error.
                tracing::error!(error = %error, "The store rejected a checkpoint: {error}");
            }
            false
        }
    }
}

/// The message of an outcome, followed by its log.
pub(super) fn entry_text(outcome: &StepOutcome) -> Option<String> {
    match (&outcome.message, &outcome.log) {
        (message, None) => message.clone(),
        (None, Some(log)) => Some(log.clone()),
        (Some(message), Some(log)) => {
            let room = TEXT_BYTES_MAX.saturating_sub(message.len() + 1);
            Some(format!("{message}\n{}", tail(log, room)))
        }
    }
}

/// The full message of an error, followed by its log.
pub(super) fn error_text(error: &StepError) -> Option<String> {
    let log = error.log().map(str::to_owned);
    entry_text(&StepOutcome { log, ..StepOutcome::with_message(error.full_message()) })
}

/// A text that can be stored: without NUL, and only its end if it is too long.
fn storable(text: String) -> String {
    let text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    if text.len() <= TEXT_BYTES_MAX { text } else { tail(&text, TEXT_BYTES_MAX).to_owned() }
}

fn tail(text: &str, bytes_max: usize) -> &str {
    let mut from = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn millis_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_a_long_log_is_kept_at_a_character_boundary() {
        let long = format!("begin{}end", "é".repeat(TEXT_BYTES_MAX));
        let cut = storable(long.clone());
        assert!(cut.len() <= TEXT_BYTES_MAX && cut.ends_with("end") && !cut.contains("begin"));
        let text =
            entry_text(&StepOutcome { log: Some(long), ..StepOutcome::with_message("it ran") }).unwrap();
        assert!(text.len() <= TEXT_BYTES_MAX && text.starts_with("it ran\n") && text.ends_with("end"));
        assert_eq!(storable("a\0b".to_owned()), "a\u{fffd}b");
    }
}
