//! What webhooks have answered during one request.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::review::Question;
use crate::random;
use crate::status::{ApiResult, StatusError};

/// The code of the error with which a verb stops for a question. No client sees it.
const PENDING: u16 = 0;

/// The answers of one request, and what must be the same each time its verb starts again.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The uid of an object that is created.
    pub(crate) uid: String,
    /// The end of a generated name.
    pub(crate) suffix: String,
    /// The options of the request as the client sent them.
    pub(crate) options: Value,
    recorded: Mutex<Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    answers: Vec<(Question, Value)>,
    pending: Option<Question>,
    warnings: Vec<String>,
}

/// Whether an error only says that webhooks have to be asked.
pub(crate) fn is_pending(failure: &StatusError) -> bool {
    failure.code == PENDING
}

impl Gate {
    /// No answers yet.
    pub(crate) fn new(options: Value) -> Gate {
        Gate { uid: random::uid(), suffix: random::suffix(), options, recorded: Mutex::default() }
    }

    /// The answer to a question: the object, possibly changed. Without an answer the verb has to stop with the error.
    pub(crate) fn answer(&self, question: Question) -> ApiResult<Value> {
        let mut recorded = self.lock();
        if let Some((_, answer)) = recorded.answers.iter().find(|(asked, _)| asked.is_same(&question)) {
            return Ok(answer.clone());
        }
        recorded.pending = Some(question);
        Err(StatusError::new(PENDING, "", "admission webhooks have to be asked"))
    }

    /// The question for which the verb has stopped.
    pub(crate) fn take_pending(&self) -> Option<Question> {
        self.lock().pending.take()
    }

    /// Records an answer.
    pub(crate) fn record(&self, question: Question, answer: Value) {
        self.lock().answers.push((question, answer));
    }

    /// Forgets all answers, before the next object of a request.
    pub(crate) fn forget(&self) {
        self.lock().answers.clear();
    }

    /// Adds a warning for the client.
    pub(crate) fn warn(&self, warning: String) {
        self.lock().warnings.push(warning);
    }

    /// The warnings for the client.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().warnings)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
