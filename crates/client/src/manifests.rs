//! Manifests of a cluster and of the fleet.

use std::collections::BTreeMap;

use api::admin::{CancelRequest, Entry, ManifestForm, ManifestRequest, WhyForm};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

/// Result of cancelling the pending manifests of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchCancelResult {
    /// Number of cancelled manifests.
    pub cancelled: u64,
    /// Number of manifests that could not be cancelled.
    pub errors: u64,
}

impl Client {
    /// Lists the manifests of a cluster, in every state.
    pub fn manifests(&self, cluster: &str) -> Pages<ManifestForm> {
        Pages::new(self, &manifests_path(cluster))
    }

    /// Lists the manifests of all clusters, in every state, each with its cluster.
    pub fn all_manifests(&self) -> Pages<ManifestForm> {
        Pages::new(self, &ApiPath::new("/admin/maintenancemanifests"))
    }

    /// Lists the pending manifests of the fleet, including those that are not due yet.
    pub fn queued_manifests(&self) -> Pages<ManifestForm> {
        Pages::new(self, &ApiPath::new("/admin/maintenancemanifests/queued"))
    }

    /// Creates a manifest; with `dry_run`, only validates it and returns the manifest that would be created.
    pub async fn create_manifest(
        &self,
        cluster: &str,
        request: &ManifestRequest,
        dry_run: bool,
    ) -> Result<TypedResponse<ManifestForm>, ClientError> {
        let dry_run = dry_run.then_some("true");
        self.put(&manifests_path(cluster).optional_query("dryRun", dry_run), request, None).await
    }

    /// Gets a manifest.
    pub async fn manifest(
        &self,
        cluster: &str,
        id: Uuid,
    ) -> Result<TypedResponse<ManifestForm>, ClientError> {
        self.get(&manifest_path(cluster, id)).await
    }

    /// Finds a manifest of any cluster by its id or a prefix of it; the response has its cluster.
    pub async fn find_manifest(&self, id: &str) -> Result<TypedResponse<ManifestForm>, ClientError> {
        self.get(&ApiPath::new("/admin/maintenancemanifests").segment(id)).await
    }

    /// Lists the history of a manifest, oldest first.
    pub fn history(&self, cluster: &str, id: Uuid) -> Pages<Entry> {
        Pages::new(self, &manifest_path(cluster, id).segment("history"))
    }

    /// Explains why a manifest has not started.
    pub async fn why(&self, cluster: &str, id: Uuid) -> Result<WhyForm, ClientError> {
        Ok(self.get(&manifest_path(cluster, id).segment("why")).await?.value)
    }

    /// Cancels a manifest. 200: it had not started and is cancelled; 202: it is running and will be cancelled.
    pub async fn cancel_manifest(
        &self,
        cluster: &str,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<TypedResponse<ManifestForm>, ClientError> {
        let request = CancelRequest { reason: reason.map(str::to_owned) };
        self.post(&manifest_path(cluster, id).segment("cancel"), &request).await
    }

    /// Moves a manifest to the front of the queue of its cluster.
    pub async fn expedite_manifest(
        &self,
        cluster: &str,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<TypedResponse<ManifestForm>, ClientError> {
        self.post_empty(&manifest_path(cluster, id).segment("expedite").optional_query("reason", reason))
            .await
    }

    /// Deletes a manifest and its history.
    pub async fn delete_manifest(
        &self,
        cluster: &str,
        id: Uuid,
        reason: Option<&str>,
    ) -> Result<(), ClientError> {
        self.delete(&manifest_path(cluster, id).optional_query("reason", reason)).await
    }

    /// Cancels the manifests of a schedule that are pending and not due yet.
    pub async fn cancel_schedule_manifests(
        &self,
        schedule: &str,
        reason: Option<&str>,
    ) -> Result<BatchCancelResult, ClientError> {
        let path = ApiPath::new("/admin/maintenancemanifests/cancel").query("scheduleID", schedule);
        Ok(self.post_empty(&path.optional_query("reason", reason)).await?.value)
    }

    /// Gets the attributes of a cluster that selectors match.
    pub async fn selectors(&self, cluster: &str) -> Result<BTreeMap<String, String>, ClientError> {
        Ok(self.get(&ApiPath::from_resource_id("/admin", cluster).segment("selectors")).await?.value)
    }
}

fn manifests_path(cluster: &str) -> ApiPath {
    ApiPath::from_resource_id("/admin", cluster).segment("maintenancemanifests")
}

fn manifest_path(cluster: &str, id: Uuid) -> ApiPath {
    manifests_path(cluster).segment(&id.to_string())
}
