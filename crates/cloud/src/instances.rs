//! The instance provider: what the controllers inside a cluster ask of a cloud for one Machine.
//!
//! A provider never talks to Kubernetes. The machine controller reads the Machine and its Secrets, calls the provider and writes what
//! the provider reports. [`Machines`](crate::Machines) is another role: there the service, outside the cluster and with its own
//! credential, lists, starts and stops all instances of a group. Here a controller, with the cluster's credential, owns one instance.
//!
//! A controller may end at any moment and repeats every call. So names are derived from the Machine, no call waits for the cloud, and
//! no provider remembers anything that it cannot do without.

use std::collections::BTreeMap;
use std::time::Duration;

use api::error::{Class, Classify};
use api::secret::Secret;
use async_trait::async_trait;
use jiff::Timestamp;
use serde_json::Value;

/// Creates, finds, refreshes and deletes the instance of a Machine.
#[async_trait]
pub trait InstanceProvider: std::fmt::Debug + Send + Sync + 'static {
    /// The Secrets that a providerSpec names. An unreadable providerSpec is [`InstanceError::InvalidConfiguration`].
    fn secrets(&self, provider_spec: &Value) -> Result<SecretRefs, InstanceError>;

    /// The instance as it is; `None` when there is none, it is terminated, or, for a Machine without a providerID, its creation has not
    /// succeeded yet: `create` goes on then. A stopped, failed or vanishing instance is there. Changes nothing and needs no user data.
    async fn find(&self, request: &InstanceRequest) -> Result<Option<Instance>, InstanceError>;

    /// Creates the instance and what belongs to it. What an earlier call has created is found by its name and used; a creation that
    /// failed in the cloud is cleared away and begun again. No call waits for the cloud: while it works, the result is
    /// [`InstanceError::RequeueAfter`], and the caller repeats the call. Only [`InstanceError::InvalidConfiguration`] says that no
    /// repetition can succeed.
    async fn create(&self, request: &InstanceRequest) -> Result<Instance, InstanceError>;

    /// Refreshes what the cloud keeps about the instance outside its configuration, such as tags and memberships of load balancers,
    /// and reports it. A changed providerSpec does not change the instance.
    async fn update(&self, request: &InstanceRequest, found: &Instance) -> Result<Instance, InstanceError>;

    /// Deletes the instance and everything that was created for it, in whichever partial state they are. `Ok` means that nothing is
    /// left to request; the instance may still be visible for a while. [`InstanceError::RequeueAfter`] says that a part can be
    /// deleted only later, and the caller repeats the call until `Ok`.
    async fn delete(&self, request: &InstanceRequest) -> Result<(), InstanceError>;
}

/// A Machine as its provider sees it.
#[derive(Debug, Clone)]
pub struct InstanceRequest {
    /// The Machine's namespace.
    pub namespace: String,
    /// The Machine's name.
    pub name: String,
    /// The Machine's uid.
    pub uid: String,
    /// The cluster's infrastructure id: the value of the label `machine.openshift.io/cluster-api-cluster`.
    pub cluster_id: String,
    /// The Machine's labels.
    pub labels: BTreeMap<String, String>,
    /// The Machine's `spec.providerSpec.value`.
    pub provider_spec: Value,
    /// The Machine's `spec.providerID`.
    pub provider_id: Option<String>,
    /// The Machine's `status.providerStatus`.
    pub provider_status: Option<Value>,
    /// When the Machine was created.
    pub created: Timestamp,
    /// When the deletion of the Machine was requested; nothing is created for it since then.
    pub deleted: Option<Timestamp>,
    /// The key `userData` of the Secret in [`SecretRefs::user_data`]. Needed by `create` only.
    pub user_data: Option<Secret<Vec<u8>>>,
    /// The data of the Secret in [`SecretRefs::credentials`]; `None` when the providerSpec names none.
    pub credentials: Option<BTreeMap<String, Secret<Vec<u8>>>>,
    /// Tags that the cluster's Infrastructure prescribes for all its resources.
    pub tags: BTreeMap<String, String>,
}

