//! A parsed request: identity, path, query, ids, preconditions and body.

use axum::body::Body;
use axum::extract::{FromRequest, RawPathParams, Request};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, header};
use serde::de::DeserializeOwned;
use store::{AuditContext, Etag, StoreError};
use uuid::Uuid;

use super::body::{self, Media};
use super::{ApiError, OriginalPath, Query, ResourceId};
use crate::auth::Identity;
use crate::names::LinkBase;

/// The header with the caller's own id of a request.
pub(crate) const CLIENT_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
/// Longest id that is accepted; most are UUIDs.
const CLIENT_ID_BYTES_MAX: usize = 100;
/// Attempts at a write when other writers change the same document meanwhile.
pub(crate) const WRITE_ATTEMPTS_MAX: u32 = 5;
/// A reason is a sentence or two.
const REASON_BYTES_MAX: usize = 2000;

/// The ids of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestIds {
    /// The id of this request.
    pub(crate) request: Uuid,
    /// The caller's id for related requests; the request's own id when absent.
    pub(crate) correlation: Uuid,
}

/// The scheme of a request's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// A parsed request.
#[derive(Debug)]
pub(crate) struct ApiRequest {
    parts: Parts,
    params: Vec<(String, String)>,
    /// The query.
    pub(crate) query: Query,
    identity: Identity,
    ids: RequestIds,
    base: LinkBase,
    spelled: OriginalPath,
    body: bytes::Bytes,
}

impl<S: Send + Sync> FromRequest<S> for ApiRequest {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<ApiRequest, ApiError> {
        let (mut parts, body) = request.into_parts();
        let params = axum::RequestPartsExt::extract_with_state::<RawPathParams, S>(&mut parts, state).await;
        let params = params
            .map_err(|_| ApiError::invalid_parameter("", "The path is not UTF-8 after percent-decoding."))?;
        // The path is in lower case, except for letters that were percent-encoded.
        let params =
            params.iter().map(|(name, value)| (name.to_owned(), value.to_ascii_lowercase())).collect();
        let query = Query::parse(parts.uri.query())?;
        let missing = || ApiError::internal("a request reached a route without passing the pipeline");
        let identity = parts.extensions.get::<Identity>().cloned().ok_or_else(missing)?;
        let ids = *parts.extensions.get::<RequestIds>().ok_or_else(missing)?;
        let base = parts.extensions.get::<LinkBase>().cloned().ok_or_else(missing)?;
        let spelled = parts.extensions.get::<OriginalPath>().cloned().ok_or_else(missing)?;
        let has_body = matches!(parts.method, Method::PUT | Method::POST | Method::PATCH);
        let body = if has_body { read(&parts, body).await? } else { bytes::Bytes::new() };
        Ok(ApiRequest { parts, params, query, identity, ids, base, spelled, body })
    }
}

/// The caller's own id of a request; ids that are too long or not printable are ignored.
pub(crate) fn client_request_id(headers: &HeaderMap) -> Option<&str> {
    let id = headers.get(&CLIENT_ID)?.to_str().ok()?.trim();
    Some(id).filter(|id| !id.is_empty() && id.len() <= CLIENT_ID_BYTES_MAX)
}

async fn read(parts: &Parts, body: Body) -> Result<bytes::Bytes, ApiError> {
    body::read(&parts.headers, body).await
}

impl ApiRequest {
    /// The headers.
    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// A parameter of the route's path, in lower case.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.params.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// A path parameter that is a UUID; 404 with `absent` otherwise.
    pub(crate) fn uuid(&self, name: &str, absent: &str) -> Result<Uuid, ApiError> {
        let text = self.path_param(name);
        let parsed = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
        parsed.ok_or_else(|| ApiError::not_found(absent))
    }

    /// The cluster's id in the path.
    pub(crate) fn resource_id(&self) -> Result<ResourceId, ApiError> {
        ResourceId::within(&self.spelled.0)
    }

    /// The path as the caller wrote it.
    pub(crate) fn spelled(&self) -> &str {
        &self.spelled.0
    }

    /// Scheme and host of links to this API.
    pub(crate) fn origin(&self) -> &str {
        &self.base.0
    }

    /// The network of the caller's connection; none within this process.
    pub(crate) fn network(&self) -> Option<std::net::IpAddr> {
        self.parts.extensions.get::<serve::ClientAddress>().map(|it| it.network())
    }

