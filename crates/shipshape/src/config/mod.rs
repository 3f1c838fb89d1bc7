//! Settings: one TOML file, `SHIPSHAPE_*` variables and flags, checked together at start.
//!
//! Each setting is a documented field of the structs in this file; nothing else lists the keys. A flag
//! wins over a variable, a variable over the file, the file over the default. Everything that is wrong
//! is reported at once, each in a sentence that names the key, where its value came from and what would
//! be accepted. A value that may hold a secret is never repeated in such a sentence.

mod checks;
mod keys;
mod layers;
mod load;
mod origin;
mod show;
mod values;
mod variables;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use api::duration::TimeSpan;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub(crate) use layers::Flag;
pub(crate) use load::{ConfigErrors, Loaded, load};
pub(crate) use values::redacted;
pub(crate) use values::{FilePath, LogFilter, LogFormat, Migrate, OtlpEndpoint, ServiceName, StoreUrl};

/// Every setting of a Shipshape process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Where this process keeps what it makes itself: the SQLite store, keys, credentials.
    /// Default: `$XDG_DATA_HOME/shipshape`, else `~/.local/share/shipshape`.
    pub(crate) data_dir: FilePath,
    /// How long a shutdown may take before what still runs is cut off. From 1s to 1h.
    #[serde(deserialize_with = "values::deadline")]
    pub(crate) shutdown_deadline: TimeSpan,
    /// Where documents are kept.
    pub(crate) store: StoreConfig,
    /// The health and metrics endpoint.
    pub(crate) health: HealthConfig,
    /// The Admin API: where it listens, and whom it lets in.
    pub(crate) frontend: frontend::Config,
    /// The operators' web pages: where they are, and who signs in how.
    pub(crate) portal: PortalConfig,
    /// What works manifests.
    pub(crate) actuator: maintenance::actuator::Config,
    /// What carries out what customers ask of their clusters.
    pub(crate) backend: backend::Config,
    /// The cloud that clusters are made in.
    pub(crate) cloud: CloudConfig,
    /// What is logged, and how.
    pub(crate) log: LogConfig,
    /// Where traces are sent.
    pub(crate) telemetry: TelemetryConfig,
    /// How long finished things are kept.
    pub(crate) retention: RetentionConfig,
}

/// Where documents are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct StoreConfig {
    /// `sqlite:PATH`, or `postgres://USER@HOST/DATABASE`. Default: `sqlite:<data_dir>/shipshape.db`.
    pub(crate) url: StoreUrl,
    /// A file that holds the PostgreSQL password, so that it need not be in the URL.
    pub(crate) password_file: Option<FilePath>,
    /// The file of keys that seal secrets before they reach the store. Default: `<data_dir>/keys`.
    pub(crate) key_file: FilePath,
    /// A file of certificates (PEM) that the PostgreSQL server is checked against, instead of the system's.
    pub(crate) ca_file: Option<FilePath>,
    /// Connections to PostgreSQL at most; SQLite has two readers for each core. From 2 to 64.
    #[serde(deserialize_with = "values::connections")]
    pub(crate) connections: u32,
    /// Whether a process that starts brings the schema up to date: `auto` or `never`.
    pub(crate) migrate: Migrate,
}

/// The health and metrics endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HealthConfig {
    /// Address and port of `/livez`, `/readyz`, `/metrics` and `/version`. Port 0 lets the system choose.
    #[serde(deserialize_with = "values::listen")]
    pub(crate) listen: SocketAddr,
}

