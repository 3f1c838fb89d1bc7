//! Manifests: of a cluster, and of the fleet.

use std::collections::BTreeMap;

use api::admin::{CancelRequest, Entry, ManifestForm, ManifestRequest, WhyForm};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

/// How many pending manifests of a schedule were cancelled at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCancelled {
    /// So many.
    pub cancelled: u64,
    /// So many could not be.
    pub errors: u64,
}

impl Client {
    /// The manifests of a cluster, in every state.
    pub fn manifests(&self, cluster: &str) -> Pages<ManifestForm> {
        Pages::of(self, &of(cluster))
    }

    /// The manifests of all clusters, in every state, each with its cluster.
    pub fn all_manifests(&self) -> Pages<ManifestForm> {
        Pages::of(self, &Path::of("/admin/maintenancemanifests"))
    }

    /// Every pending manifest of the fleet, those of the future too.
    pub fn queued_manifests(&self) -> Pages<ManifestForm> {
        Pages::of(self, &Path::of("/admin/maintenancemanifests/queued"))
    }

    /// Asks for a manifest; with `dry_run` only whether it would be accepted, and as what.
    pub async fn create_manifest(
        &self,
        cluster: &str,
        request: &ManifestRequest,
        dry_run: bool,
    ) -> Result<Answer<ManifestForm>, ClientError> {
        let dry_run = dry_run.then_some("true");
        self.put(&of(cluster).maybe("dryRun", dry_run), request, None).await
    }

    /// One manifest.
    pub async fn manifest(&self, cluster: &str, id: Uuid) -> Result<Answer<ManifestForm>, ClientError> {
        self.get(&one(cluster, id)).await
    }

    /// The manifest of whatever cluster whose id is this, or begins so; its cluster is in the answer.
    pub async fn find_manifest(&self, id: &str) -> Result<Answer<ManifestForm>, ClientError> {
        self.get(&Path::of("/admin/maintenancemanifests").segment(id)).await
    }

    /// What happened to a manifest, oldest first.
    pub fn history(&self, cluster: &str, id: Uuid) -> Pages<Entry> {
        Pages::of(self, &one(cluster, id).segment("history"))
    }

    /// All that stands between a manifest and its start.
    pub async fn why(&self, cluster: &str, id: Uuid) -> Result<WhyForm, ClientError> {
        Ok(self.get(&one(cluster, id).segment("why")).await?.value)
    }

    /// Asks for a manifest's end. 200: it had not begun and is cancelled; 202: it is at work and will be.
    pub async fn cancel_manifest(
        &self,
        cluster: &str,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<Answer<ManifestForm>, ClientError> {
        let request = CancelRequest { reason: reason.map(str::to_owned) };
        self.post(&one(cluster, id).segment("cancel"), &request).await
    }

    /// Makes a manifest the next of its cluster.
    pub async fn expedite_manifest(
        &self,
        cluster: &str,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<Answer<ManifestForm>, ClientError> {
        self.post_empty(&one(cluster, id).segment("expedite").maybe("reason", reason)).await
    }

    /// Removes a manifest and its history.
    pub async fn delete_manifest(
        &self,
        cluster: &str,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<(), ClientError> {
        self.delete(&one(cluster, id).maybe("reason", reason)).await
    }

    /// Cancels every manifest of a schedule that is pending and not yet due.
    pub async fn cancel_manifests_of(
        &self,
        schedule: &str,
        reason: Option<&str>,
    ) -> Result<BatchCancelled, ClientError> {
        let path = Path::of("/admin/maintenancemanifests/cancel").query("scheduleID", schedule);
        Ok(self.post_empty(&path.maybe("reason", reason)).await?.value)
    }

    /// By what selections see a cluster.
    pub async fn selectors(&self, cluster: &str) -> Result<BTreeMap<String, String>, ClientError> {
        Ok(self.get(&Path::of_cluster("/admin", cluster).segment("selectors")).await?.value)
    }
}

fn of(cluster: &str) -> Path {
    Path::of_cluster("/admin", cluster).segment("maintenancemanifests")
}

fn one(cluster: &str, id: Uuid) -> Path {
    of(cluster).segment(&id.to_string())
}
