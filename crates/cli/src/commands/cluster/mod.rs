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
use super::{Connect, Invocation, complete, watch};
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
        /// Watch for changes
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Show one cluster and its latest operation
    #[command(visible_alias = "get")]
    Show {
        /// The cluster, by its name or resource id
        #[arg(add = ArgValueCandidates::new(complete::clusters))]
        cluster: String,
        /// Watch for changes
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
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
        ClusterCommand::List { selector, watch, output, connect } => {
            let client = invocation.client(connect)?;
            let list = || async {
                let clusters = client.clusters().all().await?.into_iter();
                let meant = |it: &AdminCluster| {
                    selector.as_ref().is_none_or(|selector| selector.matches(&it.properties.labels))
                };
                Ok(clusters.filter(meant).collect::<Vec<_>>())
            };
            match watch {
                true => watch::watch(invocation, &client, Topic::Clusters, *output, list).await,
                false => {
                    let clusters: anyhow::Result<Vec<AdminCluster>> = list().await;
                    output.print_list(invocation, &clusters?)
                }
            }
        }
        ClusterCommand::Show { cluster, watch, output, connect } => {
            let client = invocation.client(connect)?;
            let found = find::cluster(&client, cluster).await?;
            if !watch {
                return output.print(invocation, &details(&client, found, *output).await?);
            }
            let id = found.id;
            let look = || async {
                match client.cluster(&id).await {
                    Ok(answer) => Ok(vec![answer.value]),
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(error) => Err(error.into()),
                }
            };
            watch::watch(invocation, &client, Topic::Clusters, *output, look).await
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

/// A cluster with its resource and, in a description, with its latest operation.
async fn details(client: &Client, cluster: AdminCluster, form: Output) -> anyhow::Result<ClusterDetails> {
    if cluster.properties.imported {
        return Ok(ClusterDetails { cluster, resource: None, latest: LatestOperation::Unasked });
    }
    let resource = match client.resource(&cluster.id).await {
        Ok(answer) => Some(answer.value),
        Err(error) if error.is_not_found() => None, // removed a moment ago
        Err(error) => return Err(error.into()),
    };
    let latest = match form.is_description() {
        true => LatestOperation::of(client, &cluster.id).await,
        false => LatestOperation::Unasked,
    };
    Ok(ClusterDetails { cluster, resource, latest })
}

/// Fails for an imported cluster; `instead` is the remedy.
fn require_created_here(cluster: AdminCluster, instead: &str) -> anyhow::Result<AdminCluster> {
    match cluster.properties.imported {
        false => Ok(cluster),
        true => anyhow::bail!(
            "cluster {} was imported by its kubeconfig and not made here; {instead}",
            cluster.name
        ),
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
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let router = Router::new().fallback(move |uri: Uri| {
            let is_about_operations =
                uri.path().starts_with("/admin/") && uri.path().ends_with("/operations");
            if is_about_operations {
                count.fetch_add(1, Ordering::Relaxed);
            }
            let answer =
                if is_about_operations { (status, answer.clone()) } else { (StatusCode::OK, json!({})) };
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
        (shown, asked.load(Ordering::Relaxed))
    }

    fn fact(details: &ClusterDetails, name: &str) -> Option<String> {
        let view = View { now: "2026-01-01T00:09:00Z".parse().unwrap(), wide: false };
        details.details(&view).into_iter().find(|(it, _)| *it == name).map(|(_, value)| value)
    }

    #[tokio::test]
    async fn a_server_that_does_not_tell_of_operations_still_shows_the_cluster() {
        let refusal = json!({ "error": { "code": "Forbidden", "message": "This is for operators." } });
        for (status, answer, why) in [
            (StatusCode::FORBIDDEN, refusal, "unknown: This is for operators (Forbidden)"),
            (StatusCode::NOT_FOUND, Value::Null, "unknown: Not Found: null (404)"),
        ] {
            let (details, asked) = shown(&[], false, status, answer).await;
            assert_eq!(fact(&details, "State").as_deref(), Some("Failed"));
            assert_eq!((fact(&details, "Operation").as_deref(), asked), (Some(why), 1));
        }
    }

    #[tokio::test]
    async fn operations_are_asked_for_once_and_only_for_a_description_of_a_cluster_that_has_some() {
        let answer = json!({ "value": [{
            "id": uuid::Uuid::nil(), "verb": "Create", "status": "Failed", "attempt": 1,
            "startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:05:00Z",
            "error": { "code": "QuotaExceeded", "message": "There are too few cores." },
        }] });
        let (details, asked) = shown(&[], false, StatusCode::OK, answer.clone()).await;
        assert_eq!(fact(&details, "Error").as_deref(), Some("There are too few cores (QuotaExceeded)"));
        assert_eq!(asked, 1);
        for form in ["json", "yaml", "name", "wide"] {
            let (_, asked) = shown(&["-o", form], false, StatusCode::OK, answer.clone()).await;
            assert_eq!(asked, 0, "{form}");
        }
        let (details, asked) = shown(&[], true, StatusCode::OK, answer).await;
        assert_eq!((fact(&details, "Operation"), asked), (None, 0), "an imported one has none");
    }
}