/// The operators' web pages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PortalConfig {
    /// Address and port of the portal. Port 0 lets the system choose.
    #[serde(deserialize_with = "values::listen")]
    pub(crate) listen: SocketAddr,
    /// Where browsers find it, such as `https://portal.example`. Unset: where it listens.
    pub(crate) url: Option<String>,
    /// Its certificate and those between it and its root, in PEM. Unset: that of the API.
    pub(crate) certificate: Option<FilePath>,
    /// The private key of that certificate, in PEM.
    pub(crate) key: Option<FilePath>,
    /// Connections at most, 1 to 65536.
    #[serde(deserialize_with = "values::open_connections")]
    pub(crate) connections: usize,
    /// Connections from one IPv4 address or one IPv6 network of 64 bits at most. Something that stands before the portal has one.
    #[serde(deserialize_with = "values::open_connections")]
    pub(crate) connections_per_address: usize,
    /// The OpenID Connect provider where people sign in. Without an issuer, on a loopback address: by the link that is shown at start.
    pub(crate) oidc: portal::OidcConfig,
}

/// The cloud that clusters are made in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CloudConfig {
    /// The file that says where a simulated cloud is and how to come in: the `cloud/cloud.json` that `shipshape up` leaves
    /// in its data directory, or the `sim/cloud/cloud.json` of `shipshape sim`. Unset: `up` runs one of its own, other processes have no cloud.
    pub(crate) file: Option<FilePath>,
    /// Where the simulated cloud of `up` and `sim` listens: a loopback address. Port 0 lets the system choose.
    #[serde(deserialize_with = "values::listen")]
    pub(crate) simulated_at: SocketAddr,
    /// How long things take in it, from 0 (at once) to 1 (as in a real one).
    #[serde(deserialize_with = "values::ratio")]
    pub(crate) pace: f64,
    /// The subscription in which this service keeps what it has for itself: its zone, its network.
    pub(crate) subscription: Uuid,
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// `text` for people, `json` for collectors.
    pub(crate) format: LogFormat,
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or directives such as `info,store=debug`.
    pub(crate) level: LogFilter,
}

/// Where traces are sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// An OpenTelemetry collector that takes OTLP over HTTP, such as `http://localhost:4318`. Unset: no traces.
    pub(crate) otlp_endpoint: Option<OtlpEndpoint>,
    /// The name under which traces of this process appear.
    pub(crate) service_name: ServiceName,
    /// The share of traces that is sent, from 0 to 1.
    #[serde(deserialize_with = "values::ratio")]
    pub(crate) sample_ratio: f64,
}

/// How long finished things are kept; each at least 1h.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RetentionConfig {
    /// Finished manifests.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) manifests: TimeSpan,
    /// Rows of the change feed; a reader that is away longer starts over.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) feed: TimeSpan,
    /// Finished asynchronous operations.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) operations: TimeSpan,
    /// Audit and maintenance records.
    #[serde(deserialize_with = "values::retention")]
    pub(crate) audit: TimeSpan,
}

impl Default for Config {
    /// The defaults that do not depend on where the process runs. `load` adds the paths.
    fn default() -> Config {
        Config {
            data_dir: FilePath::default(),
            shutdown_deadline: TimeSpan::seconds(30),
            store: StoreConfig::default(),
            health: HealthConfig::default(),
            frontend: frontend::Config::default(),
            portal: PortalConfig::default(),
            actuator: maintenance::actuator::Config::default(),
            backend: backend::Config::default(),
            cloud: CloudConfig::default(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
            retention: RetentionConfig::default(),
        }
    }
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

impl Default for HealthConfig {
    fn default() -> HealthConfig {
        HealthConfig { listen: SocketAddr::from(([127, 0, 0, 1], 8446)) }
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
    /// A cluster is there within a minute, and one can watch it come.
    fn default() -> CloudConfig {
        CloudConfig {
            file: None,
            simulated_at: SocketAddr::from(([127, 0, 0, 1], 0)),
            pace: 0.02,
            subscription: Uuid::max(),
        }
    }
}

impl Default for TelemetryConfig {
    fn default() -> TelemetryConfig {
        TelemetryConfig { otlp_endpoint: None, service_name: ServiceName::default(), sample_ratio: 1.0 }
    }
}

impl Default for RetentionConfig {
    fn default() -> RetentionConfig {
        RetentionConfig {
            manifests: TimeSpan::days(90),
            feed: TimeSpan::days(7),
            operations: TimeSpan::days(7),
            audit: TimeSpan::days(400),
        }
    }
}
