//! Control of a run from outside.

use std::ops::Deref;
use std::sync::Arc;

use store::Signals;
use tokio_util::sync::CancellationToken;

/// Controls one run. The engine obeys each signal at once or at the next safe point, as documented there. A signal cannot be
/// revoked. Clones control the same run.
#[derive(Debug, Clone, Default)]
pub struct RunControl(Arc<RunSignals>);

/// The signals of a run.
#[derive(Debug, Default)]
pub struct RunSignals {
    /// A cancel was requested: the current step is stopped, and the work is undone.
    pub cancel: CancellationToken,
    /// A customer's operation waits: the work is released at the next safe point.
    pub preempt: CancellationToken,
    /// The process shuts down: the work is released at the next safe point.
    pub shutdown: CancellationToken,
    /// The process exits now: the current step is dropped without undo, and the work is released to be resumed.
    pub halt: CancellationToken,
    /// The lease is lost, or may be: everything is dropped and nothing more is written.
    pub lost: CancellationToken,
}

impl Deref for RunControl {
    type Target = RunSignals;

    fn deref(&self) -> &RunSignals {
        &self.0
    }
}

impl RunControl {
    /// A control without signals.
    pub fn new() -> RunControl {
        RunControl::default()
    }

    /// Sets the signals that the store reports.
    pub fn apply_signals(&self, signals: Signals) {
        if signals.cancel {
            self.cancel.cancel();
        }
        if signals.preempt {
            self.preempt.cancel();
        }
    }
}
