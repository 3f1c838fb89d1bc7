//! Why a step failed, with what may be done about it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use api::doc::{OperationError, ResultCode};
use api::error::{Class, Classify};

/// Why a step failed. Keeps the error beneath it, so that the whole chain can be told.
#[derive(Debug)]
pub struct StepError {
    kind: StepErrorKind,
    code: ResultCode,
    message: String,
    retry_after: Option<Duration>,
    log: Option<String>,
    customer: Option<Box<OperationError>>,
    waited_out: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// What may be done about a failed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StepErrorKind {
    /// Trying again may help; spends an attempt.
    Transient,
    /// Trying again cannot help.
    Terminal,
    /// The cluster does not answer: the work is parked and spends nothing.
    Unreachable,
    /// What must be so before the work begins is not so (any more): the work waits and spends nothing.
    Precondition,
}

impl StepError {
    /// An error of that kind, in a sentence.
    pub fn new(kind: StepErrorKind, code: impl Into<ResultCode>, message: impl Into<String>) -> StepError {
        StepError {
            kind,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            log: None,
            customer: None,
            waited_out: false,
            source: None,
        }
    }

    /// An error that trying again cannot mend.
    pub fn terminal(code: impl Into<ResultCode>, message: impl Into<String>) -> StepError {
        StepError::new(StepErrorKind::Terminal, code, message)
    }

    /// An error that may go away.
    pub fn transient(code: impl Into<ResultCode>, message: impl Into<String>) -> StepError {
        StepError::new(StepErrorKind::Transient, code, message)
    }

    /// The same with the error beneath it.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> StepError {
        self.source = Some(Box::new(source));
        self
    }

    /// The same, not to be tried again before `pause` has passed.
    #[must_use]
    pub fn after(mut self, pause: Option<Duration>) -> StepError {
        self.retry_after = pause;
        self
    }

    /// The same with the log of what failed, for the history.
    #[must_use]
    pub fn with_log(mut self, log: Option<String>) -> StepError {
        self.log = log;
        self
    }

    /// The same with what a customer is told of it. Without it a customer learns only that something failed with us.
    #[must_use]
    pub fn for_customer(mut self, told: OperationError) -> StepError {
        self.customer = Some(Box::new(told));
        self
    }

    /// What a customer is told of it.
    pub fn customer(&self) -> Option<&OperationError> {
        self.customer.as_deref()
    }

    /// The same, met by a look and no reason to end it: the wait goes on for as long as it has time.
    #[must_use]
    pub fn waited_out(mut self) -> StepError {
        self.waited_out = true;
        self
    }

    /// Whether a wait that meets it goes on.
    pub fn is_waited_out(&self) -> bool {
        self.waited_out
    }

    /// The log of what failed.
    pub fn log(&self) -> Option<&str> {
        self.log.as_deref()
    }

    /// What may be done about it.
    pub fn kind(&self) -> StepErrorKind {
        self.kind
    }

    /// A word for machines.
    pub fn code(&self) -> &ResultCode {
        &self.code
    }

    /// How long whoever failed asked us to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The sentence, with those of the errors beneath it.
    pub fn whole(&self) -> String {
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
