//! A layer between a link and its transport that records every request, and can fail or delay it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use kubelink::link::{ResponseBody, Transport};
use tokio::sync::Notify;
use tower::{BoxError, Layer, Service};

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// 429 with Retry-After: 1 and plain text, as from priority and fairness.
    Throttled,
    /// 500.
    Error,
    /// The connection is lost.
    Reset,
    /// The request reaches the server a second later.
    Late,
}

struct Disturbance {
    part: &'static str,
    fault: Fault,
    times: usize,
}

/// Records requests as `METHOD path?query`; can fail the n-th one, before or after it took effect.
#[derive(Clone, Default)]
pub(crate) struct Tap {
    requests: Arc<Mutex<Vec<String>>>,
    fail_at: Arc<AtomicUsize>,
    lose_answer: Arc<AtomicUsize>,
    delay_ms: Arc<AtomicU64>,
    disturbances: Arc<Mutex<Vec<Disturbance>>>,
    came: Arc<Notify>,
}

impl Tap {
    /// The requests so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn clear(&self) {
        self.requests.lock().unwrap().clear();
    }

    /// The n-th request from now (from 1) and all later ones never reach the server.
    pub(crate) fn cut_before(&self, n: usize) {
        self.clear();
        self.fail_at.store(n, Ordering::SeqCst);
    }

    /// The n-th request takes effect, but its response and everything after it is lost.
    pub(crate) fn cut_after(&self, n: usize) {
        self.clear();
        self.lose_answer.store(n, Ordering::SeqCst);
    }

    pub(crate) fn mend(&self) {
        self.clear();
        self.fail_at.store(0, Ordering::SeqCst);
        self.lose_answer.store(0, Ordering::SeqCst);
    }

    /// Injects `fault` into the next `times` requests whose line contains `part`.
    pub(crate) fn disturb(&self, part: &'static str, fault: Fault, times: usize) {
        self.disturbances.lock().unwrap().push(Disturbance { part, fault, times });
    }

    /// Waits for a request whose line contains `part`.
    pub(crate) async fn met(&self, part: &str) {
        loop {
            let came = self.came.notified();
            if self.requests().iter().any(|request| request.contains(part)) {
                return;
            }
            came.await;
        }
    }

    fn fault_of(&self, request: &str) -> Option<Fault> {
        let mut all = self.disturbances.lock().unwrap();
        let found = all.iter_mut().find(|it| it.times > 0 && request.contains(it.part))?;
        found.times -= 1;
        Some(found.fault)
    }

    /// Delays every response.
    pub(crate) fn delay(&self, by: Duration) {
        self.delay_ms.store(by.as_millis().try_into().unwrap(), Ordering::SeqCst);
    }
}

impl Layer<Transport> for Tap {
    type Service = Tapped;

    fn layer(&self, wire: Transport) -> Tapped {
        Tapped { wire, tap: self.clone() }
    }
}

pub(crate) struct Tapped {
    wire: Transport,
    tap: Tap,
}

impl Service<Request<Body>> for Tapped {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<ResponseBody>, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.wire.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let line = format!("{} {}", request.method(), request.uri());
        let fault = self.tap.fault_of(&line);
        let count = {
            let mut requests = self.tap.requests.lock().unwrap();
            requests.push(line);
            requests.len()
        };
        self.tap.came.notify_waiters();
        let cut = move |at: usize| at != 0 && count >= at;
        let broken = || BoxError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset));
        let lose_at = self.tap.lose_answer.load(Ordering::SeqCst);
        if cut(self.tap.fail_at.load(Ordering::SeqCst)) || (cut(lose_at) && count > lose_at) {
            return Box::pin(async move { Err(broken()) });
        }
        match fault {
            Some(Fault::Throttled) => {
                return answer(429, Some("1"), "Too many requests, please try again later.");
            }
            Some(Fault::Error) => return answer(500, None, "etcdserver: leader changed"),
            Some(Fault::Reset) => return Box::pin(async move { Err(broken()) }),
            Some(Fault::Late) | None => {}
        }
        let late = if fault.is_some() { Duration::from_secs(1) } else { Duration::ZERO };
        let delay = Duration::from_millis(self.tap.delay_ms.load(Ordering::SeqCst));
        // A request is sent when its future is first polled.
        let answer = self.wire.call(request);
        Box::pin(async move {
            tokio::time::sleep(late).await;
            let answer = answer.await?;
            tokio::time::sleep(delay).await;
            if cut(lose_at) { Err(broken()) } else { Ok(answer) }
        })
    }
}

fn answer(
    code: u16,
    retry_after: Option<&str>,
    text: &'static str,
) -> BoxFuture<'static, Result<Response<ResponseBody>, BoxError>> {
    let mut response = Response::builder().status(code);
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let body = Full::new(bytes::Bytes::from_static(text.as_bytes())).map_err(BoxError::from).boxed_unsync();
    let response = response.body(body).map_err(BoxError::from);
    Box::pin(async move { response })
}
