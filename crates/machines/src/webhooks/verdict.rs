//! The result of a validation.

use super::field::{FieldError, aggregate};

/// The result of a validation.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Verdict {
    /// The violated rules; the object is admitted if there are none.
    pub errors: Vec<FieldError>,
    /// Remarks for the client.
    pub warnings: Vec<String>,
    /// The Secret with the credentials of the cloud. The client is warned if it does not exist; finding out needs the cluster.
    pub credentials: Option<SecretReference>,
}

/// The name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SecretReference {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl SecretReference {
    /// The warning about a Secret that does not exist.
    pub fn missing_warning(&self) -> String {
        let detail = "not found. Expected CredentialsSecret to exist";
        FieldError::invalid("providerSpec.credentialsSecret", self.name.clone(), detail).to_string()
    }

    /// The warning about a Secret that cannot be looked up.
    pub fn failure_warning(&self, why: &str) -> String {
        let detail = format!("failed to get credentialsSecret: {why}");
        FieldError::invalid("providerSpec.credentialsSecret", self.name.clone(), detail).to_string()
    }
}

impl Verdict {
    /// The text of the refusal; none if the object is admitted.
    pub fn refusal(&self) -> Option<String> {
        (!self.errors.is_empty()).then(|| aggregate(&self.errors))
    }

    pub(crate) fn error(&mut self, error: FieldError) {
        self.errors.push(error);
    }

    /// Adds an error if a rule is violated.
    pub(crate) fn require(&mut self, holds: bool, error: impl FnOnce() -> FieldError) {
        if !holds {
            self.errors.push(error());
        }
    }

    pub(crate) fn warn(&mut self, warning: impl Into<String>) {
        self.warnings.push(warning.into());
    }

    /// Adds a warning under a condition.
    pub(crate) fn warn_if(&mut self, condition: bool, warning: impl FnOnce() -> String) {
        if condition {
            self.warnings.push(warning());
        }
    }
}
