//! What a plan that works on a cluster is given: the way to it, and what is known of it.

use std::collections::BTreeMap;

use api::clock::SharedClock;
use api::doc::{Cluster, ProvisioningState};
use kubelink::cordon::Holder;
use kubelink::{Link, Progress};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::credentials::Ours;
use crate::engine::{StepContext, StepError};

/// What holders of cordons that belong to manifests begin with.
const HOLDER_PREFIX: &str = "manifest/";

/// What is known of a cluster without asking it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterFacts {
    /// This very cluster, not a later one of the same name.
    pub uuid: Uuid,
    /// Its resource id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it runs.
    pub location: String,
    /// The version that it was last seen with; `None` when nobody has asked it yet.
    pub version: Option<String>,
    /// What its customer sees of its life.
    pub provisioning_state: ProvisioningState,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl ClusterFacts {
    /// What a cluster's document says, with the version that it was last seen with.
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

    /// The same as data, as templates and expressions see it.
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

/// What a plan that works on a cluster is given.
#[derive(Debug, Clone)]
pub struct ClusterContext {
    /// The way to the cluster.
    pub link: Link,
    /// What is known of it.
    pub cluster: ClusterFacts,
    /// The clock.
    pub clock: SharedClock,
    /// What there is besides for a cluster that we made; nothing for one that was imported.
    ours: Option<Ours>,
}

impl ClusterContext {
    /// A context of a cluster that can be reached by `link`.
    pub fn new(link: Link, cluster: ClusterFacts, clock: SharedClock) -> ClusterContext {
        ClusterContext { link, cluster, clock, ours: None }
    }

    /// The same for a cluster that we made, in a process that has a cloud.
    #[must_use]
    pub fn with_ours(self, ours: Ours) -> ClusterContext {
        ClusterContext { ours: Some(ours), ..self }
    }

    /// What there is besides for a cluster that we made. Work that needs it ends where there is nothing of the kind.
    pub fn ours(&self) -> Result<&Ours, StepError> {
        self.ours.as_ref().ok_or_else(|| {
            let message = format!(
                "cluster {} was not made by Shipshape, so that Shipshape keeps no certificates and tokens for it",
                self.cluster.name
            );
            StepError::terminal("NotOurs", message)
        })
    }

    /// Who cordons: the manifest whose work this is, the same after a retry and a takeover.
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

    /// Carries what a verb says to whoever watches the step.
    pub fn progress(&self, step: &StepContext) -> Progress {
        let teller = step.teller.clone();
        Progress::new(self.clock.clone(), move |note| match &note.waiting_for {
            Some(what) => teller.report(crate::kinds::waiting(&note.about, what)),
            None => teller.say(format!("{}: {}", note.about, note.sentence)),
        })
    }
}
