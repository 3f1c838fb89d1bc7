//! The connection of an in-cluster command.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::client::ClientBuilder;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::limits::TimeLimit;

/// A healthy API server connects in milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// An API server ends any request itself after 60 s.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);

const USER_AGENT: &str = concat!("shipshape/", env!("CARGO_PKG_VERSION"));

/// A client, and the namespace that the command works in.
#[derive(Clone)]
pub struct Connection {
    /// The client; every request has a timeout.
    pub client: Client,
    /// The namespace that was asked for; else that of the service account or of the kubeconfig's context.
    pub namespace: String,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The process does not run in a pod with a service account, and no kubeconfig was given.
    #[error("no service account of a pod was found; outside a cluster, give --kubeconfig FILE")]
    NotInCluster(#[source] InClusterError),
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: KubeconfigError,
    },
    /// The credential or the trust cannot be used.
    #[error("the client cannot be made")]
    Client(#[source] kube::Error),
}

/// Connects with `kubeconfig`, or as the service account of this pod. `namespace` overrides that of either. Sends no request yet.
pub async fn connect(kubeconfig: Option<&Path>, namespace: Option<&str>) -> Result<Connection, ConnectError> {
    let mut config = match kubeconfig {
        Some(path) => {
            let failed = |source| ConnectError::Kubeconfig { path: path.to_owned(), source };
            let read = Kubeconfig::read_from(path).map_err(failed)?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(failed)?
        }
        None => Config::incluster().map_err(ConnectError::NotInCluster)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.write_timeout = Some(REQUEST_TIMEOUT);
    // The queue retries; a retry here would multiply it.
    config.default_retry = false;
    config.headers.push((http::header::USER_AGENT, http::HeaderValue::from_static(USER_AGENT)));
    let namespace = namespace.map_or_else(|| config.default_namespace.clone(), str::to_owned);
    config.default_namespace.clone_from(&namespace);
    let builder = ClientBuilder::try_from(config).map_err(ConnectError::Client)?;
    let client = builder.with_layer(&TimeLimit(REQUEST_TIMEOUT)).build();
    Ok(Connection { client, namespace })
}
