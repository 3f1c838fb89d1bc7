//! The webhooks as a service: a listener, its certificate and its registration.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::clock::SharedClock;
use controller::FieldManager;
use kube::Client;
use serve::tls::{CertificateFiles, ClientCertificates, ResolvesServerCert, TlsError, server_config};
use serve::{Listener, ListenerLimits, SharedService};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::certificates::{CertificateError, CertificatePolicy, Certificates};
use super::cluster_facts;
use super::facts::PlatformFacts;
use super::handler::{HandlerState, router};
use super::registration::{Registration, Trust, WebhookEndpoint};

/// The name under which certificates and registration are written.
const FIELD_MANAGER: FieldManager = FieldManager::new("machine-webhooks");

/// The port of the webhooks in a pod.
const PORT: u16 = 8443;

/// The shortest and the longest wait after a failure.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// Who provides the certificate of the webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// An authority of our own, in a Secret of the namespace.
    Private(CertificatePolicy),
    /// Files that another service renews, such as a mounted Secret of OpenShift's service CA, which then also writes `caBundle`.
    Files {
        /// The certificate with its chain, in PEM.
        certificate: PathBuf,
        /// Its key, in PEM.
        key: PathBuf,
    },
}

/// The settings of the webhooks.
#[derive(Debug, Clone)]
pub struct WebhookConfig {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The namespace of the Secret.
    pub namespace: String,
    /// Where the API server reaches the webhooks; none is the listener's own URL, for API servers on this machine.
    pub endpoint: Option<WebhookEndpoint>,
    /// Who provides the certificate.
    pub certificate: CertificateSource,
    /// Longest time between two checks of certificates and registration.
    pub check_interval: Duration,
    /// Limits of the listener. All requests come from the few API servers.
    pub limits: ListenerLimits,
}

impl WebhookConfig {
    /// The settings inside a cluster, behind the Service of the reference.
    pub fn in_cluster(namespace: &str) -> WebhookConfig {
        WebhookConfig {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT),
            namespace: namespace.to_owned(),
            endpoint: Some(WebhookEndpoint::of_service(namespace)),
            certificate: CertificateSource::Private(CertificatePolicy::default()),
            check_interval: Duration::from_secs(30),
            limits: ListenerLimits::default(),
        }
    }

    /// The settings outside a cluster: the API server on this machine calls a port of the system's choice.
    pub fn on_loopback(namespace: &str) -> WebhookConfig {
        WebhookConfig {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            endpoint: None,
            ..WebhookConfig::in_cluster(namespace)
        }
    }
}

/// The webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhooksError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The URL of the endpoint is not one.
    #[error("the webhook URL {url:?} is not https://HOST[:PORT]")]
    Url {
        /// The URL.
        url: String,
    },
    /// The certificate files cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The listener ended by itself.
    #[error("the listener of the webhooks ended")]
    ListenerEnded,
}

