//! Tracked bodies: a request body has a limit on its pauses, and a response body records whether its client reads it.

use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use crate::activity::ActiveRequest;

/// A request body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// Its sender paused for too long.
    #[error("timeout: no data of the request body within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection failed.
    #[error("cannot read the request body")]
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
        timer.as_mut().poll(cx).map(|()| Some(Err(BodyError::Timeout(pause))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of a response. Its request is active until the body and all its data are dropped.
#[derive(Debug)]
pub struct ResponseBody<B> {
    inner: Pin<Box<B>>,
    request: Arc<ActiveRequest>,
}

impl<B> ResponseBody<B> {
    pub(crate) fn new(inner: B, request: ActiveRequest) -> ResponseBody<B> {
        request.data_ready();
        ResponseBody { inner: Box::pin(inner), request: Arc::new(request) }
    }
}

impl<B: Body> Body for ResponseBody<B> {
    type Data = ResponseData<B::Data>;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, B::Error>>> {
        let polled = self.inner.as_mut().poll_frame(cx);
        match &polled {
            Poll::Pending => self.request.data_consumed(),
            Poll::Ready(_) => self.request.data_ready(),
        }
        let tracked = |data| ResponseData { inner: data, request: self.request.clone() };
        polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(tracked))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// Data of a response body. The protocol implementation holds it until it is written: HTTP/2 accepts a chunk of any size as soon as
/// the client has a window of one byte, and drops the body long before the client has read the rest.
#[derive(Debug)]
pub struct ResponseData<D> {
    inner: D,
    request: Arc<ActiveRequest>,
}

impl<D: Buf> Buf for ResponseData<D> {
    fn remaining(&self) -> usize {
        self.inner.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.inner.chunk()
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.inner.chunks_vectored(into)
    }

    fn advance(&mut self, count: usize) {
        self.inner.advance(count);
        self.request.data_progressed();
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        self.request.data_progressed();
        self.inner.copy_to_bytes(count)
    }
}
