//! Bodies of responses: a text, a long list in chunks, or a stream without end.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};

/// Size of the chunks in which a list is sent, so that ten thousand objects are never copied at once.
const PIECE_BYTES: usize = 64 << 10;

/// The body of a response.
pub enum Body {
    /// One text.
    Whole(Option<Bytes>),
    /// Many small parts of known total length.
    Parts {
        /// The parts that are not sent yet.
        parts: VecDeque<Bytes>,
        /// Their length in bytes.
        left: u64,
    },
    /// A stream.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Body::Whole(_) => "Whole",
            Body::Parts { .. } => "Parts",
            Body::Stream(_) => "Stream",
        })
    }
}

impl Body {
    /// A text.
    pub fn whole(text: impl Into<Bytes>) -> Body {
        Body::Whole(Some(text.into()))
    }

    /// Many parts, sent in order.
    pub fn parts(parts: VecDeque<Bytes>) -> Body {
        let left = parts.iter().map(|part| part.len() as u64).sum();
        Body::Parts { parts, left }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Body::Whole(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Body::Parts { parts, left } => {
                let mut piece =
                    Vec::with_capacity(PIECE_BYTES.min(usize::try_from(*left).unwrap_or(PIECE_BYTES)));
                while piece.len() < PIECE_BYTES
                    && let Some(part) = parts.pop_front()
                {
                    piece.extend_from_slice(&part);
                }
                *left -= piece.len() as u64;
                Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece.into()))))
            }
            Body::Stream(stream) => {
                stream.as_mut().poll_next(cx).map(|next| next.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Body::Whole(text) => text.is_none(),
            Body::Parts { parts, .. } => parts.is_empty(),
            Body::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Body::Whole(text) => SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64)),
            Body::Parts { left, .. } => SizeHint::with_exact(*left),
            Body::Stream(_) => SizeHint::default(),
        }
    }
}
