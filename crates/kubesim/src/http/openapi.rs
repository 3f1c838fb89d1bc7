//! OpenAPI documents, built on request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::handle::{json_body, text, value};
use super::negotiate::{self, OpenApiForm};
use super::{Body, swagger_protobuf};
use crate::cluster::ClusterInner;
use crate::kinds::Kind;
use crate::registry::Registry;
use crate::schema::{ResourceDoc, open_api_v2, open_api_v3, open_api_v3_index};
use crate::status::ApiResult;

/// Documents of built-in groups are large and the same for every cluster, so the process caches them once.
type Documents = Mutex<HashMap<(String, String), Bytes>>;

fn built_in_documents() -> &'static Documents {
    static DOCUMENTS: std::sync::LazyLock<Documents> = std::sync::LazyLock::new(Documents::default);
    &DOCUMENTS
}

/// The media type of the v2 document in protobuf.
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2`: all kinds in one document.
pub(super) fn v2(kinds: &Registry, headers: &HeaderMap) -> Response<Body> {
    let Some(form) = negotiate::open_api_v2(headers) else {
        // Here the real server sends no Status.
        let mut response = Response::new(Body::whole(""));
        *response.status_mut() = StatusCode::NOT_ACCEPTABLE;
        return response;
    };
    let documents: Vec<Value> = kinds
        .groups()
        .iter()
        .flat_map(|(group, versions)| versions.iter().map(move |version| (*group, *version)))
        .map(|(group, version)| build(&in_version(kinds, group, version).collect::<Vec<_>>(), group, version))
        .collect();
    let document = open_api_v2(&documents);
    match form {
        OpenApiForm::Json => value(StatusCode::OK, &document),
        OpenApiForm::Protobuf => {
            let mut response = Response::new(Body::whole(swagger_protobuf::document(&document)));
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROTOBUF));
            response
        }
    }
}

/// `/openapi/v3`.
pub(super) fn index(_: &ClusterInner, kinds: &Registry) -> ApiResult<Response<Body>> {
    let groups = kinds.groups();
    let digests: Vec<((&str, &str), String)> = groups
        .iter()
        .flat_map(|(group, versions)| versions.iter().map(move |version| (*group, *version)))
        .map(|(group, version)| ((group, version), digest(kinds, group, version)))
        .collect();
    let index = open_api_v3_index(digests.iter().map(|(name, digest)| (*name, digest.as_str())));
    Ok(value(StatusCode::OK, &index))
}

/// A digest that changes with the kinds of a group and version, without building the document.
fn digest(kinds: &Registry, group: &str, version: &str) -> String {
    let mut hash = Sha256::new();
    for kind in in_version(kinds, group, version) {
        hash.update(kind.plural());
        if let Some(custom) = kind.custom() {
            hash.update(custom.published.to_string());
            hash.update([u8::from(custom.has_status), u8::from(custom.scale.is_some())]);
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02X}")).collect()
}

fn in_version<'a>(
    kinds: &'a Registry,
    group: &'a str,
    version: &'a str,
) -> impl Iterator<Item = &'a Arc<Kind>> {
    kinds.all().filter(move |kind| kind.group() == group && kind.version() == version)
}

/// `/openapi/v3/apis/apps/v1`.
pub(super) fn document(
    _: &ClusterInner,
    kinds: &Registry,
    group: &str,
    version: &str,
) -> ApiResult<Response<Body>> {
    let found: Vec<&Arc<Kind>> = in_version(kinds, group, version).collect();
    if found.is_empty() {
        return Ok(text(StatusCode::NOT_FOUND, "404 page not found\n"));
    }
    let name = (group.to_owned(), version.to_owned());
    let is_built_in = found.iter().all(|kind| kind.custom().is_none());
    if is_built_in
        && let Some(document) =
            built_in_documents().lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned()
    {
        return Ok(json_body(StatusCode::OK, Body::whole(document)));
    }
    let document = Bytes::from(build(&found, group, version).to_string());
    if is_built_in {
        built_in_documents().lock().unwrap_or_else(PoisonError::into_inner).insert(name, document.clone());
    }
    Ok(json_body(StatusCode::OK, Body::whole(document)))
}

/// The v3 document of these kinds of a group and version.
fn build(kinds: &[&Arc<Kind>], group: &str, version: &str) -> Value {
    let parts: Vec<Vec<&str>> = kinds
        .iter()
        .map(|kind| kind.subresources().iter().map(|subresource| subresource.name).collect())
        .collect();
    let resources: Vec<ResourceDoc<'_>> = kinds
        .iter()
        .zip(&parts)
        .map(|(kind, subresources)| ResourceDoc {
            plural: kind.plural(),
            kind: kind.kind(),
            is_namespaced: kind.is_namespaced(),
            subresources,
            crd_schema: kind.custom().map(|custom| &custom.published),
        })
        .collect();
    open_api_v3(group, version, &resources)
}
