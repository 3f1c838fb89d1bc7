//! Content negotiation. Every response is JSON; an `Accept` header that includes JSON is satisfied.

use hyper::HeaderMap;
use hyper::header::ACCEPT;

use crate::status::{ApiResult, StatusError};

/// The form of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The objects themselves.
    Objects,
    /// A table for display.
    Table,
    /// Their metadata only.
    Metadata,
}

/// The forms of discovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Discovery {
    /// One document per group.
    Legacy,
    /// One aggregated document, version `v2`.
    Aggregated,
}

/// The forms of the OpenAPI v2 document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenApiForm {
    /// JSON.
    Json,
    /// Protobuf, for Go clients.
    Protobuf,
}

struct MediaRange<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> MediaRange<'a> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default();
        let parameters = parts
            .filter_map(|part| part.split_once('='))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        MediaRange { media, parameters }
    }

    fn get(&self, name: &str) -> &str {
        self.parameters.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    fn is_json(&self) -> bool {
        matches!(self.media, "application/json" | "application/*" | "*/*")
    }
}

fn accepted(headers: &HeaderMap) -> String {
    let texts: Vec<&str> = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    if texts.is_empty() { "*/*".to_owned() } else { texts.join(",") }
}

/// The first form in the `Accept` header that can be served.
pub(super) fn form(headers: &HeaderMap, is_list: bool) -> ApiResult<Form> {
    let text = accepted(headers);
    for range in text.split(',').map(MediaRange::parse).filter(MediaRange::is_json) {
        let meta = range.get("g") == "meta.k8s.io" && range.get("v") == "v1";
        match (range.get("as"), meta) {
            ("", _) => return Ok(Form::Objects),
            ("Table", true) => return Ok(Form::Table),
            ("PartialObjectMetadata", true) if !is_list => return Ok(Form::Metadata),
            ("PartialObjectMetadataList", true) if is_list => return Ok(Form::Metadata),
            _ => {}
        }
    }
    Err(not_acceptable())
}

/// The form of discovery that the client accepts.
pub(super) fn discovery(headers: &HeaderMap) -> ApiResult<Discovery> {
    let text = accepted(headers);
    for range in text.split(',').map(MediaRange::parse).filter(MediaRange::is_json) {
        match (range.get("as"), range.get("g"), range.get("v")) {
            ("", ..) => return Ok(Discovery::Legacy),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => return Ok(Discovery::Aggregated),
            _ => {}
        }
    }
    Err(not_acceptable())
}

/// The form of the OpenAPI v2 document that the client accepts.
pub(super) fn open_api_v2(headers: &HeaderMap) -> Option<OpenApiForm> {
    let text = accepted(headers);
    let form = |range: MediaRange<'_>| match range.media {
        "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
        | "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" => Some(OpenApiForm::Protobuf),
        _ => range.is_json().then_some(OpenApiForm::Json),
    };
    text.split(',').map(MediaRange::parse).find_map(form)
}

/// Fails unless the client accepts JSON or text.
pub(super) fn any(headers: &HeaderMap) -> ApiResult<()> {
    let text = accepted(headers);
    let fits = text
        .split(',')
        .map(MediaRange::parse)
        .any(|range| range.is_json() || range.media.starts_with("text/"));
    if fits { Ok(()) } else { Err(not_acceptable()) }
}

fn not_acceptable() -> StatusError {
    let message = "only the following media types are accepted: application/json";
    StatusError { details: serde_json::json!({}), ..StatusError::new(406, "NotAcceptable", message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(text: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT, hyper::header::HeaderValue::from_static(text))])
    }

    #[test]
    fn an_accept_header_that_includes_json_is_satisfied() {
        let check = |text, expect| assert_eq!(form(&headers(text), true).ok(), expect, "{text}");
        check("application/json", Some(Form::Objects));
        check("application/vnd.kubernetes.protobuf,application/json", Some(Form::Objects));
        check("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", Some(Form::Table));
        check("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", Some(Form::Metadata));
        check("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Some(Form::Objects));
        check("application/vnd.kubernetes.protobuf", None);
        assert_eq!(form(&HeaderMap::new(), true).ok(), Some(Form::Objects));
    }
}
