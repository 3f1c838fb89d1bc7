//! Where a value came from, in the words an error or `config show --origin` uses.

use std::fmt;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// Nobody said anything.
    Default,
    /// The configuration file.
    File {
        /// Which file.
        path: PathBuf,
        /// The line of the key, from 1.
        line: usize,
    },
    /// An environment variable, by name.
    Variable(String),
    /// A flag, as it is written on the command line.
    Flag(&'static str),
}

impl Origin {
    /// Whether both values are from the same file or the environment, where no value wins over another. The last of several
    /// flags wins.
    pub(super) fn is_same_layer(&self, other: &Origin) -> bool {
        matches!(
            (self, other),
            (Origin::File { .. }, Origin::File { .. }) | (Origin::Variable(_), Origin::Variable(_))
        )
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File { path, line } => write!(f, "{} line {line}", path.display()),
            Origin::Variable(name) => write!(f, "environment variable {name}"),
            Origin::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}
