//! What happened to a piece of work, entry by entry. Entries are written in the transaction of what they tell of, so
//! what did not happen is never told. They leave with the work's history.
//!
//! A log must not grow without bound: a long entry is cut, and a piece of work that has told very much tells only
//! where its attempts begin and end from then on.

use api::admin::{Entry, EntryEvent};
use jiff::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use uuid::Uuid;

use crate::StoreError;

/// A longer entry is cut, and says so.
pub const ENTRY_BYTES_MAX: usize = 96 * 1024;

/// From here on what steps say is left out and counted; what bounds attempts is always written.
pub const ENTRIES_MAX: i64 = 5000;

/// The texts beside the message are names; a longer one is cut.
const NAME_BYTES_MAX: usize = 1024;

/// Left free for the members beside the message, each at its longest, and for the notice of a cut.
const ROOM_BYTES: usize = 16 * 1024;

/// A longer message is cut.
const MESSAGE_BYTES_MAX: usize = ENTRY_BYTES_MAX - ROOM_BYTES;

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StoredEntry {
    /// The work that it tells of.
    pub(crate) work: Uuid,
    /// The entry as JSON, never longer than [`ENTRY_BYTES_MAX`].
    pub(crate) body: Value,
    /// Whether it may be left out of a log that is full.
    pub(crate) of_step: bool,
}

impl StoredEntry {
    /// The entry, cut to what can be stored.
    pub(crate) fn of(work: Uuid, entry: Entry) -> StoredEntry {
        let of_step = is_of_step(entry.event);
        let body = serde_json::to_value(cut(entry)).expect(PLAIN);
        StoredEntry { work, body, of_step }
    }
}

/// An entry as text.
#[derive(Debug)]
pub(crate) struct EntryText {
    /// The entry as JSON, never longer than [`ENTRY_BYTES_MAX`].
    pub(crate) text: String,
    /// Whether it may be left out of a log that is full.
    pub(crate) of_step: bool,
}

impl EntryText {
    /// The entry, cut to what can be stored.
    pub(crate) fn of(entry: &Entry) -> EntryText {
        EntryText { text: text_of(entry), of_step: is_of_step(entry.event) }
    }

    pub(crate) fn recorded(recorded: &StoredEntry) -> EntryText {
        EntryText { text: recorded.body.to_string(), of_step: recorded.of_step }
    }
}

fn text_of(entry: &Entry) -> String {
    let fits = is_storable(&entry.actor, NAME_BYTES_MAX)
        && entry.step.as_deref().is_none_or(|step| is_storable(step, NAME_BYTES_MAX))
        && entry.message.as_deref().is_none_or(|message| is_storable(message, MESSAGE_BYTES_MAX));
    let text = if fits { serde_json::to_string(entry) } else { serde_json::to_string(&cut(entry.clone())) };
    text.expect(PLAIN)
}

/// Why an entry can always be written as JSON.
const PLAIN: &str = "an entry holds texts, numbers and times only";

fn cut(mut entry: Entry) -> Entry {
    entry.actor = storable(entry.actor, NAME_BYTES_MAX);
    entry.step = entry.step.map(|step| storable(step, NAME_BYTES_MAX));
    entry.message = entry.message.map(|message| storable(message, MESSAGE_BYTES_MAX));
    entry
}

/// An entry as it was stored. What the store itself saw happen has the time at which it did; what a holder saw (the
/// steps, the moment of a claim) has the time that the holder gave.
pub(crate) fn read(at: Timestamp, body: &Value) -> Result<Entry, StoreError> {
    let entry = Entry::deserialize(body).map_err(|error| StoreError::Broken {
        what: "an entry is not as this release understands it".to_owned(),
        source: Some(Box::new(error)),
    })?;
    Ok(if is_of_store(entry.event) { Entry { time: at, ..entry } } else { entry })
}

