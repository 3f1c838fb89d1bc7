//! A connection to one cluster.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use api::clock::SharedClock;
use kube::client::{Body, ClientBuilder};
use kube::{Client, ResourceExt};
use tower::{BoxError, Layer, Service};

use crate::bounded::{Limits, response_body};

pub use crate::bounded::ResponseBody;
use crate::error::{Failure, LinkError};
use crate::kubeconfig::Kubeconfig;

/// The field manager of everything that Shipshape applies or patches.
pub const FIELD_MANAGER: &str = "shipshape";

/// The User-Agent of requests.
pub const USER_AGENT: &str = concat!("shipshape/", env!("CARGO_PKG_VERSION"));

/// Timeouts of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection, including TLS.
    pub connect: Duration,
    /// For a whole response; for a watch, until it starts.
    pub request: Duration,
}

impl Default for Timeouts {
    /// A healthy API server connects in milliseconds, and ends any request itself after 60 s.
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
    /// A link to a cluster with this name. Connects when first used.
    pub fn open(
        cluster: &str,
        kubeconfig: &Kubeconfig,
        timeouts: Timeouts,
        clock: SharedClock,
    ) -> Result<Link, LinkError> {
        Link::open_through(cluster, kubeconfig, timeouts, clock, &tower::layer::util::Identity::new())
    }

    /// As [`Link::open`], with a layer of the caller's between the limits and the transport: to count, record or inject faults.
    pub fn open_through<L, S>(
        cluster: &str,
        kubeconfig: &Kubeconfig,
        timeouts: Timeouts,
        clock: SharedClock,
        layer: &L,
    ) -> Result<Link, LinkError>
    where
        L: Layer<Transport, Service = S>,
        S: Service<http::Request<Body>, Response = http::Response<ResponseBody>, Error = BoxError>
            + Send
            + 'static,
        S::Future: Send + 'static,
    {
        let mut config = kubeconfig.config().clone();
        config.connect_timeout = Some(timeouts.connect);
        config.write_timeout = Some(timeouts.request);
        // The caller decides what is retried; retries here would multiply the caller's.
        config.default_retry = false;
        config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
        let builder = ClientBuilder::try_from(config).map_err(|error| LinkError {
            cluster: cluster.into(),
            verb: "open",
            target: "a client".to_owned(),
            failure: Failure::from_kube(error),
        })?;
        let denied = Arc::new(AtomicBool::new(false));
        let limits = Limits { request: timeouts.request, denied: denied.clone() };
        let client = builder.with_layer(&TransportLayer).with_layer(layer).with_layer(&limits).build();
        let kubeconfig = Some(kubeconfig.clone());
        Ok(Link {
            inner: Arc::new(Inner { cluster: cluster.into(), client, clock, kubeconfig, timeouts, denied }),
        })
    }

    /// A link over an existing client, as in-cluster services have one. It keeps the limits of that client.
    pub fn from_client(cluster: &str, client: Client, clock: SharedClock) -> Link {
        let (kubeconfig, timeouts, denied) = (None, Timeouts::default(), Arc::default());
        Link {
            inner: Arc::new(Inner { cluster: cluster.into(), client, clock, kubeconfig, timeouts, denied }),
        }
    }

    /// The cluster's name in errors and logs.
    pub fn cluster(&self) -> &str {
        &self.inner.cluster
    }

    /// The client itself, for requests that no verb covers.
    pub fn client(&self) -> Client {
        self.inner.client.clone()
    }

    /// Whether the API server has responded with 401 to this link: its credential is no longer valid.
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

    /// The error of a request that `verb` made for `target`; also for requests of the client itself.
    pub fn failed(&self, verb: &'static str, target: impl fmt::Display, error: kube::Error) -> LinkError {
        self.error(verb, target, Failure::from_kube(error))
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

/// `namespace/name`, or the name alone if there is no namespace.
pub(crate) fn display_name<K: kube::Resource>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// The transport below a caller's layer.
pub type Transport = tower::util::BoxService<http::Request<Body>, http::Response<ResponseBody>, BoxError>;

struct TransportLayer;

impl<S, B> Layer<S> for TransportLayer
where
    S: Service<http::Request<Body>, Response = http::Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = bytes::Bytes, Error = BoxError> + Send + Unpin + 'static,
{
    type Service = Transport;

    fn layer(&self, inner: S) -> Transport {
        use tower::ServiceExt;
        inner.map_response(|response: http::Response<B>| response.map(response_body)).boxed()
    }
}
