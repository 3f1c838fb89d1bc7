//! The context of a plan that works on a cluster: the connection to it and its facts.

use std::collections::BTreeMap;

use api::clock::SharedClock;
use api::doc::{Cluster, ProvisioningState};
use kubelink::cordon::Holder;
use kubelink::{Link, ProgressSink};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::credentials::ManagedCluster;
use crate::engine::{StepContext, StepError};

/// Prefix of the holder ids of cordons set by manifests.
const HOLDER_PREFIX: &str = "manifest/";

/// Facts about a cluster that are known without contacting it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// Identifies this cluster, and not a later one of the same name.
    pub uuid: Uuid,
    /// Its resource id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its location.
    pub location: String,
    /// The last observed version; `None` if it was never contacted.
    pub version: Option<String>,
    /// Its provisioning state.
    pub provisioning_state: ProvisioningState,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl ClusterFacts {
    /// The facts in a cluster's document, with the last observed version.
    pub fn of(uuid: Uuid, cluster: &Cluster, version: Option<String>) -> ClusterFacts {
        ClusterFacts {
            uuid,
            id: cluster.id.clone(),
            name: cluster.name.clone(),
            location: cluster.location.clone(),
            version,
            provisioning_state: cluster.provisioning_state,
            labels: cluster.labels.clone(),
        }
    }

    /// The facts as JSON, for templates and expressions.
    pub fn value(&self) -> Value {
        json!({
            "uuid": self.uuid,
            "id": self.id,
            "name": self.name,
            "location": self.location,
            "version": self.version,
            "provisioningState": self.provisioning_state,
            "labels": self.labels,
        })
    }
}

/// The context of a plan that works on a cluster.
#[derive(Debug, Clone)]
pub struct ClusterContext {
    /// The connection to the cluster.
    pub link: Link,
    /// Its facts.
    pub cluster: ClusterFacts,
    /// The clock.
    pub clock: SharedClock,
    /// Set for a cluster that Shipshape provisioned; none for an imported one.
    managed: Option<ManagedCluster>,
}

impl ClusterContext {
    /// A context for the cluster behind `link`.
    pub fn new(link: Link, cluster: ClusterFacts, clock: SharedClock) -> ClusterContext {
        ClusterContext { link, cluster, clock, managed: None }
    }

    /// Adds what tasks on a managed cluster need, in a process that has a cloud.
    #[must_use]
    pub fn with_managed(self, managed: ManagedCluster) -> ClusterContext {
        ClusterContext { managed: Some(managed), ..self }
    }

    /// The managed cluster. It is an error if Shipshape did not provision the cluster.
    pub fn managed(&self) -> Result<&ManagedCluster, StepError> {
        self.managed.as_ref().ok_or_else(|| {
            let message = format!(
                "cluster {} was not provisioned by Shipshape, so Shipshape manages no certificates and tokens for it",
                self.cluster.name
            );
            StepError::terminal("NotOurs", message)
        })
    }

    /// The holder of this run's cordons: the manifest, the same after a retry and a takeover.
    pub fn holder(&self, step: &StepContext) -> Holder {
        let reason = format!("step {} of manifest {}", step.step, step.hold.work);
        Holder::new(format!("{HOLDER_PREFIX}{}", step.hold.work), reason)
    }

    /// Whether a holder is a manifest, of this run or of another.
    pub fn is_manifest(holder_id: &str) -> bool {
        holder_id.starts_with(HOLDER_PREFIX)
    }

    /// The key of what this step does once, however often it is tried: a Job, a restart.
    pub fn run(&self, step: &StepContext) -> String {
        format!("{}/{}", step.hold.work, step.step)
    }

    /// Passes the progress of a kubelink verb to the reporter of the step.
    pub fn progress(&self, step: &StepContext) -> ProgressSink {
        let reporter = step.reporter.clone();
        ProgressSink::new(self.clock.clone(), move |note| match &note.waiting_for {
            Some(what) => reporter.report(crate::kinds::waiting(&note.about, what)),
            None => reporter.message(format!("{}: {}", note.about, note.sentence)),
        })
    }
}
