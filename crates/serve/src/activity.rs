//! What one connection is doing, and until when it may go on doing it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Limits;

/// How long a connection that was asked to end may take to say so to its client.
const GOODBYE: Duration = Duration::from_secs(2);

/// What a connection is doing. The connection's task, its requests and the registry share it.
#[derive(Debug)]
pub(crate) struct Activity {
    state: Mutex<State>,
    /// The connection's task; woken when its last request ends.
    driver: AtomicWaker,
    /// Cancelled when another connection takes this one's place.
    pub(crate) displaced: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// Requests under way; for each, since when its client has taken nothing of a response that is ready.
    requests: BTreeMap<u64, Option<Instant>>,
    next: u64,
    has_asked: bool,
    is_http2: bool,
    /// Since when no request is under way, or (HTTP/1) the last bytes were written since.
    waiting_since: Instant,
    /// When the first byte of a head arrived.
    head_since: Option<Instant>,
    /// When bytes were last written.
    written: Instant,
}

/// What is to be done with a connection now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing until then.
    Until(Instant),
    /// Ask it to end.
    End,
    /// Drop it.
    Cut,
}

impl Activity {
    pub(crate) fn new() -> Activity {
        let now = Instant::now();
        let state = State {
            requests: BTreeMap::new(),
            next: 0,
            has_asked: false,
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

    /// The task to be woken when the last request ends.
    pub(crate) fn driven_by(&self, waker: &Waker) {
        self.driver.register(waker);
    }

    /// The handshake is done: the client may speak now.
    pub(crate) fn shook_hands(&self) {
        self.state().waiting_since = Instant::now();
    }

    /// Bytes arrived.
    pub(crate) fn read(&self) {
        let mut state = self.state();
        // Frames of HTTP/2 may be pings; only streams count there.
        if state.requests.is_empty() && !state.is_http2 && state.head_since.is_none() {
            state.head_since = Some(Instant::now());
        }
    }

    /// Bytes were sent.
    pub(crate) fn wrote(&self) {
        let mut state = self.state();
        state.written = Instant::now();
        // The end of a response leaves slowly after its body has ended; answers to pings do so too, and do not count.
        if !state.is_http2 {
            state.waiting_since = state.written;
        }
    }

    /// A request's head is complete.
    pub(crate) fn request(self: &Arc<Self>, is_http2: bool) -> UnderWay {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.requests.insert(id, None);
        (state.has_asked, state.is_http2, state.head_since) = (true, is_http2, None);
        UnderWay { activity: self.clone(), id }
    }

    /// The connection was handed to somebody else, such as by an upgrade: it counts as used until it is closed.
    pub(crate) fn hand_over(&self) {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.requests.insert(id, None);
    }

    /// Since when it has been waiting, and whether it ever sent a request; none while a request is under way.
    pub(crate) fn waiting(&self) -> Option<(bool, Instant)> {
        let state = self.state();
        state.requests.is_empty().then_some((state.has_asked, state.waiting_since))
    }

    pub(crate) fn has_asked(&self) -> bool {
        self.state().has_asked
    }

    /// What is to be done at `now`. `ending` is when the connection was asked to end.
    pub(crate) fn verdict(&self, limits: &Limits, ending: Option<Instant>, now: Instant) -> Verdict {
        let state = self.state();
        let (at, then) = if !state.requests.is_empty() {
            (state.stalled_until(limits, now), Verdict::Cut)
        } else if let Some(asked) = ending {
            // Every response is written.
            (asked.max(state.waiting_since) + GOODBYE, Verdict::Cut)
        } else if let Some(begun) = state.head_since {
            (begun + limits.head, Verdict::End)
        } else if state.has_asked {
            (state.waiting_since + limits.idle, Verdict::End)
        } else {
            (state.waiting_since + limits.first_byte, Verdict::End)
        };
        // A displaced connection is no longer counted, so it must not stay by the requests that crossed its end.
        let latest = ending.filter(|_| self.displaced.is_cancelled()).map(|asked| asked + limits.closing);
        let (at, then) = match latest {
            Some(end) if end < at => (end, Verdict::Cut),
            _ => (at, then),
        };
        if at <= now { then } else { Verdict::Until(at) }
    }
}

impl State {
    /// Until when the requests under way may go on as they are.
    fn stalled_until(&self, limits: &Limits, now: Instant) -> Instant {
        let stalled: Option<Vec<Instant>> = self.requests.values().copied().collect();
        let latest = stalled.and_then(|all| all.into_iter().max());
        match latest {
            Some(at) if self.is_http2 => at + limits.stall,
            Some(at) => at.max(self.written) + limits.stall,
            // A handler works, or a client takes what it gets: look again later.
            None => now + limits.stall,
        }
    }
}

/// A request, from its head to the last byte of its response that was written.
#[derive(Debug)]
pub(crate) struct UnderWay {
    activity: Arc<Activity>,
    id: u64,
}

impl UnderWay {
    /// Something of the response is ready for the client.
    pub(crate) fn offered(&self) {
        self.activity.state().requests.insert(self.id, Some(Instant::now()));
    }

    /// The client took it; the handler is to say more.
    pub(crate) fn taken(&self) {
        self.activity.state().requests.insert(self.id, None);
    }

    /// The client took a part of what is ready.
    pub(crate) fn advanced(&self) {
        if let Some(Some(since)) = self.activity.state().requests.get_mut(&self.id) {
            *since = Instant::now();
        }
    }
}

impl Drop for UnderWay {
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
