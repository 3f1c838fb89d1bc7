//! Resources that a cluster requires, created in the simulated cloud: a group, a network with two subnets, and a principal.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use api::secret::Secret;
use client::{Client, ClientError};
use cloud::{
    Credential, Identities as _, Infrastructure as _, Properties, ResourceId, ResourceKind, RoleAssignment,
};
use cloud_azure::AzureClient;
use cloudsim::settings::Rights;
use serde::Serialize;
use tokio::time::Instant;

use super::super::cluster::Provided;
use super::super::target::ClusterTarget;
use super::simulated::{READY_MAX, SimulatedCloud, ensure_ready, retry_transient};
use crate::{output, private_file};

/// Address ranges of a created network and of its subnets.
pub(super) const NETWORK: &str = "10.0.0.0/22";
pub(super) const MASTERS: &str = "10.0.0.0/23";
pub(super) const WORKERS: &str = "10.0.2.0/23";

/// The role of the cluster's principal in the network.
pub(super) const NETWORK_ROLE: &str = "Network Contributor";

/// Directory of the secrets of principals, below the directory of the cloud.
const SECRETS: &str = "principals";

/// Prepared resources.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prepared {
    pub group: String,
    pub network: String,
    pub master_subnet: String,
    pub worker_subnet: String,
    pub client_id: String,
    /// File of the principal's secret.
    pub client_secret_file: PathBuf,
    #[serde(skip)]
    pub client_secret: Secret<String>,
}

impl Prepared {
    /// The resources that would be prepared, for a dry run.
    pub(crate) fn planned(place: &ClusterTarget) -> Prepared {
        let ids = PreparedIds::new(place);
        Prepared {
            group: ids.group.to_string(),
            network: ids.network.to_string(),
            master_subnet: ids.master.to_string(),
            worker_subnet: ids.worker.to_string(),
            client_id: uuid::Uuid::nil().to_string(),
            client_secret_file: PathBuf::new(),
            client_secret: Secret::new("created-with-the-cluster".to_owned()),
        }
    }

    /// One line for people.
    pub(crate) fn summary(&self) -> String {
        format!("network {} with its subnets master and worker, principal {}", self.network, self.client_id)
    }
}

impl From<Prepared> for Provided {
    fn from(prepared: Prepared) -> Provided {
        Provided {
            master_subnet: prepared.master_subnet,
            worker_subnet: prepared.worker_subnet,
            client_id: prepared.client_id,
            client_secret: prepared.client_secret,
        }
    }
}

/// Ids of the resources.
struct PreparedIds {
    group: ResourceId,
    network: ResourceId,
    master: ResourceId,
    worker: ResourceId,
}

impl PreparedIds {
    fn new(place: &ClusterTarget) -> PreparedIds {
        let group = ResourceId::group(&place.subscription, &place.group);
        let network = network_id(&group, &format!("{}-vnet", place.name));
        let (master, worker) = (network.child("subnets", "master"), network.child("subnets", "worker"));
        PreparedIds { group, network, master, worker }
    }
}

/// The id of a network in a group.
pub(super) fn network_id(group: &ResourceId, name: &str) -> ResourceId {
    let (namespace, kind) = ResourceKind::VirtualNetwork.provider().unwrap_or_default();
    group.sibling(namespace, kind, name)
}

/// Creates the missing resources; idempotent.
pub(crate) async fn prepare(simulated: &SimulatedCloud, place: &ClusterTarget) -> anyhow::Result<Prepared> {
    let ids = PreparedIds::new(place);
    ensure_network(simulated.cloud.azure(), &ids, &place.location).await?;
    let (client_id, client_secret, client_secret_file) =
        principal(simulated, &format!("{}-{}", place.group, place.name)).await?;
    Ok(Prepared {
        group: ids.group.to_string(),
        network: ids.network.to_string(),
        master_subnet: ids.master.to_string(),
        worker_subnet: ids.worker.to_string(),
        client_id,
        client_secret_file,
        client_secret,
    })
}

