//! How a customer comes into a cluster.

use api::doc::secrets::{CUSTOMER_KUBECONFIG, KUBEADMIN_PASSWORD};
use api::rest::{AdminKubeconfig, Credentials, HiddenText};
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use store::Transaction;
use uuid::Uuid;

use super::gatekeeping::{Deed, check_state, check_subscription};
use super::params::Version;
use super::{Desk, clusters, version};
use crate::admin::params::ClusterPath;
use crate::wire::{Answer, Ask, Refusal};

/// Shows the user that may do everything in a cluster, with their password.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}/listcredentials",
    operation_id = "OpenShiftClusters_ListCredentials", tag = "resource manager",
    params(ClusterPath, Version),
    responses(
        (status = 200, description = "User and password.", body = Credentials),
        (status = 415, description = "The body is of a type that is not accepted."),
    )
)]
pub(super) async fn list_credentials(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let cluster = admitted(&desk, &ask, "cluster.listCredentials").await?;
    let password = desk.reader().secret(cluster, KUBEADMIN_PASSWORD).await?;
    let text = password.map(|secret| HiddenText::new(String::from_utf8_lossy(secret.expose())));
    Ok(Answer::ok(&Credentials { kubeadmin_username: "kubeadmin".to_owned(), kubeadmin_password: text }))
}

/// Shows the kubeconfig that a customer is given.
#[utoipa::path(
    post, path = "/subscriptions/{subscriptionId}/resourcegroups/{resourceGroupName}/providers/microsoft.redhatopenshift/openshiftclusters/{resourceName}/listadmincredentials",
    operation_id = "OpenShiftClusters_ListAdminCredentials", tag = "resource manager",
    params(ClusterPath, Version),
    responses(
        (status = 200, description = "The kubeconfig in base64.", body = AdminKubeconfig),
        (status = 415, description = "The body is of a type that is not accepted."),
    )
)]
pub(super) async fn list_admin_credentials(State(desk): State<Desk>, ask: Ask) -> Result<Answer, Refusal> {
    let cluster = admitted(&desk, &ask, "cluster.listAdminCredentials").await?;
    let kubeconfig = desk.reader().secret(cluster, CUSTOMER_KUBECONFIG).await?;
    let text = kubeconfig.map(|secret| HiddenText::new(STANDARD.encode(secret.expose())));
    Ok(Answer::ok(&AdminKubeconfig { kubeconfig: text }))
}

/// The cluster, if its credentials may be shown now. Who is shown them is in the audit log before they are.
async fn admitted(desk: &Desk, ask: &Ask, action: &str) -> Result<Uuid, Refusal> {
    let id = ask.resource_id()?;
    ask.check_media()?;
    version(ask)?;
    ask.any_json()?;
    check_subscription(desk, &id.subscription, Deed::Credentials).await?;
    let read = clusters::find(desk, &id).await?;
    check_state(&read.document, Deed::Credentials)?;
    let entry = ask.by(Some(""))?.entry(action, &id.path, None, None);
    desk.store.commit(Transaction::new().audit(entry)).await?;
    Ok(read.uuid)
}
