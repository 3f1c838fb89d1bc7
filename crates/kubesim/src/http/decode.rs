//! Bodies of requests: JSON, YAML or protobuf, of limited size.

use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::HeaderMap;
use hyper::body::{Body as HttpBody, Bytes};
use hyper::header::CONTENT_TYPE;
use serde_json::Value;

use super::protobuf::{self, ProtobufError};
use crate::status::{ApiResult, StatusError};

/// Limit on the size of a body, as in the real server.
pub(super) const BODY_BYTES_MAX: usize = 3 << 20;

/// Limit on what the aliases of a YAML document may add to it, so that a few lines do not occupy a thread for
/// seconds.
const ALIASED_EVENTS_MAX: usize = 10_000;

/// Reads the body of a request.
pub(super) async fn collect<B>(body: B) -> ApiResult<Bytes>
where
    B: HttpBody<Data = Bytes>,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            let message = format!("Request entity too large: limit is {BODY_BYTES_MAX}");
            Err(StatusError::new(413, "RequestEntityTooLarge", message))
        }
        Err(error) => Err(StatusError::bad_request(format!("failed to read the body: {error}"))),
    }
}

/// Reads and discards a body, within the same limit.
pub(super) async fn drain<B>(mut body: B)
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let mut left = BODY_BYTES_MAX;
    while let Some(Ok(frame)) = body.frame().await {
        let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { return };
        left = rest;
    }
}

/// The media type of a body, without parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let text = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The object in a body.
pub(super) fn object(headers: &HeaderMap, body: &[u8]) -> ApiResult<Value> {
    match media_type(headers).as_str() {
        "" | "application/json" | "*/*" => json(body),
        "application/yaml" => yaml(body),
        "application/vnd.kubernetes.protobuf" => protobuf::object(body).map_err(|error| match error {
            ProtobufError::Malformed => {
                StatusError::bad_request("the protobuf body of the request is malformed")
            }
            ProtobufError::UnknownKind => unsupported("application/json, application/yaml"),
        }),
        _ => Err(unsupported("application/json, application/yaml")),
    }
}

/// The error for a body of an unsupported media type.
pub(super) fn unsupported(known: &str) -> StatusError {
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {known}");
    StatusError::new(415, "UnsupportedMediaType", message)
}

/// Reads JSON.
pub(super) fn json(body: &[u8]) -> ApiResult<Value> {
    if body.is_empty() {
        return Err(StatusError::bad_request("the body of the request is empty"));
    }
    serde_json::from_slice(body).map_err(|error| {
        StatusError::bad_request(format!("couldn't get version/kind; json parse error: {error}"))
    })
}

/// Reads YAML, which includes JSON.
pub(super) fn yaml(body: &[u8]) -> ApiResult<Value> {
    let text = std::str::from_utf8(body)
        .map_err(|_| StatusError::bad_request("the body of the request is not UTF-8"))?;
    let options = serde_saphyr::options! {
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: ALIASED_EVENTS_MAX },
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| StatusError::bad_request(format!("error decoding YAML: {error}")))
}
