//! Error responses: status, code, message, and the member or parameter that is wrong.

use std::error::Error;

use api::admin::{ErrorBody, ErrorEnvelope};
use api::rest::{FieldError, FieldErrorCode};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use store::StoreError;

use super::ApiResponse;

/// The error codes of the resource manager's contract that this API uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Conflict,
    DuplicateClientID,
    DuplicateDomain,
    DuplicateResourceGroup,
    Forbidden,
    InternalServerError,
    InvalidApiVersionParameter,
    InvalidCIDRRange,
    InvalidLinkedSubnet,
    InvalidLinkedVNet,
    InvalidLocation,
    InvalidNetworkAddress,
    InvalidOperationID,
    InvalidParameter,
    InvalidRequestContent,
    InvalidResource,
    InvalidResourceNamespace,
    InvalidResourceProviderPermissions,
    InvalidResourceType,
    InvalidServicePrincipalCredentials,
    InvalidServicePrincipalPermissions,
    InvalidSubscriptionID,
    InvalidSubscriptionState,
    InvalidWorkloadIdentityPermissions,
    MethodNotAllowed,
    MismatchingResourceID,
    MismatchingResourceName,
    MismatchingResourceType,
    NotFound,
    PlatformWorkloadIdentityMismatch,
    PreconditionFailed,
    PropertyChangeNotAllowed,
    RequestNotAllowed,
    ResourceGroupNotFound,
    ResourceNotFound,
    ResourceProviderNotRegistered,
    ResourceQuotaExceeded,
    TooManyRequests,
    UnsupportedMediaType,
}

impl Code {
    fn as_str(self) -> &'static str {
        match self {
            Code::Conflict => "Conflict",
            Code::DuplicateClientID => "DuplicateClientID",
            Code::DuplicateDomain => "DuplicateDomain",
            Code::DuplicateResourceGroup => "DuplicateResourceGroup",
            Code::Forbidden => "Forbidden",
            Code::InternalServerError => "InternalServerError",
            Code::InvalidApiVersionParameter => "InvalidApiVersionParameter",
            Code::InvalidCIDRRange => "InvalidCIDRRange",
            Code::InvalidLinkedSubnet => "InvalidLinkedSubnet",
            Code::InvalidLinkedVNet => "InvalidLinkedVNet",
            Code::InvalidLocation => "InvalidLocation",
            Code::InvalidNetworkAddress => "InvalidNetworkAddress",
            Code::InvalidOperationID => "InvalidOperationID",
            Code::InvalidParameter => "InvalidParameter",
            Code::InvalidRequestContent => "InvalidRequestContent",
            Code::InvalidResource => "InvalidResource",
            Code::InvalidResourceNamespace => "InvalidResourceNamespace",
            Code::InvalidResourceProviderPermissions => "InvalidResourceProviderPermissions",
            Code::InvalidResourceType => "InvalidResourceType",
            Code::InvalidServicePrincipalCredentials => "InvalidServicePrincipalCredentials",
            Code::InvalidServicePrincipalPermissions => "InvalidServicePrincipalPermissions",
            Code::InvalidSubscriptionID => "InvalidSubscriptionID",
            Code::InvalidSubscriptionState => "InvalidSubscriptionState",
            Code::InvalidWorkloadIdentityPermissions => "InvalidWorkloadIdentityPermissions",
            Code::MethodNotAllowed => "MethodNotAllowed",
            Code::MismatchingResourceID => "MismatchingResourceID",
            Code::MismatchingResourceName => "MismatchingResourceName",
            Code::MismatchingResourceType => "MismatchingResourceType",
            Code::NotFound => "NotFound",
            Code::PlatformWorkloadIdentityMismatch => "PlatformWorkloadIdentityMismatch",
            Code::PreconditionFailed => "PreconditionFailed",
            Code::PropertyChangeNotAllowed => "PropertyChangeNotAllowed",
            Code::RequestNotAllowed => "RequestNotAllowed",
            Code::ResourceGroupNotFound => "ResourceGroupNotFound",
            Code::ResourceNotFound => "ResourceNotFound",
            Code::ResourceProviderNotRegistered => "ResourceProviderNotRegistered",
            Code::ResourceQuotaExceeded => "ResourceQuotaExceeded",
            Code::TooManyRequests => "TooManyRequests",
            Code::UnsupportedMediaType => "UnsupportedMediaType",
        }
    }
}

/// Code and message of an error response, attached to it for the access log.
#[derive(Debug, Clone)]
pub(crate) struct LoggedError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
}

