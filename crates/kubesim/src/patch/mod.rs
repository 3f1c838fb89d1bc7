//! JSON patch, merge patch and strategic merge patch, with the limits and the errors of the real server.

mod json;
mod merge;
mod strategic;
#[cfg(test)]
mod tests;

use serde_json::Value;

use crate::schema::{DecodeError, FieldError, go_format};

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

/// Why a patch failed. Each variant is a Status with its own code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is malformed: code 400, reason `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// The patch does not fit the object: code 422, reason `Invalid`. The real server sends only [`REJECTED`] to the
    /// client; the variant has the cause.
    #[error("{REJECTED}")]
    Unprocessable(String),
    /// The patch or its result is too large: code 413, reason `RequestEntityTooLarge`.
    #[error("{0}")]
    TooLarge(String),
    /// The real server reports this as an internal error: code 500, without a reason.
    #[error("{0}")]
    Internal(String),
}

/// The error for an object that cannot be decoded after a JSON patch or a merge patch: the one cause of a Status with
/// code 422.
pub fn undecodable(patched: &Value, error: &DecodeError) -> FieldError {
    FieldError::invalid("patch", &Value::from(patched.to_string()), &error.message)
}

/// The same for a strategic merge patch, where the real server prints the patch and decodes it differently.
pub fn undecodable_strategic(patch: &Value, error: &DecodeError) -> FieldError {
    let detail = match error.expected_type.as_str() {
        expected if expected.starts_with("[]") => format!("cannot restore slice from {}", error.found),
        expected if expected.starts_with("map[") => format!("cannot restore map from {}", error.found),
        expected if error.expects_struct => {
            format!("cannot restore struct from: {}, wanted {expected}", error.found)
        }
        expected => format!("unrecognized type: {expected}"),
    };
    FieldError::invalid("patch", &Value::from(go_format(patch)), &detail)
}

/// The message of the real server for a patch that does not fit the object.
pub const REJECTED: &str = "the server rejected our request due to an error in our request";

impl PatchError {
    /// The code of the Status.
    pub fn code(&self) -> u16 {
        match self {
            PatchError::BadRequest(_) => 400,
            PatchError::Unprocessable(_) => 422,
            PatchError::TooLarge(_) => 413,
            PatchError::Internal(_) => 500,
        }
    }

    /// The reason of the Status.
    pub fn reason(&self) -> &'static str {
        match self {
            PatchError::BadRequest(_) => "BadRequest",
            PatchError::Unprocessable(_) => "Invalid",
            PatchError::TooLarge(_) => "RequestEntityTooLarge",
            PatchError::Internal(_) => "",
        }
    }
}
