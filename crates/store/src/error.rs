//! What can go wrong with the store, by what the caller may do about it.

use api::error::{Class, Classify};
use uuid::Uuid;

use crate::Etag;

/// Why a read or a write did not happen.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A living document has that path.
    #[error("{kind} {id} exists already")]
    Exists {
        /// What was to be created.
        kind: String,
        /// The path that is taken.
        id: String,
    },
    /// Another living document holds a key that only one may hold.
    #[error("{key} is in use by another resource")]
    KeyTaken {
        /// The key.
        key: String,
    },
    /// The document is not what the caller had read.
    #[error("document {uuid} was changed meanwhile: it is at {found}, the caller had read {expected}")]
    Changed {
        /// Which document.
        uuid: Uuid,
        /// What the caller had read.
        expected: Etag,
        /// What it is at.
        found: Etag,
    },
    /// There is no such living document.
    #[error("document {uuid} is gone")]
    Gone {
        /// Which document.
        uuid: Uuid,
    },
    /// The work is no longer the caller's: its lease ran out and somebody else has it, or it has ended.
    #[error("the lease on work {work} is lost")]
    LostLease {
        /// Which work.
        work: Uuid,
    },
    /// A named lease is no longer the caller's.
    #[error("the lease {name} is lost")]
    LostNamedLease {
        /// Which lease.
        name: String,
    },
    /// The work is not in a state in which this can be done to it.
    #[error("work {work} is {state}, not {wanted}")]
    WrongState {
        /// Which work.
        work: Uuid,
        /// The state it is in.
        state: String,
        /// The state it would have to be in.
        wanted: &'static str,
    },
    /// There is no such work.
    #[error("there is no work {work}")]
    NoSuchWork {
        /// Which work.
        work: Uuid,
    },
    /// The caller gave something that cannot be stored.
    #[error("{what}")]
    Invalid {
        /// One sentence that says what and why.
        what: String,
    },
    /// A secret was sealed with a key that is no longer the current one.
    #[error("the store's key is now {current}; the secret was sealed with {used}")]
    StaleKey {
        /// The current key's id.
        current: String,
        /// The key that was used.
        used: String,
    },
    /// A secret cannot be opened.
    #[error("secret {name} of {owner} cannot be opened: {why}")]
    Sealed {
        /// The document that owns it.
        owner: Uuid,
        /// Its name.
        name: String,
        /// Why not.
        why: String,
    },
    /// The database does not answer, or answered that it cannot now. A write may or may not have happened; since
    /// every write is conditional on what it read, saying it again is safe.
    #[error("the database is unavailable ({what})")]
    Unavailable {
        /// What was being done.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// The disk is full.
    #[error("the database's disk is full")]
    DiskFull,
    /// The database holds something that this release did not write and does not understand, or refused a statement.
    #[error("the database answered unexpectedly ({what})")]
    Broken {
        /// What was being done.
        what: String,
        /// The cause.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl StoreError {
    /// A caller's mistake, in one sentence.
    pub(crate) fn invalid(what: impl Into<String>) -> StoreError {
        StoreError::Invalid { what: what.into() }
    }

    /// Something in the database that should not be there.
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
