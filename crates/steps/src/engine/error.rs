//! The error of a step, with what may be done about it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use api::doc::{OperationError, ResultCode};
use api::error::{Class, Classify};

/// The error of a step. It keeps its source, so that the whole chain can be logged.
#[derive(Debug)]
pub struct StepError {
    kind: StepErrorKind,
    code: ResultCode,
    message: String,
    retry_after: Option<Duration>,
    log: Option<String>,
    customer: Option<Box<OperationError>>,
    keep_waiting: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What may be done about a failed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepErrorKind {
    /// A retry may help; it uses up an attempt.
    Transient,
    /// A retry cannot help.
    Terminal,
    /// The cluster is unreachable: the work is parked and no attempt is used up.
    Unreachable,
    /// A precondition of the work is not met (any more): the work waits and no attempt is used up.
    Precondition,
}

impl StepError {
    /// An error with its kind, code and message.
    pub fn new(kind: StepErrorKind, code: impl Into<ResultCode>, message: impl Into<String>) -> StepError {
        StepError {
            kind,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            log: None,
            customer: None,
            keep_waiting: false,
            source: None,
        }
    }

    /// An error that a retry cannot fix.
    pub fn terminal(code: impl Into<ResultCode>, message: impl Into<String>) -> StepError {
        StepError::new(StepErrorKind::Terminal, code, message)
    }

    /// An error that a retry may fix.
    pub fn transient(code: impl Into<ResultCode>, message: impl Into<String>) -> StepError {
        StepError::new(StepErrorKind::Transient, code, message)
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn with_source(mut self, source: impl Error + Send + Sync + 'static) -> StepError {
        self.source = Some(Box::new(source));
        self
    }

    /// Sets the shortest delay before a retry.
    #[must_use]
    pub fn with_retry_after(mut self, pause: Option<Duration>) -> StepError {
        self.retry_after = pause;
        self
    }

    /// Adds the log of what failed, for the history.
    #[must_use]
    pub fn with_log(mut self, log: Option<String>) -> StepError {
        self.log = log;
        self
    }

    /// Adds the error that the customer sees. Without it, a customer sees an internal server error.
    #[must_use]
    pub fn with_customer_error(mut self, error: OperationError) -> StepError {
        self.customer = Some(Box::new(error));
        self
    }

    /// The error that the customer sees.
    pub fn customer_error(&self) -> Option<&OperationError> {
        self.customer.as_deref()
    }

    /// Marks an error of a poll after which the wait continues until its timeout.
    #[must_use]
    pub fn keep_waiting(mut self) -> StepError {
        self.keep_waiting = true;
        self
    }

    /// Whether a wait continues after this error.
    pub fn keeps_waiting(&self) -> bool {
        self.keep_waiting
    }

    /// The log of what failed.
    pub fn log(&self) -> Option<&str> {
        self.log.as_deref()
    }

    /// What may be done about it.
    pub fn kind(&self) -> StepErrorKind {
        self.kind
    }

    /// The machine-readable code.
    pub fn code(&self) -> &ResultCode {
        &self.code
    }

    /// The delay that the failing service asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The message followed by those of its sources.
    pub fn full_message(&self) -> String {
        let mut text = self.message.clone();
        let mut beneath = self.source.as_deref().map(|it| it as &dyn Error);
        while let Some(error) = beneath {
            let said = error.to_string();
            if !text.ends_with(&said) {
                text = format!("{text}: {said}");
            }
            beneath = error.source();
        }
        text
    }
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for StepError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|it| it as &(dyn Error + 'static))
    }
}

impl Classify for StepError {
    fn class(&self) -> Class {
        match self.kind {
            StepErrorKind::Terminal => Class::Terminal,
            StepErrorKind::Transient | StepErrorKind::Unreachable | StepErrorKind::Precondition => {
                Class::Transient
            }
        }
    }
}
