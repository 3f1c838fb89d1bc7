//! The context of a call: one transaction at one time.

use std::time::Duration;

use api::install::InstallStage;
use cloud::ResourceFailure;
use jiff::Timestamp;
use rusqlite::Connection;

use crate::endpoints::Endpoints;
use crate::entra::VerifiedTokens;
use crate::seed;

/// One transaction at one time.
pub(crate) struct CallContext<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) now: Timestamp,
    pub(crate) seed: u64,
    pub(crate) pace: f64,
    pub(crate) effects: FaultEffects,
    pub(crate) endpoints: &'a Endpoints,
    pub(crate) tokens: &'a VerifiedTokens,
}

/// Changes that injected faults make to the effect of a call, rather than preventing it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FaultEffects {
    /// The failure that a put ends in.
    pub(crate) fails_later: Option<ResourceFailure>,
    /// How long get and list do not show a created resource.
    pub(crate) unseen: Duration,
    /// How long a role assignment takes to become effective.
    pub(crate) late: Duration,
    /// The stage at which an installation fails.
    pub(crate) install_fails_at: Option<InstallStage>,
    /// The operation of a change cannot be found.
    pub(crate) operation_lost: bool,
    /// A change never completes.
    pub(crate) operation_hangs: bool,
    /// The message of the policy that denies a put, by the policy's name.
    pub(crate) denying_policy: Option<String>,
}

impl CallContext<'_> {
    /// The same transaction at another time.
    pub(crate) fn at(&self, now: Timestamp) -> CallContext<'_> {
        CallContext { now, effects: self.effects.clone(), ..*self }
    }

    /// The completion time of a change that usually takes `usual`.
    pub(crate) fn done_at(&self, usual: Duration, words: &[&str]) -> Timestamp {
        self.later(seed::span(self.seed, self.pace, usual, words))
    }

    pub(crate) fn later(&self, span: Duration) -> Timestamp {
        self.now.saturating_add(span).unwrap_or(Timestamp::MAX)
    }
}
