//! One connection: its bytes, its requests and its end.

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

use crate::activity::{Activity, Verdict};
use crate::listener::{BoxError, ClientAddress};
use crate::registry::Registered;
use crate::{Limits, RequestBody, ResponseBody};

/// The bytes of a connection. It holds the connection's place among the others until it is closed, whoever has it then.
pub(crate) struct Watched<T> {
    inner: T,
    activity: Arc<Activity>,
    _place: Option<Registered>,
}

impl<T> Watched<T> {
    pub(crate) fn new(inner: T, activity: Arc<Activity>, place: Option<Registered>) -> Watched<T> {
        Watched { inner, activity, _place: place }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.inner).poll_read(cx, into));
        if into.filled().len() > before {
            self.activity.read();
        }
        Poll::Ready(read)
    }
}

impl<T> Watched<T> {
    fn wrote(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(polled, Poll::Ready(Ok(count)) if count > 0) {
            self.activity.wrote();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.wrote(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write_vectored(cx, slices);
        self.wrote(polled)
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

/// A service whose requests are counted.
struct Counted<S> {
    service: S,
    activity: Arc<Activity>,
    address: ClientAddress,
    limits: Limits,
}

impl<S, B> hyper::service::Service<Request<Incoming>> for Counted<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response<ResponseBody<B>>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let under_way = self.activity.request(request.version() == Version::HTTP_2);
        let pause = self.limits.body_pause;
        let mut request = request.map(|body| RequestBody::new(body, pause));
        request.extensions_mut().insert(self.address);
        let answering = self.service.clone().oneshot(request);
        Box::pin(async move { Ok(answering.await?.map(|body| ResponseBody::new(body, under_way))) })
    }
}

/// Serves the requests of one connection, until its client leaves, a limit is met, another connection takes its place, or the
/// listener ends.
pub(crate) async fn exchange<T, S, B>(
    io: Watched<T>,
    service: S,
    address: ClientAddress,
    limits: Limits,
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
    let counted = Counted { service, activity: activity.clone(), address, limits };
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), counted));
    let mut asked_to_end = pin!(async {
        tokio::select! {
            () = closing.cancelled() => {}
            () = activity.displaced.cancelled() => {}
        }
    });
    let mut timer = pin!(tokio::time::sleep_until(Instant::now() + limits.first_byte));
    let mut ending = None;
    let ended = poll_fn(|cx| {
        activity.driven_by(cx.waker());
        loop {
            if ending.is_none() && asked_to_end.as_mut().poll(cx).is_ready() {
                if !activity.has_asked() {
                    // Nothing was said yet that a goodbye could answer.
                    return Poll::Ready(Ok(()));
                }
                ending = Some(Instant::now());
                connection.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            // Bytes are read and requests begin in the poll above, so what is decided here is decided on the newest facts.
            match activity.verdict(&limits, ending, Instant::now()) {
                Verdict::Cut => return Poll::Ready(Ok(())),
                Verdict::End => {
                    ending = Some(Instant::now());
                    connection.as_mut().graceful_shutdown();
                }
                Verdict::Until(at) => {
                    // A timer that fires too early costs one more look; it is moved only when it would fire too late.
                    if at < timer.deadline() || timer.is_elapsed() {
                        timer.as_mut().reset(at);
                    }
                    ready!(timer.as_mut().poll(cx));
                }
            }
        }
    })
    .await;
    activity.hand_over();
    if let Err(error) = ended {
        tracing::debug!(error = &*error, "A connection ended early");
    }
}

/// The protocols. The limits on time are ours (`Activity`): hyper has one clock for a head and for idle time, and none for the
/// first byte or for HTTP/2.
fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
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
        // Finds clients that are gone without a word.
        .keep_alive_interval(limits.stall / 2)
        .keep_alive_timeout(limits.handshake)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX));
    builder
}
