//! Settings: one TOML file, `SHIPSHAPE_*` variables and flags, checked together at start.
//!
//! Each setting is a documented field of the structs in this file; nothing else lists the keys. A flag
//! overrides a variable, a variable the file, the file the default. Every mistake
//! is reported at once, each message with the key, the origin of its value and what is
//! accepted. A value that may hold a secret is never repeated.

#[cfg(feature = "services")]
mod azure;
#[cfg(feature = "services")]
mod checks;
mod keys;
mod layers;
mod load;
mod origin;
mod renamed;
#[cfg(feature = "services")]
mod services;
mod show;
#[cfg(feature = "services")]
mod store_url;
mod values;
mod variables;

#[cfg(test)]
#[cfg(feature = "services")]
mod tests;

use std::net::SocketAddr;

use api::duration::TimeSpan;
use serde::{Deserialize, Serialize};

#[cfg(feature = "services")]
pub(crate) use azure::AzureConfig;
pub(crate) use layers::Flag;
pub(crate) use load::{ConfigErrors, Loaded, load};
#[cfg(feature = "services")]
pub(crate) use services::{
    CloudConfig, ClustersConfig, PortalConfig, ProviderKind, RetentionConfig, StoreConfig,
};
#[cfg(feature = "services")]
pub(crate) use store_url::{Migrate, StoreUrl};
pub(crate) use values::redacted;
pub(crate) use values::{FilePath, LogFilter, LogFormat, OtlpEndpoint, ServiceName};

/// Every setting of a Shipshape process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    /// Directory of the files that this process creates: the SQLite store, keys, credentials.
    /// Default: `$XDG_DATA_HOME/shipshape`, else `~/.local/share/shipshape`.
    pub(crate) data_dir: FilePath,
    /// Longest shutdown, after which running tasks are aborted. From 1s to 1h.
    #[serde(deserialize_with = "values::deadline")]
    pub(crate) shutdown_deadline: TimeSpan,
    /// The store.
    #[cfg(feature = "services")]
    pub(crate) store: StoreConfig,
    /// The health and metrics endpoint.
    pub(crate) health: HealthConfig,
    /// Settings of clusters that several services use.
    #[cfg(feature = "services")]
    pub(crate) clusters: ClustersConfig,
    /// The Admin API: listen address and authentication.
    #[cfg(feature = "services")]
    pub(crate) frontend: frontend::Config,
    /// The operators' portal: listen address and sign-in.
    #[cfg(feature = "services")]
    pub(crate) portal: PortalConfig,
    /// The actuator, which runs manifests.
    #[cfg(feature = "services")]
    pub(crate) actuator: maintenance::actuator::Config,
    /// The backend, which creates, updates and deletes clusters.
    #[cfg(feature = "services")]
    pub(crate) backend: backend::Config,
    /// The monitor, which says how every cluster is.
    #[cfg(feature = "services")]
    pub(crate) monitor: monitor::Config,
    /// The cloud of the clusters.
    #[cfg(feature = "services")]
    pub(crate) cloud: CloudConfig,
    /// Level and format of the log.
    pub(crate) log: LogConfig,
    /// Export of traces.
    pub(crate) telemetry: TelemetryConfig,
    /// Retention of finished work and records.
    #[cfg(feature = "services")]
    pub(crate) retention: RetentionConfig,
}

#[cfg(feature = "services")]
impl Config {
    /// The settings of the Admin API, including those that other services share.
    pub(crate) fn frontend(&self) -> frontend::Config {
        let ClustersConfig { locations, zone, allow_kubeconfig } = self.clusters.clone();
        frontend::Config { locations, zone, allow_kubeconfig, ..self.frontend.clone() }
    }
}

/// The health and metrics endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct HealthConfig {
    /// Address and port of `/livez`, `/readyz`, `/metrics` and `/version`. Port 0 lets the system choose.
    #[serde(deserialize_with = "values::listen")]
    pub(crate) listen: SocketAddr,
}

/// Level and format of the log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LogConfig {
    /// `text` for people, `json` for collectors.
    pub(crate) format: LogFormat,
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or directives such as `info,store=debug`.
    pub(crate) level: LogFilter,
}

/// Export of traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct TelemetryConfig {
    /// An OpenTelemetry collector that takes OTLP over HTTP, such as `http://localhost:4318`. Unset: no traces.
    pub(crate) otlp_endpoint: Option<OtlpEndpoint>,
    /// The service name in traces.
    pub(crate) service_name: ServiceName,
    /// The share of traces that is exported, from 0 to 1.
    #[serde(deserialize_with = "values::ratio")]
    pub(crate) sample_ratio: f64,
}

impl Default for Config {
    /// The defaults that do not depend on where the process runs. `load` adds the paths.
    fn default() -> Config {
        Config {
            data_dir: FilePath::default(),
            shutdown_deadline: TimeSpan::seconds(30),
            #[cfg(feature = "services")]
            store: StoreConfig::default(),
            health: HealthConfig::default(),
            #[cfg(feature = "services")]
            clusters: ClustersConfig::default(),
            #[cfg(feature = "services")]
            frontend: frontend::Config::default(),
            #[cfg(feature = "services")]
            portal: PortalConfig::default(),
            #[cfg(feature = "services")]
            actuator: maintenance::actuator::Config::default(),
            #[cfg(feature = "services")]
            backend: backend::Config::default(),
            #[cfg(feature = "services")]
            monitor: monitor::Config::default(),
            #[cfg(feature = "services")]
            cloud: CloudConfig::default(),
            log: LogConfig::default(),
            telemetry: TelemetryConfig::default(),
            #[cfg(feature = "services")]
            retention: RetentionConfig::default(),
        }
    }
}

impl Default for HealthConfig {
    fn default() -> HealthConfig {
        HealthConfig { listen: SocketAddr::from(([127, 0, 0, 1], 8446)) }
    }
}

impl Default for TelemetryConfig {
    fn default() -> TelemetryConfig {
        TelemetryConfig { otlp_endpoint: None, service_name: ServiceName::default(), sample_ratio: 1.0 }
    }
}
