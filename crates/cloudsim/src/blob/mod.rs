//! The blob service of storage accounts: containers and block blobs, below `/{account}`.
//!
//! Accounts and containers are those of the resource manager. Callers have a token and a data role, a key of the account, a shared access
//! signature, or nothing where a container is public. Network rules of accounts are not applied: every caller is on the loopback interface.

mod access;
mod blobs;
mod conditions;
mod containers;
mod error;
mod listing;
mod signature;
mod store;
#[cfg(test)]
mod tests;
mod xml;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE, HeaderName, HeaderValue};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use percent_encoding::percent_decode_str;
use uuid::Uuid;

use crate::arm::kinds::storage;
use crate::arm::{ArmResource, Change};
use crate::call_context::CallContext;
use crate::failure::Failure;
use crate::fault_injection::{InjectedError, with_faults};
use crate::simulator::Simulator;
use access::Access;
use error::{BlobError, BlobFailure};

/// Largest content of a blob, and so of a request.
pub(super) const BLOB_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The version that responses have when the request names none.
const VERSION: &str = "2026-04-06";

/// The routes of the service.
pub(crate) fn routes(simulator: Arc<Simulator>) -> Router {
    Router::new().fallback(answer).with_state(simulator)
}

/// Removes the blobs of a container that is deleted.
pub(crate) fn clear(cx: &CallContext<'_>, container: &str) -> Result<(), Failure> {
    store::clear(cx, container)
}

/// The content of a blob at a URL of this service, as everybody reads it.
pub(crate) fn public_content(cx: &CallContext<'_>, url: &str) -> Result<Option<Bytes>, Failure> {
    let Some(path) = url.strip_prefix(cx.endpoints.blob.as_str()) else { return Ok(None) };
    let headers = HeaderMap::new();
    match handle(cx, &BlobRequest::new(&Method::GET, path, "", &headers, &[])) {
        Ok(response) => Ok(Some(response.body)),
        Err(BlobFailure::Rejected(_)) => Ok(None),
        Err(BlobFailure::Failed(failure)) => Err(failure),
    }
}

/// Sets a header; a value that no header can have is left out.
fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// A request, with its path in parts.
struct BlobRequest<'a> {
    method: &'a Method,
    /// The path as it was sent, which signatures contain.
    path: &'a str,
    account: String,
    container: Option<String>,
    blob: Option<String>,
    query: Vec<(String, String)>,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

impl<'a> BlobRequest<'a> {
    fn new(
        method: &'a Method,
        path: &'a str,
        query: &str,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> BlobRequest<'a> {
        let decode = |it: &str| percent_decode_str(it).decode_utf8_lossy().into_owned();
        let mut parts = path.trim_start_matches('/').splitn(3, '/').map(decode);
        let account = parts.next().unwrap_or_default();
        let mut named = || parts.next().filter(|it| !it.is_empty());
        let (container, blob) = (named(), named());
        // A plus is a plus here, so this is no form.
        let query = query.split('&').filter(|it| !it.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        BlobRequest { method, path, account, container, blob, query: query.collect(), headers, body }
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(it, _)| it.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).filter(|it| !it.is_empty())
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim).filter(|it| !it.is_empty())
    }

    fn is_of_container(&self) -> bool {
        self.parameter("restype").is_some_and(|it| it.eq_ignore_ascii_case("container"))
    }

    fn component(&self) -> &str {
        self.parameter("comp").unwrap_or_default()
    }

    /// The verb of fault rules.
    fn verb(&self) -> &'static str {
        let is_read = [Method::GET, Method::HEAD, Method::POST].contains(self.method);
        match (self.blob.is_some(), self.method) {
            _ if is_read => "blob",
            (true, &Method::DELETE) => "deleteBlob",
            (true, _) => "putBlob",
            (false, &Method::DELETE) => "deleteContainer",
            (false, _) => "ensureContainer",
        }
    }

    fn subject(&self) -> String {
        let parts = [Some(&self.account), self.container.as_ref(), self.blob.as_ref()];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join("/")
    }

    fn unsupported(&self) -> BlobFailure {
        let message = format!(
            "The emulated blob service has no operation {} with comp={} and restype={} there.",
            self.method,
            self.component(),
            self.parameter("restype").unwrap_or_default()
        );
        BlobError::bad_request("InvalidQueryParameterValue", message).into()
    }
}

/// A response before it has the headers of every response.
struct BlobResponse {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl BlobResponse {
    fn new(status: StatusCode) -> BlobResponse {
        BlobResponse { status, headers: HeaderMap::new(), body: Bytes::new() }
    }

    fn xml(document: String) -> BlobResponse {
        let mut response = BlobResponse::new(StatusCode::OK);
        response.set(CONTENT_TYPE.as_str(), "application/xml");
        response.body = document.into();
        response
    }

