//! The installer of a cloud for which none is configured.

use api::install::{ClusterCredentials, InstallError, InstallRequest, Installation, Installer};
use async_trait::async_trait;
use uuid::Uuid;

/// Rejects every installation, with the reason. Removing succeeds, since it installed nothing, so that clusters can be deleted.
#[derive(Debug)]
pub(crate) struct UnavailableInstaller;

#[async_trait]
impl Installer for UnavailableInstaller {
    async fn install(&self, request: &InstallRequest) -> Result<Installation, InstallError> {
        Err(InstallError::Rejected {
            code: "InstallerNotConfigured".to_owned(),
            message: format!(
                "Cluster {} cannot be installed: this service has no installer for cloud.provider azure.",
                request.name
            ),
        })
    }

    async fn installation(&self, _: Uuid) -> Result<Option<Installation>, InstallError> {
        Ok(None)
    }

    async fn credentials(&self, cluster: Uuid) -> Result<ClusterCredentials, InstallError> {
        Err(InstallError::NotFound { what: format!("installation {cluster}") })
    }

    async fn remove(&self, _: Uuid) -> Result<(), InstallError> {
        Ok(())
    }
}
