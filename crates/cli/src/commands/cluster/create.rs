//! `shipshape cluster create`: a cluster from nothing.

#[cfg(feature = "sim")]
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use api::secret::Secret;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::{Client, ClientError};
use serde_json::Value;

#[cfg(feature = "sim")]
use super::super::cloud::{self, Prepared, SimulatedCloud};
use super::super::input;
use super::super::labels::KeyValue;
use super::super::operation::{self, Wait};
use super::super::print::Output;
use super::super::target::{ClusterTarget, TargetFlags};
use super::super::{Connect, Invocation, complete};
use super::body::{self, ClusterSpec, Provided, Visibility};
use crate::output;

/// A secret is a line; more is a mistake.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// The workers of a cluster whose customer names none.
const WORKERS: u32 = 3;
const WORKER_SIZE: &str = "Standard_D4s_v5";

/// What is missing when neither flags nor a simulated cloud name it.
const REQUIRED: &str = "a cluster needs two subnets and a principal: name them by --master-subnet, --worker-subnet, --client-id and --client-secret-file";

/// What is to be made, and where.
#[derive(Debug, Args)]
pub struct CreateFlags {
    /// What to call it
    name: String,
    #[command(flatten)]
    place: TargetFlags,
    /// The version of OpenShift [default: the server's own]
    #[arg(long, value_name = "VERSION", add = ArgValueCandidates::new(complete::versions))]
    version: Option<String>,
    /// The name under which it is reached [default: its own]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The network, by its resource id; its subnets `master` and `worker` are taken
    #[arg(long, value_name = "ID", help_heading = "What is brought")]
    vnet: Option<String>,
    /// The subnet of the control plane, by its resource id
    #[arg(long, value_name = "ID", help_heading = "What is brought")]
    master_subnet: Option<String>,
    /// The subnet of the workers, by its resource id
    #[arg(long, value_name = "ID", help_heading = "What is brought")]
    worker_subnet: Option<String>,
    /// The principal that the cluster works as, by its client id
    #[arg(long, value_name = "ID", requires = "client_secret_file", help_heading = "What is brought")]
    client_id: Option<String>,
    /// A file with that principal's secret; - for standard input
    #[arg(long, value_name = "FILE", requires = "client_id", help_heading = "What is brought")]
    client_secret_file: Option<PathBuf>,
    /// How many workers
    #[arg(long, value_name = "N", default_value_t = WORKERS)]
    worker_count: u32,
    /// The size of the workers' machines
    #[arg(long, value_name = "SIZE", default_value = WORKER_SIZE)]
    worker_vm_size: String,
    /// From where API server and ingress are reached
    #[arg(long, value_enum, ignore_case = true, default_value = "Public")]
    visibility: Visibility,
    /// A tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<KeyValue>,
    /// A file with the whole body of the request instead, as JSON or YAML; - for standard input
    #[arg(
        short = 'f', long = "filename", value_name = "FILE",
        conflicts_with_all = ["version", "domain", "vnet", "master_subnet", "worker_subnet", "client_id", "worker_count", "worker_vm_size", "visibility", "tags"]
    )]
    file: Option<PathBuf>,
    /// Only ask whether it would be accepted, and show what would be asked for; nothing is made
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Asks for a cluster, and follows its making if that is wanted.
pub(super) async fn create(flags: &CreateFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let client = invocation.client(&flags.connect)?;
    let place = flags.place.of(&flags.name)?;
    let id = place.id();
    ensure_absent(&client, &place).await?;
    let body = match &flags.file {
        Some(file) => body_from_file(file, &place)?,
        None => body::body(&flags.spec(&client, invocation, &place).await?),
    };
    if flags.dry_run {
        return dry_run(&client, &place, body, invocation, flags.output).await;
    }
    let accepted = client.put_resource(&id, &body).await.map_err(|error| with_remedy(error, &place.name))?;
    operation::begun(&client, invocation, &accepted.operation, &place.name, "create", &flags.wait).await?;
    let cluster = client.cluster(&id).await?.value;
    let did = if flags.wait.is_set() { "created" } else { "is being made" };
    flags.output.print_change(invocation, &cluster, did)
}

/// Asks for a cluster with what the simulated cloud brings along, as a customer would who says little: for those who have no
/// command line.
#[cfg(feature = "sim")]
pub async fn create_simulated(
    client: &Client,
    simulated: &SimulatedCloud,
    place: &ClusterTarget,
    version: Option<String>,
    tags: BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let prepared = cloud::prepare(simulated, place).await?;
    let spec = ClusterSpec {
        place: place.clone(),
        provided: prepared.into(),
        version,
        domain: None,
        worker_count: WORKERS,
        worker_size: WORKER_SIZE.to_owned(),
        visibility: Visibility::Public,
        tags,
    };
    let asked = client.put_resource(&place.id(), &body::body(&spec)).await;
    asked.map(drop).map_err(|error| with_remedy(error, &place.name))
}

/// A second create would change the first one's cluster; kubectl refuses it too.
async fn ensure_absent(client: &Client, place: &ClusterTarget) -> anyhow::Result<()> {
    let name = &place.name;
    match client.resource(&place.id()).await {
        Ok(found) => {
            let state =
                found.value["properties"]["provisioningState"].as_str().unwrap_or_default().to_owned();
            bail!(
                "cluster {name} is there already, in state {state}; `shipshape cluster update {name}` changes it and `shipshape cluster delete {name}` removes it"
            )
        }
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(with_remedy(error, name)),
    }
}

