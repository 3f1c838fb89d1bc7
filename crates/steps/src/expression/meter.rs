//! What an evaluation may cost: work that is counted as it is done, and memory as it is held.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::trouble::{Limit, Trouble};

/// So much work at most. One unit is a node of the expression that is evaluated, an element that is looked at, or 16 bytes
/// of a text: well under a second in all.
pub const WORK_MAX: u64 = 20_000_000;
/// So many bytes at most may an evaluation hold at once, beyond what it was given.
pub const MEMORY_MAX: usize = 32 << 20;
/// How often it is looked whether the evaluation is still wanted, in units of work.
const LOOK_EVERY: u64 = 4096;

/// Counts what one evaluation does and holds.
#[derive(Debug)]
pub(super) struct Meter<'a> {
    work: Cell<u64>,
    look_at: Cell<u64>,
    held: Cell<usize>,
    #[cfg(test)]
    peak: Cell<usize>,
    stop: &'a AtomicBool,
}

impl<'a> Meter<'a> {
    /// A meter at zero. The evaluation ends soon after `stop` was set.
    pub(super) fn new(stop: &'a AtomicBool) -> Meter<'a> {
        Meter {
            work: Cell::new(0),
            look_at: Cell::new(LOOK_EVERY),
            held: Cell::new(0),
            #[cfg(test)]
            peak: Cell::new(0),
            stop,
        }
    }

    /// Counts work before it is done.
    pub(super) fn charge(&self, units: u64) -> Result<(), Trouble> {
        let work = self.work.get().saturating_add(units);
        self.work.set(work);
        if work > WORK_MAX {
            return Err(Trouble::Beyond(Limit::Work));
        }
        if work >= self.look_at.get() {
            self.look_at.set(work + LOOK_EVERY);
            if self.stop.load(Ordering::Relaxed) {
                return Err(Trouble::Beyond(Limit::Time));
            }
        }
        Ok(())
    }

    /// Counts work on a number of bytes.
    pub(super) fn charge_bytes(&self, bytes: usize) -> Result<(), Trouble> {
        self.charge(1 + bytes as u64 / 16)
    }

    /// The most that was held at once.
    #[cfg(test)]
    pub(super) fn peak(&self) -> usize {
        self.peak.get()
    }

    /// Work that was done so far.
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.work.get()
    }
}

/// Memory that is counted as long as this is there.
#[derive(Debug)]
pub(super) struct Held<'a> {
    meter: &'a Meter<'a>,
    bytes: usize,
}

impl<'a> Held<'a> {
    pub(super) fn nothing(meter: &'a Meter<'a>) -> Held<'a> {
        Held { meter, bytes: 0 }
    }

    /// Counts more bytes before they are taken.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), Trouble> {
        let held = self.meter.held.get().saturating_add(bytes);
        if held > MEMORY_MAX {
            return Err(Trouble::Beyond(Limit::Memory));
        }
        self.meter.held.set(held);
        #[cfg(test)]
        self.meter.peak.set(self.meter.peak.get().max(held));
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.meter.held.set(self.meter.held.get().saturating_sub(self.bytes));
    }
}

/// A value that the evaluation made, and the memory that it is counted with. Shared, never copied.
#[derive(Debug)]
pub(super) struct Made<'a, T> {
    pub(super) value: T,
    _held: Held<'a>,
}

impl<'a, T> Made<'a, T> {
    pub(super) fn new(value: T, held: Held<'a>) -> Rc<Made<'a, T>> {
        Rc::new(Made { value, _held: held })
    }
}
