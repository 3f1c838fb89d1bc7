//! The clock as a dependency. Decisions never read the time themselves: tests, the planner and the
//! simulation provide their own clock, so that a year passes in seconds and a fault can be replayed.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use jiff::{SignedDuration, Timestamp};

/// A source of the current time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// The current time.
    fn now(&self) -> Timestamp;
}

/// A shared clock.
pub type SharedClock = Arc<dyn Clock>;

/// The clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place where the machine's clock is read")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until it is advanced.
#[derive(Debug)]
pub struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    /// A clock that shows `start`.
    pub fn at(start: Timestamp) -> Arc<ManualClock> {
        Arc::new(ManualClock { micros: AtomicI64::new(start.as_microsecond()) })
    }

    /// Moves the clock by `span`; a negative span is a clock that was set back.
    pub fn advance(&self, span: SignedDuration) {
        let micros = i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
        self.micros.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.micros.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }
}

/// Another clock with a fixed offset: a host whose time was never set.
#[derive(Debug, Clone)]
pub struct SkewedClock {
    /// The correct clock.
    pub truth: SharedClock,
    /// Offset of this host from it.
    pub ahead: SignedDuration,
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        self.truth.now().saturating_add(self.ahead).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_it_is_advanced() {
        let clock = ManualClock::at(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), clock.now());
        clock.advance(SignedDuration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
        clock.advance(SignedDuration::from_secs(-30));
        assert_eq!(clock.now().as_second(), 60);
    }
}
