//! Errors of server-side apply.

use std::fmt;

/// An error of server-side apply. Each variant is a Status with its own code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Other managers own fields that the apply would change: code 409, reason `Conflict`, and a cause for each field
    /// with reason `FieldManagerConflict`.
    Conflict(Vec<Conflict>),
    /// The configuration cannot be applied: code 400, reason `BadRequest`.
    BadRequest(String),
    /// The real server reports this as an internal error: code 500, without a reason.
    Internal(String),
}

/// A field that another manager owns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The owner, in the words of the real server: `conflict with "kubectl" using apps/v1`.
    pub message: String,
    /// The path of the field: `.spec.replicas`.
    pub field: String,
}

impl ApplyError {
    /// The code of the Status.
    pub fn code(&self) -> u16 {
        match self {
            ApplyError::Conflict(_) => 409,
            ApplyError::BadRequest(_) => 400,
            ApplyError::Internal(_) => 500,
        }
    }

    /// The reason of the Status.
    pub fn reason(&self) -> &'static str {
        match self {
            ApplyError::Conflict(_) => "Conflict",
            ApplyError::BadRequest(_) => "BadRequest",
            ApplyError::Internal(_) => "",
        }
    }
}

impl std::error::Error for ApplyError {}

impl fmt::Display for ApplyError {
    /// The message of the Status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::BadRequest(text) | ApplyError::Internal(text) => f.write_str(text),
            ApplyError::Conflict(conflicts) => match conflicts.as_slice() {
                [one] => write!(f, "Apply failed with 1 conflict: {}: {}", one.message, one.field),
                several => {
                    write!(f, "Apply failed with {} conflicts: ", several.len())?;
                    let mut last = None;
                    for conflict in several {
                        if last != Some(&conflict.message) {
                            let separator = if last.is_some() { "\n" } else { "" };
                            let owner =
                                conflict.message.strip_prefix("conflict ").unwrap_or(&conflict.message);
                            write!(f, "{separator}conflicts {owner}:")?;
                            last = Some(&conflict.message);
                        }
                        write!(f, "\n- {}", conflict.field)?;
                    }
                    Ok(())
                }
            },
        }
    }
}
