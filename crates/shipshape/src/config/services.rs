//! Settings of the services and of what they share: the store, clusters, the cloud, the portal, retention.

use std::net::SocketAddr;
use std::time::Duration;

use api::duration::TimeSpan;
use kubelink::AllowedRisks;
use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use super::azure::AzureConfig;
use super::store_url::{Migrate, StoreUrl};
use super::values::{self, FilePath};

/// The store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// `sqlite:PATH`, or `postgres://USER@HOST/DATABASE`. Default: `sqlite:<data_dir>/shipshape.db`.
    pub(crate) url: StoreUrl,
    /// A file with the PostgreSQL password, so that it need not be in the URL.
    pub(crate) password_file: Option<FilePath>,
    /// The file of keys that seal secrets before they reach the store. Default: `<data_dir>/keys`.
    pub(crate) key_file: FilePath,
    /// A file of certificates (PEM) to verify the PostgreSQL server with, instead of the system's.
    pub(crate) ca_file: Option<FilePath>,
    /// Connections to PostgreSQL at most; SQLite has two readers for each core. From 2 to 64.
    #[serde(deserialize_with = "values::connections")]
    pub(crate) connections: u32,
    /// Whether a starting process migrates the schema: `auto` or `never`.
    pub(crate) migrate: Migrate,
}

/// Settings of clusters that several services use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ClustersConfig {
    /// The locations where clusters may be; the first is the default.
    pub(crate) locations: Vec<String>,
    /// The DNS zone of this service; clusters of a location may have a label of `LOCATION.ZONE`. Unset: labels are named in
    /// `clusters.shipshape.test`, which is for local use.
    pub(crate) zone: Option<String>,
    /// Features that imported kubeconfigs may use besides inline data: `exec`, `auth-provider`, `token-file`,
    /// `file-path`, `proxy-url`, `insecure-tls`. Nothing by default.
    pub(crate) allow_kubeconfig: AllowedRisks,
}

/// The operators' web pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PortalConfig {
    /// Address and port of the portal. Port 0 lets the system choose.
    #[serde(deserialize_with = "values::listen")]
    pub(crate) listen: SocketAddr,
    /// URL for browsers, such as `https://portal.example`. Unset: the listen address.
    pub(crate) url: Option<String>,
    /// Its certificate with intermediate certificates, in PEM. Unset: that of the API.
    pub(crate) certificate: Option<FilePath>,
    /// The private key of that certificate, in PEM.
    pub(crate) key: Option<FilePath>,
    /// Connections at most, 1 to 65536.
    #[serde(deserialize_with = "values::open_connections")]
    pub(crate) connections: usize,
    /// Connections from one IPv4 address or one IPv6 network of 64 bits at most. A reverse proxy counts as one address.
    #[serde(deserialize_with = "values::open_connections")]
    pub(crate) connections_per_address: usize,
    /// The OpenID Connect provider for sign-in. Without an issuer, on a loopback address: the link that is shown at start.
    pub(crate) oidc: portal::OidcConfig,
}

/// The cloud of the clusters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CloudConfig {
    /// The provider of the cloud that clusters run in: `simulated` or `azure`.
    pub(crate) provider: ProviderKind,
    /// Interval between two polls of something that the cloud creates or deletes, from 10ms to 5m. A simulated cloud is quick, so
    /// the default is short; 10s suits a real one.
    #[serde(deserialize_with = "values::poll")]
    pub(crate) poll: TimeSpan,
    /// The file with the endpoints of a simulated cloud: the `cloud/endpoints.json` that `shipshape up` writes
    /// to its data directory, or the `sim/cloud/endpoints.json` of `shipshape sim`. Unset: `up` starts one, other processes have no cloud.
    pub(crate) file: Option<FilePath>,
    /// Listen address of the simulated cloud of `up` and `sim`: a loopback address. Port 0 lets the system choose.
    #[serde(deserialize_with = "values::listen")]
    pub(crate) simulated_at: SocketAddr,
    /// Duration of its operations, from 0 (immediate) to 1 (as in a real cloud).
    #[serde(deserialize_with = "values::ratio")]
    pub(crate) pace: f64,
    /// The subscription of the service's own resources: its zone, its network.
    pub(crate) subscription: Uuid,
    /// Azure, with the provider `azure`.
    pub(crate) azure: AzureConfig,
}

/// The providers of clouds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProviderKind {
    /// The simulated cloud.
    #[default]
    Simulated,
    /// Azure's public cloud, a sovereign one, or an emulator of its protocol.
    Azure,
}

impl<'de> Deserialize<'de> for ProviderKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ProviderKind, D::Error> {
        values::text(deserializer, "simulated or azure", |value| match value {
            "simulated" => Ok(ProviderKind::Simulated),
            "azure" => Ok(ProviderKind::Azure),
            _ => Err("expected simulated or azure".to_owned()),
        })
    }
}

/// Retention of finished work and records; each at least 1h.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetentionConfig {
    /// Finished manifests.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) manifests: TimeSpan,
    /// Rows of the change feed; a reader that falls behind further starts over.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) feed: TimeSpan,
    /// Finished asynchronous operations.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) operations: TimeSpan,
    /// Audit and maintenance records.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) audit: TimeSpan,
    /// The history of the health of clusters.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) health: TimeSpan,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig {
            url: StoreUrl::Sqlite(FilePath::default()),
            password_file: None,
            key_file: FilePath::default(),
            ca_file: None,
            connections: 8,
            migrate: Migrate::default(),
        }
    }
}

impl Default for ClustersConfig {
    fn default() -> ClustersConfig {
        let frontend::Config { locations, zone, allow_kubeconfig, .. } = frontend::Config::default();
        ClustersConfig { locations, zone, allow_kubeconfig }
    }
}

impl Default for PortalConfig {
    fn default() -> PortalConfig {
        PortalConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 8444)),
            url: None,
            certificate: None,
            key: None,
            connections: 1024,
            connections_per_address: 512,
            oidc: portal::OidcConfig::default(),
        }
    }
}

impl Default for CloudConfig {
    /// A cluster is created within a minute, slow enough to watch.
    fn default() -> CloudConfig {
        CloudConfig {
            provider: ProviderKind::default(),
            poll: TimeSpan::new(Duration::from_millis(250)),
            file: None,
            simulated_at: SocketAddr::from(([127, 0, 0, 1], 0)),
            pace: 0.02,
            subscription: Uuid::max(),
            azure: AzureConfig::default(),
        }
    }
}

impl Default for RetentionConfig {
    fn default() -> RetentionConfig {
        RetentionConfig {
            manifests: TimeSpan::days(90),
            feed: TimeSpan::days(7),
            operations: TimeSpan::days(7),
            audit: TimeSpan::days(400),
            health: TimeSpan::days(400),
        }
    }
}
