//! What a caller may do about a failure, decided where the failure is understood.

use std::fmt;

/// Whether trying again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The world may heal: a time-out, a lost connection, a throttled call.
    Transient,
    /// Trying again cannot help until someone changes something.
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

/// An error that knows its class. Implementations match every variant, so that a new one must choose.
pub trait Classify: std::error::Error + Send + Sync + 'static {
    /// The class of this very failure.
    fn class(&self) -> Class;
}
