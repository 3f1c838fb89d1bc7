//! Validation error of a request: a code of the contract, the member, one sentence.

/// An invalid member of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FieldError {
    /// The contract's code.
    pub code: FieldErrorCode,
    /// Path of the member; empty when the error concerns the whole body.
    pub target: String,
    /// Message for the client, one sentence.
    pub message: String,
}

/// Codes of invalid bodies. All of them have HTTP status 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the contract's; arm-api says where each is used")]
pub enum FieldErrorCode {
    InvalidCIDRRange,
    InvalidNetworkAddress,
    InvalidParameter,
    InvalidRequestContent,
    MismatchingResourceID,
    MismatchingResourceName,
    MismatchingResourceType,
    PlatformWorkloadIdentityMismatch,
    PropertyChangeNotAllowed,
}

impl FieldErrorCode {
    /// Name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            FieldErrorCode::InvalidCIDRRange => "InvalidCIDRRange",
            FieldErrorCode::InvalidNetworkAddress => "InvalidNetworkAddress",
            FieldErrorCode::InvalidParameter => "InvalidParameter",
            FieldErrorCode::InvalidRequestContent => "InvalidRequestContent",
            FieldErrorCode::MismatchingResourceID => "MismatchingResourceID",
            FieldErrorCode::MismatchingResourceName => "MismatchingResourceName",
            FieldErrorCode::MismatchingResourceType => "MismatchingResourceType",
            FieldErrorCode::PlatformWorkloadIdentityMismatch => "PlatformWorkloadIdentityMismatch",
            FieldErrorCode::PropertyChangeNotAllowed => "PropertyChangeNotAllowed",
        }
    }
}

impl FieldError {
    /// An error with any code.
    pub fn new(code: FieldErrorCode, target: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError { code, target: target.into(), message: message.into() }
    }

    /// An invalid value.
    pub fn parameter(target: impl Into<String>, message: impl Into<String>) -> FieldError {
        FieldError::new(FieldErrorCode::InvalidParameter, target, message)
    }

    /// A required member that is missing.
    pub(super) fn required(target: impl Into<String>) -> FieldError {
        let target = target.into();
        let message = format!("The field '{target}' is required.");
        FieldError::parameter(target, message)
    }

    /// A change of an immutable member.
    pub fn unchangeable(target: impl Into<String>) -> FieldError {
        let target = target.into();
        let message = format!("Changing property '{target}' is not allowed.");
        FieldError::new(FieldErrorCode::PropertyChangeNotAllowed, target, message)
    }
}

/// A value for messages: truncated, and without control characters.
pub(super) fn shown(text: &str) -> String {
    let kept: String = text.chars().filter(|letter| !letter.is_control()).take(200).collect();
    format!("'{kept}'")
}
