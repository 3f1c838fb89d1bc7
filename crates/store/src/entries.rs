//! History entries of a piece of work. They are written in the transaction of the event that they describe, so an
//! event that did not happen has no entry. Retention removes them with the work.
//!
//! A history must not grow without bound: a long entry is truncated, and beyond a number of entries only the start
//! and end of attempts are stored.

use api::admin::{Entry, EntryEvent};
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use uuid::Uuid;

use crate::StoreError;

/// A longer entry is truncated, with a notice.
pub const ENTRY_BYTES_MAX: usize = 96 * 1024;

/// Beyond this, entries of steps are dropped and counted; entries that delimit attempts are always written.
pub const ENTRIES_MAX: i64 = 5000;

/// Largest text beside the message; these are names, and a longer one is truncated.
const NAME_BYTES_MAX: usize = 1024;

/// Reserve for the members beside the message, each at its longest, and for the notice.
const RESERVED_BYTES: usize = 16 * 1024;

/// A longer message is truncated.
const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX - RESERVED_BYTES;

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredEntry {
    /// Work that it belongs to.
    pub(crate) work: Uuid,
    /// The entry as JSON, never longer than [`ENTRY_BYTES_MAX`].
    pub(crate) body: Value,
    /// Whether it may be dropped from a full history.
    pub(crate) is_step_entry: bool,
    /// The request to cancel the work, if the entry is one: it is stored with the work too.
    pub(crate) cancellation: Option<CancelEntry>,
}

/// Who requested to cancel a piece of work, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CancelEntry {
    pub(crate) actor: String,
    pub(crate) reason: Option<String>,
}

impl StoredEntry {
    /// Truncates the entry to what can be stored.
    pub(crate) fn new(work: Uuid, entry: Entry) -> StoredEntry {
        let is_step_entry = is_step_event(&entry.event);
        let entry = cut(entry);
        let cancellation = (entry.event == EntryEvent::CancelRequested).then(|| CancelEntry {
            actor: entry.actor.clone(),
            reason: entry.message.clone().filter(|it| !it.is_empty()),
        });
        let body = serde_json::to_value(entry).expect(PLAIN);
        StoredEntry { work, body, is_step_entry, cancellation }
    }
}

/// An entry as JSON text.
#[derive(Debug)]
pub(crate) struct EntryText {
    /// The entry as JSON, never longer than [`ENTRY_BYTES_MAX`].
    pub(crate) text: String,
    /// Whether it may be dropped from a full history.
    pub(crate) is_step_entry: bool,
}

impl EntryText {
    /// Truncates the entry to what can be stored.
    pub(crate) fn new(entry: &Entry) -> EntryText {
        EntryText { text: to_json_text(entry), is_step_entry: is_step_event(&entry.event) }
    }

    pub(crate) fn from_stored(recorded: &StoredEntry) -> EntryText {
        EntryText { text: recorded.body.to_string(), is_step_entry: recorded.is_step_entry }
    }
}

fn to_json_text(entry: &Entry) -> String {
    let fits = is_storable(&entry.actor, NAME_BYTES_MAX)
        && entry.step.as_deref().is_none_or(|step| is_storable(step, NAME_BYTES_MAX))
        && entry.message.as_deref().is_none_or(|message| is_storable(message, MESSAGE_BYTES_MAX));
    let text = if fits { serde_json::to_string(entry) } else { serde_json::to_string(&cut(entry.clone())) };
    text.expect(PLAIN)
}

/// Why an entry can always be written as JSON.
const PLAIN: &str = "an entry contains texts, numbers and times only";

fn cut(mut entry: Entry) -> Entry {
    entry.actor = storable(entry.actor, NAME_BYTES_MAX);
    entry.step = entry.step.map(|step| storable(step.into(), NAME_BYTES_MAX).into());
    entry.message = entry.message.map(|message| storable(message, MESSAGE_BYTES_MAX));
    entry
}

/// Reads a stored entry. An event of the store has the store's time; an event of a holder (steps, the moment of a
/// claim) has the time that the holder supplied.
pub(crate) fn read(at: Timestamp, body: &Value) -> Result<Entry, StoreError> {
    let entry = Entry::deserialize(body).map_err(|error| StoreError::Broken {
        what: "an entry has a form that this release does not support".to_owned(),
        source: Some(Box::new(error)),
    })?;
    Ok(if is_store_event(&entry.event) { Entry { time: at, ..entry } } else { entry })
}

/// Reads the entries of a row, each with its number. Entries written together may share a row, as a list, under the
/// number of the last one.
pub(crate) fn read_row(last: i64, at: Timestamp, body: &Value) -> Result<Vec<(i64, Entry)>, StoreError> {
    let bodies = body.as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    let before = last.saturating_sub(i64::try_from(bodies.len()).unwrap_or(last));
    (before + 1..).zip(bodies).map(|(number, body)| Ok((number, read(at, body)?))).collect()
}