impl CreateFlags {
    async fn spec(
        &self,
        client: &Client,
        invocation: &Invocation<'_>,
        place: &ClusterTarget,
    ) -> anyhow::Result<ClusterSpec> {
        Ok(ClusterSpec {
            place: place.clone(),
            provided: self.provided(client, invocation, place).await?,
            version: self.version.clone(),
            domain: self.domain.clone(),
            worker_count: self.worker_count,
            worker_size: self.worker_vm_size.clone(),
            visibility: self.visibility,
            tags: self.tags.iter().map(|tag| (tag.key.clone(), tag.value.clone())).collect(),
        })
    }

    /// The subnets and the principal: as the flags name them, and what they leave open from the simulated cloud.
    async fn provided(
        &self,
        client: &Client,
        invocation: &Invocation<'_>,
        place: &ClusterTarget,
    ) -> anyhow::Result<Provided> {
        let of_network =
            |name: &str| self.vnet.as_ref().map(|id| format!("{}/subnets/{name}", id.trim_end_matches('/')));
        let master = self.master_subnet.clone().or_else(|| of_network("master"));
        let worker = self.worker_subnet.clone().or_else(|| of_network("worker"));
        let principal = match (&self.client_id, &self.client_secret_file) {
            (Some(id), Some(file)) => Some((id.clone(), read_secret(file)?)),
            _ => None,
        };
        match (master, worker, principal) {
            (Some(master_subnet), Some(worker_subnet), Some((client_id, client_secret))) => {
                Ok(Provided { master_subnet, worker_subnet, client_id, client_secret })
            }
            (master, worker, principal) => {
                let simulated = self.simulated(client, invocation, place).await?;
                let (client_id, client_secret) =
                    principal.unwrap_or((simulated.client_id, simulated.client_secret));
                Ok(Provided {
                    master_subnet: master.unwrap_or(simulated.master_subnet),
                    worker_subnet: worker.unwrap_or(simulated.worker_subnet),
                    client_id,
                    client_secret,
                })
            }
        }
    }

    /// Subnets and a principal of the simulated cloud, created if this is no dry run.
    #[cfg(feature = "sim")]
    async fn simulated(
        &self,
        client: &Client,
        invocation: &Invocation<'_>,
        place: &ClusterTarget,
    ) -> anyhow::Result<Provided> {
        if self.dry_run {
            return Ok(Prepared::planned(place).into());
        }
        let cloud = invocation.cloud(&self.connect).context(REQUIRED)?;
        let prepared = cloud::prepare(&cloud, place).await?;
        cloud::ensure_registered(client, place).await?;
        output::note(&format!("brought from the simulated cloud: {}", prepared.summary()));
        Ok(prepared.into())
    }

    #[cfg(not(feature = "sim"))]
    async fn simulated(&self, _: &Client, _: &Invocation<'_>, _: &ClusterTarget) -> anyhow::Result<Provided> {
        bail!(REQUIRED)
    }
}

/// A secret from a file, without the line break that editors add.
pub(super) fn read_secret(file: &Path) -> anyhow::Result<Secret<String>> {
    let text = input::read_text(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
        bail!("{}: expected a secret on one line", file.display());
    }
    Ok(Secret::new(secret.to_owned()))
}

/// A body from a file; a place that it leaves open is filled in.
fn body_from_file(file: &Path, place: &ClusterTarget) -> anyhow::Result<Value> {
    let mut body = input::read_file(file)?.value;
    if body.get("location").is_none() {
        body["location"] = place.location.clone().into();
    }
    Ok(body)
}

async fn dry_run(
    client: &Client,
    place: &ClusterTarget,
    body: Value,
    invocation: &Invocation<'_>,
    form: Output,
) -> anyhow::Result<()> {
    let verdict =
        client.preflight(&place.id(), &body).await.map_err(|error| with_remedy(error, &place.name))?;
    if let Some(error) = verdict.get("error") {
        let text = |member: &str| error[member].as_str().unwrap_or_default().trim_end_matches('.').to_owned();
        bail!(
            "cluster {} would be refused: {} ({}, {})",
            place.name,
            text("message"),
            text("code"),
            text("target")
        );
    }
    let shown = body::without_secrets(body);
    form.print_value(invocation, &shown, |_| format!("{shown:#}\n"))?;
    output::note(&format!("cluster {} would be accepted; nothing was made", place.name));
    Ok(())
}

/// What the server said about a cluster, with what may be done about it.
pub(super) fn with_remedy(error: ClientError, name: &str) -> anyhow::Error {
    let remedy = match &error {
        ClientError::Refused(refusal) => match refusal.code.as_str() {
            "InvalidSubscriptionState" => {
                "`shipshape cloud prepare NAME` registers a subscription that the server does not know"
                    .to_owned()
            }
            "RequestNotAllowed" => format!("`shipshape cluster show {name}` tells how it stands"),
            "ResourceQuotaExceeded" => "ask for fewer or smaller workers, or raise the quota".to_owned(),
            "InvalidParameter" if refusal.target.ends_with("version") => {
                "`shipshape version list` shows what can be installed".to_owned()
            }
            "InvalidParameter" | "InvalidLocation" if refusal.target.ends_with("location") => {
                "say --location with one of the server's".to_owned()
            }
            _ => String::new(),
        },
        _ => String::new(),
    };
    let error = match remedy.is_empty() {
        true => anyhow::Error::new(error),
        false => anyhow::anyhow!("{error}; {remedy}"),
    };
    error.context(format!("cluster {name}"))
}
