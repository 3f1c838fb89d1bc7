//! The door: a listener that speaks TLS, HTTP/1.1 and HTTP/2, with bounds on everything a stranger can make it hold.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use axum::body::Body;
use cloud::SharedCloud;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::server::danger::ClientCertVerifier;
use store::Store;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::auth::{AllowList, AnyClient, Certificates, Doorman, Guarded, Proof, TokenService, Tokens};
use crate::config::Config;
use crate::gate::{Gate, Peer};
use crate::metrics::Metrics;
use crate::offer::Offer;
use crate::tls::{self, TlsError};
use crate::wire::Scheme;
use crate::{admin, arm};

/// More wait in the system's queue.
const CONNECTIONS_MAX: usize = 1024;

/// A client that has not shaken hands by then never will.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a request's head may take, and how long a connection may stand idle between two. hyper has one clock for both: ten
/// seconds for a head would cut off callers who poll every ten, two minutes would let strangers hold connections by dribbling.
const HEADER_TIME_MAX: Duration = Duration::from_secs(30);

/// Requests that share one HTTP/2 connection.
const STREAMS_MAX: u32 = 100;

/// A longer head is refused.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// How long answers under way may still take when the door closes.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(10);

/// How long to wait when the system has no connection to give, such as when files run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What the HTTP API works with.
#[derive(Debug, Clone)]
pub struct Deps {
    /// Where documents are.
    pub store: Store,
    /// The clock of the machine, or of a test.
    pub clock: SharedClock,
    /// What is counted.
    pub metrics: Metrics,
    /// The cloud that clusters are made in, for what is checked before one is accepted; without it nothing is.
    pub cloud: Option<SharedCloud>,
}

/// Why the door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The settings do not go together.
    #[error("{}", .0.join("; "))]
    Config(Vec<String>),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be had.
    #[error("frontend.listen {listen}: {why}")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why not, and what to do.
        why: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// The HTTP API, bound but not yet answering.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    gate: Arc<Gate>,
    offer: Offer,
    closing: CancellationToken,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Server {
    /// Checks the settings, reads certificates and takes the address.
    pub async fn bind(config: Config, deps: Deps) -> Result<Server, ServerError> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(ServerError::Config(problems));
        }
        let certificates = Certificates::open(&config)?;
        let callers = AllowList::open(&config.arm, deps.clock.now())?;
        let acceptor = match (&config.certificate, &config.key) {
            (Some(certificate), Some(key)) => {
                // Callers are listed one by one, whoever signed their certificates: then no authority is named to them.
                let listed: Option<Arc<dyn ClientCertVerifier>> =
                    callers.as_ref().map(|_| Arc::new(AnyClient::new()) as Arc<dyn ClientCertVerifier>);
                let clients = listed.as_ref().or(certificates.as_ref().map(Certificates::verifier));
                Some(TlsAcceptor::from(Arc::new(tls::server(certificate, key, clients)?)))
            }
            _ => None,
        };
        let doorman = if config.insecure {
            Doorman::Open
        } else {
            Doorman::Guarded(Box::new(Guarded {
                certificates,
                tokens: Tokens::open(&config.oidc)?,
                callers,
                token_service: TokenService::open(&config.arm)?,
                admit_operators: config.arm.admit_operators,
            }))
        };
        let doorman = Arc::new(doorman);
        let listen = config.listen;
        let refused = |source: io::Error| ServerError::Listen { listen, why: reason(&source), source };
        let listener = TcpListener::bind(listen).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        let closing = CancellationToken::new();
        let offer = Offer::new(deps.store.reader());
        let desk = admin::Desk::new(&config, &deps, offer.clone(), closing.clone());
        let arm = arm::Desk::new(&config, &deps, offer.clone(), desk.clone());
        let (arm_routes, _) = arm::routes().split_for_parts();
        let ready = {
            let (offer, doorman, clock) = (offer.clone(), doorman.clone(), deps.clock.clone());
            move || {
                let unread = (!offer.is_loaded()).then_some("the versions were not read yet");
                unread.or(doorman.problem(clock.now())).map(str::to_owned)
            }
        };
        let router = admin::router(desk, arm_routes.with_state(arm), ready);
        let gate = Gate {
            router,
            locations: config.locations.clone(),
            doorman,
            clock: deps.clock,
            metrics: deps.metrics,
        };
        // What is offered is known before the first request is answered, if the store answers; if not, it is tried again.
        if let Err(error) = offer.load().await {
            let cause: &dyn std::error::Error = &error;
            tracing::warn!(error = cause, "The versions could not be read yet: {error}");
        }
        Ok(Server { listener, address, acceptor, gate: Arc::new(gate), offer, closing })
    }

    /// The base URL at which a client on this machine reaches the API.
    pub fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            // "All addresses" is for listening; a client needs one of them.
            let loopback: (IpAddr, IpAddr) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
            address.set_ip(if address.is_ipv4() { loopback.0 } else { loopback.1 });
        }
        let scheme = if self.acceptor.is_some() { Scheme::Https } else { Scheme::Http };
        format!("{}://{address}", scheme.as_str())
    }

    /// The API for a part of this very process, such as the portal: an operator by the name of `name`, without a connection.
    pub fn local(&self, name: &str) -> LocalService {
        let proof = Proof::of_this_process(name);
        let peer = Peer { address: "this process".to_owned(), scheme: Scheme::Https, proof };
        LocalService { gate: self.gate.clone(), peer }
    }

    /// Answers until `shutdown`; then lets answers under way come to their end and closes event streams.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServerError> {
        let mut connections = JoinSet::new();
        let mut watching = JoinSet::new();
        watching.spawn(self.offer.clone().follow(self.closing.clone()));
        let (gate, closing) = (self.gate.clone(), self.closing.clone());
        watching.spawn(async move {
            if let Doorman::Guarded(guarded) = &*gate.doorman
                && let Some(callers) = &guarded.callers
            {
                callers.follow(&*gate.clock, closing).await;
            }
        });
        loop {
            self.gate.metrics.connections(connections.len());
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, address)) => {
                        let gate = self.gate.clone();
                        connections.spawn(connection(stream, address, self.acceptor.clone(), gate, self.closing.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "The API could not accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(self.listener);
        self.closing.cancel();
        let closed = async { while connections.join_next().await.is_some() {} };
        // Whatever is left after that is a client that does not read; dropping the set ends it.
        let _ = tokio::time::timeout(CLOSING_TIME_MAX, closed).await;
        self.gate.metrics.connections(0);
        Ok(())
    }
}

/// The API without a connection; made by [`Server::local`].
#[derive(Clone)]
pub struct LocalService {
    gate: Arc<Gate>,
    peer: Peer,
}

impl std::fmt::Debug for LocalService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalService").finish_non_exhaustive()
    }
}