/// The entries of a row, each with its number. What was told at once may stand in one, as a list, under the number of the
/// last.
pub(crate) fn read_row(last: i64, at: Timestamp, body: &Value) -> Result<Vec<(i64, Entry)>, StoreError> {
    let bodies = body.as_array().map_or(std::slice::from_ref(body), Vec::as_slice);
    let before = last.saturating_sub(i64::try_from(bodies.len()).unwrap_or(last));
    (before + 1..).zip(bodies).map(|(number, body)| Ok((number, read(at, body)?))).collect()
}

/// A page of entries, from the rows that hold it.
pub(crate) fn page(rows: Vec<Vec<(i64, Entry)>>, after: i64, limit: usize) -> Vec<(i64, Entry)> {
    rows.into_iter().flatten().filter(|(number, _)| *number > after).take(limit).collect()
}

fn is_of_step(event: EntryEvent) -> bool {
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
        | EntryEvent::Finished => false,
    }
}

fn is_of_store(event: EntryEvent) -> bool {
    match event {
        EntryEvent::Created
        | EntryEvent::Retried
        | EntryEvent::Yielded
        | EntryEvent::CancelRequested
        | EntryEvent::Expedited
        | EntryEvent::Revived
        | EntryEvent::Finished => true,
        EntryEvent::Claimed
        | EntryEvent::TakenOver
        | EntryEvent::StepStarted
        | EntryEvent::StepFinished
        | EntryEvent::StepFailed
        | EntryEvent::Undone => false,
    }
}

/// Whether a text is surely as it should be; nearly every one is. A character takes six bytes at most as JSON.
fn is_storable(text: &str, max: usize) -> bool {
    text.len() <= max / 6 && !text.contains('\0')
}

/// The text without what no engine can store (NUL), and cut so that it has at most `max` bytes as JSON.
fn storable(text: String, max: usize) -> String {
    if is_storable(&text, max) {
        return text;
    }
    let (mut kept, mut bytes) = (String::with_capacity(text.len().min(max)), 0);
    for letter in text.chars().map(|letter| if letter == '\0' { '\u{FFFD}' } else { letter }) {
        bytes += json_bytes(letter);
        if bytes > max {
            return format!("{kept}… (cut: it had {} bytes)", text.len());
        }
        kept.push(letter);
    }
    kept
}

/// How long a character is in JSON text.
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
    fn a_long_entry_is_cut_with_a_notice_whatever_it_is_made_of() {
        for letter in ['x', 'ö', '\u{1}', '"', '\u{10FFFF}', '\0'] {
            let long = letter.to_string().repeat(200_000);
            let entry = Entry { step: Some(long.clone()), actor: long.clone(), ..saying(&long) };
            let body = StoredEntry::of(Uuid::nil(), entry).body;
            assert!(body.to_string().len() <= ENTRY_BYTES_MAX, "{letter:?} gives {}", body.to_string().len());
            let told = read(Timestamp::UNIX_EPOCH, &body).unwrap().message.unwrap();
            assert!(told.ends_with(&format!("… (cut: it had {} bytes)", long.len())), "{letter:?}");
            assert!(!told.contains('\0'));
        }
        let fits = "a log line\n".repeat(5000);
        let body = StoredEntry::of(Uuid::nil(), saying(&fits)).body;
        assert_eq!(read(Timestamp::UNIX_EPOCH, &body).unwrap(), saying(&fits));
    }

    #[test]
    fn what_the_store_saw_has_the_stores_time_and_what_a_step_saw_its_own() {
        let at = Timestamp::from_second(1_000_000).unwrap();
        let body = |event| StoredEntry::of(Uuid::nil(), Entry { event, ..saying("x") }).body;
        assert_eq!(read(at, &body(EntryEvent::Finished)).unwrap().time, at);
        assert_eq!(read(at, &body(EntryEvent::StepFailed)).unwrap().time, Timestamp::UNIX_EPOCH);
        assert_eq!(read(at, &body(EntryEvent::Claimed)).unwrap().time, Timestamp::UNIX_EPOCH);
    }
}