/// Creates the missing resources in Azure and gives the principal its role in the network; idempotent. The principal exists already: only
/// the directory can create one.
pub(crate) async fn prepare_in_azure(
    azure: &AzureClient,
    place: &ClusterTarget,
    client_id: &str,
    client_secret_file: &Path,
) -> anyhow::Result<Prepared> {
    let text = std::fs::read_to_string(client_secret_file)
        .with_context(|| format!("--client-secret-file {}: cannot be read", client_secret_file.display()))?;
    let client_secret = Secret::new(text.trim_end().to_owned());
    let credential = Credential::Client { client_id: client_id.to_owned(), secret: client_secret.clone() };
    let principal = azure.principal(&credential).await.context("the principal of --client-id")?;
    let ids = PreparedIds::new(place);
    ensure_network(azure, &ids, &place.location).await?;
    let assignment = RoleAssignment {
        name: assignment_name(&ids.network, &principal.object_id),
        principal: principal.object_id,
        role: NETWORK_ROLE.to_owned(),
        scope: ids.network.clone(),
    };
    let limit = Instant::now() + READY_MAX;
    retry_transient(limit, || azure.assign_role(&assignment)).await.context("the role in the network")?;
    Ok(Prepared {
        group: ids.group.to_string(),
        network: ids.network.to_string(),
        master_subnet: ids.master.to_string(),
        worker_subnet: ids.worker.to_string(),
        client_id: client_id.to_owned(),
        client_secret_file: client_secret_file.to_owned(),
        client_secret,
    })
}

/// The name of a role assignment, the same for every repetition.
fn assignment_name(scope: &ResourceId, object_id: &str) -> String {
    let words = format!("{} {object_id} {NETWORK_ROLE}", scope.key());
    uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_URL, words.as_bytes()).to_string()
}

/// Creates the group, the network and its subnets, as far as they are missing.
async fn ensure_network(azure: &AzureClient, ids: &PreparedIds, location: &str) -> anyhow::Result<()> {
    let subnet = |prefix: &str| Properties::Subnet {
        address_prefix: prefix.to_owned(),
        security_group: None,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: false,
    };
    let network = Properties::VirtualNetwork { address_space: vec![NETWORK.to_owned()] };
    for (id, properties) in [
        (&ids.group, Properties::ResourceGroup { managed_by: None }),
        (&ids.network, network),
        (&ids.master, subnet(MASTERS)),
        (&ids.worker, subnet(WORKERS)),
    ] {
        // Existing resources are not changed: their owner may have added routes.
        if azure.get(id).await?.is_none() {
            ensure_ready(azure, id, location, properties).await?;
        }
    }
    Ok(())
}

/// Registers a subscription that the server does not know, as the resource manager would. A suspended, warned or
/// deleted subscription keeps its state.
pub(crate) async fn ensure_registered(client: &Client, place: &ClusterTarget) -> anyhow::Result<()> {
    // The API has no read of a subscription's state. A request for credentials changes nothing and fails with that state,
    // whether or not the cluster exists.
    let response = match client.credentials(&place.id()).await {
        Err(ClientError::Response(response)) => response,
        Ok(_) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if response.code != "InvalidSubscriptionState" || !response.message.contains("'Unregistered'") {
        return Ok(());
    }
    client.set_subscription(&place.subscription, "Registered").await?;
    output::note(&format!("subscription {} registered with the server", place.subscription));
    Ok(())
}

/// The principal of that name, with its secret. The cloud returns a secret once, so it is stored in a file; if the file is missing, the
/// principal gets a new secret.
async fn principal(
    simulated: &SimulatedCloud,
    name: &str,
) -> anyhow::Result<(String, Secret<String>, PathBuf)> {
    let existing = simulated.cloud.principals().await?.into_iter().find(|it| it.name == name);
    if let Some(existing) = &existing {
        let file = secret_file(simulated, &existing.client_id);
        if let Ok(text) = std::fs::read_to_string(&file) {
            return Ok((existing.client_id.clone(), Secret::new(text.trim_end().to_owned()), file));
        }
    }
    let created = match existing {
        Some(existing) => simulated.cloud.change_secret(&existing.client_id).await?,
        None => simulated.cloud.create_principal(name, Rights::Everywhere).await?,
    };
    let file = store_secret(simulated, &created.principal.client_id, &created.secret)?;
    Ok((created.principal.client_id, created.secret, file))
}

fn secret_file(simulated: &SimulatedCloud, client_id: &str) -> PathBuf {
    simulated.directory.join(SECRETS).join(client_id)
}

/// Stores a principal's secret in a file that only its owner can read.
pub(super) fn store_secret(
    simulated: &SimulatedCloud,
    client_id: &str,
    secret: &Secret<String>,
) -> anyhow::Result<PathBuf> {
    let file = secret_file(simulated, client_id);
    let directory = file.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("{}: cannot be created", directory.display()))?;
    private_file::write(&file, secret.expose())?;
    Ok(file)
}

/// Removes the secret of a deleted principal.
pub(super) fn remove_secret(simulated: &SimulatedCloud, client_id: &str) {
    // The file may not exist.
    let _ = std::fs::remove_file(secret_file(simulated, client_id));
}
