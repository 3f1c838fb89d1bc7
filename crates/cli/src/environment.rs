//! The environment of the process, read once. No other module reads environment variables.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// A copy of the environment variables.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// The variables of this process.
    pub fn from_process() -> Environment {
        Environment { variables: std::env::vars_os().collect() }
    }

    /// Whether log lines on a terminal may be coloured, by the convention of <https://no-color.org>.
    pub fn allows_colour(&self) -> bool {
        self.get("NO_COLOR").is_none()
    }

    /// A variable that is set and not empty.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(OsStr::new(name)).map(OsString::as_os_str).filter(|value| !value.is_empty())
    }

    /// A variable that is set, not empty, and text.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(OsStr::to_str).map(str::to_owned)
    }

    /// The base directory named by `variable`, else `fallback` in the home directory.
    /// Relative paths are ignored, as the XDG specification requires.
    pub fn base_dir(&self, variable: &str, fallback: &str) -> Option<PathBuf> {
        let absolute = |name: &str| self.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(fallback)))
    }

    /// Every variable, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Environment {
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Environment { variables }
    }
}
