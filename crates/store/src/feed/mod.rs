//! The change feed: every change of every document, once, in commit order; and every state change of work.
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

/// A position in the feed; opaque to readers, which only store it and pass it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// Raised when the order of earlier positions no longer holds: a restore into another instance, an import.
    pub(crate) generation: i64,
    /// Writing transaction on PostgreSQL; 0 on SQLite, where the sequence alone is the order.
    pub(crate) tx: i64,
    /// Sequence number.
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
                "{text:?} is not a feed position; use one that the feed returned"
            ))),
        }
    }
}

/// Subject of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The document itself, now at this version.
    Document {
        /// Version after the change.
        etag: Etag,
        /// Whether the change was its deletion.
        deleted: bool,
    },
    /// The work of that id: claimed, checkpointed, released or finished.
    Work,
}

/// One change. It names what changed; read the document or the work for its current content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its position.
    pub position: Position,
    /// Kind of document or work.
    pub kind: String,
    /// Identity.
    pub uuid: Uuid,
    /// The subject.
    pub subject: Subject,
}

/// A page of changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPage {
    /// Changes in order.
    pub changes: Vec<Change>,
    /// Position to continue from.
    pub next: Position,
}

/// Why the feed could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FeedError {
    /// The position has left the feed by retention, or belongs to another generation of the store: list everything,
    /// then continue from a position taken before the listing.
    #[error("feed position {position} is too old; list everything and continue from a new position")]
    Gone {
        /// The rejected position.
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
