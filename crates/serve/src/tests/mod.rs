//! Connections in memory on a paused clock, and listeners on real sockets.

mod displacement;
mod http1;
mod http2;
mod sockets;

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::util::BoxCloneSyncService;

use crate::activity::Activity;
use crate::connection::{TrackedStream, serve_connection};
use crate::{ClientAddress, ListenerLimits, RequestBody};

/// A body whose data a test sends; it ends when the sender is dropped.
pub(super) struct TestBody(mpsc::Receiver<Bytes>);

impl Body for TestBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

pub(super) type TestService = BoxCloneSyncService<Request<RequestBody>, Response<TestBody>, Infallible>;

fn complete_body(text: String) -> TestBody {
    let (sender, receiver) = mpsc::channel(1);
    let _ = sender.try_send(Bytes::from(text));
    TestBody(receiver)
}

/// Bytes of `/large`: several windows of HTTP/2, in one chunk.
pub(super) const LARGE: usize = 256 * 1024;

/// Responds to `/` and `/large` at once, to `/body` with the length of the body, and to `/stream` with the data of the test.
pub(super) fn service() -> (TestService, mpsc::Receiver<mpsc::Sender<Bytes>>) {
    let (streams, opened) = mpsc::channel(8);
    let respond = move |request: Request<RequestBody>| {
        let streams = streams.clone();
        async move {
            let body = match request.uri().path() {
                "/stream" => {
                    let (sender, receiver) = mpsc::channel(1);
                    streams.send(sender).await.unwrap();
                    TestBody(receiver)
                }
                "/body" => match request.into_body().collect().await {
                    Ok(body) => complete_body(format!("{} bytes", body.to_bytes().len())),
                    Err(error) => complete_body(error.to_string()),
                },
                "/large" => complete_body("x".repeat(LARGE)),
                _ => complete_body("hello".to_owned()),
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    };
    (BoxCloneSyncService::new(tower::service_fn(respond)), opened)
}

/// A served connection in memory.
pub(super) struct ServedConnection {
    pub(super) client: DuplexStream,
    pub(super) activity: Arc<Activity>,
    pub(super) streams: mpsc::Receiver<mpsc::Sender<Bytes>>,
    pub(super) closing: CancellationToken,
    pub(super) serving: JoinSet<()>,
}

pub(super) fn serve(limits: ListenerLimits) -> ServedConnection {
    let (client, server) = tokio::io::duplex(4096);
    let (service, streams) = service();
    let (activity, closing) = (Arc::new(Activity::new()), CancellationToken::new());
    let address = ClientAddress(([127, 0, 0, 1], 1).into());
    let mut serving = JoinSet::new();
    let io = TrackedStream::new(server, activity.clone(), None);
    serving.spawn(serve_connection(io, service, address, limits, closing.clone()));
    ServedConnection { client, activity, streams, closing, serving }
}

/// Limits that differ, so that a test can tell which one was reached.
pub(super) fn limits() -> ListenerLimits {
    ListenerLimits {
        first_byte: Duration::from_secs(10),
        head: Duration::from_secs(20),
        idle: Duration::from_secs(60),
        body_pause: Duration::from_secs(30),
        stall: Duration::from_secs(120),
        ..ListenerLimits::default()
    }
}

/// Seconds since `start`.
pub(super) fn since(start: tokio::time::Instant) -> u64 {
    start.elapsed().as_secs()
}
