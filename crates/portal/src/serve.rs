//! The listener: plain HTTP for the loopback interface, TLS for everything else.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::Portal;

/// More wait in the system's queue: two connections for each of some hundreds of open pages.
const CONNECTIONS_MAX: usize = 1024;

/// How long a browser may take to shake hands, and to send the head of a request.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
const HEADER_TIME_MAX: Duration = Duration::from_secs(60);

/// Requests that share one connection.
const STREAMS_MAX: u32 = 200;

/// How long answers under way may still take at the end.
const CLOSING_TIME_MAX: Duration = Duration::from_secs(3);

/// How long to wait when the system has no connection to give.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Portal {
    /// Serves the pages on a listener until `shutdown`.
    pub async fn serve(
        self,
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        shutdown: CancellationToken,
    ) -> io::Result<()> {
        let router = self.router();
        let acceptor = tls.map(TlsAcceptor::from);
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => {}
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((stream, _)) => {
                        connections.spawn(connection(stream, acceptor.clone(), router.clone(), shutdown.clone()));
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "The portal could not accept a connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        // Open pages listen for as long as they are open: their streams end here.
        self.house.hub.close();
        let closed = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(CLOSING_TIME_MAX, closed).await;
        Ok(())
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    router: axum::Router,
    closing: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else { return exchange(TokioIo::new(stream), router, closing).await };
    let shaken = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream));
    match closing.run_until_cancelled(shaken).await {
        Some(Ok(Ok(stream))) => exchange(TokioIo::new(stream), router, closing).await,
        Some(Ok(Err(error))) => tracing::debug!("A TLS handshake failed: {error}"),
        Some(Err(_)) | None => {}
    }
}

async fn exchange<I>(io: I, router: axum::Router, closing: CancellationToken)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = TowerToHyperService::new(router);
    // Browsers open few connections of the old protocol to one host; over the new one, any number of pages can listen.
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIME_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEADER_TIME_MAX)
        .max_concurrent_streams(STREAMS_MAX);
    let mut connection = pin!(builder.serve_connection(io, service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("A connection ended early: {error}");
    }
}