    /// The JSON body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        body::parse(body::media(self.headers(), &self.body, false)?.unwrap_or(Media::Json), &self.body)
    }

    /// The JSON body, or the default when there is none.
    pub(crate) fn json_or_default<T: DeserializeOwned + Default>(&self) -> Result<T, ApiError> {
        match body::media(self.headers(), &self.body, false)? {
            Some(media) if !self.body.is_empty() => body::parse(media, &self.body),
            _ => Ok(T::default()),
        }
    }

    /// The id of related requests.
    pub(crate) fn correlation(&self) -> Uuid {
        self.ids.correlation
    }

    /// The caller's own id of the request.
    pub(crate) fn client_request_id(&self) -> Option<&str> {
        client_request_id(self.headers())
    }

    /// Rejects a body with an unsupported media type.
    pub(crate) fn check_media(&self) -> Result<(), ApiError> {
        body::media(self.headers(), &self.body, false).map(drop)
    }

    /// The body as a JSON object without duplicate members.
    pub(crate) fn object(&self) -> Result<serde_json::Value, ApiError> {
        self.check_media()?;
        body::object(&self.body)
    }

    /// Rejects a body that is not empty and not JSON; its content is ignored.
    pub(crate) fn check_optional_json(&self) -> Result<(), ApiError> {
        if self.body.is_empty() { Ok(()) } else { body::json(&self.body).map(drop) }
    }

    /// The raw body, JSON or YAML. JSON with duplicate members is rejected.
    pub(crate) fn text(&self) -> Result<(Media, &[u8]), ApiError> {
        let media = body::media(self.headers(), &self.body, true)?.unwrap_or(Media::Json);
        if media == Media::Json {
            body::parse::<serde::de::IgnoredAny>(media, &self.body)?;
        }
        Ok((media, &self.body))
    }

    /// The actor and the reason, from the body or the query, for the audit log.
    pub(crate) fn by(&self, reason: Option<&str>) -> Result<AuditContext, ApiError> {
        let reason = match reason {
            Some(reason) => reason,
            None => self.query.get("reason")?.unwrap_or_default(),
        };
        let is_odd = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
        if reason.len() > REASON_BYTES_MAX || reason.contains(is_odd) {
            let message = format!(
                "The reason must be text of at most {REASON_BYTES_MAX} bytes without control characters."
            );
            return Err(ApiError::invalid_parameter("reason", message));
        }
        Ok(AuditContext {
            actor: self.identity.actor.clone(),
            reason: reason.to_owned(),
            correlation_id: Some(self.ids.correlation),
        })
    }

    /// Checks the caller's preconditions (`If-Match`, `If-None-Match: *`) against the stored version.
    pub(crate) fn check_preconditions(&self, found: Option<Etag>) -> Result<(), ApiError> {
        let texts = |name| self.headers().get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        let wanted: Vec<&str> =
            texts(header::IF_MATCH).flat_map(|text| text.split(',')).map(str::trim).collect();
        let holds = |wanted: &&str| found.is_some_and(|etag| *wanted == "*" || *wanted == etag.to_string());
        let is_given = self.headers().contains_key(header::IF_MATCH);
        if is_given && !wanted.iter().any(holds) {
            return Err(ApiError::precondition_failed());
        }
        if found.is_some() && texts(header::IF_NONE_MATCH).any(|text| text.trim() == "*") {
            return Err(ApiError::precondition_failed().with_target("If-None-Match"));
        }
        Ok(())
    }

    /// Decides about a write that failed: `Ok` when another writer was faster and the handler may try again. With a precondition of
    /// the caller the conflict is its response.
    pub(crate) fn retry_unless_fatal(&self, error: StoreError) -> Result<(), ApiError> {
        match error {
            StoreError::Changed { .. } | StoreError::Exists { .. } if self.has_precondition() => {
                Err(ApiError::precondition_failed())
            }
            StoreError::Changed { .. } | StoreError::Exists { .. } | StoreError::Gone { .. } => Ok(()),
            other => Err(other.into()),
        }
    }

    /// Whether the caller sent a precondition.
    pub(crate) fn has_precondition(&self) -> bool {
        self.headers().contains_key(header::IF_MATCH) || self.headers().contains_key(header::IF_NONE_MATCH)
    }
}
