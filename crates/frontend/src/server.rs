//! The server of the HTTP API: built from its configuration, bound, and run until shutdown. `serve` handles the connections.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use api::clock::SharedClock;
use axum::body::Body;
use cloud::{Identities, Infrastructure};
use serve::tls::{self, CertificateFiles, ClientCertificates, TlsError};
use serve::{ConnectionHandler, Listener, ListenerLimits};
use store::Store;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin::AdminState;
use crate::arm::ArmState;
use crate::auth::{
    AllowList, AuthenticationMethods, Authenticator, CertificateVerifier, ClientProof, TokenService,
    TokenVerifier,
};
use crate::cluster_form::ClusterForms;
use crate::config::Config;
use crate::install_catalog::InstallCatalog;
use crate::metrics::Metrics;
use crate::names::PublicNames;
use crate::pipeline::{Peer, RequestPipeline};
use crate::router::router;
use crate::wire::Scheme;

/// The roles of a cloud that checks before the acceptance of a cluster need.
#[derive(Debug, Clone)]
pub struct CloudRoles {
    /// Sizes, quotas, registrations and networks.
    pub infrastructure: Arc<dyn Infrastructure>,
    /// Principals and their permissions.
    pub identities: Arc<dyn Identities>,
}

impl From<&cloud::Cloud> for CloudRoles {
    fn from(cloud: &cloud::Cloud) -> CloudRoles {
        CloudRoles { infrastructure: cloud.infrastructure.clone(), identities: cloud.identities.clone() }
    }
}

/// The dependencies of the HTTP API.
#[derive(Debug, Clone)]
pub struct Deps {
    /// The store of all documents.
    pub store: Store,
    /// The clock of the machine, or of a test.
    pub clock: SharedClock,
    /// The metrics to update.
    pub metrics: Metrics,
    /// The cloud of the clusters, for checks before a cluster is accepted; without it these are skipped.
    pub cloud: Option<CloudRoles>,
}

/// The server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration is invalid.
    #[error("{}", .0.join("; "))]
    Config(Vec<String>),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address cannot be bound.
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

/// The HTTP API, bound but not yet serving.
pub struct Server {
    listener: Listener,
    pipeline: Arc<RequestPipeline>,
    install_catalog: InstallCatalog,
    closing: CancellationToken,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("address", &self.listener.address()).finish_non_exhaustive()
    }
}