/// Assembles a page of entries from the rows that contain it.
pub(crate) fn page(rows: Vec<Vec<(i64, Entry)>>, after: i64, limit: usize) -> Vec<(i64, Entry)> {
    rows.into_iter().flatten().filter(|(number, _)| *number > after).take(limit).collect()
}

fn is_step_event(event: &EntryEvent) -> bool {
    match event {
        EntryEvent::StepStarted | EntryEvent::StepFinished | EntryEvent::StepFailed => true,
        EntryEvent::Created
        | EntryEvent::Claimed
        | EntryEvent::Retried
        | EntryEvent::Yielded
        | EntryEvent::TakenOver
        | EntryEvent::CancelRequested
        | EntryEvent::Undone
        | EntryEvent::Expedited
        | EntryEvent::Revived
        | EntryEvent::Finished
        | EntryEvent::Other(_) => false,
    }
}

fn is_store_event(event: &EntryEvent) -> bool {
    match event {
        EntryEvent::Created
        | EntryEvent::Retried
        | EntryEvent::Yielded
        | EntryEvent::CancelRequested
        | EntryEvent::Expedited
        | EntryEvent::Revived
        | EntryEvent::Finished
        // Its entry may lack a time of its own; the time of its row is never far off.
        | EntryEvent::Other(_) => true,
        EntryEvent::Claimed
        | EntryEvent::TakenOver
        | EntryEvent::StepStarted
        | EntryEvent::StepFinished
        | EntryEvent::StepFailed
        | EntryEvent::Undone => false,
    }
}

/// Whether a text certainly fits without truncation; nearly every one does. A character takes at most six bytes as
/// JSON.
fn is_storable(text: &str, max: usize) -> bool {
    text.len() <= max / 6 && !text.contains('\0')
}

/// Replaces NUL, which no engine can store, and truncates to at most `max` bytes as JSON.
fn storable(text: String, max: usize) -> String {
    if is_storable(&text, max) {
        return text;
    }
    let (mut prefix, mut bytes) = (String::with_capacity(text.len().min(max)), 0);
    for letter in text.chars().map(|letter| if letter == '\0' { '\u{FFFD}' } else { letter }) {
        bytes += json_bytes(letter);
        if bytes > max {
            return format!("{prefix}… (cut: it had {} bytes)", text.len());
        }
        prefix.push(letter);
    }
    prefix
}

/// Length of a character in JSON text.
fn json_bytes(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        _ => letter.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saying(message: &str) -> Entry {
        let entry = Entry::new(Timestamp::UNIX_EPOCH, EntryEvent::StepFinished, "tester", 1);
        Entry { message: Some(message.to_owned()), ..entry }
    }

    #[test]
    fn a_long_entry_is_truncated_with_a_notice_whatever_its_characters() {
        for letter in ['x', 'ö', '\u{1}', '"', '\u{10FFFF}', '\0'] {
            let long = letter.to_string().repeat(200_000);
            let entry = Entry { step: Some(long.clone().into()), actor: long.clone(), ..saying(&long) };
            let body = StoredEntry::new(Uuid::nil(), entry).body;
            assert!(body.to_string().len() <= ENTRY_BYTES_MAX, "{letter:?} gives {}", body.to_string().len());
            let message = read(Timestamp::UNIX_EPOCH, &body).unwrap().message.unwrap();
            assert!(message.ends_with(&format!("… (cut: it had {} bytes)", long.len())), "{letter:?}");
            assert!(!message.contains('\0'));
        }
        let fits = "a log line\n".repeat(5000);
        let body = StoredEntry::new(Uuid::nil(), saying(&fits)).body;
        assert_eq!(read(Timestamp::UNIX_EPOCH, &body).unwrap(), saying(&fits));
    }

    #[test]
    fn an_entry_of_a_newer_release_keeps_its_event_by_name() {
        let at = Timestamp::from_second(1_000_000).unwrap();
        let body = serde_json::json!([
            {"time": "1970-01-01T00:00:00Z", "event": "stepFinished", "actor": "a", "attempt": 1},
            {"time": "1970-01-01T00:00:00Z", "event": "hibernated", "actor": "a", "attempt": 1, "message": "until May"},
        ]);
        let entries = read_row(7, at, &body).unwrap();
        assert_eq!((entries[0].0, &entries[0].1.event), (6, &EntryEvent::StepFinished));
        let other = &entries[1].1;
        assert_eq!((&other.event, other.time), (&EntryEvent::Other("hibernated".to_owned()), at));
        assert_eq!(other.message.as_deref(), Some("until May"));
    }

    #[test]
    fn store_events_have_the_stores_time_and_step_events_their_own() {
        let at = Timestamp::from_second(1_000_000).unwrap();
        let body = |event| StoredEntry::new(Uuid::nil(), Entry { event, ..saying("x") }).body;
        assert_eq!(read(at, &body(EntryEvent::Finished)).unwrap().time, at);
        assert_eq!(read(at, &body(EntryEvent::StepFailed)).unwrap().time, Timestamp::UNIX_EPOCH);
        assert_eq!(read(at, &body(EntryEvent::Claimed)).unwrap().time, Timestamp::UNIX_EPOCH);
    }
}
