//! `shipshape health`: how the clusters are, from the record that the monitor keeps.

use std::cmp::Reverse;

use api::admin::{AdminCluster, ClusterHealth, HealthForm};
use api::health::HealthStatus;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::Topic;
use serde::{Deserialize, Serialize};

use super::print::Printable;
use super::table::{Column, View, Width, with_age};
use super::{Invocation, WatchFlags, complete, find, watch};

/// Most transitions in a description.
const HISTORY_SHOWN: usize = 15;

/// Flags of `health`.
#[derive(Debug, Args)]
pub struct HealthFlags {
    /// The cluster, by its name or resource id; all of them by default
    #[arg(add = ArgValueCandidates::new(complete::clusters))]
    cluster: Option<String>,
    #[command(flatten)]
    flags: WatchFlags,
}

/// Runs the command.
pub async fn run(command: &HealthFlags, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let flags = &command.flags;
    let client = invocation.client(&flags.connect)?;
    let Some(cluster) = &command.cluster else {
        let list = || async {
            let mut lines: Vec<HealthLine> =
                client.clusters().all().await?.into_iter().map(HealthLine::from).collect();
            // The worst come first.
            lines.sort_by_key(|it| (Reverse(it.severity()), it.name.clone()));
            Ok(lines)
        };
        return flags.print(invocation, &client, Topic::Clusters, list).await;
    };
    let found = find::cluster(&client, cluster).await?;
    if flags.watch {
        let list = || async { Ok(vec![client.cluster_health(&found.id).await?]) };
        return watch::watch(invocation, &client, Topic::Clusters, flags.output, list).await;
    }
    flags.output.print(invocation, &client.cluster_health(&found.id).await?)
}

/// A cluster in the list.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct HealthLine {
    id: String,
    name: String,
    health: Option<ClusterHealth>,
}

impl From<AdminCluster> for HealthLine {
    fn from(cluster: AdminCluster) -> HealthLine {
        HealthLine { id: cluster.id, name: cluster.name, health: cluster.properties.health }
    }
}

impl HealthLine {
    fn severity(&self) -> u8 {
        match self.health.as_ref().map(|it| it.status) {
            Some(HealthStatus::Unreachable) => 3,
            Some(HealthStatus::Degraded) => 2,
            Some(HealthStatus::Unknown) | None => 1,
            Some(HealthStatus::Healthy) => 0,
        }
    }
}

/// The status, marked when nobody has observed the cluster for some time.
pub(super) fn status_text(health: Option<&ClusterHealth>, view: &View) -> String {
    match health {
        None => "unknown".to_owned(),
        Some(health) if health.is_stale(view.now) => format!("{} (stale)", health.status),
        Some(health) => health.status.to_string(),
    }
}

const COLUMNS: &[Column] = &[
    Column("NAME", Width::Always),
    Column("HEALTH", Width::Always),
    Column("NODES", Width::Always),
    Column("OBSERVED", Width::Always),
    Column("CAUSE", Width::Always),
    Column("ID", Width::Wide),
];

fn cells(name: &str, id: &str, health: Option<&ClusterHealth>, view: &View) -> Vec<String> {
    let nodes = health.filter(|it| !it.nodes.is_empty()).map(|it| {
        let (ready, total) = it.node_totals();
        format!("{ready}/{total}")
    });
    vec![
        name.to_owned(),
        status_text(health, view),
        nodes.unwrap_or_default(),
        view.optional_time(health.map(|it| it.observed_at)),
        health.and_then(|it| it.main_cause().map(str::to_owned)).unwrap_or_default(),
        id.to_owned(),
    ]
}

impl Printable for HealthLine {
    const KIND: &'static str = "cluster";
    const COLUMNS: &'static [Column] = COLUMNS;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        cells(&self.name, &self.id, self.health.as_ref(), view)
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        details(&self.name, self.health.as_ref(), view)
    }
}

impl Printable for HealthForm {
    const KIND: &'static str = "cluster";
    const COLUMNS: &'static [Column] = COLUMNS;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        cells(&self.name, &self.id, self.health.as_ref(), view)
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let mut details = details(&self.name, self.health.as_ref(), view);
        let availability = self.availability.map(|share| format!("{:.3} % of 30 days", share * 100.0));
        details.push(("Reachable", availability.unwrap_or_default()));
        let lines = self.history.iter().take(HISTORY_SHOWN).map(|it| {
            let before = it.previous.as_deref().map(|it| format!("{it} to ")).unwrap_or_default();
            let note = if it.expected { ", during maintenance" } else { "" };
            format!("{}  {}: {before}{}{note}", with_age(it.at, view.now), it.facet, it.value)
        });
        details.push(("History", lines.collect::<Vec<_>>().join("\n")));
        details
    }
}

fn details(name: &str, health: Option<&ClusterHealth>, view: &View) -> Vec<(&'static str, String)> {
    let mut details = vec![("Name", name.to_owned()), ("Health", status_text(health, view))];
    let Some(health) = health else { return details };
    let causes = health.causes.iter().map(|it| {
        let note = if it.expected { " (expected during maintenance)" } else { "" };
        format!("{}{note}", it.message)
    });
    let nodes = health.nodes.iter().map(|(role, it)| format!("{role} {}/{}", it.ready, it.total));
    let pools = health.pools.iter().flat_map(|it| {
        let updating = it.updating.iter().map(|it| format!("{it} updating"));
        updating.chain(it.degraded.iter().map(|it| format!("{it} degraded")))
    });
    let errors = health.collector_errors.iter().map(|it| format!("{}: {}", it.collector, it.message));
    let lines = |lines: &mut dyn Iterator<Item = String>| lines.collect::<Vec<_>>().join("\n");
    details.extend([
        ("Causes", lines(&mut { causes })),
        ("Observed", with_age(health.observed_at, view.now)),
        ("Nodes ready", lines(&mut { nodes }).replace('\n', ", ")),
        ("Pools", lines(&mut { pools }).replace('\n', ", ")),
        ("Critical alerts", health.critical_alerts.clone().unwrap_or_default().join(", ")),
        ("Certificates", health.certificate_days.map(|days| format!("{days} days left")).unwrap_or_default()),
        ("Drain risks", health.drain_risks.clone().unwrap_or_default().join("\n")),
        ("Not observed", lines(&mut { errors })),
    ]);
    details
}
