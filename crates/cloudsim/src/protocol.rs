//! What only a simulator can do, below `/sim` on the listener of the resource manager: calls of the installer, and the errors of `/sim`.
//!
//! A call of the installer is a `POST` of one [`InstallCall`] as JSON to `/sim/installations`, with the simulator's token as bearer. A
//! successful call returns 200 and its result in JSON; another one a [`CallError`] under `error` and a fitting status. Everything else that
//! the simulated cloud offers is Azure's protocol.

use std::fmt;
use std::time::Duration;

use api::install::InstallRequest;
use api::secret::Secret;
use cloud::CloudError;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A call of the installer.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "each is a verb of the trait `Installer`, with its parameters")]
pub enum InstallCall {
    Install { request: Box<InstallRequest> },
    Installation { cluster: Uuid },
    ClusterCredentials { cluster: Uuid },
    RemoveInstallation { cluster: Uuid },
}

/// Every verb of a request, as fault rules name it: requests of the resource manager, of vaults and of blobs, and calls of the installer.
pub(crate) const VERBS: [&str; 36] = [
    "put",
    "get",
    "list",
    "delete",
    "sizes",
    "usages",
    "providers",
    "feature",
    "principal",
    "permissions",
    "assignRole",
    "roleAssignments",
    "revokeRole",
    "ensureCertificate",
    "renewCertificate",
    "certificate",
    "deleteCertificate",
    "putSecret",
    "secret",
    "deleteSecret",
    "identityCertificate",
    "ensureToken",
    "token",
    "issuePassword",
    "deleteToken",
    "putBlob",
    "blob",
    "deleteBlob",
    "ensureContainer",
    "deleteContainer",
    "install",
    "installation",
    "clusterCredentials",
    "removeInstallation",
    "operation",
    "handshake",
];

impl InstallCall {
    /// The verb in the JSON form and in fault rules.
    pub fn verb(&self) -> &'static str {
        match self {
            InstallCall::Install { .. } => "install",
            InstallCall::Installation { .. } => "installation",
            InstallCall::ClusterCredentials { .. } => "clusterCredentials",
            InstallCall::RemoveInstallation { .. } => "removeInstallation",
        }
    }

    /// The subject: the cluster, at first with its name.
    pub fn subject(&self) -> String {
        match self {
            InstallCall::Install { request } => format!("{} {}", request.name, request.cluster),
            InstallCall::Installation { cluster }
            | InstallCall::ClusterCredentials { cluster }
            | InstallCall::RemoveInstallation { cluster } => cluster.to_string(),
        }
    }
}

impl fmt::Debug for InstallCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.subject())
    }
}

/// The credentials of an installed cluster, as they are sent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "as in `api::install::ClusterCredentials`")]
pub struct ClusterCredentials {
    pub kubeconfig: String,
    pub customer_kubeconfig: String,
    pub kubeadmin_password: String,
}

impl From<ClusterCredentials> for api::install::ClusterCredentials {
    fn from(it: ClusterCredentials) -> api::install::ClusterCredentials {
        api::install::ClusterCredentials {
            kubeconfig: Secret::new(it.kubeconfig),
            customer_kubeconfig: Secret::new(it.customer_kubeconfig),
            kubeadmin_password: Secret::new(it.kubeadmin_password),
        }
    }
}

/// The body of an error response: `{"error": …}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The error.
    pub error: CallError,
}

/// The error of a call: the variants of [`CloudError`] that a service can return.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[allow(missing_docs, reason = "as in `CloudError`")]
pub enum CallError {
    NotFound { what: String },
    Conflict { what: String, why: String },
    Invalid { reason: String, why: String },
    Denied { who: String, action: String, what: String },
    Credential { who: String, why: String },
    Quota { quota: String, limit: u64, used: u64, wanted: u64 },
    InUse { what: String, by: String },
    Locked { what: String, action: String },
    Throttled { after_seconds: Option<u64> },
    Unavailable { what: String },
}

impl CallError {
    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        match self {
            CallError::NotFound { .. } => StatusCode::NOT_FOUND,
            CallError::Conflict { .. } | CallError::InUse { .. } | CallError::Locked { .. } => {
                StatusCode::CONFLICT
            }
            CallError::Invalid { .. } | CallError::Quota { .. } => StatusCode::BAD_REQUEST,
            CallError::Denied { .. } => StatusCode::FORBIDDEN,
            CallError::Credential { .. } => StatusCode::UNAUTHORIZED,
            CallError::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
            CallError::Unavailable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<CallError> for CloudError {
    fn from(error: CallError) -> CloudError {
        match error {
            CallError::NotFound { what } => CloudError::NotFound { what },
            CallError::Conflict { what, why } => CloudError::Conflict { what, why },
            CallError::Invalid { reason, why } => CloudError::Invalid { code: reason, why },
            CallError::Denied { who, action, what } => CloudError::Denied { who, action, what },
            CallError::Credential { who, why } => CloudError::Credential { who, why },
            CallError::Quota { quota, limit, used, wanted } => {
                CloudError::Quota { quota, limit, used, wanted }
            }
            CallError::InUse { what, by } => CloudError::InUse { what, by },
            CallError::Locked { what, action } => CloudError::Locked { what, action },
            CallError::Throttled { after_seconds } => {
                CloudError::Throttled { after: after_seconds.map(Duration::from_secs) }
            }
            CallError::Unavailable { what } => CloudError::Unavailable { what, source: None },
        }
    }
}
