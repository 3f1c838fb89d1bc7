//! The client of the simulated installer, which runs inside the simulated cloud.

use std::error::Error;

use api::install::{ClusterCredentials, InstallError, InstallRequest, Installation, Installer};
use async_trait::async_trait;
use cloud::CloudError;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::SimClient;
use crate::protocol::{self, InstallCall};

/// Installs simulated clusters in the simulated cloud.
#[derive(Debug, Clone)]
pub struct SimInstaller {
    cloud: SimClient,
}

impl SimInstaller {
    pub(super) fn new(cloud: SimClient) -> SimInstaller {
        SimInstaller { cloud }
    }

    async fn call<T: DeserializeOwned>(&self, call: &InstallCall) -> Result<T, InstallError> {
        self.cloud.call(call).await.map_err(|error| install_error(call, error))
    }
}

#[async_trait]
impl Installer for SimInstaller {
    async fn install(&self, request: &InstallRequest) -> Result<Installation, InstallError> {
        let call = InstallCall::Install { request: Box::new(request.clone()) };
        self.call(&call).await
    }

    async fn installation(&self, cluster: Uuid) -> Result<Option<Installation>, InstallError> {
        self.call(&InstallCall::Installation { cluster }).await
    }

    async fn credentials(&self, cluster: Uuid) -> Result<ClusterCredentials, InstallError> {
        let call = InstallCall::ClusterCredentials { cluster };
        self.call::<protocol::ClusterCredentials>(&call).await.map(Into::into)
    }

    async fn remove(&self, cluster: Uuid) -> Result<(), InstallError> {
        self.call(&InstallCall::RemoveInstallation { cluster }).await
    }
}

fn install_error(call: &InstallCall, error: CloudError) -> InstallError {
    let message = error.to_string();
    let rejected = |code: &str| InstallError::Rejected { code: code.to_owned(), message: message.clone() };
    match error {
        CloudError::NotFound { what } => InstallError::NotFound { what },
        CloudError::Conflict { what, why } => InstallError::Conflict { what, why },
        CloudError::Denied { .. } => InstallError::Denied { message },
        CloudError::Invalid { code, why } => InstallError::Rejected { code, message: why },
        CloudError::Credential { .. } => rejected("InvalidAuthenticationToken"),
        CloudError::Quota { .. } => rejected("QuotaExceeded"),
        CloudError::Locked { .. } => rejected("ScopeLocked"),
        CloudError::Policy { .. } => rejected("RequestDisallowedByPolicy"),
        CloudError::Configuration { .. } => rejected("InvalidConfiguration"),
        CloudError::UnexpectedResponse { .. } => rejected("UnexpectedResponse"),
        CloudError::InUse { .. }
        | CloudError::Busy { .. }
        | CloudError::PreconditionFailed { .. }
        | CloudError::Throttled { .. }
        | CloudError::Unavailable { .. } => {
            let retry_after = error.retry_after();
            let source: Option<Box<dyn Error + Send + Sync>> = Some(Box::new(error));
            InstallError::Unavailable { request: format!("{call:?}"), retry_after, source }
        }
    }
}