impl<B> tower::Service<http::Request<B>> for LocalService
where
    B: http_body::Body<Data = bytes::Bytes> + Send + 'static,
    B::Error: Into<axum::BoxError>,
{
    type Response = axum::response::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let (gate, peer) = (self.gate.clone(), self.peer.clone());
        Box::pin(async move { Ok(gate.pass(peer, request.map(Body::new)).await) })
    }
}

/// How another server of ours speaks TLS, without asking who comes; its certificate is read again when its file changes.
pub fn server_tls(certificate: &Path, key: &Path) -> Result<Arc<rustls::ServerConfig>, ServerError> {
    Ok(Arc::new(tls::server(certificate, key, None)?))
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use by another process; choose another",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address; choose another",
        io::ErrorKind::PermissionDenied => "this user may not open that port; choose another",
        _ => "the address cannot be had",
    }
}

/// Serves one connection. Whatever goes wrong in it ends it and nothing else.
async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    gate: Arc<Gate>,
    closing: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let peer = Peer { address: address.to_string(), scheme: Scheme::Http, proof: Default::default() };
    let Some(acceptor) = acceptor else { return exchange(TokioIo::new(stream), peer, gate, closing).await };
    let shaken = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream));
    let stream = match closing.run_until_cancelled(shaken).await {
        Some(Ok(Ok(stream))) => stream,
        Some(Ok(Err(error))) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "A TLS handshake failed: {error}");
            return;
        }
        Some(Err(_)) | None => return,
    };
    let proof = gate.doorman.examine(stream.get_ref().1.peer_certificates(), gate.clock.now());
    let peer = Peer { scheme: Scheme::Https, proof, ..peer };
    exchange(TokioIo::new(stream), peer, gate, closing).await;
}

/// Requests and answers on one connection, until its client leaves or the door closes.
async fn exchange<I>(io: I, peer: Peer, gate: Arc<Gate>, closing: CancellationToken)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (gate, peer) = (gate.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(gate.pass(peer, request.map(Body::new)).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEADER_TIME_MAX)
        .keep_alive_timeout(HANDSHAKE_TIME_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = &*error, "A connection ended early");
    }
}
