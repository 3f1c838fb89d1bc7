//! The change feed: every change of every document, once, in commit order; and every move of work.
//!
//! A reader requests the changes behind its position, processes them, and continues from the position of the page.
//! Delivery is at least once. A position that has left the feed results in [`FeedError::Gone`]. Services use a
//! [`FeedFollower`], which does all of this.

mod follower;

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

pub use follower::{FeedBatch, FeedFollower};

use crate::{Etag, StoreError};

/// A page of the feed holds at most this many changes.
pub const FEED_PAGE_MAX: usize = 1000;

/// A place in the feed; opaque to readers, who only keep it and give it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Raised when the order of earlier positions no longer holds: a restore into another instance, an import.
    pub(crate) generation: i64,
    /// The writing transaction on PostgreSQL; 0 on SQLite, where the sequence alone is the order.
    pub(crate) tx: i64,
    /// The sequence.
    pub(crate) seq: i64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.generation, self.tx, self.seq)
    }
}

impl FromStr for Position {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Position, StoreError> {
        let number = |part: Option<&str>| {
            part.filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
                .and_then(|part| part.parse().ok())
        };
        let mut parts = text.split('-');
        let (generation, tx, seq) = (number(parts.next()), number(parts.next()), number(parts.next()));
        match (generation, tx, seq, parts.next()) {
            (Some(generation), Some(tx), Some(seq), None) => Ok(Position { generation, tx, seq }),
            _ => Err(StoreError::invalid(format!(
                "{text:?} is no feed position; give one as the feed answered it"
            ))),
        }
    }
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The document itself, which is now at this version.
    Document {
        /// Its version after the change.
        etag: Etag,
        /// Whether the change was its deletion.
        deleted: bool,
    },
    /// The work of that id moved: claimed, checkpointed, given back, ended.
    Work,
}

/// One change. It says where to look; the truth is in the document and the work themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its place.
    pub position: Position,
    /// The kind of document or work.
    pub kind: String,
    /// Which one.
    pub uuid: Uuid,
    /// What happened to it.
    pub subject: Subject,
}

/// What came behind a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPage {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Where to go on.
    pub next: Position,
}

/// Why the feed was not read.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The position is older than what is kept, or of another generation of the store: list everything, then go
    /// on from a position taken before the list.
    #[error("feed position {position} is too old: list everything and go on from a fresh position")]
    Gone {
        /// The position that was given.
        position: Position,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_position_is_read_back_as_written(generation in 0..i64::MAX, tx in 0..i64::MAX, seq in 0..i64::MAX) {
            let position = Position { generation, tx, seq };
            prop_assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        }

        #[test]
        fn no_text_makes_the_position_parser_panic(text in ".*") {
            let _ = text.parse::<Position>();
        }
    }

    #[test]
    fn nonsense_is_no_position() {
        for nonsense in ["", "1", "1-2", "1-2-3-4", "1--2", "a-b-c", "+1-2-3", "1-2-99999999999999999999"] {
            assert!(nonsense.parse::<Position>().is_err(), "{nonsense:?}");
        }
    }
}
