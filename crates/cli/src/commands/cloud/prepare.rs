//! What a customer must bring to a cluster, made in the simulated cloud: a group, a network with two subnets, and a principal.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use api::secret::Secret;
use client::{Client, ClientError};
use cloud::{Infrastructure as _, Kind, ResourceId, Shape};
use cloudsim::settings::Rights;
use serde::Serialize;

use super::super::cluster::Provided;
use super::super::target::ClusterTarget;
use super::simulated::SimulatedCloud;
use crate::{output, private_file};

/// The addresses of a network that is made here, and of its subnets.
const NETWORK: &str = "10.0.0.0/22";
const MASTERS: &str = "10.0.0.0/23";
const WORKERS: &str = "10.0.2.0/23";

/// Where the secrets of principals are kept, below the cloud's own directory.
const SECRETS: &str = "principals";

/// What was brought.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prepared {
    pub group: String,
    pub network: String,
    pub master_subnet: String,
    pub worker_subnet: String,
    pub client_id: String,
    /// Where the principal's secret is.
    pub client_secret_file: PathBuf,
    #[serde(skip)]
    pub client_secret: Secret<String>,
}

impl Prepared {
    /// What would be brought, for somebody who only asks what would happen.
    pub(crate) fn planned(place: &ClusterTarget) -> Prepared {
        let ids = Ids::of(place);
        Prepared {
            group: ids.group.to_string(),
            network: ids.network.to_string(),
            master_subnet: ids.master.to_string(),
            worker_subnet: ids.worker.to_string(),
            client_id: uuid::Uuid::nil().to_string(),
            client_secret_file: PathBuf::new(),
            client_secret: Secret::new("made-with-the-cluster".to_owned()),
        }
    }

    /// In one line.
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

/// The ids of what a cluster is brought.
struct Ids {
    group: ResourceId,
    network: ResourceId,
    master: ResourceId,
    worker: ResourceId,
}

impl Ids {
    fn of(place: &ClusterTarget) -> Ids {
        let group = ResourceId::group(&place.subscription, &place.group);
        let network = network_id(&group, &format!("{}-vnet", place.name));
        let (master, worker) = (network.child("subnets", "master"), network.child("subnets", "worker"));
        Ids { group, network, master, worker }
    }
}

/// The id of a network in a group.
pub(super) fn network_id(group: &ResourceId, name: &str) -> ResourceId {
    let (namespace, kind) = Kind::VirtualNetwork.provider().unwrap_or_default();
    group.sibling(namespace, kind, name)
}

/// Makes whatever of it is missing. Said again, it changes nothing.
pub(crate) async fn prepare(simulated: &SimulatedCloud, place: &ClusterTarget) -> anyhow::Result<Prepared> {
    let ids = Ids::of(place);
    let subnet = |prefix: &str| Shape::Subnet {
        address_prefix: prefix.to_owned(),
        security_group: None,
        route_table: None,
        nat_gateway: None,
        service_endpoints: Vec::new(),
        private_link_policies: false,
    };
    let network = Shape::VirtualNetwork { address_space: vec![NETWORK.to_owned()] };
    for (id, shape) in [
        (&ids.group, Shape::ResourceGroup { managed_by: None }),
        (&ids.network, network),
        (&ids.master, subnet(MASTERS)),
        (&ids.worker, subnet(WORKERS)),
    ] {
        // What is there stays as it is: its owner may have given it routes since.
        if simulated.cloud.get(id).await?.is_none() {
            simulated.ensure(id, &place.location, shape).await?;
        }
    }
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

/// Tells the server of a subscription that it has not heard of, as the resource manager would. One that is suspended, warned or
/// deleted stays so: that is nobody's to change here.
pub(crate) async fn ensure_registered(client: &Client, place: &ClusterTarget) -> anyhow::Result<()> {
    // There is no way to read how a subscription stands but to be refused because of it. Asking for credentials changes nothing,
    // whether or not the cluster is there.
    let refusal = match client.credentials(&place.id()).await {
        Err(ClientError::Refused(refusal)) => refusal,
        Ok(_) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if refusal.code != "InvalidSubscriptionState" || !refusal.message.contains("'Unregistered'") {
        return Ok(());
    }
    client.set_subscription(&place.subscription, "Registered").await?;
    output::note(&format!("subscription {} registered with the server", place.subscription));
    Ok(())
}

/// The principal of that name, with its secret. The cloud tells a secret once, so it is kept in a file; where that is lost the
/// principal is given another.
async fn principal(
    simulated: &SimulatedCloud,
    name: &str,
) -> anyhow::Result<(String, Secret<String>, PathBuf)> {
    let known = simulated.cloud.principals().await?.into_iter().find(|it| it.name == name);
    if let Some(known) = &known {
        let file = secret_file(simulated, &known.client_id);
        if let Ok(text) = std::fs::read_to_string(&file) {
            return Ok((known.client_id.clone(), Secret::new(text.trim_end().to_owned()), file));
        }
    }
    let made = match known {
        Some(known) => simulated.cloud.change_secret(&known.client_id).await?,
        None => simulated.cloud.create_principal(name, Rights::Everywhere).await?,
    };
    let file = keep_secret(simulated, &made.principal.client_id, &made.secret)?;
    Ok((made.principal.client_id, made.secret, file))
}

fn secret_file(simulated: &SimulatedCloud, client_id: &str) -> PathBuf {
    simulated.directory.join(SECRETS).join(client_id)
}

/// Keeps a principal's secret in a file, for its owner only.
pub(super) fn keep_secret(
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
        .with_context(|| format!("{}: cannot be made", directory.display()))?;
    private_file::write(&file, secret.expose())?;
    Ok(file)
}

/// Forgets the secret of a principal that is gone.
pub(super) fn forget_secret(simulated: &SimulatedCloud, client_id: &str) {
    // It may be with somebody else, or nowhere.
    let _ = std::fs::remove_file(secret_file(simulated, client_id));
}
