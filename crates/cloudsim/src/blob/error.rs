//! Errors of the blob service: XML with a code, which is also a header, because the response to a HEAD has no body.

use http::StatusCode;

use super::{BlobResponse, xml};
use crate::failure::Failure;

/// An error that a caller receives.
#[derive(Debug, Clone)]
pub(super) struct BlobError {
    pub(super) status: StatusCode,
    pub(super) code: String,
    message: String,
    /// A further header, such as a challenge.
    header: Option<Box<(&'static str, String)>>,
}

impl BlobError {
    pub(super) fn new(status: StatusCode, code: &str, message: impl Into<String>) -> BlobError {
        BlobError { status, code: code.to_owned(), message: message.into(), header: None }
    }

    pub(super) fn bad_request(code: &str, message: impl Into<String>) -> BlobError {
        BlobError::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub(super) fn forbidden(code: &str, message: impl Into<String>) -> BlobError {
        BlobError::new(StatusCode::FORBIDDEN, code, message)
    }

    pub(super) fn not_found(code: &str, message: impl Into<String>) -> BlobError {
        BlobError::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(super) fn conflict(code: &str, message: impl Into<String>) -> BlobError {
        BlobError::new(StatusCode::CONFLICT, code, message)
    }

    pub(super) fn authentication(message: impl Into<String>) -> BlobError {
        BlobError::forbidden("AuthenticationFailed", message)
    }

    pub(super) fn with_header(self, name: &'static str, value: String) -> BlobError {
        BlobError { header: Some(Box::new((name, value))), ..self }
    }

    pub(super) fn into_response(self) -> BlobResponse {
        let BlobError { status, code, message, header } = self;
        let mut response = BlobResponse::new(status);
        response.set("x-ms-error-code", &code);
        if let Some((name, value)) = header.as_deref() {
            response.set(name, value);
        }
        // A condition that is not met has no content.
        if status != StatusCode::NOT_MODIFIED {
            response.set("content-type", "application/xml");
            let text = format!(
                "{}<Error><Code>{}</Code><Message>{}</Message></Error>",
                xml::DECLARATION,
                xml::escape(&code),
                xml::escape(&message)
            );
            response.body = text.into();
        }
        response
    }
}

/// The end of a request that does not succeed.
#[derive(Debug)]
pub(super) enum BlobFailure {
    Rejected(BlobError),
    Failed(Failure),
}

impl From<BlobError> for BlobFailure {
    fn from(error: BlobError) -> BlobFailure {
        BlobFailure::Rejected(error)
    }
}

impl<E: Into<Failure>> From<E> for BlobFailure {
    fn from(error: E) -> BlobFailure {
        match error.into() {
            Failure::Arm(error) => BlobError::new(error.status, &error.code, error.message.clone()).into(),
            failure => BlobFailure::Failed(failure),
        }
    }
}
