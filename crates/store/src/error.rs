//! Errors of the store, by what the caller can do about them.

use std::fmt;
use std::str::FromStr;

use api::error::{Class, Classify};
use api::work::{UnknownValue, WorkState};
use uuid::Uuid;

use crate::Etag;

/// Why a read or a write failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A document with that path exists.
    #[error("{kind} {id} exists already")]
    Exists {
        /// Kind that was to be created.
        kind: String,
        /// Path that is taken.
        id: String,
    },
    /// Another document holds this unique key.
    #[error("{key} is in use by another resource")]
    KeyTaken {
        /// The key.
        key: String,
    },
    /// The document has changed since the caller read it.
    #[error("document {uuid} was changed meanwhile: it is at {found}, the caller had read {expected}")]
    Changed {
        /// The document.
        uuid: Uuid,
        /// Version that the caller had read.
        expected: Etag,
        /// Current version.
        found: Etag,
    },
    /// The document does not exist or is deleted.
    #[error("document {uuid} is gone")]
    Gone {
        /// The document.
        uuid: Uuid,
    },
    /// The caller no longer holds the work: its lease expired and another owner has it, or the work has finished.
    #[error("the lease on work {work} is lost")]
    LostLease {
        /// The work.
        work: Uuid,
    },
    /// The caller no longer holds a named lease.
    #[error("the lease {name} is lost")]
    LostNamedLease {
        /// The lease.
        name: String,
    },
    /// The work is in a state that does not allow this.
    #[error("work {work} is {state}, not {required}")]
    WrongState {
        /// The work.
        work: Uuid,
        /// Its current state.
        state: WorkState,
        /// The required state.
        required: RequiredState,
    },
    /// No such work exists.
    #[error("work {work} does not exist")]
    NoSuchWork {
        /// The work.
        work: Uuid,
    },
    /// The caller's input cannot be stored.
    #[error("{what}")]
    Invalid {
        /// What is invalid and why, in one sentence.
        what: String,
    },
    /// A secret was sealed with a key that is no longer current.
    #[error("the store's key is now {current}; the secret was sealed with {used}")]
    StaleKey {
        /// Id of the current key.
        current: String,
        /// Id of the key that was used.
        used: String,
    },
    /// A secret cannot be decrypted.
    #[error("secret {name} of {owner} cannot be opened: {why}")]
    Sealed {
        /// Document that owns it.
        owner: Uuid,
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The database does not respond, or reported a temporary failure. A write may or may not have happened; since
    /// every write is conditional on what it read, retrying is safe.
    #[error("the database is unavailable ({what})")]
    Unavailable {
        /// The operation.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The disk is full.
    #[error("the database's disk is full")]
    DiskFull,
    /// The database contains something that this release did not write and does not understand, or rejected a
    /// statement.
    #[error("unexpected response of the database ({what})")]
    Broken {
        /// The operation.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

/// State of a piece of work that an action requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequiredState {
    /// Pending.
    Pending,
    /// Pending, and never started: its effects need no undo.
    Fresh,
    /// Claimed by a worker.
    InProgress,
    /// Claimed by a worker, and no cancellation requested.
    NotCancelled,
    /// In any terminal state.
    Finished,
    /// Withdrawn by its schedule.
    Superseded,
}

impl RequiredState {
    const ALL: [RequiredState; 6] = [
        RequiredState::Pending,
        RequiredState::Fresh,
        RequiredState::InProgress,
        RequiredState::NotCancelled,
        RequiredState::Finished,
        RequiredState::Superseded,
    ];

    /// Name in messages and in the errors that the functions of the PostgreSQL schema raise.
    fn as_str(self) -> &'static str {
        match self {
            RequiredState::Pending => "Pending",
            RequiredState::Fresh => "fresh",
            RequiredState::InProgress => "InProgress",
            RequiredState::NotCancelled => "uncancelled",
            RequiredState::Finished => "ended",
            RequiredState::Superseded => "Superseded",
        }
    }
}

impl fmt::Display for RequiredState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for RequiredState {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<RequiredState, UnknownValue> {
        RequiredState::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| UnknownValue {
            what: "required state",
            value: text.to_owned(),
            accepted: "Pending, fresh, InProgress, uncancelled, ended, Superseded",
        })
    }
}

impl StoreError {
    /// An error of the caller, in one sentence.
    pub(crate) fn invalid(what: impl Into<String>) -> StoreError {
        StoreError::Invalid { what: what.into() }
    }

    /// Unexpected content of the database.
    pub(crate) fn broken(what: impl Into<String>) -> StoreError {
        StoreError::Broken { what: what.into(), source: None }
    }
}

impl Classify for StoreError {
    fn class(&self) -> Class {
        match self {
            StoreError::Unavailable { .. } | StoreError::DiskFull | StoreError::StaleKey { .. } => {
                Class::Transient
            }
            StoreError::Exists { .. }
            | StoreError::KeyTaken { .. }
            | StoreError::Changed { .. }
            | StoreError::Gone { .. }
            | StoreError::LostLease { .. }
            | StoreError::LostNamedLease { .. }
            | StoreError::WrongState { .. }
            | StoreError::NoSuchWork { .. }
            | StoreError::Invalid { .. }
            | StoreError::Sealed { .. }
            | StoreError::Broken { .. } => Class::Terminal,
        }
    }
}
