//! The interface between the services that need a cluster installed and an installer: its requests, its reports and its errors.
//!
//! The trait is here, below every crate that implements or uses it, so that an installer needs nothing of the services and the
//! services name no installer. An installer works by itself once it has accepted a request; nothing here waits for it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;
use uuid::Uuid;

use crate::error::{Class, Classify};
use crate::resource_id::ResourceId;
use crate::secret::Secret;

/// An installer of any kind.
pub type SharedInstaller = Arc<dyn Installer>;

/// Installs clusters. Every call has a time limit of its own, can be repeated at any moment, and returns as soon as the installer
/// has accepted it.
#[async_trait]
pub trait Installer: fmt::Debug + Send + Sync + 'static {
    /// Requests an installation and returns its current status. A repeated request changes nothing; a different request for the
    /// same cluster is a conflict until the first is removed. The resources that the request names must exist.
    async fn install(&self, request: &InstallRequest) -> Result<Installation, InstallError>;
    /// The current status of an installation; `None` when there is none.
    async fn installation(&self, cluster: Uuid) -> Result<Option<Installation>, InstallError>;
    /// The credentials of the cluster. Not found until its API server answers.
    async fn credentials(&self, cluster: Uuid) -> Result<ClusterCredentials, InstallError>;
    /// Stops an installation, or removes the installer's record of the finished cluster. The machines remain until their resource
    /// group is deleted. Removing an unknown installation succeeds.
    async fn remove(&self, cluster: Uuid) -> Result<(), InstallError>;
}

/// A cluster to install.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstallRequest {
    /// The cluster's id.
    pub cluster: Uuid,
    /// The cluster's name.
    pub name: String,
    /// The prefix of the names of all its resources.
    pub infra_id: String,
    /// The location that it runs in.
    pub location: String,
    /// The OpenShift version.
    pub version: String,
    /// The full domain name: the API server is `api.` and applications are `*.apps.` of it.
    pub domain: String,
    /// The resource group for its machines.
    pub group: ResourceId,
    /// The zones that its machines are spread over.
    pub zones: Vec<String>,
    /// The control plane.
    pub masters: MachinePool,
    /// The workers.
    pub workers: Vec<MachinePool>,
    /// The internal load balancer in front of the control plane.
    pub load_balancer: ResourceId,
}

/// A pool of equal machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MachinePool {
    /// The pool's name, such as `master` or `worker`.
    #[serde(rename = "pool")]
    pub name: String,
    /// The number of machines.
    pub count: u32,
    /// The VM size of each.
    pub size: String,
    /// The size of each OS disk.
    pub disk_size_gb: u32,
    /// The subnet of the machines.
    pub subnet: ResourceId,
}

/// The stages of an installation, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InstallStage {
    /// The request is accepted.
    #[serde(rename = "ordered")]
    Accepted,
    /// The bootstrap machine is created.
    Bootstrap,
    /// The machines of the control plane are created.
    ControlPlane,
    /// The API server starts.
    ApiServer,
    /// The workers are created.
    Workers,
    /// The cluster operators start.
    Operators,
    /// The cluster is installed.
    Complete,
}

impl InstallStage {
    /// The name of the stage in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            InstallStage::Accepted => "ordered",
            InstallStage::Bootstrap => "bootstrap",
            InstallStage::ControlPlane => "controlPlane",
            InstallStage::ApiServer => "apiServer",
            InstallStage::Workers => "workers",
            InstallStage::Operators => "operators",
            InstallStage::Complete => "complete",
        }
    }

    /// The stage that follows.
    pub fn next(self) -> Option<InstallStage> {
        match self {
            InstallStage::Accepted => Some(InstallStage::Bootstrap),
            InstallStage::Bootstrap => Some(InstallStage::ControlPlane),
            InstallStage::ControlPlane => Some(InstallStage::ApiServer),
            InstallStage::ApiServer => Some(InstallStage::Workers),
            InstallStage::Workers => Some(InstallStage::Operators),
            InstallStage::Operators => Some(InstallStage::Complete),
            InstallStage::Complete => None,
        }
    }
}

/// The status of an installation.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Installation {
    /// The cluster's id.
    pub cluster: Uuid,
    /// The stage in progress.
    pub stage: InstallStage,
    /// The current activity, in a sentence.
    pub message: String,
    /// Progress from 0 to 100.
    pub percent: u8,
    /// The failure that ended it.
    #[serde(default)]
    pub failure: Option<InstallFailure>,
    /// The URL of the API server, once it answers.
    #[serde(default)]
    pub api_url: Option<String>,
}

/// The failure that ended an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallFailure {
    /// The code of the cloud or the installer, such as `ZonalAllocationFailed`.
    pub code: String,
    /// The reason, in a sentence.
    pub message: String,
}

/// The credentials of an installed cluster.
#[derive(Debug, Clone)]
pub struct ClusterCredentials {
    /// The kubeconfig for our own services.
    pub kubeconfig: Secret<String>,
    /// The kubeconfig for the customer.
    pub customer_kubeconfig: Secret<String>,
    /// The password of `kubeadmin`.
    pub kubeadmin_password: Secret<String>,
}

/// An installer did not do what was requested.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The installation, or a resource that the request names, does not exist.
    #[error("{what} was not found")]
    NotFound {
        /// The missing installation or resource.
        what: String,
    },
    /// Another request for the same cluster was accepted before.
    #[error("{what}: {why}")]
    Conflict {
        /// The installation or resource.
        what: String,
        /// The reason, in a sentence.
        why: String,
    },
    /// The request is invalid, or the cloud rejects it.
    #[error("{message}")]
    Rejected {
        /// The code of the cloud or the installer.
        code: String,
        /// The reason, in a sentence.
        message: String,
    },
    /// The installer lacks a permission. Granted permissions take minutes to propagate, so a later attempt may succeed.
    #[error("{message}")]
    Denied {
        /// The missing permission, in a sentence.
        message: String,
    },
    /// The installer did not answer, or asks to be called later.
    #[error("the installer did not answer {request}")]
    Unavailable {
        /// The request that failed.
        request: String,
        /// How long the installer asks to wait.
        retry_after: Option<Duration>,
        /// The cause.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl Classify for InstallError {
    fn class(&self) -> Class {
        match self {
            InstallError::Denied { .. } | InstallError::Unavailable { .. } => Class::Transient,
            InstallError::NotFound { .. } | InstallError::Conflict { .. } | InstallError::Rejected { .. } => {
                Class::Terminal
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stage_is_named_in_json_as_in_messages_and_the_last_is_complete() {
        let mut stage = InstallStage::Accepted;
        loop {
            assert_eq!(serde_json::to_value(stage).unwrap(), stage.as_str());
            match stage.next() {
                Some(next) => stage = next,
                None => break,
            }
        }
        assert_eq!(stage, InstallStage::Complete);
    }
}
