//! The facts about the cluster that defaults and rules depend on.

use std::collections::BTreeSet;

/// The platform of a cluster, as far as it has rules for provider specs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// Amazon Web Services.
    Aws,
    /// Microsoft Azure.
    Azure,
    /// Google Cloud.
    Gcp,
    /// VMware vSphere.
    VSphere,
    /// Nutanix.
    Nutanix,
    /// IBM Power Virtual Server.
    PowerVs,
    /// Any other, and Kubernetes without OpenShift: every provider spec is admitted.
    #[default]
    Other,
}

impl Platform {
    /// The platform of this name in `Infrastructure`.
    pub fn from_type(name: &str) -> Platform {
        match name {
            "AWS" => Platform::Aws,
            "Azure" => Platform::Azure,
            "GCP" => Platform::Gcp,
            "VSphere" => Platform::VSphere,
            "Nutanix" => Platform::Nutanix,
            "PowerVS" => Platform::PowerVs,
            _ => Platform::Other,
        }
    }
}

/// The processor architecture that default machine types are chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Architecture {
    /// 64-bit x86; also the default for architectures without machine types of their own.
    #[default]
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// The architecture that this process runs on.
    pub fn current() -> Architecture {
        match std::env::consts::ARCH {
            "aarch64" => Architecture::Arm64,
            _ => Architecture::Amd64,
        }
    }
}

/// The facts about the cluster that defaults and rules depend on. Without `Infrastructure` they are those of [`Default`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlatformFacts {
    /// The platform.
    pub platform: Platform,
    /// The identity of the cluster, the prefix of the names of its resources.
    pub cluster_id: Option<String>,
    /// The region, on platforms that report one.
    pub region: Option<String>,
    /// The cloud is not the public one of Azure.
    pub is_azure_government: bool,
    /// The cluster has no public DNS zone.
    pub is_dns_disconnected: bool,
    /// The architecture of default machine types.
    pub architecture: Architecture,
    /// The enabled feature gates.
    pub feature_gates: BTreeSet<String>,
}

impl PlatformFacts {
    /// The name of a resource of the cluster: its identity, a hyphen and `suffix`.
    pub(crate) fn resource_name(&self, suffix: &str) -> String {
        format!("{}-{suffix}", self.cluster_id.as_deref().unwrap_or_default())
    }

    /// Chooses by architecture.
    pub(crate) fn by_architecture<'a>(&self, amd64: &'a str, arm64: &'a str) -> &'a str {
        match self.architecture {
            Architecture::Amd64 => amd64,
            Architecture::Arm64 => arm64,
        }
    }
}
