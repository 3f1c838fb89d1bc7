//! Faults of the store, and crashes at its writes.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::clock::Clock;
use jiff::{SignedDuration, Timestamp};
use steps::engine::fault_harness::VirtualClock;
use store::{FaultInjector, FaultPoint, StoreError};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::random::Random;

/// Seeded faults.
#[derive(Debug)]
pub(super) struct Faults {
    random: Random,
    on: AtomicBool,
    outage: Mutex<Option<Instant>>,
    /// Notified when an actuator is to crash at this write.
    pub(super) crash: Notify,
    pub(super) refused: AtomicU64,
    /// Number of plans that could not be built.
    pub(super) hiccups: AtomicU64,
}

impl Faults {
    pub(super) fn new(seed: u64) -> Arc<Faults> {
        Arc::new(Faults {
            random: Random::new(seed ^ 0xfa17),
            on: AtomicBool::new(false),
            outage: Mutex::new(None),
            crash: Notify::new(),
            refused: AtomicU64::new(0),
            hiccups: AtomicU64::new(0),
        })
    }

    pub(super) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::SeqCst);
        if !on {
            *self.outage.lock().unwrap() = None;
        }
    }

    /// Whether building a plan fails this time.
    pub(super) fn hiccup(&self) -> bool {
        let hiccup = self.on.load(Ordering::SeqCst) && self.random.happens(80);
        self.hiccups.fetch_add(u64::from(hiccup), Ordering::SeqCst);
        hiccup
    }

    /// Fails every read and write until `end`.
    pub(super) fn outage_until(&self, end: Instant) {
        *self.outage.lock().unwrap() = Some(end);
    }

    pub(super) fn injector(self: &Arc<Faults>) -> FaultInjector {
        let faults = self.clone();
        FaultInjector::new(move |point| faults.at(point))
    }

    fn at(&self, point: FaultPoint) -> Result<(), StoreError> {
        if !self.on.load(Ordering::SeqCst) {
            return Ok(());
        }
        if point != FaultPoint::Read && self.random.happens(4) {
            self.crash.notify_one();
        }
        let outage = self.outage.lock().unwrap().is_some_and(|end| Instant::now() < end);
        // During an outage nothing is read or written; at other times a response may be lost.
        if (outage && point != FaultPoint::AfterWrite) || self.random.happens(5) {
            self.refused.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::Unavailable { what: "simulated".to_owned(), source: None });
        }
        Ok(())
    }
}

/// Clock of the store: the virtual one with an error of up to five seconds that changes.
#[derive(Debug)]
pub(super) struct JumpingClock {
    truth: VirtualClock,
    ahead_ms: AtomicI64,
}

impl JumpingClock {
    pub(super) fn new() -> Arc<JumpingClock> {
        let start = Timestamp::from_second(1_800_000_000).unwrap();
        Arc::new(JumpingClock { truth: VirtualClock::from(start), ahead_ms: AtomicI64::new(0) })
    }

    pub(super) fn jump_to(&self, ahead_ms: i64) {
        self.ahead_ms.store(ahead_ms, Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> Timestamp {
        self.truth.now() + SignedDuration::from_millis(self.ahead_ms.load(Ordering::SeqCst))
    }
}
