//! A secret in a request that is never in a response: its `Debug` is blank, and no converter fills it in.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A secret in a request.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HiddenText(String);

impl HiddenText {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> HiddenText {
        HiddenText(text.into())
    }

    /// The secret, for immediate use.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for HiddenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
