//! A timeout for every response and its body, except for the stream of a watch or of a followed log.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::Body as HttpBody;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use tokio::time::timeout;
use tower::{BoxError, Layer, Service};

/// A layer that limits the time of each request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit(pub(crate) Duration);

#[derive(Debug, thiserror::Error)]
#[error("the API server did not respond within {} s", .0.as_secs())]
struct Timeout(Duration);

impl<S> Layer<S> for TimeLimit {
    type Service = Limited<S>;

    fn layer(&self, inner: S) -> Limited<S> {
        Limited { inner, limit: self.0 }
    }
}

/// A service with the limit.
#[derive(Debug, Clone)]
pub(crate) struct Limited<S> {
    inner: S,
    limit: Duration,
}

impl<S, B> Service<Request<Body>> for Limited<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: HttpBody<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<UnsyncBoxBody<Bytes, BoxError>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let limit = self.limit;
        let is_stream = is_stream(request.uri().query().unwrap_or_default());
        let response = self.inner.call(request);
        Box::pin(async move {
            let complete = async {
                let (parts, body) = response.await.map_err(Into::into)?.into_parts();
                let is_upgrade = parts.status == http::StatusCode::SWITCHING_PROTOCOLS;
                let body = if is_stream || is_upgrade {
                    body.map_err(Into::into).boxed_unsync()
                } else {
                    let bytes = body.collect().await.map_err(Into::into)?.to_bytes();
                    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
                };
                Ok(Response::from_parts(parts, body))
            };
            timeout(limit, complete).await.map_err(|_| BoxError::from(Timeout(limit)))?
        })
    }
}

fn is_stream(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch" | "follow=true"))
}

#[cfg(test)]
mod tests {
    use std::io;

    use http_body::Frame;
    use http_body_util::StreamBody;
    use tower::ServiceExt;

    use super::*;

    type Pieces = futures_util::stream::BoxStream<'static, Result<Frame<Bytes>, io::Error>>;

    /// The error of a request to a server that sends a first piece of the body and then nothing.
    async fn stalled(query: &str) -> Option<String> {
        let service = tower::service_fn(|_: Request<Body>| async {
            let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from_static(b"{")))]);
            let pieces: Pieces =
                Box::pin(futures_util::StreamExt::chain(first, futures_util::stream::pending()));
            Ok::<_, BoxError>(Response::new(StreamBody::new(pieces)))
        });
        let request = Request::get(format!("/api/v1/nodes?{query}")).body(Body::empty()).unwrap();
        let limited = TimeLimit(Duration::from_secs(30)).layer(service);
        limited.oneshot(request).await.err().map(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_fails_unless_it_is_a_stream() {
        let expected = "the API server did not respond within 30 s";
        assert_eq!(stalled("limit=500").await.as_deref(), Some(expected));
        assert_eq!(stalled("watch=true&timeoutSeconds=120").await, None);
    }
}
