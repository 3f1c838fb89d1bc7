//! A request, read: who asks, for what, with which ids, preconditions and body.

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

/// How callers name their requests.
pub(crate) const CLIENT_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");
/// A name is a uuid, or not much longer.
const CLIENT_ID_BYTES_MAX: usize = 100;
/// Attempts at a write when other writers change the same document meanwhile.
pub(crate) const WRITE_ATTEMPTS_MAX: u32 = 5;
/// A reason is a sentence or two.
const REASON_BYTES_MAX: usize = 2000;

/// The ids that a request is known by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestIds {
    /// Ours, fresh for every request.
    pub(crate) request: Uuid,
    /// The caller's, by which requests that belong together are found; ours when it gave none.
    pub(crate) correlation: Uuid,
}

/// How the request came in.
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

/// A request, read.
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
            .map_err(|_| ApiError::invalid_parameter("", "The path is not UTF-8 under its escapes."))?;
        // The path is in lower case already, but for the letters that were escaped until now.
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

/// What a caller named its request: a word, for whatever is longer or has anything but printed characters is none.
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

    /// A segment of the path that the route names, in lower case.
    pub(crate) fn path_param(&self, name: &str) -> &str {
        self.params.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }

    /// A segment that is a uuid; whatever is none is the id of nothing.
    pub(crate) fn uuid(&self, name: &str, absent: &str) -> Result<Uuid, ApiError> {
        let text = self.path_param(name);
        let parsed = Uuid::try_parse(text).ok().filter(|_| text.len() == 36);
        parsed.ok_or_else(|| ApiError::not_found(absent))
    }

    /// The cluster's id in the path.
    pub(crate) fn resource_id(&self) -> Result<ResourceId, ApiError> {
        ResourceId::within(&self.spelled.0)
    }

    /// The path in the caller's spelling.
    pub(crate) fn spelled(&self) -> &str {
        &self.spelled.0
    }

    /// Scheme and host of links to us.
    pub(crate) fn origin(&self) -> &str {
        &self.base.0
    }

    /// The network that the caller's connection comes from; none inside this process.
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

    /// The id by which requests that belong together are found.
    pub(crate) fn correlation(&self) -> Uuid {
        self.ids.correlation
    }

    /// What the caller named the request, in words that may be kept.
    pub(crate) fn client_request_id(&self) -> Option<&str> {
        client_request_id(self.headers())
    }

    /// Refuses a body of a type that is not accepted.
    pub(crate) fn check_media(&self) -> Result<(), ApiError> {
        body::media(self.headers(), &self.body, false).map(drop)
    }

    /// The JSON object that the body is; each member at most once.
    pub(crate) fn object(&self) -> Result<serde_json::Value, ApiError> {
        self.check_media()?;
        body::object(&self.body)
    }

    /// Refuses a body that is there and is no JSON; what it says does not matter.
    pub(crate) fn check_optional_json(&self) -> Result<(), ApiError> {
        if self.body.is_empty() { Ok(()) } else { body::json(&self.body).map(drop) }
    }

    /// The body as it came, JSON or YAML. JSON in which a member is there twice is refused here.
    pub(crate) fn text(&self) -> Result<(Media, &[u8]), ApiError> {
        let media = body::media(self.headers(), &self.body, true)?.unwrap_or(Media::Json);
        if media == Media::Json {
            body::parse::<serde::de::IgnoredAny>(media, &self.body)?;
        }
        Ok((media, &self.body))
    }

    /// Who asks, and why: the body's reason, or the query's.
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

    /// Whether the caller's preconditions (`If-Match`, `If-None-Match: *`) hold for what is there.
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
