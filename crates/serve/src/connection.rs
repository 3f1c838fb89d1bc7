//! One connection: its bytes, its requests and its shutdown.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response, Version};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt as _};

use crate::activity::{Activity, ConnectionAction};
use crate::listener::{BoxError, ClientAddress};
use crate::registry::Registration;
use crate::{ListenerLimits, RequestBody, ResponseBody};

/// The byte stream of a connection. It keeps the connection registered until it is closed, also after an upgrade.
pub(crate) struct TrackedStream<T> {
    inner: T,
    activity: Arc<Activity>,
    _registration: Option<Registration>,
}

impl<T> TrackedStream<T> {
    pub(crate) fn new(
        inner: T,
        activity: Arc<Activity>,
        registration: Option<Registration>,
    ) -> TrackedStream<T> {
        TrackedStream { inner, activity, _registration: registration }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for TrackedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, into));
        if into.filled().len() > before {
            self.activity.record_read();
        }
        Poll::Ready(read)
    }
}

impl<T> TrackedStream<T> {
    fn record_write(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(polled, Poll::Ready(Ok(count)) if count > 0) {
            self.activity.record_write();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for TrackedStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.record_write(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.record_write(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// A service that records its active requests.
struct TrackedService<S> {
    service: S,
    activity: Arc<Activity>,
    address: ClientAddress,
    limits: ListenerLimits,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for TrackedService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let active = self.activity.start_request(request.version() == Version::HTTP_2);
        let pause = self.limits.body_pause;
        let mut request = request.map(|body| RequestBody::new(body, pause));
        request.extensions_mut().insert(self.address);
        let response = self.service.clone().oneshot(request);
        Box::pin(async move { Ok(response.await?.map(|body| ResponseBody::new(body, active))) })
    }
}

/// Serves the requests of one connection until its client disconnects, a limit is reached, another connection displaces it, or the
/// listener shuts down.
pub(crate) async fn serve_connection<T, S, B>(
    io: TrackedStream<T>,
    service: S,
    address: ClientAddress,
    limits: ListenerLimits,
    closing: CancellationToken,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let activity = io.activity.clone();
    let builder = builder(&limits);
    let counted = TrackedService { service, activity: activity.clone(), address, limits };
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), counted));
    let mut shutdown_requested = pin!(async {
        tokio::select! {
            () = closing.cancelled() => {}
            () = activity.displaced.cancelled() => {}
        }
    });
    let mut timer = pin!(tokio::time::sleep_until(Instant::now() + limits.first_byte));
    let mut ending = None;
    let outcome = poll_fn(|cx| {
        activity.set_waker(cx.waker());
        loop {
            if ending.is_none() && shutdown_requested.as_mut().poll(cx).is_ready() {
                if !activity.has_requested() {
                    // Without a request there is nothing to complete.
                    return Poll::Ready(Ok(()));
                }
                ending = Some(Instant::now());
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(outcome) = connection.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            // The poll above reads bytes and starts requests, so the decision below uses the current activity.
            match activity.next_action(&limits, ending, Instant::now()) {
                ConnectionAction::Abort => return Poll::Ready(Ok(())),
                ConnectionAction::ShutDown => {
                    ending = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                ConnectionAction::WaitUntil(at) => {
                    // A timer that fires early costs one more check; it is reset only when it would fire late.
                    if at < timer.deadline() || timer.is_elapsed() {
                        timer.as_mut().reset(at);
                    }
                    ready!(timer.as_mut().poll(cx));
                }
            }
        }
    })
    .await;
    activity.mark_detached();
    if let Err(error) = outcome {
        tracing::debug!(error = &*error, "Connection failed: {error}");
    }
}

/// The protocol settings. `Activity` enforces the time limits: hyper has one timer for request heads and idle time, and none for the
/// first byte or for HTTP/2.
fn builder(limits: &ListenerLimits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .keep_alive(!limits.idle.is_zero())
        .max_buf_size(limits.head_bytes);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Detects clients that are gone without closing the connection.
        .keep_alive_interval(limits.stall / 2)
        .keep_alive_timeout(limits.handshake)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    builder
}
