//! A cluster's door: a listener on the loopback interface that speaks TLS, HTTP/1.1 and HTTP/2.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::{Credentials, Reset, handle};
use crate::cluster::Shared;

/// The name of the file that remembers the port.
const PORT_FILE: &str = "port";

/// The door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No port could be had.
    #[error("no port on the loopback interface could be had")]
    Listen(#[source] io::Error),
    /// The port could not be remembered.
    #[error("the port could not be written to {}", path.display())]
    Remember {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// An open door.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Opens a door: at the port that `directory` remembers if it is free, otherwise at any.
    pub async fn open(directory: Option<&Path>) -> Result<Server, ServerError> {
        let file = directory.map(|directory| directory.join(PORT_FILE));
        let remembered =
            file.as_ref().and_then(|file| std::fs::read_to_string(file).ok()?.trim().parse().ok());
        let listener = match remembered {
            Some(port) => match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                Ok(listener) => Ok(listener),
                Err(_) => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await,
            },
            None => TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await,
        };
        let listener = listener.map_err(ServerError::Listen)?;
        let address = listener.local_addr().map_err(ServerError::Listen)?;
        if let Some(path) = file {
            std::fs::write(&path, address.port().to_string())
                .map_err(|source| ServerError::Remember { path, source })?;
        }
        Ok(Server { listener, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets callers in until the cluster ends; then every connection is closed.
    pub async fn serve(self, cluster: Arc<Shared>) {
        let acceptor = TlsAcceptor::from(cluster.access.tls());
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = cluster.ended.cancelled() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) if !cluster.faults.is_unreachable() && !cluster.is_shut() => {
                        connections.spawn(connection(cluster.clone(), acceptor.clone(), stream));
                    }
                    Ok(_) => {}
                    // Out of descriptors: those in use must end before others can begin.
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "A connection could not be accepted");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                },
            }
        }
    }
}

/// Serves one connection. Whatever goes wrong in it ends it and nothing else.
async fn connection(cluster: Arc<Shared>, acceptor: TlsAcceptor, stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let stream = match acceptor.accept(stream).await {
        Ok(stream) => stream,
        Err(error) => {
            tracing::debug!(error = &error as &dyn std::error::Error, "A TLS handshake failed");
            return;
        }
    };
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let proof = Credentials { certificate: cluster.access.user_of_certificates(chain) };
    let service = service_fn(move |request| {
        let (cluster, proof) = (cluster.clone(), proof.clone());
        async move { if cluster.is_shut() { Err(Reset) } else { handle(cluster, proof, request).await } }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(error = &*error, "A connection ended early");
    }
}
