//! `shipshape cluster`: the clusters that are looked after, those that were imported and those that are made here.

mod body;
mod change;
mod create;
mod import;
mod kubeconfig;
mod show;

use api::admin::AdminCluster;
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use client::{Client, Topic};

use super::confirm::Confirm;
use super::find;
use super::form::Output;
use super::labels::{LabelChange, LabelSelector};
use super::{Connect, Desk, complete, watch};
use crate::output;
use change::{DeleteFlags, UpdateFlags};
use create::CreateFlags;
pub(crate) use create::ask_for;
use import::ImportFlags;
use kubeconfig::KubeconfigFlags;
use show::Whole;

/// What can be done with clusters.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Make a cluster, from nothing
    Create(Box<CreateFlags>),
    /// Look after a cluster from now on, by its kubeconfig
    Import(Box<ImportFlags>),
    /// List the clusters
    #[command(visible_alias = "ls")]
    List {
        /// Only those with these labels, such as env=prod,tier!=db
        #[arg(short = 'l', long, value_name = "LABELS")]
        selector: Option<LabelSelector>,
        /// Go on showing what changes
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one cluster
    #[command(visible_alias = "get")]
    Show {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        /// Go on showing what changes
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Change a cluster that was made here
    Update(Box<UpdateFlags>),
    /// Remove a cluster that was made here, with all that was made for it
    Delete(DeleteFlags),
    /// Show with what a person signs in to a cluster that was made here
    Credentials {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Write the kubeconfig of a cluster that was made here
    Kubeconfig(KubeconfigFlags),
    /// Set labels of a cluster (KEY=VALUE) or remove them (KEY-)
    Label {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        /// KEY=VALUE sets a label, KEY- removes it
        #[arg(required = true, value_name = "KEY=VALUE|KEY-", allow_hyphen_values = false)]
        changes: Vec<LabelChange>,
        /// Why; kept in the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Look after an imported cluster no longer; nothing in it is touched
    Forget {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        /// Why; kept in the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Carries out what was asked.
pub(crate) async fn run(command: &ClusterCommand, desk: &Desk<'_>) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Create(flags) => create::create(flags, desk).await,
        ClusterCommand::Import(flags) => import::import(flags, desk).await,
        ClusterCommand::List { selector, watch, output, connect } => {
            let client = desk.client(connect)?;
            let list = || async {
                let clusters = client.clusters().all().await?.into_iter();
                let meant = |it: &AdminCluster| {
                    selector.as_ref().is_none_or(|selector| selector.matches(&it.properties.labels))
                };
                Ok(clusters.filter(meant).collect::<Vec<_>>())
            };
            match watch {
                true => watch::watch(desk, &client, Topic::Clusters, *output, list).await,
                false => {
                    let clusters: anyhow::Result<Vec<AdminCluster>> = list().await;
                    output.list(desk, &clusters?)
                }
            }
        }
        ClusterCommand::Show { cluster, watch, output, connect } => {
            let client = desk.client(connect)?;
            let found = find::cluster(&client, cluster).await?;
            if !watch {
                return output.one(desk, &whole(&client, found).await?);
            }
            let id = found.id;
            let look = || async {
                match client.cluster(&id).await {
                    Ok(answer) => Ok(vec![answer.value]),
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(error) => Err(error.into()),
                }
            };
            watch::watch(desk, &client, Topic::Clusters, *output, look).await
        }
        ClusterCommand::Update(flags) => change::update(flags, desk).await,
        ClusterCommand::Delete(flags) => change::delete(flags, desk).await,
        ClusterCommand::Credentials { cluster, output, connect } => {
            let client = desk.client(connect)?;
            let cluster =
                made(find::cluster(&client, cluster).await?, "its credentials are in its kubeconfig")?;
            kubeconfig::credentials(&client, &cluster, desk, *output).await
        }
        ClusterCommand::Kubeconfig(flags) => kubeconfig::kubeconfig(flags, desk).await,
        ClusterCommand::Label { cluster, changes, reason, output, connect } => {
            let client = desk.client(connect)?;
            let cluster = find::cluster(&client, cluster).await?;
            let labels = import::changed(cluster.properties.labels, changes);
            let stored = client.label_cluster(&cluster.id, &labels, reason.as_deref()).await?;
            output.done(desk, &stored.value, "labelled")
        }
        ClusterCommand::Forget { cluster, reason, confirm, connect } => {
            let client = desk.client(connect)?;
            let cluster = find::cluster(&client, cluster).await?;
            if !cluster.properties.imported {
                anyhow::bail!(
                    "cluster {name} was made here and not imported; `shipshape cluster delete {name}` removes it with all that was made for it",
                    name = cluster.name
                );
            }
            confirm.ask(&format!("Forget cluster {} and cancel its pending manifests", cluster.name))?;
            client.forget_cluster(&cluster.id, reason.as_deref()).await?;
            output::show(&format!("cluster/{} forgotten\n", cluster.name))
        }
    }
}

/// A cluster with what its customer sees of it.
async fn whole(client: &Client, cluster: AdminCluster) -> anyhow::Result<Whole> {
    let resource = match cluster.properties.imported {
        true => None,
        false => match client.resource(&cluster.id).await {
            Ok(answer) => Some(answer.value),
            Err(error) if error.is_not_found() => None, // removed a moment ago
            Err(error) => return Err(error.into()),
        },
    };
    Ok(Whole { cluster, resource })
}

/// The cluster, if it was made here; `instead` says what to do with an imported one.
fn made(cluster: AdminCluster, instead: &str) -> anyhow::Result<AdminCluster> {
    match cluster.properties.imported {
        false => Ok(cluster),
        true => anyhow::bail!(
            "cluster {} was imported by its kubeconfig and not made here; {instead}",
            cluster.name
        ),
    }
}
