//! Where AWS is, and how long it takes until it shows what it has accepted.

use std::time::Duration;

/// Time after which AWS shows an accepted change to every reader.
const CONSISTENCY: Duration = Duration::from_secs(60);

/// The AWS in which a cluster's machines are. The region and the credential come with each Machine.
#[derive(Debug, Clone)]
pub struct AwsSettings {
    /// Endpoints in the place of AWS's own.
    pub endpoints: Endpoints,
    /// Trusted authorities in PEM, besides those of the system.
    pub ca_pem: Option<String>,
    /// Time after which AWS shows an accepted change to every reader.
    pub consistency: Duration,
}

impl Default for AwsSettings {
    fn default() -> AwsSettings {
        AwsSettings { endpoints: Endpoints::default(), ca_pem: None, consistency: CONSISTENCY }
    }
}

/// The URLs of services; `None` for AWS's own of the region.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Endpoints {
    /// EC2.
    pub ec2: Option<String>,
    /// Elastic Load Balancing, of both generations.
    pub load_balancing: Option<String>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {setting}: {why}")]
pub struct SettingsError {
    /// The setting.
    pub setting: &'static str,
    /// The reason, with what is accepted.
    pub why: String,
}
