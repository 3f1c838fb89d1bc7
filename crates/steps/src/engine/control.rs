//! What is asked of whoever walks a plan, from outside.

use std::ops::Deref;
use std::sync::Arc;

use store::Signals;
use tokio_util::sync::CancellationToken;

/// The reins of one run. Whoever holds the other end pulls; the engine obeys at once or at the next safe point, as said for
/// each. A rein that was pulled stays so. Clones are the same reins.
#[derive(Debug, Clone, Default)]
pub struct Control(Arc<Reins>);

/// What can be asked of a run.
#[derive(Debug, Default)]
pub struct Reins {
    /// Somebody asked for the work's end: the step in hand is stopped, and what was done is undone.
    pub cancel: CancellationToken,
    /// A customer's operation waits: the work is handed back at the next safe point.
    pub preempt: CancellationToken,
    /// The process ends: the work is handed back at the next safe point.
    pub shutdown: CancellationToken,
    /// The process ends now: the step in hand is dropped without undo, and the work is handed back to be resumed.
    pub halt: CancellationToken,
    /// The work is not ours any more (or may not be): everything is dropped and nothing more is written.
    pub lost: CancellationToken,
}

impl Deref for Control {
    type Target = Reins;

    fn deref(&self) -> &Reins {
        &self.0
    }
}

impl Control {
    /// Nothing is asked.
    pub fn new() -> Control {
        Control::default()
    }

    /// Pulls the reins that the store asks for.
    pub fn hear(&self, signals: Signals) {
        if signals.cancel {
            self.cancel.cancel();
        }
        if signals.preempt {
            self.preempt.cancel();
        }
    }
}
