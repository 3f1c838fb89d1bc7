//! Clusters, by their resource ids.

use std::collections::BTreeMap;

use api::admin::{AdminCluster, ImportRequest};

use crate::error::ClientError;
use crate::exchange::{Answer, Client};
use crate::pages::Pages;
use crate::path::Path;

impl Client {
    /// Every cluster.
    pub fn clusters(&self) -> Pages<AdminCluster> {
        Pages::of(self, &Path::of("/admin/providers/microsoft.redhatopenshift/openshiftclusters"))
    }

    /// One cluster.
    pub async fn cluster(&self, id: &str) -> Result<Answer<AdminCluster>, ClientError> {
        self.get(&Path::of_cluster("", id)).await
    }

    /// Imports a cluster under this id, or imports it anew.
    pub async fn import_cluster(
        &self,
        id: &str,
        request: &ImportRequest,
    ) -> Result<Answer<AdminCluster>, ClientError> {
        self.put(&Path::of_cluster("/admin", id).segment("import"), request, None).await
    }

    /// Forgets an imported cluster; nothing in it is touched.
    pub async fn forget_cluster(&self, id: &str, reason: Option<&str>) -> Result<(), ClientError> {
        self.delete(&Path::of_cluster("/admin", id).segment("import").maybe("reason", reason)).await
    }

    /// Replaces the labels of a cluster.
    pub async fn label_cluster(
        &self,
        id: &str,
        labels: &BTreeMap<String, String>,
        reason: Option<&str>,
    ) -> Result<Answer<AdminCluster>, ClientError> {
        self.put(&Path::of_cluster("/admin", id).segment("labels").maybe("reason", reason), labels, None)
            .await
    }
}
