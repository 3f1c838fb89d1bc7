//! Connections in memory on a clock that jumps, and listeners on real sockets.

mod crowd;
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
use crate::connection::{Watched, exchange};
use crate::{ClientAddress, Limits, RequestBody};

/// A body that is fed by a test; it ends with its sender.
pub(super) struct Fed(mpsc::Receiver<Bytes>);

impl Body for Fed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

pub(super) type Answering = BoxCloneSyncService<Request<RequestBody>, Response<Fed>, Infallible>;

fn whole(text: String) -> Fed {
    let (sender, receiver) = mpsc::channel(1);
    let _ = sender.try_send(Bytes::from(text));
    Fed(receiver)
}

/// Bytes of `/large`: several windows of HTTP/2, in one chunk.
pub(super) const LARGE: usize = 256 * 1024;

/// Answers `/` and `/large` at once, `/body` with what came of the body, and `/stream` with what the test sends.
pub(super) fn service() -> (Answering, mpsc::Receiver<mpsc::Sender<Bytes>>) {
    let (streams, opened) = mpsc::channel(8);
    let answer = move |request: Request<RequestBody>| {
        let streams = streams.clone();
        async move {
            let body = match request.uri().path() {
                "/stream" => {
                    let (sender, receiver) = mpsc::channel(1);
                    streams.send(sender).await.unwrap();
                    Fed(receiver)
                }
                "/body" => match request.into_body().collect().await {
                    Ok(body) => whole(format!("{} bytes", body.to_bytes().len())),
                    Err(error) => whole(error.to_string()),
                },
                "/large" => whole("x".repeat(LARGE)),
                _ => whole("hello".to_owned()),
            };
            Ok::<_, Infallible>(Response::new(body))
        }
    };
    (BoxCloneSyncService::new(tower::service_fn(answer)), opened)
}

/// A connection in memory that is being served.
pub(super) struct Served {
    pub(super) client: DuplexStream,
    pub(super) activity: Arc<Activity>,
    pub(super) streams: mpsc::Receiver<mpsc::Sender<Bytes>>,
    pub(super) closing: CancellationToken,
    pub(super) serving: JoinSet<()>,
}

pub(super) fn served(limits: Limits) -> Served {
    let (client, server) = tokio::io::duplex(4096);
    let (service, streams) = service();
    let (activity, closing) = (Arc::new(Activity::new()), CancellationToken::new());
    let address = ClientAddress(([127, 0, 0, 1], 1).into());
    let mut serving = JoinSet::new();
    let io = Watched::new(server, activity.clone(), None);
    serving.spawn(exchange(io, service, address, limits, closing.clone()));
    Served { client, activity, streams, closing, serving }
}

/// Limits that differ, so that a test sees which of them was met.
pub(super) fn limits() -> Limits {
    Limits {
        first_byte: Duration::from_secs(10),
        head: Duration::from_secs(20),
        idle: Duration::from_secs(60),
        body_pause: Duration::from_secs(30),
        stall: Duration::from_secs(120),
        ..Limits::default()
    }
}

/// Seconds since then.
pub(super) fn since(begun: tokio::time::Instant) -> u64 {
    begun.elapsed().as_secs()
}