/// The webhooks with a bound socket.
pub struct Webhooks {
    client: Client,
    clock: SharedClock,
    config: WebhookConfig,
    listener: Listener,
    endpoint: WebhookEndpoint,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Webhooks {
    /// Binds the socket.
    pub async fn bind(
        client: Client,
        clock: SharedClock,
        config: WebhookConfig,
    ) -> Result<Webhooks, WebhooksError> {
        let failed = |source| WebhooksError::Listen { address: config.listen, source };
        let listener = Listener::bind(config.listen, config.limits).await.map_err(failed)?;
        let endpoint = match &config.endpoint {
            Some(WebhookEndpoint::Url(url)) => WebhookEndpoint::Url(url.trim_end_matches('/').to_owned()),
            Some(endpoint) => endpoint.clone(),
            None => {
                let address = serve::reachable_address(listener.address());
                WebhookEndpoint::Url(format!("https://{address}"))
            }
        };
        Ok(Webhooks { client, clock, config, listener, endpoint })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Serves the webhooks and keeps them registered until `shutdown`. While the API server cannot be reached, it tries again.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), WebhooksError> {
        let names = names(&self.endpoint)?;
        let prepared = tokio::select! {
            prepared = self.prepare(names) => prepared?,
            () = shutdown.cancelled() => return Ok(()),
        };
        let PreparedWebhooks { state, certificate, maintenance } = prepared;
        let tls = server_config(certificate, ClientCertificates::NotRequested)?;
        let registration = Registration::new(self.client, self.endpoint, FIELD_MANAGER);
        let mut serving = JoinSet::new();
        serving.spawn(self.listener.with_tls(tls).serve(SharedService(router(&state)), shutdown.clone()));
        tokio::select! {
            () = maintain(maintenance, registration, self.config.check_interval) => {}
            () = shutdown.cancelled() => {}
            _ = serving.join_next() => {
                return if shutdown.is_cancelled() { Ok(()) } else { Err(WebhooksError::ListenerEnded) };
            }
        }
        // The listener completes its active responses.
        while serving.join_next().await.is_some() {}
        Ok(())
    }

    /// Reads the facts about the cluster and obtains the first certificate.
    async fn prepare(&self, names: Vec<String>) -> Result<PreparedWebhooks, WebhooksError> {
        let facts = read_facts(&self.client).await;
        tracing::info!("Webhooks of the machine API apply the rules of platform {:?}", facts.platform);
        let state = HandlerState::new(self.client.clone(), facts);
        let policy = match &self.config.certificate {
            CertificateSource::Private(policy) => *policy,
            CertificateSource::Files { certificate, key } => {
                let certificate = CertificateFiles::open(certificate, key)?;
                return Ok(PreparedWebhooks { state, certificate, maintenance: Maintenance::Files });
            }
        };
        let (client, clock) = (self.client.clone(), self.clock.clone());
        let namespace = &self.config.namespace;
        let mut certificates = Certificates::new(client, namespace, FIELD_MANAGER, policy, clock, names);
        let certificate = first_certificate(&mut certificates).await;
        let maintenance = Maintenance::Private(Box::new(certificates));
        Ok(PreparedWebhooks { state, certificate, maintenance })
    }
}

/// What is needed to accept connections.
struct PreparedWebhooks {
    state: Arc<HandlerState>,
    certificate: Arc<dyn ResolvesServerCert>,
    maintenance: Maintenance,
}

/// Binds, serves and registers the webhooks until `shutdown`.
pub async fn run(
    client: Client,
    clock: SharedClock,
    config: WebhookConfig,
    shutdown: CancellationToken,
) -> Result<(), WebhooksError> {
    Webhooks::bind(client, clock, config).await?.run(shutdown).await
}

/// What is to be kept up to date.
enum Maintenance {
    /// The registration.
    Files,
    /// The registration, the certificate and its authority.
    Private(Box<Certificates>),
}

impl Maintenance {
    async fn reconcile(&mut self, registration: &Registration) -> Result<(), CertificateError> {
        match self {
            Maintenance::Files => Ok(registration.apply(Trust::Injected).await.map(|_| ())?),
            Maintenance::Private(certificates) => certificates.reconcile(registration).await,
        }
    }
}

/// Reconciles at every interval, and sooner after a failure. It does not end.
async fn maintain(mut maintenance: Maintenance, registration: Registration, interval: Duration) {
    let mut pause = RetryPause::default();
    loop {
        match maintenance.reconcile(&registration).await {
            Ok(()) => {
                pause = RetryPause::default();
                tokio::time::sleep(interval).await;
            }
            Err(error) => {
                log_failure("maintain certificates and registration of the webhooks", &error);
                pause.wait().await;
            }
        }
    }
}

/// Reads the facts about the cluster as soon as that is possible.
async fn read_facts(client: &Client) -> PlatformFacts {
    let mut pause = RetryPause::default();
    loop {
        match cluster_facts::read(client).await {
            Ok(facts) => return facts,
            Err(error) => log_failure("read the platform of the cluster", &error),
        }
        pause.wait().await;
    }
}

/// Obtains the first certificate as soon as that is possible.
async fn first_certificate(certificates: &mut Certificates) -> Arc<dyn ResolvesServerCert> {
    let mut pause = RetryPause::default();
    loop {
        match certificates.prepare().await {
            Ok(certificate) => return certificate,
            Err(error) => log_failure("prepare the certificate of the webhooks", &error),
        }
        pause.wait().await;
    }
}

/// The pauses between attempts, each twice as long as the one before.
struct RetryPause(Duration);

impl Default for RetryPause {
    fn default() -> RetryPause {
        RetryPause(RETRY_MIN)
    }
}

impl RetryPause {
    async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(RETRY_MAX);
    }
}

fn log_failure(action: &str, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(error, "Failed to {action}, trying again: {error}");
}

/// The names in the certificate: those under which the API server connects.
fn names(endpoint: &WebhookEndpoint) -> Result<Vec<String>, WebhooksError> {
    match endpoint {
        WebhookEndpoint::Service { namespace, name, .. } => {
            Ok(vec![format!("{name}.{namespace}.svc"), format!("{name}.{namespace}.svc.cluster.local")])
        }
        WebhookEndpoint::Url(url) => {
            let invalid = || WebhooksError::Url { url: url.clone() };
            let uri: http::Uri = url.parse().map_err(|_| invalid())?;
            let is_base =
                uri.scheme_str() == Some("https") && matches!(uri.path(), "" | "/") && uri.query().is_none();
            let host = uri.host().filter(|_| is_base).ok_or_else(invalid)?;
            Ok(vec![host.trim_start_matches('[').trim_end_matches(']').to_owned()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_certificate_is_for_the_name_that_the_api_server_uses() {
        let url = |url: &str| names(&WebhookEndpoint::Url(url.to_owned()));
        assert_eq!(url("https://127.0.0.1:8443").unwrap(), ["127.0.0.1"]);
        assert_eq!(url("https://[::1]:8443/").unwrap(), ["::1"]);
        assert_eq!(url("https://webhooks.example").unwrap(), ["webhooks.example"]);
        for wrong in
            ["http://127.0.0.1", "https://127.0.0.1/path", "https://127.0.0.1?a=b", "127.0.0.1:80", ""]
        {
            let error = url(wrong).unwrap_err().to_string();
            assert_eq!(error, format!("the webhook URL {wrong:?} is not https://HOST[:PORT]"));
        }
        let service = WebhookEndpoint::Service { namespace: "n".to_owned(), name: "s".to_owned(), port: 443 };
        assert_eq!(names(&service).unwrap(), ["s.n.svc", "s.n.svc.cluster.local"]);
    }
}
