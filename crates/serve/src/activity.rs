//! The activity of one connection, and its deadlines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::ListenerLimits;

/// Longest graceful shutdown of a connection without active requests.
const GRACEFUL_CLOSE: Duration = Duration::from_secs(2);

/// The activity of a connection, shared by its task, its requests and the registry.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
    /// The connection's task; woken when its last request completes.
    driver: AtomicWaker,
    /// Cancelled when another connection displaces this one.
    pub(crate) displaced: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// Active requests; for each, since when its client has read nothing of a response that is ready.
    requests: BTreeMap<u64, Option<Instant>>,
    next: u64,
    has_requested: bool,
    is_http2: bool,
    /// When the last active request completed, or (HTTP/1) the last bytes were written.
    waiting_since: Instant,
    /// When the first byte of a request head arrived.
    head_since: Option<Instant>,
    /// When bytes were last written.
    written: Instant,
}

/// The next action on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionAction {
    /// Check again at this time.
    WaitUntil(Instant),
    /// Start a graceful shutdown.
    ShutDown,
    /// Drop the connection.
    Abort,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        let now = Instant::now();
        let state = State {
            requests: BTreeMap::new(),
            next: 0,
            has_requested: false,
            is_http2: false,
            waiting_since: now,
            head_since: None,
            written: now,
        };
        Activity { state: Mutex::new(state), driver: AtomicWaker::new(), displaced: CancellationToken::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the task that is woken when the last request completes.
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.driver.register(waker);
    }

    /// Records the end of the handshake, from which the client's first byte is awaited.
    pub(crate) fn handshake_completed(&self) {
        self.state().waiting_since = Instant::now();
    }

    /// Records that bytes arrived.
    pub(crate) fn record_read(&self) {
        let mut state = self.state();
        // HTTP/2 frames may be pings; only streams count there.
        if state.requests.is_empty() && !state.is_http2 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
    }

    /// Records that bytes were sent.
    pub(crate) fn record_write(&self) {
        let mut state = self.state();
        state.written = Instant::now();
        // The end of a response is sent after its body has been dropped. HTTP/2 also sends replies to pings, which do not count.
        if !state.is_http2 {
            state.waiting_since = state.written;
        }
    }

    /// Records a request whose head is complete.
    pub(crate) fn start_request(self: &Arc<Self>, is_http2: bool) -> ActiveRequest {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.requests.insert(id, None);
        (state.has_requested, state.is_http2, state.head_since) = (true, is_http2, None);
        ActiveRequest { activity: self.clone(), id }
    }

    /// Marks the connection as owned by other code, for example after an upgrade: it counts as active until it is closed.
    pub(crate) fn mark_detached(&self) {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.requests.insert(id, None);
    }

    /// Whether the connection ever sent a request, and since when it is idle; none while a request is active.
    pub(crate) fn waiting(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        state.requests.is_empty().then_some((state.has_requested, state.waiting_since))
    }

    pub(crate) fn has_requested(&self) -> bool {
        self.state().has_requested
    }

    /// The action at `now`. `ending` is when the graceful shutdown started.
    pub(crate) fn next_action(
        &self,
        limits: &ListenerLimits,
        ending: Option<Instant>,
        now: Instant,
    ) -> ConnectionAction {
        let state = self.state();
        let (at, then) = if !state.requests.is_empty() {
            (state.stall_deadline(limits, now), ConnectionAction::Abort)
        } else if let Some(started) = ending {
            // Every response is written.
            (started.max(state.waiting_since) + GRACEFUL_CLOSE, ConnectionAction::Abort)
        } else if let Some(started) = state.head_since {
            (started + limits.head, ConnectionAction::ShutDown)
        } else if state.has_requested {
            (state.waiting_since + limits.idle, ConnectionAction::ShutDown)
        } else {
            (state.waiting_since + limits.first_byte, ConnectionAction::ShutDown)
        };
        // A displaced connection is no longer counted, so requests that arrived during its shutdown must not keep it open.
        let latest = ending.filter(|_| self.displaced.is_cancelled()).map(|started| started + limits.closing);
        let (at, then) = match latest {
            Some(end) if end < at => (end, ConnectionAction::Abort),
            _ => (at, then),
        };
        if at <= now { then } else { ConnectionAction::WaitUntil(at) }
    }
}

impl State {
    /// When the active requests count as stalled.
    fn stall_deadline(&self, limits: &ListenerLimits, now: Instant) -> Instant {
        let stalled: Option<Vec<Instant>> = self.requests.values().copied().collect();
        let latest = stalled.and_then(|all| all.into_iter().max());
        match latest {
            Some(at) if self.is_http2 => at + limits.stall,
            Some(at) => at.max(self.written) + limits.stall,
            // A handler is working, or a client reads what it gets: check again later.
            None => now + limits.stall,
        }
    }
}

/// A request, from its head to the last written byte of its response.
#[derive(Debug)]
pub(crate) struct ActiveRequest {
    activity: Arc<Activity>,
    id: u64,
}

impl ActiveRequest {
    /// Records that data of the response is ready for the client.
    pub(crate) fn data_ready(&self) {
        self.activity.state().requests.insert(self.id, Some(Instant::now()));
    }

    /// Records that the client has read all data and the handler has to produce more.
    pub(crate) fn data_consumed(&self) {
        self.activity.state().requests.insert(self.id, None);
    }

    /// Records that the client has read a part of the data.
    pub(crate) fn data_progressed(&self) {
        if let Some(Some(since)) = self.activity.state().requests.get_mut(&self.id) {
            *since = Instant::now();
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let mut state = self.activity.state();
        state.requests.remove(&self.id);
        if state.requests.is_empty() {
            state.waiting_since = Instant::now();
            drop(state);
            self.activity.driver.wake();
        }
    }
}
