//! What an installer is told and what it answers, as far as a simulated one goes: it makes the machines of a cluster in the
//! simulated cloud and a simulated cluster on them.

use api::secret::Secret;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::simulated::Simulated;
use crate::wire::{self, Call};
use crate::{CloudError, Fault, ResourceId};

/// The simulated installer, which lives in the simulated cloud.
#[derive(Debug, Clone)]
pub struct Installer {
    cloud: Simulated,
}

impl Installer {
    pub(crate) fn of(cloud: Simulated) -> Installer {
        Installer { cloud }
    }

    /// Orders an installation; as it is now. The same order again changes nothing, another one of the same cluster is a conflict
    /// until the first is removed. What the order needs (group, subnets, load balancer) must be there.
    pub async fn order(&self, order: &Order) -> Result<Installation, CloudError> {
        self.cloud.call(&Call::Order { order: Box::new(order.clone()) }).await
    }

    /// An installation as it is now; none when there is none.
    pub async fn look(&self, cluster: Uuid) -> Result<Option<Installation>, CloudError> {
        self.cloud.call(&Call::Look { cluster }).await
    }

    /// The keys of the cluster. Not found until its API server answers.
    pub async fn handover(&self, cluster: Uuid) -> Result<Handover, CloudError> {
        self.cloud.call::<wire::Handover>(&Call::Handover { cluster }).await.map(Into::into)
    }

    /// Ends an installation, or the cluster that came of it, and forgets it. Its machines stay until their group is deleted.
    /// What is gone has been removed.
    pub async fn remove(&self, cluster: Uuid) -> Result<(), CloudError> {
        self.cloud.call(&Call::Remove { cluster }).await
    }
}

/// What is to be installed. The same order again changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// The cluster.
    pub cluster: Uuid,
    /// Its name.
    pub name: String,
    /// The prefix of the names of all that belongs to it.
    pub infra_id: String,
    /// Where it runs.
    pub location: String,
    /// The version.
    pub version: String,
    /// Its whole domain name: the API server is `api.` and applications are `*.apps.` of it.
    pub domain: String,
    /// The group that its machines are made in.
    pub group: ResourceId,
    /// The zones that its machines are spread over.
    pub zones: Vec<String>,
    /// The control plane.
    pub masters: Machines,
    /// The workers.
    pub workers: Vec<Machines>,
    /// The internal load balancer that the control plane stands behind.
    pub load_balancer: ResourceId,
    /// Fail at this stage, for trying out what follows. (At `Complete`, the installation stays in `Operators` with its fault.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_at: Option<Stage>,
}

/// Machines of one pool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Machines {
    /// The pool's name, as `master` or `worker`.
    pub pool: String,
    /// How many.
    pub count: u32,
    /// The size of each.
    pub size: String,
    /// The size of each disk.
    pub disk_size_gb: u32,
    /// The subnet that they are in.
    pub subnet: ResourceId,
}

/// How far an installation is. Stages follow each other in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stage {
    /// Accepted.
    Ordered,
    /// The bootstrap machine is made.
    Bootstrap,
    /// The machines of the control plane are made.
    ControlPlane,
    /// The API server answers.
    ApiServer,
    /// The workers are made.
    Workers,
    /// The operators come up.
    Operators,
    /// All is there.
    Complete,
}

/// What is known of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// The cluster.
    pub cluster: Uuid,
    /// How far it is.
    pub stage: Stage,
    /// What is being done, in a sentence.
    pub message: String,
    /// From 0 to 100.
    pub percent: u8,
    /// Why it failed, when it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Fault>,
    /// The URL of the API server, once it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
}

/// What an installation leaves for those who use the cluster.
#[derive(Debug, Clone)]
pub struct Handover {
    /// For our own services.
    pub kubeconfig: Secret<String>,
    /// For its customer.
    pub customer_kubeconfig: Secret<String>,
    /// The password of `kubeadmin`.
    pub kubeadmin_password: Secret<String>,
}
