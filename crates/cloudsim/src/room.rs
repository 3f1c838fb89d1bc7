//! What a call is carried out in: one transaction at one moment.

use std::time::Duration;

use api::install::InstallStage;
use cloud::Fault;
use jiff::Timestamp;
use rusqlite::Connection;

use crate::seed;

/// One transaction at one moment.
pub(crate) struct Room<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) now: Timestamp,
    pub(crate) seed: u64,
    pub(crate) pace: f64,
    pub(crate) bent: Bent,
}

/// How a fault bends what is done, rather than keeping it from being done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Bent {
    /// A put ends so.
    pub(crate) fails_later: Option<Fault>,
    /// What a put makes is not seen for so long.
    pub(crate) unseen: Duration,
    /// A role takes effect so late.
    pub(crate) late: Duration,
    /// The stage at which an installation fails.
    pub(crate) install_fails_at: Option<InstallStage>,
}

impl Room<'_> {
    /// When something is done that takes about `usual`.
    pub(crate) fn done_at(&self, usual: Duration, words: &[&str]) -> Timestamp {
        self.later(seed::span(self.seed, self.pace, usual, words))
    }

    pub(crate) fn later(&self, span: Duration) -> Timestamp {
        self.now.saturating_add(span).unwrap_or(Timestamp::MAX)
    }
}
