//! Name of a step of a plan, stable for checkpoints, metrics and the history.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Name of a step. Plans of this program use constants; tasks that are documents bring names of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepName(Cow<'static, str>);

impl StepName {
    /// A name that is known when the program is compiled.
    pub const fn from_static(name: &'static str) -> StepName {
        StepName(Cow::Borrowed(name))
    }

    /// The stored form.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for StepName {
    fn default() -> StepName {
        StepName::from_static("")
    }
}

impl Deref for StepName {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for StepName {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<String> for StepName {
    fn from(name: String) -> StepName {
        StepName(Cow::Owned(name))
    }
}

impl From<&str> for StepName {
    fn from(name: &str) -> StepName {
        StepName::from(name.to_owned())
    }
}

impl From<StepName> for String {
    fn from(name: StepName) -> String {
        name.0.into_owned()
    }
}

impl PartialEq<str> for StepName {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for StepName {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for StepName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_stored_as_its_text() {
        let name = StepName::from_static("api-servers-ready");
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""api-servers-ready""#);
        let read: StepName = serde_json::from_str(r#""api-servers-ready""#).unwrap();
        assert_eq!(read, name);
    }
}