/// An error response.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: Code,
    message: String,
    target: String,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl ApiError {
    /// An error with any status.
    pub(crate) fn new(status: StatusCode, code: Code, message: impl Into<String>) -> ApiError {
        ApiError { status, code, message: message.into(), target: String::new(), cause: None }
    }

    /// 400 for a member or parameter.
    pub(crate) fn invalid_parameter(target: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidParameter, message).with_target(target)
    }

    /// 400 for a body that cannot be parsed.
    pub(crate) fn invalid_content(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidRequestContent, message)
    }

    /// 404.
    pub(crate) fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_FOUND, Code::NotFound, message)
    }

    /// 409.
    pub(crate) fn conflict(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, Code::Conflict, message)
    }

    /// 409 after all attempts at a write failed because of other writers.
    pub(crate) fn contended() -> ApiError {
        ApiError::conflict("The document was changed by other requests several times; try again.")
    }

    /// 412.
    pub(crate) fn precondition_failed() -> ApiError {
        let message = "The document has changed since the version in If-Match; read it again.";
        ApiError::new(StatusCode::PRECONDITION_FAILED, Code::PreconditionFailed, message)
            .with_target("If-Match")
    }

    /// 500; the cause is logged and not returned.
    pub(crate) fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> ApiError {
        let message = "Internal server error.";
        let error = ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, Code::InternalServerError, message);
        ApiError { cause: Some(cause.into()), ..error }
    }

    /// Sets the member or parameter that is wrong.
    pub(crate) fn with_target(self, target: impl Into<String>) -> ApiError {
        ApiError { target: target.into(), ..self }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> ApiError {
        match &error {
            StoreError::Exists { .. } | StoreError::KeyTaken { .. } => {
                ApiError::conflict(as_sentence(&error))
            }
            StoreError::Changed { .. } => {
                ApiError::conflict("The document was changed by another request at the same time; try again.")
            }
            StoreError::Gone { .. } | StoreError::NoSuchWork { .. } => {
                ApiError::not_found("The document was deleted meanwhile.")
            }
            StoreError::WrongState { state, .. } => {
                ApiError::conflict(format!("It is {state}, which does not allow that."))
            }
            StoreError::Invalid { what } => {
                ApiError::new(StatusCode::BAD_REQUEST, Code::InvalidParameter, format!("{what}."))
            }
            StoreError::Unavailable { .. } | StoreError::DiskFull | StoreError::StaleKey { .. } => {
                let message = "The store is unavailable; try again later.";
                let unavailable =
                    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, Code::InternalServerError, message);
                ApiError { cause: Some(Box::new(error)), ..unavailable }
            }
            StoreError::LostLease { .. }
            | StoreError::LostNamedLease { .. }
            | StoreError::Sealed { .. }
            | StoreError::Broken { .. } => ApiError::internal(error),
        }
    }
}

impl From<FieldErrorCode> for Code {
    fn from(code: FieldErrorCode) -> Code {
        match code {
            FieldErrorCode::InvalidCIDRRange => Code::InvalidCIDRRange,
            FieldErrorCode::InvalidNetworkAddress => Code::InvalidNetworkAddress,
            FieldErrorCode::InvalidParameter => Code::InvalidParameter,
            FieldErrorCode::InvalidRequestContent => Code::InvalidRequestContent,
            FieldErrorCode::MismatchingResourceID => Code::MismatchingResourceID,
            FieldErrorCode::MismatchingResourceName => Code::MismatchingResourceName,
            FieldErrorCode::MismatchingResourceType => Code::MismatchingResourceType,
            FieldErrorCode::PlatformWorkloadIdentityMismatch => Code::PlatformWorkloadIdentityMismatch,
            FieldErrorCode::PropertyChangeNotAllowed => Code::PropertyChangeNotAllowed,
        }
    }
}

impl From<FieldError> for ApiError {
    fn from(wrong: FieldError) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, wrong.code.into(), wrong.message).with_target(wrong.target)
    }
}

/// The message of an error as a sentence.
pub(crate) fn as_sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    letters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(letters).chain(['.']).collect())
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if let Some(cause) = &self.cause {
            tracing::error!(error = &**cause as &dyn Error, "Request failed: {cause}");
        }
        let logged = LoggedError { code: self.code.as_str(), message: self.message.clone() };
        let body =
            ErrorBody { code: self.code.as_str().to_owned(), message: self.message, target: self.target };
        let mut response =
            ApiResponse::with_status(self.status, &ErrorEnvelope { error: body }).into_response();
        response.extensions_mut().insert(logged);
        if self.status == StatusCode::SERVICE_UNAVAILABLE || self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        }
        response
    }
}
