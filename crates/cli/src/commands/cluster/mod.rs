//! `shipshape cluster`: managed clusters, both created and imported ones.

mod body;
mod change;
mod create;
mod import;
mod kubeconfig;
mod latest;
mod show;

use api::admin::AdminCluster;
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use client::{Client, Topic};

use super::confirm::Confirm;
use super::find;
use super::labels::{LabelChange, LabelSelector};
use super::print::Output;
use super::{Connect, Invocation, WatchFlags, complete, watch};
use crate::output;
#[cfg(feature = "sim")]
pub(super) use body::Provided;
use change::{DeleteFlags, UpdateFlags};
use create::CreateFlags;
#[cfg(feature = "sim")]
pub use create::create_simulated;
use import::ImportFlags;
use kubeconfig::KubeconfigFlags;
use latest::LatestOperation;
use show::ClusterDetails;

/// Commands of clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Create a cluster
    Create(Box<CreateFlags>),
    /// Import an existing cluster by its kubeconfig
    Import(Box<ImportFlags>),
    /// List the clusters
    #[command(visible_alias = "ls")]
    List {
        /// Only those with these labels, such as env=prod,tier!=db
        #[arg(short = 'l', long, value_name = "LABELS")]
        selector: Option<LabelSelector>,
        #[command(flatten)]
        flags: WatchFlags,
    },
    /// Show one cluster and its latest operation
    #[command(visible_alias = "get")]
    Show {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        #[command(flatten)]
        flags: WatchFlags,
    },
    /// Update a cluster
    Update(Box<UpdateFlags>),
    /// Delete a cluster and its resources
    Delete(DeleteFlags),
    /// Show the credentials of kubeadmin
    Credentials {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Write the kubeconfig of a cluster
    Kubeconfig(KubeconfigFlags),
    /// Set labels of a cluster (KEY=VALUE) or remove them (KEY-)
    Label {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        /// KEY=VALUE sets a label, KEY- removes it
        #[arg(required = true, value_name = "KEY=VALUE|KEY-", allow_hyphen_values = false)]
        changes: Vec<LabelChange>,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Remove an imported cluster from Shipshape without changing it
    Forget {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Runs the command.
pub async fn run(command: &ClusterCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Create(flags) => create::create(flags, invocation).await,
        ClusterCommand::Import(flags) => import::import(flags, invocation).await,
        ClusterCommand::List { selector, flags } => {
            let client = invocation.client(&flags.connect)?;
            let list = || async {
                let clusters = client.clusters().all().await?.into_iter();
                let is_selected = |it: &AdminCluster| {
                    selector.as_ref().is_none_or(|selector| selector.matches(&it.properties.labels))
                };
                Ok(clusters.filter(is_selected).collect::<Vec<_>>())
            };
            flags.print(invocation, &client, Topic::Clusters, list).await
        }
        ClusterCommand::Show { cluster, flags } => {
            let client = invocation.client(&flags.connect)?;
            let found = find::cluster(&client, cluster).await?;
            if !flags.watch {
                let details = details(&client, found, flags.output).await?;
                return flags.output.print(invocation, &details);
            }
            let id = found.id;
            let read = || async {
                match client.cluster(&id).await {
                    Ok(answer) => Ok(vec![answer.value]),
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(error) => Err(error.into()),
                }
            };
            watch::watch(invocation, &client, Topic::Clusters, flags.output, read).await
        }
        ClusterCommand::Update(flags) => change::update(flags, invocation).await,
        ClusterCommand::Delete(flags) => change::delete(flags, invocation).await,
        ClusterCommand::Credentials { cluster, output, connect } => {
            let client = invocation.client(connect)?;
            let cluster = require_created_here(
                find::cluster(&client, cluster).await?,
                "its credentials are in its kubeconfig",
            )?;
            kubeconfig::credentials(&client, &cluster, invocation, *output).await
        }
        ClusterCommand::Kubeconfig(flags) => kubeconfig::kubeconfig(flags, invocation).await,
        ClusterCommand::Label { cluster, changes, reason, output, connect } => {
            let client = invocation.client(connect)?;
            let cluster = find::cluster(&client, cluster).await?;
            let labels = import::changed(cluster.properties.labels, changes);
            let stored = client.label_cluster(&cluster.id, &labels, reason.as_deref()).await?;
            output.print_change(invocation, &stored.value, "labelled")
        }
        ClusterCommand::Forget { cluster, reason, confirm, connect } => {
            let client = invocation.client(connect)?;
            let cluster = find::cluster(&client, cluster).await?;
            if !cluster.properties.imported {
                anyhow::bail!(
                    "cluster {name} was created by Shipshape, not imported; run `shipshape cluster delete {name}` to delete it and its resources",
                    name = cluster.name
                );
            }
            confirm.ask(&format!("Forget cluster {} and cancel its pending manifests", cluster.name))?;
            client.forget_cluster(&cluster.id, reason.as_deref()).await?;
            output::show(&format!("cluster/{} forgotten\n", cluster.name))
        }
    }
}

/// A cluster with its resource and, in a description, with its latest operation.
async fn details(client: &Client, cluster: AdminCluster, form: Output) -> anyhow::Result<ClusterDetails> {
    if cluster.properties.imported {
        return Ok(ClusterDetails { cluster, resource: None, latest: LatestOperation::NotRequested });
    }
    let resource = match client.resource(&cluster.id).await {
        Ok(answer) => Some(answer.value),
        Err(error) if error.is_not_found() => None, // removed a moment ago
        Err(error) => return Err(error.into()),
    };
    let latest = match form.is_description() {
        true => LatestOperation::fetch(client, &cluster.id).await,
        false => LatestOperation::NotRequested,
    };
    Ok(ClusterDetails { cluster, resource, latest })
}

/// Fails for an imported cluster; `instead` is the remedy.
fn require_created_here(cluster: AdminCluster, instead: &str) -> anyhow::Result<AdminCluster> {
    match cluster.properties.imported {
        false => Ok(cluster),
        true => anyhow::bail!("cluster {} was imported, not created by Shipshape; {instead}", cluster.name),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::http::{StatusCode, Uri};
    use clap::Parser as _;
    use serde_json::{Value, json};

    use super::super::print::Printable as _;
    use super::super::table::View;
    use super::*;

    const ID: &str =
        "/subscriptions/s/resourceGroups/g/providers/Microsoft.RedHatOpenShift/openShiftClusters/web";

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        output: Output,
    }

    /// The details of a cluster in this format, from a server that gives this response to requests for operations, and the number
    /// of these requests.
    async fn shown(
        form: &[&str],
        imported: bool,
        status: StatusCode,
        answer: Value,
    ) -> (ClusterDetails, usize) {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        let router = Router::new().fallback(move |uri: Uri| {
            let is_for_operations = uri.path().starts_with("/admin/") && uri.path().ends_with("/operations");
            if is_for_operations {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let answer =
                if is_for_operations { (status, answer.clone()) } else { (StatusCode::OK, json!({})) };
            async move { (answer.0, axum::Json(answer.1)) }
        });
        let cluster = serde_json::from_value(json!({
            "id": ID, "name": "web", "type": "t", "location": "l",
            "properties": {
                "uuid": uuid::Uuid::nil(), "provisioningState": "Failed", "imported": imported,
                "createdAt": "2026-01-01T00:00:00Z",
            },
        }));
        let form = Line::try_parse_from([&["show"], form].concat()).unwrap().output;
        let shown = details(&Client::in_process(router), cluster.unwrap(), form).await.unwrap();
        (shown, requests.load(Ordering::Relaxed))
    }

    fn fact(details: &ClusterDetails, name: &str) -> Option<String> {
        let view = View { now: "2026-01-01T00:09:00Z".parse().unwrap(), wide: false };
        details.details(&view).into_iter().find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    #[tokio::test]
    async fn a_server_that_rejects_requests_for_operations_still_shows_the_cluster() {
        let forbidden = json!({ "error": { "code": "Forbidden", "message": "This is for operators." } });
        for (status, answer, why) in [
            (StatusCode::FORBIDDEN, forbidden, "unknown: This is for operators (Forbidden)"),
            (StatusCode::NOT_FOUND, Value::Null, "unknown: Not Found: null (404)"),
        ] {
            let (details, requests) = shown(&[], false, status, answer).await;
            assert_eq!(fact(&details, "State").as_deref(), Some("Failed"));
            assert_eq!((fact(&details, "Operation").as_deref(), requests), (Some(why), 1));
        }
    }

    #[tokio::test]
    async fn operations_are_requested_once_and_only_to_describe_a_created_cluster() {
        let answer = json!({ "value": [{
            "id": uuid::Uuid::nil(), "verb": "Create", "status": "Failed", "attempt": 1,
            "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:05:00Z",
            "error": { "code": "QuotaExceeded", "message": "There are too few cores." },
        }] });
        let (details, requests) = shown(&[], false, StatusCode::OK, answer.clone()).await;
        assert_eq!(fact(&details, "Error").as_deref(), Some("There are too few cores (QuotaExceeded)"));
        assert_eq!(requests, 1);
        for form in ["json", "yaml", "name", "wide"] {
            let (_, requests) = shown(&["-o", form], false, StatusCode::OK, answer.clone()).await;
            assert_eq!(requests, 0, "{form}");
        }
        let (details, requests) = shown(&[], true, StatusCode::OK, answer).await;
        assert_eq!((fact(&details, "Operation"), requests), (None, 0), "an imported one has none");
    }
}
