//! What is wrong with a request, as its sender is told: a code of the contract, the member, one sentence.

/// A refusal of a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Wrong {
    /// The contract's code.
    pub code: WrongCode,
    /// The member; empty when it is about none.
    pub target: String,
    /// One sentence.
    pub message: String,
}

/// The codes that a body is refused with. All of them are answered with status 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the contract's; arm-api says where each is used")]
pub enum WrongCode {
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

impl WrongCode {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            WrongCode::InvalidCIDRRange => "InvalidCIDRRange",
            WrongCode::InvalidNetworkAddress => "InvalidNetworkAddress",
            WrongCode::InvalidParameter => "InvalidParameter",
            WrongCode::InvalidRequestContent => "InvalidRequestContent",
            WrongCode::MismatchingResourceID => "MismatchingResourceID",
            WrongCode::MismatchingResourceName => "MismatchingResourceName",
            WrongCode::MismatchingResourceType => "MismatchingResourceType",
            WrongCode::PlatformWorkloadIdentityMismatch => "PlatformWorkloadIdentityMismatch",
            WrongCode::PropertyChangeNotAllowed => "PropertyChangeNotAllowed",
        }
    }
}

impl Wrong {
    /// A refusal with any code.
    pub fn new(code: WrongCode, target: impl Into<String>, message: impl Into<String>) -> Wrong {
        Wrong { code, target: target.into(), message: message.into() }
    }

    /// A value that is not accepted.
    pub fn parameter(target: impl Into<String>, message: impl Into<String>) -> Wrong {
        Wrong::new(WrongCode::InvalidParameter, target, message)
    }

    /// A member that must be there.
    pub(super) fn required(target: impl Into<String>) -> Wrong {
        let target = target.into();
        let message = format!("The field '{target}' is required.");
        Wrong::parameter(target, message)
    }

    /// A member that may not change.
    pub fn unchangeable(target: impl Into<String>) -> Wrong {
        let target = target.into();
        let message = format!("Changing property '{target}' is not allowed.");
        Wrong::new(WrongCode::PropertyChangeNotAllowed, target, message)
    }
}

/// A value as messages show it: short, and without what could disturb a line.
pub(super) fn shown(text: &str) -> String {
    let kept: String = text.chars().filter(|letter| !letter.is_control()).take(200).collect();
    format!("'{kept}'")
}
