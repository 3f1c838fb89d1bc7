//! What a run has to tell and has not written yet, and how it is written: under the fence, with as few commits as will do.

use std::time::Duration;

use api::admin::{Entry, EntryEvent, StepProgress, WaitingFor};
use api::clock::SharedClock;
use api::doc::WorkResult;
use api::error::{Class, Classify as _};
use api::work::{Ending, WorkState};
use jiff::{SignedDuration, Timestamp};
use store::{ClaimedWork, CommitResult, Completion, Release, Store, StoreError, Transaction, WorkLease};

use super::{Control, Journal, Obstacle, Outcome, Report, StepError, Waiting, WaitingCode};

/// So many entries are made of one row of parkings, whatever their reasons say; further ones are only counted.
const PARKED_TOLD_MAX: u32 = 20;
/// The longest text of one entry: a log is cut to this from its end.
const TEXT_BYTES_MAX: usize = 64 * 1024;
/// So many things that a step waits for are shown; it says in a sentence how many there are.
const OBSTACLES_MAX: usize = 20;
/// The first pause before a refused write is said again; it doubles.
const WRITE_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause before a refused write is said again.
const WRITE_PAUSE_MAX: Duration = Duration::from_secs(5);
/// What a customer is told of an error that has no words for them.
const TRIED_AGAIN: &str = "it has not succeeded yet and is tried again";

/// The work is not ours any more, or nothing can be written of it: whoever meets this stops at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lost;

/// What a run knows of its work and has to tell of it.
pub(super) struct Ledger<'a> {
    pub(super) store: &'a Store,
    pub(super) hold: WorkLease,
    pub(super) attempt: i32,
    pub(super) control: Control,
    pub(super) clock: SharedClock,
    pub(super) journal: Journal,
    /// Why the work rested before; forgotten once a step comes to its end.
    pub(super) rested: Option<Waiting>,
    /// So many attempts failed for something that a customer is told of, since a step last came to its end.
    pub(super) theirs: u32,
    actor: &'a str,
    claimed_at: Timestamp,
    /// Not yet written, in order.
    unsaid: Vec<Entry>,
    /// Whether the work was parked before and has got no further since. A cluster may be away for days: as long as nothing
    /// new happens, nothing is told.
    hushed: bool,
}

