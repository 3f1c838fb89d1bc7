//! `shipshape cluster`: the clusters that are looked after.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use api::admin::{AdminCluster, ImportRequest, Reachability};
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use client::Topic;

use super::age::age;
use super::confirm::Confirm;
use super::find;
use super::form::{Output, Shown};
use super::labels::{KeyValue, LabelChange, LabelSelector};
use super::table::{Column, View, Width, both, word};
use super::{Connect, Desk, complete, watch};
use crate::output;

/// A kubeconfig is a few kilobytes; more is a mistake.
const KUBECONFIG_BYTES_MAX: u64 = 1 << 20;

/// What imported clusters hang under, unless a whole resource id is given.
const IMPORTED: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters";

/// What can be done with clusters.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// Look after a cluster from now on, by its kubeconfig
    Import {
        /// What to call it, or a whole resource id
        name: String,
        /// Its kubeconfig, with all data inline; - for standard input
        #[arg(long, value_name = "FILE")]
        kubeconfig: PathBuf,
        /// Which context of the kubeconfig [default: its current one]
        #[arg(long, value_name = "NAME")]
        context: Option<String>,
        /// A label; may be repeated
        #[arg(long = "label", value_name = "KEY=VALUE")]
        labels: Vec<KeyValue>,
        /// Where it runs [default: the server's first location]
        #[arg(long)]
        location: Option<String>,
        /// Under which subscription it is listed
        #[arg(long, value_name = "ID", default_value = "00000000-0000-0000-0000-000000000000")]
        subscription: String,
        /// Why; kept in the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        output: Output,
        /// Another address than the context's; which context is in SHIPSHAPE_CONTEXT here
        #[arg(long, value_name = "URL", help_heading = "Server")]
        server: Option<String>,
    },
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
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
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
    /// Look after a cluster no longer; nothing in it is touched
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
        ClusterCommand::Import {
            name,
            kubeconfig,
            context,
            labels,
            location,
            subscription,
            reason,
            output,
            server,
        } => {
            let request = ImportRequest {
                kubeconfig: read_kubeconfig(kubeconfig)?,
                context: context.clone(),
                location: location.clone(),
                labels: labels.iter().map(|label| (label.key.clone(), label.value.clone())).collect(),
                reason: reason.clone(),
            };
            let client = desk.client(&Connect { context: None, server: server.clone() })?;
            let id = resource_id(name, subscription)?;
            let stored =
                client.import_cluster(&id, &request).await.with_context(|| format!("cluster {name}"))?;
            let did = if stored.is_created() { "imported" } else { "imported anew" };
            output.done(desk, &stored.value, did)
        }
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
        ClusterCommand::Show { cluster, output, connect } => {
            output.one(desk, &find::cluster(&desk.client(connect)?, cluster).await?)
        }
        ClusterCommand::Label { cluster, changes, reason, output, connect } => {
            let client = desk.client(connect)?;
            let cluster = find::cluster(&client, cluster).await?;
            let labels = changed(cluster.properties.labels, changes);
            let stored = client.label_cluster(&cluster.id, &labels, reason.as_deref()).await?;
            output.done(desk, &stored.value, "labelled")
        }
        ClusterCommand::Forget { cluster, reason, confirm, connect } => {
            let client = desk.client(connect)?;
            let cluster = find::cluster(&client, cluster).await?;
            confirm.ask(&format!("Forget cluster {} and cancel its pending manifests", cluster.name))?;
            client.forget_cluster(&cluster.id, reason.as_deref()).await?;
            output::show(&format!("cluster/{} forgotten\n", cluster.name))
        }
    }
}

fn read_kubeconfig(file: &std::path::Path) -> anyhow::Result<String> {
    use std::io::Read as _;
    let name = file.display();
    let mut text = String::new();
    let read = match file == std::path::Path::new("-") {
        true => std::io::stdin().lock().take(KUBECONFIG_BYTES_MAX + 1).read_to_string(&mut text),
        false => std::fs::File::open(file)
            .and_then(|file| file.take(KUBECONFIG_BYTES_MAX + 1).read_to_string(&mut text)),
    };
    read.with_context(|| format!("kubeconfig {name}: cannot be read"))?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > KUBECONFIG_BYTES_MAX {
        bail!("kubeconfig {name}: is larger than 1 MiB");
    }
    Ok(text)
}

