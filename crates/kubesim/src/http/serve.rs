//! The listener of a cluster on the loopback interface: TLS, HTTP/1.1 and HTTP/2.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::serve::{ConnectionHandler, Listener, ListenerLimits, Peer, RequestBody};
use hyper::{Request, Response};
use tokio::net::TcpListener;

use super::{Body, ConnectionReset, Credentials, handle};
use crate::cluster::ClusterInner;

/// All clients are on this machine, and a test may open very many watches. A cluster stops at once, without waiting
/// for connections.
fn limits() -> ListenerLimits {
    ListenerLimits {
        connections: 16_384,
        connections_per_address: 16_384,
        streams: 1_000,
        closing: Duration::ZERO,
        ..ListenerLimits::default()
    }
}

/// The name of the file with the port.
const PORT_FILE: &str = "port";

/// The listener cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No port can be bound.
    #[error("failed to bind a port on the loopback interface")]
    Listen(#[source] io::Error),
    /// The port cannot be saved.
    #[error("failed to save the port to {}", path.display())]
    SavePort {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// An open listener.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
}

impl Server {
    /// Opens a listener on the port that is saved in `directory` if it is free, otherwise on any port.
    pub async fn open(directory: Option<&Path>) -> Result<Server, ServerError> {
        let file = directory.map(|directory| directory.join(PORT_FILE));
        let saved_port =
            file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
        let listener = match saved_port {
            Some(port) => match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await,
            },
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await,
        };
        let listener = listener.map_err(ServerError::Listen)?;
        let listener = Listener::new(listener, limits()).map_err(ServerError::Listen)?;
        if let Some(path) = file {
            std::fs::write(&path, listener.address().port().to_string())
                .map_err(|source| ServerError::SavePort { path, source })?;
        }
        Ok(Server { listener })
    }

    /// The address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves connections until the cluster stops, then closes them.
    pub async fn serve(self, cluster: Arc<ClusterInner>) {
        let (tls, stopped) = (cluster.access.tls(), cluster.stopped.clone());
        self.listener.with_tls(tls).serve(ClusterConnections(cluster), stopped).await;
    }
}

/// Handles connections over the network.
struct ClusterConnections(Arc<ClusterInner>);

impl ConnectionHandler for ClusterConnections {
    type Body = Body;
    type Service = RequestService;

    fn accepts(&self, _: SocketAddr) -> bool {
        !self.0.faults.is_unreachable() && !self.0.is_unreachable()
    }

    fn service(&self, peer: Peer) -> RequestService {
        let credentials = match self.0.access.authenticate_certificate(&peer.certificates) {
            Some(user) => Credentials::User(user),
            None if peer.certificates.is_empty() => Credentials::None,
            None => Credentials::InvalidCertificate,
        };
        RequestService { cluster: self.0.clone(), credentials }
    }
}

/// Handles the requests of one connection.
#[derive(Clone)]
struct RequestService {
    cluster: Arc<ClusterInner>,
    credentials: Credentials,
}

impl tower::Service<Request<RequestBody>> for RequestService {
    type Response = Response<Body>;
    type Error = ConnectionReset;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, ConnectionReset>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionReset>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let RequestService { cluster, credentials } = self.clone();
        Box::pin(async move {
            if cluster.is_unreachable() {
                Err(ConnectionReset)
            } else {
                handle(cluster, credentials, request).await
            }
        })
    }
}
