//! A problem of a task or its parameters, with its place.

use std::fmt;

/// A problem as one sentence, and its place, such as `steps[3].with.until`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The member with the problem.
    pub target: String,
    /// One sentence.
    pub message: String,
}

impl Problem {
    /// A problem at a place.
    pub fn at(target: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem { target: target.into(), message: message.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target.as_str() {
            "" => f.write_str(&self.message),
            target => write!(f, "{target}: {}", self.message),
        }
    }
}

impl std::error::Error for Problem {}
