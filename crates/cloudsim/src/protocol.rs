//! The protocol of the simulated cloud, shared by its client and its service.
//!
//! Every call is a `POST` of one [`Call`] as JSON to `/call`, with the service's token as bearer. A successful call returns 200 and
//! its result in JSON; what was not with a [`CallError`] under `error` and a fitting status. Nobody else's cloud speaks so.

use std::fmt;
use std::time::Duration;

use api::install::InstallRequest;
use api::secret::Secret;
use cloud::{CertificateSpec, CloudError, Credential, ResourceId, ResourceRequest, RoleAssignment};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A call. Its `Debug` form shows the verb and the subject, never a secret.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[allow(
    missing_docs,
    reason = "each is a verb of the trait `Cloud` or of the installer, with its parameters"
)]
pub enum Call {
    Put {
        put: ResourceRequest,
    },
    Get {
        id: ResourceId,
    },
    List {
        group: ResourceId,
    },
    Delete {
        id: ResourceId,
    },
    Sizes {
        subscription: String,
        location: String,
    },
    Usages {
        subscription: String,
        location: String,
    },
    Providers {
        subscription: String,
    },
    Feature {
        subscription: String,
        feature: String,
    },
    Principal {
        credential: CallCredential,
    },
    Permissions {
        credential: CallCredential,
        id: ResourceId,
        actions: Vec<String>,
    },
    AssignRole {
        assignment: RoleAssignment,
    },
    RoleAssignments {
        scope: ResourceId,
    },
    RevokeRole {
        scope: ResourceId,
        name: String,
    },
    EnsureCertificate {
        #[serde(rename = "wish")]
        spec: CertificateSpec,
    },
    RenewCertificate {
        name: String,
        newer_than: Option<String>,
    },
    Certificate {
        name: String,
    },
    DeleteCertificate {
        name: String,
    },
    PutSecret {
        name: String,
        value: String,
        expires: Option<Timestamp>,
    },
    Secret {
        name: String,
    },
    DeleteSecret {
        name: String,
    },
    IdentityCertificate {
        identity: ResourceId,
    },
    EnsureToken {
        name: String,
    },
    Token {
        name: String,
    },
    IssuePassword {
        name: String,
    },
    DeleteToken {
        name: String,
    },
    Install {
        request: Box<InstallRequest>,
    },
    Installation {
        cluster: Uuid,
    },
    ClusterCredentials {
        cluster: Uuid,
    },
    RemoveInstallation {
        cluster: Uuid,
    },
}

/// Every verb of a call, as fault rules name it.
pub(crate) const VERBS: [&str; 30] = [
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
    "install",
    "installation",
    "clusterCredentials",
    "removeInstallation",
    "operation",
];

