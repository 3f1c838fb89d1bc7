//! The cost of an evaluation: work is counted as it is done, memory as it is held.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::{EvaluationError, Limit};

/// Most work of an evaluation. One unit is an evaluated node of the expression, a visited element, or 16 bytes of a string: well
/// under a second in all.
pub const WORK_MAX: u64 = 20_000_000;
/// Most bytes that an evaluation may hold at once, beyond its input.
pub const MEMORY_MAX: usize = 32 << 20;
/// Units of work between two checks of the stop flag.
const LOOK_EVERY: u64 = 4096;

/// Counts the work and the memory of one evaluation.
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
    /// A meter at zero. The evaluation ends soon after `stop` is set.
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
    pub(super) fn charge(&self, units: u64) -> Result<(), EvaluationError> {
        let work = self.work.get().saturating_add(units);
        self.work.set(work);
        if work > WORK_MAX {
            return Err(EvaluationError::Beyond(Limit::Work));
        }
        if work >= self.look_at.get() {
            self.look_at.set(work + LOOK_EVERY);
            if self.stop.load(Ordering::Relaxed) {
                return Err(EvaluationError::Beyond(Limit::Time));
            }
        }
        Ok(())
    }

    /// Counts work on a number of bytes.
    pub(super) fn charge_bytes(&self, bytes: usize) -> Result<(), EvaluationError> {
        self.charge(1 + bytes as u64 / 16)
    }

    /// The most memory that was held at once.
    #[cfg(test)]
    pub(super) fn peak(&self) -> usize {
        self.peak.get()
    }

    /// The work done so far.
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.work.get()
    }
}

/// Memory that is counted while this value lives.
#[derive(Debug)]
pub(super) struct Held<'a> {
    meter: &'a Meter<'a>,
    bytes: usize,
}

impl<'a> Held<'a> {
    pub(super) fn nothing(meter: &'a Meter<'a>) -> Held<'a> {
        Held { meter, bytes: 0 }
    }

    /// Counts further bytes before they are allocated.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), EvaluationError> {
        let held = self.meter.held.get().saturating_add(bytes);
        if held > MEMORY_MAX {
            return Err(EvaluationError::Beyond(Limit::Memory));
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

/// A value that the evaluation made, with its counted memory. Shared, never copied.
#[derive(Debug)]
pub(super) struct Tracked<'a, T> {
    pub(super) value: T,
    _held: Held<'a>,
}

impl<'a, T> Tracked<'a, T> {
    pub(super) fn new(value: T, held: Held<'a>) -> Rc<Tracked<'a, T>> {
        Rc::new(Tracked { value, _held: held })
    }
}
