//! Limits of every request: a timeout for the response, and for its whole body unless it is a stream. Also copies what an API
//! server states in headers to where errors are read.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use kube::client::Body;
use kube::core::Status;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, Layer, Service};

/// The body of a response.
pub type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// How much of an error's body is read. A Status is far smaller, and a proxy's page is useless beyond this.
const ERROR_BODY_MAX: usize = 256 * 1024;

/// The response did not arrive within this time.
#[derive(Debug, thiserror::Error)]
#[error("no response within {}", crate::error::format_duration(self.0))]
pub(crate) struct ResponseTimeout(pub(crate) Duration);

/// A layer that adds the limits to a client's service.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) request: Duration,
    /// Set when the API server responds with 401, so that the credential is loaded again.
    pub(crate) denied: Arc<AtomicBool>,
}

impl<S> Layer<S> for Limits {
    type Service = LimitedService<S>;

    fn layer(&self, inner: S) -> LimitedService<S> {
        LimitedService { inner, limits: self.clone() }
    }
}

/// A service with the limits.
#[derive(Debug, Clone)]
pub(crate) struct LimitedService<S> {
    inner: S,
    limits: Limits,
}

impl<S, B> Service<Request<Body>> for LimitedService<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limits = self.limits.clone();
        let streams = is_stream(request.uri().query().unwrap_or_default());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let deadline = Instant::now() + limits.request;
            let too_slow = || BoxError::from(ResponseTimeout(limits.request));
            let response = timeout_at(deadline, answer).await.map_err(|_| too_slow())?.map_err(Into::into)?;
            if response.status() == StatusCode::UNAUTHORIZED {
                limits.denied.store(true, Ordering::Relaxed);
            }
            let (parts, body) = response.into_parts();
            let failed = parts.status.is_client_error() || parts.status.is_server_error();
            let body = if failed && parts.headers.contains_key(header::RETRY_AFTER) {
                let read = timeout_at(deadline, Limited::new(body, ERROR_BODY_MAX).collect());
                let text = read.await.map_err(|_| too_slow())??.to_bytes();
                response_body(Full::new(with_retry_after(&parts.headers, parts.status, text)))
            } else if streams {
                response_body(body)
            } else {
                response_body(DeadlineBody {
                    body,
                    until: Box::pin(sleep_until(deadline)),
                    limit: limits.request,
                })
            };
            Ok(Response::from_parts(parts, body))
        })
    }
}

pub(crate) fn response_body<B>(body: B) -> ResponseBody
where
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(Into::into).boxed_unsync()
}

/// Watches and followed logs have no time limit.
fn is_stream(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch" | "follow=true"))
}

/// A Status with the header's value in its details, so that no caller needs the header.
fn with_retry_after(headers: &HeaderMap, code: StatusCode, text: Bytes) -> Bytes {
    let seconds =
        headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse::<u32>().ok());
    let Some(seconds) = seconds.filter(|seconds| *seconds > 0) else { return text };
    let mut status = serde_json::from_slice::<Status>(&text).unwrap_or_else(|_| {
        let message = String::from_utf8_lossy(&text).trim().to_owned();
        Status::failure(&message, code.canonical_reason().unwrap_or_default()).with_code(code.as_u16())
    });
    if status.code == 0 {
        status.code = code.as_u16();
    }
    let mut details = status.details.take().unwrap_or_else(|| kube::core::response::StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    details.retry_after_seconds = details.retry_after_seconds.max(seconds);
    status.details = Some(details);
    serde_json::to_vec(&status).map_or(text, Bytes::from)
}

/// A body that must be complete by a deadline.
struct DeadlineBody<B> {
    body: B,
    until: Pin<Box<Sleep>>,
    limit: Duration,
}

impl<B> HttpBody for DeadlineBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        match self.until.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(ResponseTimeout(self.limit).into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_retry_after_header_is_copied_into_the_status() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("7"));
        let text = with_retry_after(&headers, StatusCode::TOO_MANY_REQUESTS, Bytes::from_static(b"too many"));
        let status: Status = serde_json::from_slice(&text).unwrap();
        assert_eq!((status.code, status.message.as_str()), (429, "too many"));
        assert_eq!(status.details.unwrap().retry_after_seconds, 7);
    }

    #[test]
    fn only_watches_and_followed_logs_are_streams() {
        assert!(is_stream("&watch=true&timeoutSeconds=290"));
        assert!(is_stream("follow=true"));
        assert!(!is_stream("labelSelector=watch%3Dtrue"));
        assert!(!is_stream(""));
    }
}