impl<'a> Ledger<'a> {
    pub(super) fn open(
        store: &'a Store,
        claimed: &ClaimedWork,
        mut journal: Journal,
        control: Control,
        clock: SharedClock,
        actor: &'a str,
    ) -> Ledger<'a> {
        let rested = journal.waiting.take();
        let parked = rested.as_ref().filter(|it| it.code.is_parked() && !claimed.taken_over);
        let times = parked.filter(|it| it.times > 1);
        let times = times.map(|it| format!("parked {} times since {}", it.times, it.since));
        let hushed = parked.is_some();
        let theirs = rested.as_ref().map_or(0, |it| it.theirs);
        let mut ledger = Ledger {
            store,
            hold: claimed.lease,
            attempt: claimed.attempt,
            control,
            clock,
            journal,
            rested,
            theirs,
            actor,
            claimed_at: claimed.claimed_at,
            unsaid: Vec::new(),
            hushed,
        };
        let (event, from) = match claimed.taken_over {
            true => (EntryEvent::TakenOver, WorkState::InProgress),
            false => (EntryEvent::Claimed, WorkState::Pending),
        };
        let message = claimed.taken_over.then(|| "its worker was lost; another goes on".to_owned()).or(times);
        let entry = Entry {
            time: claimed.claimed_at,
            from: Some(from),
            to: Some(WorkState::InProgress),
            message,
            ..ledger.entry(event)
        };
        ledger.tell(entry);
        ledger
    }

    /// An entry of this attempt, at this time.
    pub(super) fn entry(&self, event: EntryEvent) -> Entry {
        Entry::new(self.clock.now(), event, self.actor, self.attempt)
    }

    /// An entry of this attempt about a step, with what is to be said of it.
    pub(super) fn of_step(&self, event: EntryEvent, step: &str, message: Option<String>) -> Entry {
        Entry { step: Some(step.to_owned()), message, ..self.entry(event) }
    }

    /// Says it with the next write.
    pub(super) fn tell(&mut self, mut entry: Entry) {
        entry.message = entry.message.map(sayable).filter(|it| !it.is_empty());
        self.unsaid.push(entry);
    }

    /// Remembers in which step the work is.
    pub(super) fn enter(&mut self, name: &str, index: usize, of: usize, message: &str) {
        let count = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        self.journal.step = Some(StepProgress {
            name: name.to_owned(),
            index: count(index + 1),
            of: count(of),
            since: self.clock.now(),
            message: sayable(message.to_owned()),
            deadline: None,
            waiting_for: Vec::new(),
        });
        self.journal.customer = None;
    }

    /// Remembers that the step in hand has so much time from now on.
    pub(super) fn ends_within(&mut self, span: Duration) {
        let deadline =
            SignedDuration::try_from(span).ok().and_then(|span| self.clock.now().checked_add(span).ok());
        if let Some(step) = &mut self.journal.step {
            step.deadline = deadline;
        }
    }

    /// Remembers what the step in hand says.
    pub(super) fn say(&mut self, saying: Saying) {
        if let Some(step) = &mut self.journal.step {
            let before = std::mem::take(&mut step.waiting_for);
            step.waiting_for = waiting_for(saying.obstacles, &before, self.clock.now());
            step.message = sayable(saying.message);
            self.journal.customer = saying.customer.map(sayable);
        }
    }

    /// A step has come to its end: what kept the work before is behind it.
    pub(super) fn get_on(&mut self) {
        self.rested = None;
        self.theirs = 0;
        self.speak();
    }

    /// Something has happened: whatever was held back is told with the next write.
    pub(super) fn speak(&mut self) {
        self.hushed = false;
    }

    /// All that is known and unsaid, as one write, and how many entries are in it.
    pub(super) fn draft(&self) -> (Transaction, usize) {
        let write = Transaction::new().checkpoint(self.hold, self.place(), self.journal.write());
        let told = if self.hushed { 0 } else { self.unsaid.len() };
        let entries = self.unsaid[..told].iter().cloned();
        (entries.fold(write, |write, entry| write.record(self.hold.work, entry)), told)
    }

    /// The first `told` entries are written; what the store asks of us is heard.
    pub(super) fn drafted(&mut self, told: usize, committed: &CommitResult) {
        self.unsaid.drain(..told);
        self.control.hear(committed.signals(self.hold.work));
    }

    /// Writes all that is known and unsaid. While the database does not answer, it is asked again until the work is lost.
    pub(super) async fn save(&mut self) -> Result<(), Lost> {
        let mut pause = WRITE_PAUSE;
        loop {
            let (write, told) = self.draft();
            let committed = tokio::select! {
                biased;
                () = self.control.lost.cancelled() => return Err(Lost),
                committed = self.store.commit(write) => committed,
            };
            match committed {
                Ok(committed) => {
                    self.drafted(told, &committed);
                    return Ok(());
                }
                Err(error) if !worth_repeating(&error) => return Err(Lost),
                Err(error) => {
                    tracing::info!(work.id = %self.hold.work, error = %error, "A checkpoint of work {} is said again", self.hold.work);
                }
            }
            tokio::select! {
                biased;
                () = self.control.lost.cancelled() => return Err(Lost),
                // The process ends now and the store does not answer: whoever takes the work over does this step again.
                () = self.control.halt.cancelled() => return Err(Lost),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(WRITE_PAUSE_MAX),
            }
        }
    }

    /// The work's end, with all that is unsaid.
    pub(super) fn finish(mut self, ending: Ending, mut result: WorkResult) -> Completion {
        let message = sayable(result.message.take().unwrap_or_default());
        let mut entry = self.entry(EntryEvent::Finished);
        entry.from = Some(WorkState::InProgress);
        entry.to = Some(ending.state());
        entry.message = Some(message.clone());
        entry.duration_ms = Some(millis_between(self.claimed_at, entry.time));
        self.tell(entry);
        result.message = Some(message);
        result.step = result.step.or_else(|| self.journal.step.map(|it| it.name.into()));
        result.undone.get_or_insert_default();
        Completion { entries: self.unsaid, ..Completion::new(self.hold, ending, result) }
    }

    /// The work, given back to be continued after `rest`.
    pub(super) fn give_back(
        mut self,
        code: WaitingCode,
        message: &str,
        rest: Duration,
        spent: bool,
    ) -> Release {
        let event = if spent { EntryEvent::Retried } else { EntryEvent::Yielded };
        let message = sayable(message.to_owned());
        let entry = Entry {
            from: Some(WorkState::InProgress),
            to: Some(WorkState::Pending),
            message: Some(message.clone()),
            step: self.journal.step.as_ref().map(|step| step.name.clone()),
            ..self.entry(event)
        };
        let duration = millis_between(self.claimed_at, entry.time);
        let same = self.rested.take().filter(|it| it.code == code);
        let before = same.as_ref().filter(|_| self.hushed);
        let silent = before.is_some_and(|it| it.message == message || it.told >= PARKED_TOLD_MAX);
        self.journal.waiting = Some(Waiting {
            code,
            message,
            since: same.as_ref().map_or(entry.time, |it| it.since),
            times: same.as_ref().map_or(0, |it| it.times).saturating_add(1),
            told: same.map_or(0, |it| it.told).saturating_add(u32::from(!silent)),
            theirs: self.theirs,
        });
        if silent {
            // It stands where it stood, for the reason that was told.
            self.unsaid.clear();
        } else {
            self.tell(Entry { duration_ms: Some(duration), ..entry });
        }
        let checkpoint = Some((self.place(), self.journal.write()));
        // A step that was entered may have taken effect; what is parked before its first one has not.
        let begun = self.journal.step.is_some() || !self.journal.done.is_empty();
        // Work that is being undone has taken a wish for its end up, or needs none.
        let unless_cancelled = !self.journal.is_undoing();
        Release {
            checkpoint,
            started: begun,
            unless_cancelled,
            entries: self.unsaid,
            ..Release::new(self.hold, rest, spent)
        }
    }

    /// The name under which the checkpoint is kept.
    fn place(&self) -> String {
        let step = self.journal.step.as_ref().map(|step| step.name.clone());
        step.filter(|name| !name.is_empty()).unwrap_or_else(|| "begun".to_owned())
    }
}

