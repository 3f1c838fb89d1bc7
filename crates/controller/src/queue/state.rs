//! The queue as a function of calls and times.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::{Action, Backoff, Finished, RetryRate};
use crate::key::ObjectKey;

/// An object that something else changed during a reconcile that failed is retried at the latest after this: the change may be what it
/// needed. Not at once, because it may be an effect of the failing reconcile. Its own writes do not count.
const CHANGED_DELAY_MAX: Duration = Duration::from_secs(1);

/// The next key to reconcile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// This one, now.
    Key(ObjectKey),
    /// None before this time.
    Until(Instant),
    /// None until one is added.
    None,
}

/// What added a key that is in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Added {
    Nothing,
    /// A write of its own reconcile.
    Itself,
    /// Another change.
    Other,
}

/// Keys that are due, delayed and in progress. Each key is in at most one of `due` and `delayed`.
pub(crate) struct State {
    backoff: Backoff,
    rate: Option<TokenBucket>,
    /// In the order in which they became due.
    due: VecDeque<ObjectKey>,
    is_due: HashSet<ObjectKey>,
    delayed: BTreeSet<(Instant, ObjectKey)>,
    delayed_until: HashMap<ObjectKey, Instant>,
    /// Keys in progress, and what added each again meanwhile.
    running: HashMap<ObjectKey, Added>,
    failures: HashMap<ObjectKey, u32>,
}

impl State {
    pub(crate) fn new(backoff: Backoff, rate: Option<RetryRate>) -> State {
        State {
            backoff,
            rate: rate.map(TokenBucket::new),
            due: VecDeque::new(),
            is_due: HashSet::new(),
            delayed: BTreeSet::new(),
            delayed_until: HashMap::new(),
            running: HashMap::new(),
            failures: HashMap::new(),
        }
    }

    /// Adds a key: due at once, or again after the reconcile in progress. Returns whether it became due.
    pub(crate) fn add(&mut self, key: ObjectKey) -> bool {
        if let Some(added) = self.running.get_mut(&key) {
            *added = Added::Other;
            return false;
        }
        if let Some(until) = self.delayed_until.remove(&key) {
            self.delayed.remove(&(until, key.clone()));
        }
        self.make_due(key)
    }

    /// Adds the key of a reconcile in progress that has changed its object itself: again after it, but not sooner if it fails.
    pub(crate) fn add_own(&mut self, key: ObjectKey) {
        if let Some(added) = self.running.get_mut(&key) {
            *added = Added::Itself.max(*added);
        }
    }

    pub(crate) fn take(&mut self, now: Instant) -> Next {
        while let Some((until, _)) = self.delayed.first()
            && *until <= now
            && let Some((_, key)) = self.delayed.pop_first()
        {
            self.delayed_until.remove(&key);
            self.make_due(key);
        }
        if let Some(key) = self.due.pop_front() {
            self.is_due.remove(&key);
            self.running.insert(key.clone(), Added::Nothing);
            return Next::Key(key);
        }
        self.delayed.first().map_or(Next::None, |(until, _)| Next::Until(*until))
    }

    pub(crate) fn finish(&mut self, key: &ObjectKey, finished: Finished, now: Instant) {
        let added = self.running.remove(key).unwrap_or(Added::Nothing);
        let delay = match finished {
            Finished::Ok(action) => {
                if !matches!(action, Action::Wait(_)) {
                    self.failures.remove(key);
                }
                match action {
                    _ if added != Added::Nothing => Some(Duration::ZERO),
                    Action::Done => None,
                    Action::After(delay) | Action::Wait(delay) => Some(delay),
                }
            }
            Finished::Failed => {
                let failures = self.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                let own = self.backoff.delay(*failures);
                let own = if added == Added::Other { own.min(CHANGED_DELAY_MAX) } else { own };
                let shared = self.rate.as_mut().map_or(Duration::ZERO, |rate| rate.reserve(now));
                Some(own.max(shared))
            }
        };
        match delay {
            None => {}
            Some(delay) if delay.is_zero() => {
                self.make_due(key.clone());
            }
            // A time beyond what the clock can represent never comes.
            Some(delay) => {
                if let Some(until) = now.checked_add(delay) {
                    self.delayed.insert((until, key.clone()));
                    self.delayed_until.insert(key.clone(), until);
                }
            }
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.due.len()
    }

    fn make_due(&mut self, key: ObjectKey) -> bool {
        let is_new = self.is_due.insert(key.clone());
        if is_new {
            self.due.push_back(key);
        }
        is_new
    }
}

/// Tokens that accrue with time; a reservation beyond them waits.
struct TokenBucket {
    rate: RetryRate,
    /// Negative when tokens are reserved ahead.
    tokens: f64,
    counted_at: Option<Instant>,
}

impl TokenBucket {
    fn new(rate: RetryRate) -> TokenBucket {
        TokenBucket { rate, tokens: f64::from(rate.burst), counted_at: None }
    }

    /// Takes a token, and returns how long to wait until it has accrued.
    fn reserve(&mut self, now: Instant) -> Duration {
        let elapsed = self.counted_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.counted_at = Some(now);
        let accrued = self.tokens + elapsed.as_secs_f64() * self.rate.per_second;
        self.tokens = accrued.min(f64::from(self.rate.burst)) - 1.0;
        if self.tokens >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.tokens / self.rate.per_second).unwrap_or(Duration::MAX)
    }
}
