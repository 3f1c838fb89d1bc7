//! `shipshape cluster create`.

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

/// Largest secret; a secret is one line.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// Default number and machine size of workers.
const WORKERS: u32 = 3;
const WORKER_SIZE: &str = "Standard_D4s_v5";

/// Error if neither the flags nor a simulated cloud provide the resources.
const REQUIRED: &str = "a cluster needs two subnets and a principal; pass --master-subnet, --worker-subnet, --client-id and --client-secret-file";

/// Flags of `shipshape cluster create`.
#[derive(Debug, Args)]
pub struct CreateFlags {
    /// Its name
    name: String,
    #[command(flatten)]
    place: TargetFlags,
    /// The version of OpenShift [default: the server's default]
    #[arg(long, value_name = "VERSION", add = ArgValueCandidates::new(complete::versions))]
    version: Option<String>,
    /// The domain [default: the cluster's name]
    #[arg(long, value_name = "NAME")]
    domain: Option<String>,
    /// The network, by its resource id; its subnets `master` and `worker` are used
    #[arg(long, value_name = "ID", help_heading = "Provided resources")]
    vnet: Option<String>,
    /// The subnet of the control plane, by its resource id
    #[arg(long, value_name = "ID", help_heading = "Provided resources")]
    master_subnet: Option<String>,
    /// The subnet of the workers, by its resource id
    #[arg(long, value_name = "ID", help_heading = "Provided resources")]
    worker_subnet: Option<String>,
    /// The service principal of the cluster, by its client id
    #[arg(long, value_name = "ID", requires = "client_secret_file", help_heading = "Provided resources")]
    client_id: Option<String>,
    /// A file with that principal's secret; - for standard input
    #[arg(long, value_name = "FILE", requires = "client_id", help_heading = "Provided resources")]
    client_secret_file: Option<PathBuf>,
    /// Number of workers
    #[arg(long, value_name = "N", default_value_t = WORKERS)]
    worker_count: u32,
    /// Machine size of the workers
    #[arg(long, value_name = "SIZE", default_value = WORKER_SIZE)]
    worker_vm_size: String,
    /// Visibility of API server and ingress
    #[arg(long, value_enum, ignore_case = true, default_value = "Public")]
    visibility: Visibility,
    /// A tag; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE")]
    tags: Vec<KeyValue>,
    /// A file with the body of the request, as JSON or YAML; - for standard input
    #[arg(
        short = 'f', long = "filename", value_name = "FILE",
        conflicts_with_all = ["version", "domain", "vnet", "master_subnet", "worker_subnet", "client_id", "worker_count", "worker_vm_size", "visibility", "tags"]
    )]
    file: Option<PathBuf>,
    /// Validate and show the request without creating anything
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    wait: Wait,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Creates a cluster and waits for it with `--wait`.
pub(super) async fn create(flags: &CreateFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let client = invocation.client(&flags.connect)?;
    let place = flags.place.target(&flags.name)?;
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
    operation::report_started(&client, invocation, &accepted.operation, &place.name, "create", &flags.wait)
        .await?;
    let cluster = client.cluster(&id).await?.value;
    let did = if flags.wait.is_set() { "created" } else { "creation started" };
    flags.output.print_change(invocation, &cluster, did)
}

/// Creates a cluster with default settings and with resources of the simulated cloud, for callers without a
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
    let accepted = client.put_resource(&place.id(), &body::body(&spec)).await;
    accepted.map(drop).map_err(|error| with_remedy(error, &place.name))
}

/// Fails if the cluster exists: a second create would update it.
async fn ensure_absent(client: &Client, place: &ClusterTarget) -> anyhow::Result<()> {
    let name = &place.name;
    match client.resource(&place.id()).await {
        Ok(found) => {
            let state =
                found.value["properties"]["provisioningState"].as_str().unwrap_or_default().to_owned();
            bail!(
                "cluster {name} already exists in state {state}; run `shipshape cluster update {name}` to change it or `shipshape cluster delete {name}` to delete it"
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

    /// The subnets and the principal from the flags; missing ones from the simulated cloud.
    async fn provided(
        &self,
        client: &Client,
        invocation: &Invocation<'_>,
        place: &ClusterTarget,
    ) -> anyhow::Result<Provided> {
        let subnet_of_network =
            |name: &str| self.vnet.as_ref().map(|id| format!("{}/subnets/{name}", id.trim_end_matches('/')));
        let master = self.master_subnet.clone().or_else(|| subnet_of_network("master"));
        let worker = self.worker_subnet.clone().or_else(|| subnet_of_network("worker"));
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
        output::note(&format!("using resources of the simulated cloud: {}", prepared.summary()));
        Ok(prepared.into())
    }

    #[cfg(not(feature = "sim"))]
    async fn simulated(&self, _: &Client, _: &Invocation<'_>, _: &ClusterTarget) -> anyhow::Result<Provided> {
        bail!(REQUIRED)
    }
}

/// Reads a secret from a file, without its trailing line break.
pub(super) fn read_secret(file: &Path) -> anyhow::Result<Secret<String>> {
    let text = input::read_text(file).with_context(|| format!("{}: cannot be read", file.display()))?;
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
        bail!("{}: expected a secret on one line", file.display());
    }
    Ok(Secret::new(secret.to_owned()))
}

/// Reads a body from a file and adds the location if it has none.
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
            "cluster {} would be rejected: {} ({}, {})",
            place.name,
            text("message"),
            text("code"),
            text("target")
        );
    }
    let shown = body::without_secrets(body);
    form.print_value(invocation, &shown, |_| format!("{shown:#}\n"))?;
    output::note(&format!("cluster {} would be accepted; nothing was created", place.name));
    Ok(())
}

/// The error of the server with a remedy.
pub(super) fn with_remedy(error: ClientError, name: &str) -> anyhow::Error {
    let remedy = match &error {
        ClientError::Response(response) => match response.code.as_str() {
            "InvalidSubscriptionState" => {
                "run `shipshape cloud prepare NAME` to register an unknown subscription".to_owned()
            }
            "RequestNotAllowed" => format!("run `shipshape cluster show {name}` to see its state"),
            "ResourceQuotaExceeded" => "request fewer or smaller workers, or raise the quota".to_owned(),
            "InvalidParameter" if response.target.ends_with("version") => {
                "run `shipshape version list` to list the installable versions".to_owned()
            }
            "InvalidParameter" | "InvalidLocation" if response.target.ends_with("location") => {
                "pass --location with a location of the server".to_owned()
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
