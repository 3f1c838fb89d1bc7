//! A completion that is validated and serialised.

use std::sync::Arc;

use api::work::WorkState;
use serde_json::Value;

use crate::StoreError;
use crate::entries::EntryText;
use crate::transaction::validate_end;
use crate::work::{Completion, WorkLease};

/// A completion that is validated and serialised by its caller rather than by the shared writer. Clones share it.
#[derive(Debug, Clone)]
pub struct PreparedCompletion(Arc<Prepared>);

#[derive(Debug)]
struct Prepared {
    lease: WorkLease,
    state: WorkState,
    result: String,
    entries: Vec<EntryText>,
}

impl PreparedCompletion {
    /// Validates and serialises; fails if the result cannot be stored.
    pub fn new(completion: &Completion) -> Result<PreparedCompletion, StoreError> {
        let result = completion.result.to_json();
        validate_end(&result)?;
        Ok(PreparedCompletion::with_result(completion, &result))
    }

    /// Serialises a completion that was validated before.
    pub(crate) fn from_valid(completion: &Completion) -> PreparedCompletion {
        PreparedCompletion::with_result(completion, &completion.result.to_json())
    }

    fn with_result(completion: &Completion, result: &Value) -> PreparedCompletion {
        let Completion { lease, ending, entries, .. } = completion;
        let entries = entries.iter().map(EntryText::new).collect();
        PreparedCompletion(Arc::new(Prepared {
            lease: *lease,
            state: ending.state(),
            result: result.to_string(),
            entries,
        }))
    }

    /// Lease under which the work is completed.
    pub fn lease(&self) -> WorkLease {
        self.0.lease
    }

    pub(crate) fn state(&self) -> WorkState {
        self.0.state
    }

    /// Its result, as JSON.
    pub(crate) fn result(&self) -> &str {
        &self.0.result
    }

    /// Its history entries.
    pub(crate) fn entries(&self) -> &[EntryText] {
        &self.0.entries
    }
}
