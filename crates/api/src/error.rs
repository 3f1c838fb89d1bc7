//! Classes of errors: whether a retry can help, decided where the error is understood.

use std::fmt;

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A retry may succeed: a timeout, a lost connection, a throttled call.
    Transient,
    /// A retry cannot succeed until somebody changes something.
    Terminal,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Transient => "transient",
            Class::Terminal => "terminal",
        })
    }
}

/// An error with a class. Implementations match every variant, so that a new variant must choose one.
pub trait Classify: std::error::Error + Send + Sync + 'static {
    /// The class of this error.
    fn class(&self) -> Class;
}