    fn set(&mut self, name: &str, value: &str) {
        set(&mut self.headers, name, value);
    }
}

/// A request of an authenticated caller in one transaction.
struct BlobCall<'a> {
    cx: &'a CallContext<'a>,
    request: &'a BlobRequest<'a>,
    account: &'a ArmResource,
    access: &'a Access,
}

async fn answer(State(simulator): State<Arc<Simulator>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let response = match Limited::new(body, BLOB_BYTES_MAX).collect().await {
        Ok(body) => {
            let body = body.to_bytes();
            let query = head.uri.query().unwrap_or_default();
            let request = BlobRequest::new(&head.method, head.uri.path(), query, &head.headers, &body);
            respond(&simulator, &request).await
        }
        Err(_) => {
            let message = format!("The request body is larger than {BLOB_BYTES_MAX} bytes.");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            render(&head.method, BlobError::new(status, "RequestBodyTooLarge", message).into_response())
        }
    };
    with_headers(response, &head.headers, &simulator)
}

async fn respond(simulator: &Simulator, request: &BlobRequest<'_>) -> Response {
    let (verb, subject) = (request.verb(), request.subject());
    let injected = |error: InjectedError| {
        let error = match error {
            // Storage throttles with 503, which alone its SDKs repeat.
            InjectedError::Throttled | InjectedError::Unavailable => {
                let message =
                    "The server is currently unable to receive requests. Please retry your request.";
                BlobError::new(StatusCode::SERVICE_UNAVAILABLE, "ServerBusy", message)
            }
            InjectedError::Denied => access::mismatch(),
            InjectedError::TokenExpired | InjectedError::ClaimsMissing => {
                access::challenge(&simulator.endpoints(), "InvalidAuthenticationInfo", "The token expired.")
            }
        };
        render(request.method, error.into_response())
    };
    with_faults(simulator, verb, &subject, injected, |effects| {
        let done = simulator.within(effects, |cx| match handle(cx, request) {
            Ok(response) => Ok(Ok(response)),
            Err(BlobFailure::Rejected(error)) => Ok(Err(error)),
            Err(BlobFailure::Failed(failure)) => Err(failure),
        });
        let response = match done {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => error.into_response(),
            Err(failure) => {
                let error: &dyn std::error::Error = &failure;
                tracing::error!(error, "The emulated blob service failed at {verb} {subject}");
                let status = StatusCode::INTERNAL_SERVER_ERROR;
                BlobError::new(status, "InternalError", "The server encountered an internal error.")
                    .into_response()
            }
        };
        render(request.method, response)
    })
    .await
}

/// The body of the response to a HEAD is its length alone.
fn render(method: &Method, response: BlobResponse) -> Response {
    let BlobResponse { status, mut headers, body } = response;
    if *method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
        let has_length = headers.contains_key(CONTENT_LENGTH) || status == StatusCode::NOT_MODIFIED;
        if !has_length {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        let mut rendered = Response::new(Body::empty());
        (*rendered.status_mut(), *rendered.headers_mut()) = (status, headers);
        return rendered;
    }
    let mut rendered = Response::new(Body::from(body));
    (*rendered.status_mut(), *rendered.headers_mut()) = (status, headers);
    rendered
}

/// Adds the headers that every response has.
fn with_headers(mut response: Response, sent: &HeaderMap, simulator: &Simulator) -> Response {
    let text = |name: &str| sent.get(name).and_then(|it| it.to_str().ok());
    let headers = response.headers_mut();
    set(headers, "x-ms-request-id", &Uuid::new_v4().to_string());
    set(headers, "x-ms-version", text("x-ms-version").unwrap_or(VERSION));
    set(headers, DATE.as_str(), &conditions::http_date(simulator.clock.now()));
    if let Some(client) = text("x-ms-client-request-id") {
        set(headers, "x-ms-client-request-id", client);
    }
    response
}

fn handle(cx: &CallContext<'_>, request: &BlobRequest<'_>) -> Result<BlobResponse, BlobFailure> {
    let is_usable = |it: &ArmResource| {
        it.change == Change::Updating || (it.change == Change::Creating && it.settles <= cx.now)
    };
    let account = storage::find_account(cx, &request.account)?.filter(is_usable);
    let Some(account) = account else {
        let message = format!("The storage account {} does not exist.", request.account);
        return Err(BlobError::not_found("ResourceNotFound", message).into());
    };
    let access = access::authenticate(cx, request, &account)?;
    let call = BlobCall { cx, request, account: &account, access: &access };
    match (&request.container, &request.blob) {
        (None, _) => containers::handle_service(&call),
        (Some(container), None) => containers::handle(&call, container),
        (Some(container), Some(blob)) => blobs::handle(&call, container, blob),
    }
}
