//! The end of a piece of work, ready to be written.

use std::sync::Arc;

use api::work::WorkState;

use crate::StoreError;
use crate::entries::Line;
use crate::transaction::validate_end;
use crate::work::{Completion, Hold};

/// The end of a piece of work, ready to be written: it is checked and its texts are made by whoever comes to it, not by the
/// one who writes for all of them. Clones share it.
#[derive(Debug, Clone)]
pub struct End(Arc<Ready>);

#[derive(Debug)]
struct Ready {
    hold: Hold,
    state: WorkState,
    result: String,
    told: Vec<Line>,
}

impl End {
    /// Refuses what cannot be stored.
    pub fn new(completion: &Completion) -> Result<End, StoreError> {
        validate_end(completion)?;
        Ok(End::of(completion))
    }

    /// One that was checked.
    pub(crate) fn of(completion: &Completion) -> End {
        let Completion { hold, ending, result, entries } = completion;
        let told = entries.iter().map(Line::of).collect();
        End(Arc::new(Ready { hold: *hold, state: ending.state(), result: result.to_string(), told }))
    }

    /// The right to end it.
    pub fn hold(&self) -> Hold {
        self.0.hold
    }

    pub(crate) fn state(&self) -> WorkState {
        self.0.state
    }

    /// What is to be remembered of it, as JSON.
    pub(crate) fn result(&self) -> &str {
        &self.0.result
    }

    /// What is told of it.
    pub(crate) fn told(&self) -> &[Line] {
        &self.0.told
    }
}
