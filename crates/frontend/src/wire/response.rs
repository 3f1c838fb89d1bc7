//! Responses: JSON with an indent of four spaces and a newline at the end, as the reference writes it.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use store::Etag;

use super::ApiError;

/// A JSON response.
#[derive(Debug, Clone)]
pub(crate) struct ApiResponse {
    status: StatusCode,
    body: Bytes,
    etag: Option<Etag>,
}

impl ApiResponse {
    /// JSON with a status.
    pub(crate) fn with_status(status: StatusCode, body: &impl Serialize) -> ApiResponse {
        let mut text = Vec::with_capacity(256);
        let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b"    "));
        // Response types have string keys and finite numbers, and writing to a vector cannot fail.
        if let Err(error) = body.serialize(&mut serializer) {
            tracing::error!(error = &error as &dyn std::error::Error, "Cannot write a response as JSON");
            return ApiResponse {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                body: Bytes::from_static(b"{}\n"),
                etag: None,
            };
        }
        text.push(b'\n');
        ApiResponse { status, body: text.into(), etag: None }
    }

    /// 200.
    pub(crate) fn ok(body: &impl Serialize) -> ApiResponse {
        ApiResponse::with_status(StatusCode::OK, body)
    }

    /// 201 for a new document, 200 for an existing one.
    pub(crate) fn put(is_new: bool, body: &impl Serialize) -> ApiResponse {
        ApiResponse::with_status(if is_new { StatusCode::CREATED } else { StatusCode::OK }, body)
    }

    /// 200 and an empty object, for requests without a result.
    pub(crate) fn empty_object() -> ApiResponse {
        ApiResponse::ok(&serde_json::Map::new())
    }

    /// 200 with JSON on one line.
    pub(crate) fn compact(body: &impl Serialize) -> Result<ApiResponse, ApiError> {
        let mut text = serde_json::to_vec(body).map_err(ApiError::internal)?;
        text.push(b'\n');
        Ok(ApiResponse { status: StatusCode::OK, body: text.into(), etag: None })
    }

    /// Length of the body in bytes.
    pub(crate) fn body_len(&self) -> usize {
        self.body.len()
    }

    /// Adds the ETag of the document.
    pub(crate) fn with_etag(self, etag: Etag) -> ApiResponse {
        ApiResponse { etag: Some(etag), ..self }
    }
}

impl IntoResponse for ApiResponse {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(etag) = self.etag.and_then(|etag| HeaderValue::from_str(&etag.to_string()).ok()) {
            response.headers_mut().insert(header::ETAG, etag);
        }
        response
    }
}
