//! The keys that a controller has to reconcile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::key::ObjectKey;
use crate::lock;

mod state;
#[cfg(test)]
mod tests;

pub(crate) use state::{Next, State};

/// Delays of the reconciles of one object that fails: `base`, doubled with every failure, at most `max`. A success resets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub max: Duration,
}

impl Default for Backoff {
    /// 5 ms to 1000 s, as other controllers of Kubernetes.
    fn default() -> Backoff {
        Backoff { base: Duration::from_millis(5), max: Duration::from_secs(1000) }
    }
}

impl Backoff {
    /// The delay after this many failures in a row.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let doubled =
            1_u32.checked_shl(failures.saturating_sub(1)).and_then(|factor| self.base.checked_mul(factor));
        doubled.map_or(self.max, |delay| delay.min(self.max))
    }
}

/// Limit of the retries of all objects of a controller together, beside each one's own backoff.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryRate {
    /// Retries per second in the long run.
    pub per_second: f64,
    /// Retries at once after a time without any.
    pub burst: u32,
}

/// What a reconcile decided about its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing more to do until the object, or what the controller watches for it, changes.
    Done,
    /// Reconcile again after this time, unless a change comes first. Replaces what an earlier reconcile asked for.
    After(Duration),
    /// Like `After`, for work that is neither done nor failed: failures before it still count for the backoff.
    Wait(Duration),
}

/// How a reconcile ended, as the queue sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finished {
    Ok(Action),
    Failed,
}

tokio::task_local! {
    /// The queue and the key of the reconcile that runs in this task.
    static RECONCILING: (Arc<Queue>, ObjectKey);
}

/// The queue of a controller.
pub(crate) struct Queue {
    state: Mutex<State>,
    added: Notify,
}

impl Queue {
    pub(crate) fn new(backoff: Backoff, rate: Option<RetryRate>) -> Queue {
        Queue { state: Mutex::new(State::new(backoff, rate)), added: Notify::new() }
    }

    /// Adds a key whose object may need a reconcile. Never blocks.
    pub(crate) fn add(&self, key: ObjectKey) {
        let is_own = RECONCILING
            .try_with(|(queue, current)| std::ptr::eq(Arc::as_ptr(queue), self) && *current == key)
            .unwrap_or(false);
        let mut state = lock(&self.state);
        if is_own {
            state.add_own(key);
        } else if state.add(key) {
            self.added.notify_one();
        }
    }

    /// Runs the reconcile of a key, so that what it changes itself is distinguished from other changes.
    pub(crate) fn reconcile<F: Future>(
        self: &Arc<Queue>,
        key: ObjectKey,
        future: F,
    ) -> impl Future<Output = F::Output> + use<F> {
        RECONCILING.scope((self.clone(), key), future)
    }

    /// Takes the next key that is due; it is in progress until it is finished.
    pub(crate) fn take(&self) -> Next {
        lock(&self.state).take(Instant::now())
    }

    pub(crate) fn finish(&self, key: &ObjectKey, finished: Finished) {
        lock(&self.state).finish(key, finished, Instant::now());
    }

    /// Waits until a key was added. One waiter.
    pub(crate) async fn added(&self) {
        self.added.notified().await;
    }

    /// The keys that are due and not in progress.
    pub(crate) fn depth(&self) -> usize {
        lock(&self.state).depth()
    }
}