/// An instance and its current state.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// The value of `spec.providerID` of Machine and Node.
    pub provider_id: String,
    /// The addresses, in the order of `status.addresses`.
    pub addresses: Vec<InstanceAddress>,
    /// The provider's name of the state, for the annotation `machine.openshift.io/instance-state`.
    pub state: String,
    /// Members of `status.providerStatus`. The controller merges them over those that are there, and adds the condition
    /// `MachineCreated` itself.
    pub provider_status: Value,
    /// The value of the label `machine.openshift.io/region`.
    pub region: Option<String>,
    /// The value of the label `machine.openshift.io/zone`.
    pub zone: Option<String>,
    /// The value of the label `machine.openshift.io/instance-type`.
    pub instance_type: Option<String>,
    /// Whether the cloud may take the instance back at any time: the label `machine.openshift.io/interruptible-instance`.
    pub interruptible: bool,
}

/// An address of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceAddress {
    /// The type.
    pub kind: AddressKind,
    /// The address or name.
    pub address: String,
}

/// The type of an address, as in the status of Nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressKind {
    /// The host name.
    Hostname,
    /// An address within the cluster's network.
    InternalIp,
    /// An address that is reachable from elsewhere.
    ExternalIp,
    /// A name that is resolved within the cluster's network.
    InternalDns,
    /// A name that is resolved everywhere.
    ExternalDns,
}

impl AddressKind {
    /// The name in Kubernetes.
    pub fn as_str(self) -> &'static str {
        match self {
            AddressKind::Hostname => "Hostname",
            AddressKind::InternalIp => "InternalIP",
            AddressKind::ExternalIp => "ExternalIP",
            AddressKind::InternalDns => "InternalDNS",
            AddressKind::ExternalDns => "ExternalDNS",
        }
    }
}

/// The Secrets that a providerSpec names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SecretRefs {
    /// The Secret with the user data of new instances.
    pub user_data: Option<SecretRef>,
    /// The Secret with the credential for the cloud.
    pub credentials: Option<SecretRef>,
}

/// The name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretRef {
    /// The namespace; `None` for that of the Machine.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// A provider did not carry out a call. Messages are for the Machine's status and events, and name field, value and what is accepted
/// where the cause is in the Machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InstanceError {
    /// The Machine cannot be created as it is. From `create` this is final: the Machine fails.
    #[error("{0}")]
    InvalidConfiguration(String),
    /// The creation failed and is repeated with backoff.
    #[error("{0}")]
    Create(String),
    /// The refresh failed and is repeated.
    #[error("{0}")]
    Update(String),
    /// The deletion failed and is repeated with backoff.
    #[error("{0}")]
    Delete(String),
    /// The call has to wait; the cause is not a failure.
    #[error("{1}")]
    RequeueAfter(Duration, String),
    /// The cloud did not answer, or rejects the credential: nothing is known about the instance.
    #[error("{0}")]
    Unavailable(String),
}

impl InstanceError {
    /// The Machine's `status.errorReason` for this error; `None` for errors that are no failure of the Machine.
    pub fn reason(&self) -> Option<&'static str> {
        match self {
            InstanceError::InvalidConfiguration(_) => Some("InvalidConfiguration"),
            InstanceError::Create(_) => Some("CreateError"),
            InstanceError::Update(_) => Some("UpdateError"),
            InstanceError::Delete(_) => Some("DeleteError"),
            InstanceError::RequeueAfter(..) | InstanceError::Unavailable(_) => None,
        }
    }

    /// How long to wait before the repetition, if the cloud determines it.
    pub fn requeue_after(&self) -> Option<Duration> {
        match self {
            InstanceError::RequeueAfter(after, _) => Some(*after),
            _ => None,
        }
    }
}

impl Classify for InstanceError {
    fn class(&self) -> Class {
        match self {
            InstanceError::InvalidConfiguration(_) => Class::Terminal,
            InstanceError::Create(_)
            | InstanceError::Update(_)
            | InstanceError::Delete(_)
            | InstanceError::RequeueAfter(..)
            | InstanceError::Unavailable(_) => Class::Transient,
        }
    }
}
