//! A listener and its accept loop.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service;

use crate::activity::Activity;
use crate::connection::{Watched, exchange};
use crate::registry::{Registered, Registry};
use crate::{Limits, RequestBody};

/// How long to wait when the system has no connection to give, such as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Any error.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Observer = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

/// The other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// The certificates that it showed, its own first; empty when it showed none.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// The address of a request's client, among the request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub SocketAddr);

impl ClientAddress {
    /// What limits per client are counted by: an IPv4 address, or an IPv6 network of 64 bits.
    pub fn network(self) -> IpAddr {
        client_network(self.0.ip())
    }
}

/// What limits per client are counted by: an IPv4 address, or an IPv6 network of 64 bits.
pub fn client_network(address: IpAddr) -> IpAddr {
    crate::registry::network(address)
}

/// What happened to the connections of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// So many are open now.
    Open(usize),
    /// One that was waiting had to make room for a new one.
    Displaced,
    /// A new one was closed: every one that it could replace has a request under way.
    Refused,
}

/// Makes a service for each connection.
pub trait Handler: Send + Sync + 'static {
    /// The body of responses.
    type Body: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
    /// What answers the requests of one connection. An error of it ends the connection.
    type Service: Service<
            Request<RequestBody>,
            Response = Response<Self::Body>,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static;

    /// Whether a connection is accepted at all. It is asked before a byte of it is read.
    fn accepts(&self, address: SocketAddr) -> bool {
        let _ = address;
        true
    }

    /// The service for a connection.
    fn service(&self, peer: Peer) -> Self::Service;
}

/// One service for all connections.
#[derive(Debug, Clone)]
pub struct SameService<S>(pub S);

impl<S, B> Handler for SameService<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Body = B;
    type Service = S;

    fn service(&self, _: Peer) -> S {
        self.0.clone()
    }
}

/// A listener: bound, not yet accepting.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    limits: Limits,
    tls: Option<TlsAcceptor>,
    observer: Observer,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).field("limits", &self.limits).finish()
    }
}

impl Listener {
    /// A listener on a socket that is bound.
    pub fn new(tcp: TcpListener, limits: Limits) -> io::Result<Listener> {
        let address = tcp.local_addr()?;
        Ok(Listener { tcp, address, limits, tls: None, observer: Arc::new(|_| {}) })
    }

    /// Takes an address.
    pub async fn bind(address: SocketAddr, limits: Limits) -> io::Result<Listener> {
        Listener::new(TcpListener::bind(address).await?, limits)
    }

    /// Encrypts every connection.
    #[must_use]
    pub fn with_tls(mut self, config: Arc<ServerConfig>) -> Listener {
        self.tls = Some(TlsAcceptor::from(config));
        self
    }

    /// Reports what happens to connections, for metrics. `observer` must return at once.
    #[must_use]
    pub fn observed_by(mut self, observer: impl Fn(ConnectionEvent) + Send + Sync + 'static) -> Listener {
        self.observer = Arc::new(observer);
        self
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL at which a client on this machine reaches it.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", reachable(self.address))
    }

    /// Accepts connections until `shutdown`; then lets the responses under way end, within [`Limits::closing`].
    pub async fn serve<H: Handler>(self, handler: H, shutdown: CancellationToken) {
        let Listener { tcp, limits, tls, observer, .. } = self;
        let (per_address, handler) = (limits.connections_per_address, Arc::new(handler));
        let registry = Arc::new(Registry::new(limits.connections, per_address, observer.clone()));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = tcp.accept() => match accepted {
                    Ok((stream, address)) => {
                        if !handler.accepts(address) {
                            continue;
                        }
                        let activity = Arc::new(Activity::new());
                        let Some(place) = registry.admit(address.ip(), &activity) else { continue };
                        let accepted = Accepted { stream, address, activity, place };
                        let closing = shutdown.clone();
                        connections.spawn(accepted.serve(tls.clone(), handler.clone(), limits, closing));
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "A connection could not be accepted: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(tcp);
        let closed = async { while connections.join_next().await.is_some() {} };
        // What is left after that is a client that does not read; dropping the set ends it.
        let _ = tokio::time::timeout(limits.closing, closed).await;
        drop(connections);
        observer(ConnectionEvent::Open(0));
    }
}

/// A connection that was accepted.
struct Accepted {
    stream: TcpStream,
    address: SocketAddr,
    activity: Arc<Activity>,
    place: Registered,
}

impl Accepted {
    /// Serves the connection. What goes wrong in it ends it and nothing else.
    async fn serve<H: Handler>(
        self,
        tls: Option<TlsAcceptor>,
        handler: Arc<H>,
        limits: Limits,
        closing: CancellationToken,
    ) {
        let Accepted { stream, address, activity, place } = self;
        let _ = stream.set_nodelay(true);
        let client = ClientAddress(address);
        let Some(acceptor) = tls else {
            let service = handler.service(Peer { address, is_tls: false, certificates: Vec::new() });
            let io = Watched::new(stream, activity, Some(place));
            return exchange(io, service, client, limits, closing).await;
        };
        let stream = tokio::select! {
            () = closing.cancelled() => return,
            () = activity.displaced.cancelled() => return,
            shaken = tokio::time::timeout(limits.handshake, acceptor.accept(stream)) => match shaken {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "A TLS handshake failed: {error}");
                    return;
                }
                Err(_) => return,
            },
        };
        activity.shook_hands();
        let shown = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificates = shown.iter().map(|it| it.clone().into_owned()).collect();
        let service = handler.service(Peer { address, is_tls: true, certificates });
        exchange(Watched::new(stream, activity, Some(place)), service, client, limits, closing).await;
    }
}

/// The address at which a client on this machine reaches a listener: "all addresses" is for listening only.
pub fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        address.set_ip(if address.is_ipv4() { loopback.0 } else { loopback.1 });
    }
    address
}