/// What is said of a step: in whole to operators, and to customers the same unless it says otherwise.
#[derive(Debug, Clone)]
pub(super) struct Saying {
    message: String,
    customer: Option<String>,
    obstacles: Vec<Obstacle>,
}

impl From<String> for Saying {
    fn from(message: String) -> Saying {
        Report::from(message).into()
    }
}

impl From<Report> for Saying {
    fn from(report: Report) -> Saying {
        Saying { message: report.message, customer: None, obstacles: report.obstacles }
    }
}

impl From<&StepError> for Saying {
    fn from(error: &StepError) -> Saying {
        let customer = error.customer().map_or(TRIED_AGAIN, |told| &told.message);
        Saying { message: error.whole(), customer: Some(customer.to_owned()), obstacles: Vec::new() }
    }
}

/// What is waited for now; what was waited for before is waited for since then.
fn waiting_for(obstacles: Vec<Obstacle>, before: &[WaitingFor], now: Timestamp) -> Vec<WaitingFor> {
    let all = obstacles.into_iter().take(OBSTACLES_MAX).map(|it| {
        let what = sayable(it.what);
        let since = before.iter().find(|known| known.what == what).map_or(now, |known| known.since);
        WaitingFor { what, message: sayable(it.message), owner: it.owner, since }
    });
    all.collect()
}

/// Whether a refused write may be said again; a lost lease and a refusal of the write itself may not.
pub(super) fn worth_repeating(error: &StoreError) -> bool {
    match error.class() {
        Class::Transient => true,
        Class::Terminal => {
            if !matches!(error, StoreError::LostLease { .. }) {
                // Nothing can be remembered of this work: its lease runs out, and whoever takes it over meets the same.
                tracing::error!(error = %error, "The store refused a checkpoint: {error}");
            }
            false
        }
    }
}

/// What an action said, with its log.
pub(super) fn account(outcome: &Outcome) -> Option<String> {
    match (&outcome.message, &outcome.log) {
        (message, None) => message.clone(),
        (None, Some(log)) => Some(log.clone()),
        (Some(message), Some(log)) => {
            let room = TEXT_BYTES_MAX.saturating_sub(message.len() + 1);
            Some(format!("{message}\n{}", end_of(log, room)))
        }
    }
}

/// An error with all beneath it, and the log of what failed.
pub(super) fn complaint(error: &StepError) -> Option<String> {
    let log = error.log().map(str::to_owned);
    account(&Outcome { log, ..Outcome::said(error.whole()) })
}

/// A text that can be stored: without NUL, and with only its end when it is too long.
fn sayable(text: String) -> String {
    let text = if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text };
    if text.len() <= TEXT_BYTES_MAX { text } else { end_of(&text, TEXT_BYTES_MAX).to_owned() }
}

fn end_of(text: &str, bytes_max: usize) -> &str {
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
    fn a_log_is_cut_from_its_end_and_never_inside_a_letter() {
        let long = format!("begin{}end", "é".repeat(TEXT_BYTES_MAX));
        let cut = sayable(long.clone());
        assert!(cut.len() <= TEXT_BYTES_MAX && cut.ends_with("end") && !cut.contains("begin"));
        let told = account(&Outcome { log: Some(long), ..Outcome::said("it ran") }).unwrap();
        assert!(told.len() <= TEXT_BYTES_MAX && told.starts_with("it ran\n") && told.ends_with("end"));
        assert_eq!(sayable("a\0b".to_owned()), "a\u{fffd}b");
    }
}
