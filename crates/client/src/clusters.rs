//! Clusters of the Admin API, by resource id.

use std::collections::BTreeMap;

use api::admin::{AdminCluster, HealthForm, ImportRequest};

use crate::error::ClientError;
use crate::exchange::{Client, TypedResponse};
use crate::pages::Pages;
use crate::path::ApiPath;

impl Client {
    /// Lists all clusters.
    pub fn clusters(&self) -> Pages<AdminCluster> {
        Pages::new(self, &ApiPath::new("/admin/providers/microsoft.redhatopenshift/openshiftclusters"))
    }

    /// Gets a cluster.
    pub async fn cluster(&self, id: &str) -> Result<TypedResponse<AdminCluster>, ClientError> {
        self.get(&ApiPath::from_resource_id("", id)).await
    }

    /// Gets the health of a cluster with its history.
    pub async fn cluster_health(&self, id: &str) -> Result<HealthForm, ClientError> {
        Ok(self.get(&ApiPath::from_resource_id("/admin", id).segment("health")).await?.value)
    }

    /// Imports a cluster with this id, or replaces its import.
    pub async fn import_cluster(
        &self,
        id: &str,
        request: &ImportRequest,
    ) -> Result<TypedResponse<AdminCluster>, ClientError> {
        self.put(&ApiPath::from_resource_id("/admin", id).segment("import"), request, None).await
    }

    /// Removes an imported cluster from Shipshape, without changing the cluster itself.
    pub async fn forget_cluster(&self, id: &str, reason: Option<&str>) -> Result<(), ClientError> {
        self.delete(
            &ApiPath::from_resource_id("/admin", id).segment("import").optional_query("reason", reason),
        )
        .await
    }

    /// Replaces the labels of a cluster.
    pub async fn label_cluster(
        &self,
        id: &str,
        labels: &BTreeMap<String, String>,
        reason: Option<&str>,
    ) -> Result<TypedResponse<AdminCluster>, ClientError> {
        self.put(
            &ApiPath::from_resource_id("/admin", id).segment("labels").optional_query("reason", reason),
            labels,
            None,
        )
        .await
    }
}
