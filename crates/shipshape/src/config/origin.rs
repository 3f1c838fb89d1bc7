//! Origin of a setting, as errors and `config show --origin` print it.

use std::fmt;
use std::path::PathBuf;

/// Origin of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// The default.
    Default,
    /// The configuration file.
    File {
        /// Path of the file.
        path: PathBuf,
        /// The line of the key, from 1.
        line: usize,
    },
    /// An environment variable, by name.
    Variable(String),
    /// A flag of the command line.
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
