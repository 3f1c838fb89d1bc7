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
use crate::connection::{TrackedStream, serve_connection};
use crate::registry::{Registration, Registry};
use crate::{ListenerLimits, RequestBody};

/// Pause after a failed accept, for example when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

pub(crate) type Observer = Arc<dyn Fn(ConnectionEvent) + Send + Sync>;

/// The client of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Address and port.
    pub address: SocketAddr,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
    /// The certificates that it sent, its own first; empty when it sent none.
    pub certificates: Vec<CertificateDer<'static>>,
}

/// The address of a request's client, in the request's extensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub SocketAddr);

impl ClientAddress {
    /// The unit of limits per client; see [`client_network`].
    pub fn network(self) -> IpAddr {
        client_network(self.0.ip())
    }
}

/// The unit of limits per client: an IPv4 address, or an IPv6 network of 64 bits.
pub fn client_network(address: IpAddr) -> IpAddr {
    crate::registry::network(address)
}

/// An event in the connections of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The number of open connections changed to this.
    Open(usize),
    /// A new connection displaced an idle one.
    Displaced,
    /// A new connection was closed because all those that it could displace have active requests.
    Rejected,
}

/// Creates a service for each connection.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// The body of responses.
    type Body: http_body::Body<Data: Send, Error: Into<BoxError>> + Send + 'static;
    /// The service of one connection. An error of it closes the connection.
    type Service: Service<
            Request<RequestBody>,
            Response = Response<Self::Body>,
            Error: Into<BoxError>,
            Future: Send + 'static,
        > + Clone
        + Send
        + 'static;

    /// Whether a connection is accepted. Called before a byte of it is read.
    fn accepts(&self, address: SocketAddr) -> bool {
        let _ = address;
        true
    }

    /// The service for a connection.
    fn service(&self, peer: Peer) -> Self::Service;
}

/// A handler that uses one service for all connections.
#[derive(Debug, Clone)]
pub struct SharedService<S>(pub S);

impl<S, B> ConnectionHandler for SharedService<S>
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

/// A bound listener that does not accept yet.
pub struct Listener {
    tcp: TcpListener,
    address: SocketAddr,
    limits: ListenerLimits,
    tls: Option<TlsAcceptor>,
    observer: Observer,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).field("limits", &self.limits).finish()
    }
}

impl Listener {
    /// A listener on a bound socket.
    pub fn new(tcp: TcpListener, limits: ListenerLimits) -> io::Result<Listener> {
        let address = tcp.local_addr()?;
        Ok(Listener { tcp, address, limits, tls: None, observer: Arc::new(|_| {}) })
    }

    /// Binds a socket.
    pub async fn bind(address: SocketAddr, limits: ListenerLimits) -> io::Result<Listener> {
        Listener::new(TcpListener::bind(address).await?, limits)
    }

    /// Encrypts every connection.
    #[must_use]
    pub fn with_tls(mut self, config: Arc<ServerConfig>) -> Listener {
        self.tls = Some(TlsAcceptor::from(config));
        self
    }

    /// Calls `observer` for each event, for metrics. It must not block.
    #[must_use]
    pub fn with_observer(mut self, observer: impl Fn(ConnectionEvent) + Send + Sync + 'static) -> Listener {
        self.observer = Arc::new(observer);
        self
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for clients on this machine.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", reachable_address(self.address))
    }

    /// Accepts connections until `shutdown`, then completes active responses within [`ListenerLimits::closing`].
    pub async fn serve<H: ConnectionHandler>(self, handler: H, shutdown: CancellationToken) {
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
                        let Some(registration) = registry.register(address.ip(), &activity) else { continue };
                        let accepted = AcceptedConnection { stream, address, activity, registration };
                        let closing = shutdown.clone();
                        connections.spawn(accepted.serve(tls.clone(), handler.clone(), limits, closing));
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "Cannot accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(tcp);
        let closed = async { while connections.join_next().await.is_some() {} };
        // Clients that do not read may be left; dropping the set disconnects them.
        let _ = tokio::time::timeout(limits.closing, closed).await;
        drop(connections);
        observer(ConnectionEvent::Open(0));
    }
}

/// An accepted connection.
struct AcceptedConnection {
    stream: TcpStream,
    address: SocketAddr,
    activity: Arc<Activity>,
    registration: Registration,
}

impl AcceptedConnection {
    /// Serves the connection. An error closes this connection only.
    async fn serve<H: ConnectionHandler>(
        self,
        tls: Option<TlsAcceptor>,
        handler: Arc<H>,
        limits: ListenerLimits,
        closing: CancellationToken,
    ) {
        let AcceptedConnection { stream, address, activity, registration } = self;
        let _ = stream.set_nodelay(true);
        let client = ClientAddress(address);
        let Some(acceptor) = tls else {
            let service = handler.service(Peer { address, is_tls: false, certificates: Vec::new() });
            let io = TrackedStream::new(stream, activity, Some(registration));
            return serve_connection(io, service, client, limits, closing).await;
        };
        let stream = tokio::select! {
            () = closing.cancelled() => return,
            () = activity.displaced.cancelled() => return,
            handshake = tokio::time::timeout(limits.handshake, acceptor.accept(stream)) => match handshake {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "TLS handshake failed: {error}");
                    return;
                }
                Err(_) => return,
            },
        };
        activity.handshake_completed();
        let presented = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let certificates = presented.iter().map(|it| it.clone().into_owned()).collect();
        let service = handler.service(Peer { address, is_tls: true, certificates });
        serve_connection(
            TrackedStream::new(stream, activity, Some(registration)),
            service,
            client,
            limits,
            closing,
        )
        .await;
    }
}

/// The address at which a client on this machine reaches a listener: the unspecified address becomes loopback.
pub fn reachable_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        address.set_ip(if address.is_ipv4() { loopback.0 } else { loopback.1 });
    }
    address
}
