//! A client whose n-th write is the last thing that its process does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio_util::sync::CancellationToken;
use tower::BoxError;

/// Whether the last write has its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It is never sent.
    NotSent,
    /// The API server executes it; the process does not see the response.
    ResponseLost,
}

/// The end of a process at its n-th write. Afterwards no request of its clients is sent and none returns.
#[derive(Debug, Clone)]
pub struct CrashPoint(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    at_write: usize,
    effect: Effect,
    writes: AtomicUsize,
    has_ended: AtomicBool,
    reached: CancellationToken,
}

impl CrashPoint {
    /// The end at the n-th write, from 1.
    pub fn at(at_write: usize, effect: Effect) -> CrashPoint {
        CrashPoint(Arc::new(Inner {
            at_write,
            effect,
            writes: AtomicUsize::new(0),
            has_ended: AtomicBool::new(false),
            reached: CancellationToken::new(),
        }))
    }

    /// A client that sends its requests through `client` until the end.
    pub fn client(&self, client: &Client) -> Client {
        let (point, inner) = (self.0.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (point, inner) = (point.clone(), inner.clone());
            async move { point.send(inner, request).await }
        });
        Client::new(service, client.default_namespace())
    }

    /// Waits until the end is reached: the last write had its effect, if it has one.
    pub async fn reached(&self) {
        self.0.reached.cancelled().await;
    }

    /// The writes so far.
    pub fn writes(&self) -> usize {
        self.0.writes.load(Ordering::SeqCst)
    }
}

impl Inner {
    async fn send(&self, client: Client, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let is_last = is_write(&request) && self.writes.fetch_add(1, Ordering::SeqCst) + 1 == self.at_write;
        if is_last {
            // From now on nothing else of this process has an effect.
            self.has_ended.store(true, Ordering::SeqCst);
            if self.effect == Effect::ResponseLost {
                // The response's head is sent after the effect. A refused write has no effect, and is an end as well.
                let _ = client.send(request).await;
            }
            self.reached.cancel();
            return std::future::pending().await;
        }
        if self.has_ended.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        let response = client.send(request).await;
        if self.has_ended.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        Ok(response?)
    }
}

/// Whether a request changes what a next process finds.
fn is_write<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let is_ignored = ["/leases", "/events", "subjectaccessreviews", "subjectrulesreviews", "tokenreviews"]
        .iter()
        .any(|ignored| path.contains(ignored));
    let is_dry_run = request.uri().query().is_some_and(|query| query.contains("dryRun="));
    let changes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(request.method());
    changes && !is_ignored && !is_dry_run
}
