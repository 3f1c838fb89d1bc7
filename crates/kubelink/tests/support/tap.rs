//! A layer between a link and the wire that writes down every request, and can fail or delay them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use kube::client::Body;
use kubelink::link::{AnswerBody, Wire};
use tower::{BoxError, Layer, Service};

/// Requests since the start, as `METHOD path?query`; the n-th fails if asked to, before or after it took effect.
#[derive(Clone, Default)]
pub(crate) struct Tap {
    requests: Arc<Mutex<Vec<String>>>,
    fail_at: Arc<AtomicUsize>,
    lose_answer: Arc<AtomicUsize>,
    delay_ms: Arc<AtomicU64>,
}

impl Tap {
    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn clear(&self) {
        self.requests.lock().unwrap().clear();
    }

    /// The n-th request from now, the first being 1, never reaches the server; and from then on none does.
    pub(crate) fn cut_before(&self, n: usize) {
        self.clear();
        self.fail_at.store(n, Ordering::SeqCst);
    }

    /// The n-th request takes effect, but its answer and everything after it is lost.
    pub(crate) fn cut_after(&self, n: usize) {
        self.clear();
        self.lose_answer.store(n, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.clear();
        self.fail_at.store(0, Ordering::SeqCst);
        self.lose_answer.store(0, Ordering::SeqCst);
    }

    /// Every answer takes this much longer.
    pub(crate) fn delay(&self, by: Duration) {
        self.delay_ms.store(by.as_millis().try_into().unwrap(), Ordering::SeqCst);
    }
}

impl Layer<Wire> for Tap {
    type Service = Tapped;

    fn layer(&self, wire: Wire) -> Tapped {
        Tapped { wire, tap: self.clone() }
    }
}

pub(crate) struct Tapped {
    wire: Wire,
    tap: Tap,
}

impl Service<Request<Body>> for Tapped {
    type Response = Response<AnswerBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<AnswerBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.wire.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let count = {
            let mut requests = self.tap.requests.lock().unwrap();
            requests.push(format!("{} {}", request.method(), request.uri()));
            requests.len()
        };
        let cut = move |at: usize| at != 0 && count >= at;
        let broken = || BoxError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let lose_at = self.tap.lose_answer.load(Ordering::SeqCst);
        if cut(self.tap.fail_at.load(Ordering::SeqCst)) || (cut(lose_at) && count > lose_at) {
            return Box::pin(async move { Err(broken()) });
        }
        let delay = Duration::from_millis(self.tap.delay_ms.load(Ordering::SeqCst));
        let answer = self.wire.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            tokio::time::sleep(delay).await;
            if cut(lose_at) { Err(broken()) } else { Ok(answer) }
        })
    }
}