/// A whole id as it is; a name under the place of imported clusters.
fn resource_id(name: &str, subscription: &str) -> anyhow::Result<String> {
    if name.starts_with('/') {
        return Ok(name.to_owned());
    }
    if name.is_empty() || name.contains(|c: char| c == '/' || c.is_whitespace() || c.is_control()) {
        bail!("{name:?} is no name for a cluster; use letters, digits and dashes, such as harbour-1");
    }
    Ok(format!("{}/{name}", IMPORTED.replace("00000000-0000-0000-0000-000000000000", subscription)))
}

fn changed(mut labels: BTreeMap<String, String>, changes: &[LabelChange]) -> BTreeMap<String, String> {
    for change in changes {
        match change {
            LabelChange::Set(label) => labels.insert(label.key.clone(), label.value.clone()),
            LabelChange::Remove(key) => labels.remove(key),
        };
    }
    labels
}

fn labels_text(labels: &BTreeMap<String, String>, separator: &str) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(separator)
}

fn reachable(reachability: Option<&Reachability>, view: &View) -> String {
    match reachability {
        None => "unknown".to_owned(),
        Some(Reachability { reachable: true, .. }) => "yes".to_owned(),
        Some(Reachability { since, .. }) => format!("no, for {}", age(*since, view.now)),
    }
}

impl Shown for AdminCluster {
    const KIND: &'static str = "cluster";
    const COLUMNS: &'static [Column] = &[
        Column("NAME", Width::Always),
        Column("LOCATION", Width::Always),
        Column("STATE", Width::Always),
        Column("VERSION", Width::Always),
        Column("REACHABLE", Width::Always),
        Column("LABELS", Width::Wide),
        Column("API SERVER", Width::Wide),
        Column("AGE", Width::Always),
        Column("ID", Width::Wide),
    ];

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let properties = &self.properties;
        vec![
            self.name.clone(),
            self.location.clone(),
            word(properties.provisioning_state),
            properties.version.clone().unwrap_or_default(),
            reachable(properties.reachability.as_ref(), view),
            labels_text(&properties.labels, ","),
            properties.api_server.clone().unwrap_or_default(),
            view.time(properties.created_at),
            self.id.clone(),
        ]
    }

    fn facts(&self, view: &View) -> Vec<(&'static str, String)> {
        let properties = &self.properties;
        let reachability = properties.reachability.as_ref().map(|it| {
            let word = if it.reachable { "yes" } else { "no" };
            let message = it.message.as_ref().map(|message| format!(": {message}")).unwrap_or_default();
            format!("{word}, since {}{message}", both(it.since, view.now))
        });
        vec![
            ("Name", self.name.clone()),
            ("ID", self.id.clone()),
            ("UUID", properties.uuid.to_string()),
            ("Location", self.location.clone()),
            ("State", word(properties.provisioning_state)),
            ("Version", properties.version.clone().unwrap_or_default()),
            ("Labels", labels_text(&properties.labels, "\n")),
            ("Imported", if properties.imported { "yes" } else { "no" }.to_owned()),
            ("API server", properties.api_server.clone().unwrap_or_default()),
            ("Reachable", reachability.unwrap_or_else(|| "unknown: nobody has looked yet".to_owned())),
            ("Created", both(properties.created_at, view.now)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_becomes_a_resource_id_and_a_resource_id_stays() {
        let zero = "00000000-0000-0000-0000-000000000000";
        assert!(resource_id("harbour", zero).unwrap().ends_with(
            "/resourcegroups/imported/providers/Microsoft.RedHatOpenShift/openShiftClusters/harbour"
        ));
        assert!(
            resource_id("harbour", "s1").unwrap().starts_with("/subscriptions/s1/resourcegroups/imported/")
        );
        assert_eq!(resource_id("/subscriptions/x", zero).unwrap(), "/subscriptions/x");
        for wrong in ["", "a/b", "a b", "a\n"] {
            assert!(resource_id(wrong, zero).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn labels_are_changed_one_by_one() {
        let labels = BTreeMap::from([("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())]);
        let changes = ["a-", "c=3", "b=4"].map(|text| text.parse().unwrap());
        assert_eq!(labels_text(&changed(labels, &changes), ","), "b=4,c=3");
    }

    #[test]
    fn a_cluster_that_does_not_answer_says_for_how_long() {
        let view = View { now: "2026-01-01T00:05:00Z".parse().unwrap(), wide: false };
        let since = "2026-01-01T00:00:00Z".parse().unwrap();
        let away = Reachability { reachable: false, since, checked_at: view.now, message: None };
        assert_eq!(reachable(Some(&away), &view), "no, for 5m");
        assert_eq!(reachable(None, &view), "unknown");
    }
}
