//! A connection to one cluster.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::clock::SharedClock;
use kube::client::{Body, ClientBuilder};
use kube::{Client, ResourceExt};
use tower::{BoxError, Layer, Service};

use crate::bounded::{Limits, answer_body};

pub use crate::bounded::AnswerBody;
use crate::error::{Failure, LinkError};
use crate::kubeconfig::Kubeconfig;

/// The field manager of everything that we apply or patch.
pub const FIELD_MANAGER: &str = "shipshape";

/// What we call ourselves to API servers.
pub const USER_AGENT: &str = concat!("shipshape/", env!("CARGO_PKG_VERSION"));

/// How long a cluster may keep us waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, TLS included.
    pub connect: Duration,
    /// For a whole answer; for a watch, until it begins.
    pub request: Duration,
}

impl Default for Timeouts {
    /// An API server that is well connects in milliseconds and by itself ends any request after 60 s.
    fn default() -> Timeouts {
        Timeouts { connect: Duration::from_secs(5), request: Duration::from_secs(30) }
    }
}

/// A client of one cluster with limits on every request. Cheap to clone; holds no task while idle.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Arc<str>,
    client: Client,
    clock: SharedClock,
    kubeconfig: Option<Kubeconfig>,
    timeouts: Timeouts,
    denied: Arc<AtomicBool>,
}

impl Link {
    /// A link to the cluster that we call `cluster`. Connects when first used.
    pub fn open(
        cluster: &str,
        kubeconfig: &Kubeconfig,
        timeouts: Timeouts,
        clock: SharedClock,
    ) -> Result<Link, LinkError> {
        Link::open_through(cluster, kubeconfig, timeouts, clock, &tower::layer::util::Identity::new())
    }

    /// As [`Link::open`], with a layer of the caller's between the limits and the wire: to count, to record, to disturb.
    pub fn open_through<L, S>(
        cluster: &str,
        kubeconfig: &Kubeconfig,
        timeouts: Timeouts,
        clock: SharedClock,
        layer: &L,
    ) -> Result<Link, LinkError>
    where
        L: Layer<Wire, Service = S>,
        S: Service<http::Request<Body>, Response = http::Response<AnswerBody>, Error = BoxError>
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let mut config = kubeconfig.config().clone();
        config.connect_timeout = Some(timeouts.connect);
        config.write_timeout = Some(timeouts.request);
        // Whoever calls us decides what is tried again; a retry below would multiply theirs.
        config.default_retry = false;
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
        let builder = ClientBuilder::try_from(config).map_err(|error| LinkError {
            cluster: cluster.into(),
            verb: "open",
            target: "a client".to_owned(),
            failure: Failure::of(error),
        })?;
        let denied = Arc::new(AtomicBool::new(false));
        let limits = Limits { request: timeouts.request, denied: denied.clone() };
        let client = builder.with_layer(&WireLayer).with_layer(layer).with_layer(&limits).build();
        let kubeconfig = Some(kubeconfig.clone());
        Ok(Link {
            inner: Arc::new(Inner { cluster: cluster.into(), client, clock, kubeconfig, timeouts, denied }),
        })
    }

    /// A link over a client that exists already, as in-cluster services have one. It keeps the limits of that client.
    pub fn over(cluster: &str, client: Client, clock: SharedClock) -> Link {
        let (kubeconfig, timeouts, denied) = (None, Timeouts::default(), Arc::default());
        Link {
            inner: Arc::new(Inner { cluster: cluster.into(), client, clock, kubeconfig, timeouts, denied }),
        }
    }

    /// What this cluster is called in errors and logs.
    pub fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// The client itself, for what no verb covers.
    pub fn client(&self) -> Client {
        self.inner.client.clone()
    }

    /// Whether the API server has answered 401 to this link: its credential is no longer good.
    pub fn is_denied(&self) -> bool {
        self.inner.denied.load(Ordering::Relaxed)
    }

    pub(crate) fn clock(&self) -> &SharedClock {
        &self.inner.clock
    }

    pub(crate) fn kubeconfig(&self) -> Option<&Kubeconfig> {
        self.inner.kubeconfig.as_ref()
    }

    pub(crate) fn timeouts(&self) -> Timeouts {
        self.inner.timeouts
    }

    /// The error of a request that `verb` made for `target`; for requests of the client itself too.
    pub fn failed(&self, verb: &'static str, target: impl fmt::Display, error: kube::Error) -> LinkError {
        self.error(verb, target, Failure::of(error))
    }

    pub(crate) fn error(&self, verb: &'static str, target: impl fmt::Display, failure: Failure) -> LinkError {
        LinkError { cluster: self.inner.cluster.clone(), verb, target: target.to_string(), failure }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("cluster", &self.inner.cluster).finish_non_exhaustive()
    }
}

/// `namespace/name`, or the name alone where there is no namespace.
pub(crate) fn name_of<K: kube::Resource>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// What a caller's layer stands on: requests go out here.
pub type Wire = tower::util::BoxService<http::Request<Body>, http::Response<AnswerBody>, BoxError>;

struct WireLayer;

impl<S, B> Layer<S> for WireLayer
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = bytes::Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    type Service = Wire;

    fn layer(&self, inner: S) -> Wire {
        use tower::ServiceExt;
        inner.map_response(|response: http::Response<B>| response.map(answer_body)).boxed()
    }
}