impl Call {
    /// The verb in the JSON form and in fault rules.
    pub fn verb(&self) -> &'static str {
        match self {
            Call::Put { .. } => "put",
            Call::Get { .. } => "get",
            Call::List { .. } => "list",
            Call::Delete { .. } => "delete",
            Call::Sizes { .. } => "sizes",
            Call::Usages { .. } => "usages",
            Call::Providers { .. } => "providers",
            Call::Feature { .. } => "feature",
            Call::Principal { .. } => "principal",
            Call::Permissions { .. } => "permissions",
            Call::AssignRole { .. } => "assignRole",
            Call::RoleAssignments { .. } => "roleAssignments",
            Call::RevokeRole { .. } => "revokeRole",
            Call::EnsureCertificate { .. } => "ensureCertificate",
            Call::RenewCertificate { .. } => "renewCertificate",
            Call::Certificate { .. } => "certificate",
            Call::DeleteCertificate { .. } => "deleteCertificate",
            Call::PutSecret { .. } => "putSecret",
            Call::Secret { .. } => "secret",
            Call::DeleteSecret { .. } => "deleteSecret",
            Call::IdentityCertificate { .. } => "identityCertificate",
            Call::EnsureToken { .. } => "ensureToken",
            Call::Token { .. } => "token",
            Call::IssuePassword { .. } => "issuePassword",
            Call::DeleteToken { .. } => "deleteToken",
            Call::Install { .. } => "install",
            Call::Installation { .. } => "installation",
            Call::ClusterCredentials { .. } => "clusterCredentials",
            Call::RemoveInstallation { .. } => "removeInstallation",
        }
    }

    /// The subject: a resource id, a name, a cluster.
    pub fn subject(&self) -> String {
        match self {
            Call::Put { put } => put.id.to_string(),
            Call::Get { id } | Call::Delete { id } | Call::Permissions { id, .. } => id.to_string(),
            Call::List { group } => group.to_string(),
            Call::Sizes { subscription, location } | Call::Usages { subscription, location } => {
                format!("subscription {subscription} in {location}")
            }
            Call::Providers { subscription } | Call::Feature { subscription, .. } => {
                format!("subscription {subscription}")
            }
            Call::Principal { credential } => credential.who(),
            Call::AssignRole { assignment } => assignment.scope.to_string(),
            Call::RoleAssignments { scope } | Call::RevokeRole { scope, .. } => scope.to_string(),
            Call::EnsureCertificate { spec } => spec.name.clone(),
            Call::RenewCertificate { name, .. }
            | Call::Certificate { name }
            | Call::DeleteCertificate { name }
            | Call::PutSecret { name, .. }
            | Call::Secret { name }
            | Call::DeleteSecret { name }
            | Call::EnsureToken { name }
            | Call::Token { name }
            | Call::IssuePassword { name }
            | Call::DeleteToken { name } => name.clone(),
            Call::IdentityCertificate { identity } => identity.to_string(),
            Call::Install { request } => format!("{} {}", request.name, request.cluster),
            Call::Installation { cluster }
            | Call::ClusterCredentials { cluster }
            | Call::RemoveInstallation { cluster } => cluster.to_string(),
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.subject())
    }
}

/// A credential, as it is sent.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "as", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[allow(missing_docs, reason = "as in `Credential`")]
pub enum CallCredential {
    Service,
    Client { client_id: String, secret: String },
    Identity { id: ResourceId },
}

impl CallCredential {
    /// The principal, for messages.
    pub fn who(&self) -> String {
        match self {
            CallCredential::Service => "this service".to_owned(),
            CallCredential::Client { client_id, .. } => client_id.clone(),
            CallCredential::Identity { id } => id.to_string(),
        }
    }
}

impl From<&Credential> for CallCredential {
    fn from(credential: &Credential) -> CallCredential {
        match credential {
            Credential::Service => CallCredential::Service,
            Credential::Client { client_id, secret } => {
                CallCredential::Client { client_id: client_id.clone(), secret: secret.expose().clone() }
            }
            Credential::Identity(id) => CallCredential::Identity { id: id.clone() },
        }
    }
}

/// A certificate with its key, as it is sent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "as in `cloud::IssuedCertificate`")]
pub struct IssuedCertificate {
    pub certificate: cloud::VaultCertificate,
    pub chain_pem: String,
    pub key_pem: String,
}

impl From<IssuedCertificate> for cloud::IssuedCertificate {
    fn from(it: IssuedCertificate) -> cloud::IssuedCertificate {
        cloud::IssuedCertificate {
            certificate: it.certificate,
            chain_pem: it.chain_pem,
            key_pem: Secret::new(it.key_pem),
        }
    }
}

/// A secret, as it is sent.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "as in `cloud::VaultSecret`")]
pub struct VaultSecret {
    pub name: String,
    pub version: String,
    pub expires: Option<Timestamp>,
    pub value: String,
}

impl From<VaultSecret> for cloud::VaultSecret {
    fn from(it: VaultSecret) -> cloud::VaultSecret {
        cloud::VaultSecret {
            name: it.name,
            version: it.version,
            expires: it.expires,
            value: Secret::new(it.value),
        }
    }
}

/// A token with its password, as it is sent.
#[derive(Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `cloud::IssuedPullToken`")]
pub struct IssuedPullToken {
    pub token: cloud::PullToken,
    pub password: String,
}

impl From<IssuedPullToken> for cloud::IssuedPullToken {
    fn from(it: IssuedPullToken) -> cloud::IssuedPullToken {
        cloud::IssuedPullToken { token: it.token, password: Secret::new(it.password) }
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
