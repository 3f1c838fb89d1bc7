//! The credentials of a cluster for its customer.

use api::doc::secrets::{CUSTOMER_KUBECONFIG, KUBEADMIN_PASSWORD};
use api::rest::{AdminKubeconfig, Credentials, HiddenText};
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use store::Transaction;
use uuid::Uuid;

use super::params::Version;
use super::state_rules::{ClusterAction, check_state, check_subscription};
use super::{ArmState, clusters, version};
use crate::params::ClusterPath;
use crate::wire::{ApiError, ApiRequest, ApiResponse};

/// Shows the cluster administrator's name and password.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}/listcredentials",
    operation_id = "OpenShiftClusters_ListCredentials", tag = "resource manager",
    params(ClusterPath, Version),
    responses(
        (status = 200, description = "User and password.", body = Credentials),
        (status = 415, description = "The media type of the body is not supported."),
    )
)]
pub(super) async fn list_credentials(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let cluster = audited_cluster(&state, &request, "cluster.listCredentials").await?;
    let password = state.reader().secret(cluster, KUBEADMIN_PASSWORD).await?;
    let text = password.map(|secret| HiddenText::new(String::from_utf8_lossy(secret.expose())));
    Ok(ApiResponse::ok(&Credentials { kubeadmin_username: "kubeadmin".to_owned(), kubeadmin_password: text }))
}

/// Shows the customer's kubeconfig.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}/listadmincredentials",
    operation_id = "OpenShiftClusters_ListAdminCredentials", tag = "resource manager",
    params(ClusterPath, Version),
    responses(
        (status = 200, description = "The kubeconfig in base64.", body = AdminKubeconfig),
        (status = 415, description = "The media type of the body is not supported."),
    )
)]
pub(super) async fn list_admin_credentials(
    State(state): State<ArmState>,
    request: ApiRequest,
) -> Result<ApiResponse, ApiError> {
    let cluster = audited_cluster(&state, &request, "cluster.listAdminCredentials").await?;
    let kubeconfig = state.reader().secret(cluster, CUSTOMER_KUBECONFIG).await?;
    let text = kubeconfig.map(|secret| HiddenText::new(STANDARD.encode(secret.expose())));
    Ok(ApiResponse::ok(&AdminKubeconfig { kubeconfig: text }))
}

/// The cluster, if its credentials may be shown now. The audit record is written before they are shown.
async fn audited_cluster(state: &ArmState, request: &ApiRequest, action: &str) -> Result<Uuid, ApiError> {
    let id = request.resource_id()?;
    request.check_media()?;
    version(request)?;
    request.check_optional_json()?;
    check_subscription(state, &id.subscription, ClusterAction::Credentials).await?;
    let read = clusters::find(state, &id).await?;
    check_state(&read.document, ClusterAction::Credentials)?;
    let entry = request.by(Some(""))?.entry(action, &id.path, None, None);
    state.store.commit(Transaction::new().audit(entry)).await?;
    Ok(read.uuid)
}