impl Server {
    /// Checks the configuration, reads certificates and binds the address.
    pub async fn bind(config: Config, deps: Deps) -> Result<Server, ServerError> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(ServerError::Config(problems));
        }
        let certificates = CertificateVerifier::open(&config)?;
        let callers = AllowList::open(&config.arm, deps.clock.now())?;
        let certificate = match (&config.certificate, &config.key) {
            (Some(certificate), Some(key)) => Some(CertificateFiles::open(certificate, key)?),
            _ => None,
        };
        let tls = match &certificate {
            Some(certificate) => {
                let clients = match (&callers, &certificates) {
                    // Callers are listed one by one, and any authority may have signed their certificates.
                    (Some(_), _) => ClientCertificates::AnyIssuer,
                    (None, Some(certificates)) => ClientCertificates::SignedBy(certificates.authority()),
                    (None, None) => ClientCertificates::NotRequested,
                };
                Some(tls::server_config(certificate.clone(), clients)?)
            }
            None => None,
        };
        let authenticator = if config.insecure {
            Authenticator::AllowAll
        } else {
            Authenticator::Required(Box::new(AuthenticationMethods {
                certificates,
                tokens: TokenVerifier::open(&config.oidc)?,
                callers,
                token_service: TokenService::open(&config.arm)?,
                admit_operators: config.arm.admit_operators,
            }))
        };
        let authenticator = Arc::new(authenticator);
        let listen = config.listen;
        let refused = |source: io::Error| ServerError::Listen { listen, why: reason(&source), source };
        let mut listener = Listener::bind(listen, limits(&config)).await.map_err(refused)?;
        let counted = deps.metrics.clone();
        listener = listener.with_observer(move |event| counted.connection(event));
        if let Some(tls) = tls {
            listener = listener.with_tls(tls);
        }
        let names = PublicNames::new(&config, certificate, listener.address());
        let closing = CancellationToken::new();
        let install_catalog = InstallCatalog::new(deps.store.reader());
        let forms = ClusterForms::new(deps.store.reader(), config.allow_kubeconfig.clone());
        let admin = AdminState::new(&config, &deps, install_catalog.clone(), forms.clone(), closing.clone());
        let arm = ArmState::new(&config, &deps, install_catalog.clone(), forms);
        let unready_reason = {
            let (install_catalog, authenticator, clock) =
                (install_catalog.clone(), authenticator.clone(), deps.clock.clone());
            move || {
                let unread = (!install_catalog.is_loaded()).then_some("the versions are not loaded yet");
                unread.or(authenticator.problem(clock.now())).map(str::to_owned)
            }
        };
        let router = router(admin, arm, unready_reason);
        let pipeline = RequestPipeline {
            router,
            locations: config.locations.clone(),
            authenticator,
            names,
            clock: deps.clock,
            metrics: deps.metrics,
        };
        // Loaded before the first request if the store is available; otherwise retried later.
        if let Err(error) = install_catalog.load().await {
            let cause: &dyn std::error::Error = &error;
            tracing::warn!(error = cause, "Cannot load the versions yet: {error}");
        }
        Ok(Server { listener, pipeline: Arc::new(pipeline), install_catalog, closing })
    }

    /// The base URL at which a client on this machine reaches the API.
    pub fn url(&self) -> String {
        self.listener.url()
    }

    /// The API for a component of this process, such as the portal: an operator named `name`, without a connection.
    pub fn local(&self, name: &str) -> LocalService {
        let proof = ClientProof::in_process(name);
        let (address, scheme) = ("this process".to_owned(), Scheme::Https);
        let peer = Peer { address, scheme, proof, is_local: true };
        LocalService { pipeline: self.pipeline.clone(), peer }
    }

    /// The API for a resource manager in this process, which authenticates and authorizes its callers itself. It may not use the Admin
    /// API. Its `Referer` is trusted, so that links in responses have the address that the caller used.
    pub fn for_resource_manager(&self) -> LocalService {
        let proof = ClientProof::resource_manager();
        let (address, scheme) = ("this process".to_owned(), Scheme::Https);
        LocalService {
            pipeline: self.pipeline.clone(),
            peer: Peer { address, scheme, proof, is_local: true },
        }
    }

    /// Serves until `shutdown`, then completes active responses and closes event streams.
    pub async fn serve(self, shutdown: CancellationToken) -> Result<(), ServerError> {
        let mut watching = JoinSet::new();
        watching.spawn(self.install_catalog.clone().follow(self.closing.clone()));
        let (pipeline, closing) = (self.pipeline.clone(), self.closing.clone());
        watching.spawn(async move {
            if let Authenticator::Required(guarded) = &*pipeline.authenticator
                && let Some(callers) = &guarded.callers
            {
                callers.follow(&*pipeline.clock, closing).await;
            }
        });
        let (ending, closing) = (shutdown.clone(), self.closing.clone());
        watching.spawn(async move {
            // Event streams end only when they are cancelled.
            ending.cancelled().await;
            closing.cancel();
        });
        self.listener.serve(Connections(self.pipeline), shutdown).await;
        self.closing.cancel();
        Ok(())
    }
}

/// The limits of the listener.
fn limits(config: &Config) -> ListenerLimits {
    let (connections, connections_per_address) = (config.connections, config.connections_per_address);
    ListenerLimits { connections, connections_per_address, ..ListenerLimits::default() }
}

/// Connections over the network.
struct Connections(Arc<RequestPipeline>);

impl ConnectionHandler for Connections {
    type Body = Body;
    type Service = LocalService;

    fn service(&self, peer: serve::Peer) -> LocalService {
        let pipeline = self.0.clone();
        let scheme = if peer.is_tls { Scheme::Https } else { Scheme::Http };
        let proof = pipeline.authenticator.examine(Some(&peer.certificates), pipeline.clock.now());
        LocalService {
            pipeline,
            peer: Peer { address: peer.address.to_string(), scheme, proof, is_local: false },
        }
    }
}

/// The API for one client; without a connection if it comes from [`Server::local`].
#[derive(Clone)]
pub struct LocalService {
    pipeline: Arc<RequestPipeline>,
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
        let (pipeline, peer) = (self.pipeline.clone(), self.peer.clone());
        Box::pin(async move { Ok(pipeline.pass(peer, request.map(Body::new)).await) })
    }
}

fn reason(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use by another process; choose another",
        io::ErrorKind::AddrNotAvailable => "this machine does not have that address; choose another",
        io::ErrorKind::PermissionDenied => "this user may not open that port; choose another",
        _ => "cannot bind the address",
    }
}
