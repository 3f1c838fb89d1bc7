//! Bodies that are watched: a request's body may not pause for too long, and a response's body says whether its client takes it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::activity::UnderWay;

/// A request body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Its sender paused for too long.
    #[error("nothing of the request body arrived within {} s", .0.as_secs())]
    Paused(Duration),
    /// The connection failed.
    #[error("the request body could not be read")]
    Connection(#[source] hyper::Error),
}

/// The body of a request.
#[derive(Debug)]
pub struct RequestBody {
    inner: Incoming,
    pause: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl RequestBody {
    pub(crate) fn new(inner: Incoming, pause: Duration) -> RequestBody {
        RequestBody { inner, pause, timer: None }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.inner).poll_frame(cx) {
            self.timer = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Connection)));
        }
        let pause = self.pause;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
        timer.as_mut().poll(cx).map(|()| Some(Err(BodyError::Paused(pause))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response. Its request is under way until it is dropped.
#[derive(Debug)]
pub struct ResponseBody<B> {
    inner: Pin<Box<B>>,
    request: UnderWay,
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(inner: B, request: UnderWay) -> ResponseBody<B> {
        request.offered();
        ResponseBody { inner: Box::pin(inner), request }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let polled = self.inner.as_mut().poll_frame(cx);
        match &polled {
            Poll::Pending => self.request.taken(),
            Poll::Ready(_) => self.request.offered(),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
