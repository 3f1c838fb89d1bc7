//! `shipshape manifest`: work orders, one task on one cluster.

use api::admin::{Entry, ManifestForm};
use api::work::WorkState;
use clap::{Args, Subcommand};
use clap_complete::engine::ArgValueCandidates;
use client::{Client, Topic};
use http::StatusCode;
use serde::Serialize;

use super::age::duration_text;
use super::confirm::Confirm;
use super::create::{self, CreateFlags};
use super::find::{self, last_segment};
use super::labels::LabelSelector;
use super::print::{Output, Printable};
use super::table::{Column, View, Width, absolute, wire_name, with_age};
use super::{Connect, Invocation, complete, wait, watch};
use crate::output;

/// Commands of manifests.
#[derive(Debug, Subcommand)]
pub enum ManifestCommand {
    /// Run a task on a cluster
    #[command(visible_alias = "run")]
    Create {
        /// The task, by its name or id
        #[arg(long, value_name = "TASK", add = ArgValueCandidates::new(complete::tasks))]
        task: String,
        #[command(flatten)]
        flags: CreateFlags,
    },
    /// List manifests, newest first
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Show one manifest
    #[command(visible_alias = "get")]
    Show {
        #[command(flatten)]
        manifest: ManifestRef,
        /// Show progress and wait until it finishes; fails unless it is Completed
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Show the history of a manifest, oldest first
    History {
        #[command(flatten)]
        manifest: ManifestRef,
        #[command(flatten)]
        output: Output,
    },
    /// Cancel a manifest: at once if it has not started, else at its next safe point, and undo its steps
    Cancel {
        #[command(flatten)]
        manifest: ManifestRef,
        /// Reason for the history
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
        /// Wait until it finishes
        #[arg(short, long)]
        wait: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Run a pending manifest next on its cluster
    Expedite {
        #[command(flatten)]
        manifest: ManifestRef,
        /// Reason for the history
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        output: Output,
    },
    /// Delete a manifest and its history
    Delete {
        #[command(flatten)]
        manifest: ManifestRef,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
    },
}

/// The manifest and the server.
#[derive(Debug, Clone, Args)]
pub struct ManifestRef {
    /// The manifest's id or its first 8 or more characters
    #[arg(value_name = "MANIFEST", add = ArgValueCandidates::new(complete::manifests))]
    id: String,
    /// Its cluster; avoids a search
    #[arg(long, value_name = "CLUSTER", add = ArgValueCandidates::new(complete::clusters))]
    cluster: Option<String>,
    #[command(flatten)]
    connect: Connect,
}

impl ManifestRef {
    /// The manifest, its cluster, and the client that found it.
    pub(super) async fn find(
        &self,
        invocation: &Invocation<'_>,
    ) -> anyhow::Result<(Client, String, ManifestForm)> {
        let client = invocation.client(&self.connect)?;
        let (cluster, form) = find::manifest(&client, &self.id, self.cluster.as_deref()).await?;
        Ok((client, cluster, form))
    }
}

/// Flags of `shipshape manifest list`.
#[derive(Debug, Args)]
pub struct ListFlags {
    /// Only of this cluster
    #[arg(long, value_name = "CLUSTER", add = ArgValueCandidates::new(complete::clusters))]
    cluster: Option<String>,
    /// Only of clusters with these labels, such as env=prod
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "cluster")]
    selector: Option<LabelSelector>,
    /// Only of this task
    #[arg(long, value_name = "TASK", add = ArgValueCandidates::new(complete::tasks))]
    task: Option<String>,
    /// Only of this schedule
    #[arg(long, value_name = "SCHEDULE", add = ArgValueCandidates::new(complete::schedules))]
    schedule: Option<String>,
    /// Only in this state, such as Pending; may be repeated
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Vec<WorkState>,
    /// Largest number of rows
    #[arg(long, value_name = "N", default_value_t = 500)]
    limit: usize,
    /// Watch for changes
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Runs the command.
pub async fn run(command: &ManifestCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        ManifestCommand::Create { task, flags } => create::create(task, flags, invocation).await,
        ManifestCommand::List(flags) => {
            let client = invocation.client(&flags.connect)?;
            if flags.watch {
                let list = || list(&client, flags);
                return watch::watch(invocation, &client, Topic::Manifests, flags.output, list).await;
            }
            flags.output.print_list(invocation, &list(&client, flags).await?)
        }
        ManifestCommand::Show { manifest, wait, output } => {
            let (client, _, form) = manifest.find(invocation).await?;
            match wait {
                true => wait::for_all(&client, invocation, &[form], None, *output).await,
                false => output.print(invocation, &form),
            }
        }
        ManifestCommand::History { manifest, output } => {
            let (client, cluster, form) = manifest.find(invocation).await?;
            let entries = client.history(&cluster, form.id).all().await?;
            output.print_list(invocation, &entries.into_iter().map(HistoryRow).collect::<Vec<_>>())
        }
        ManifestCommand::Cancel { manifest, reason, confirm, wait, output } => {
            let (client, cluster, form) = manifest.find(invocation).await?;
            confirm.ask(&format!("Cancel {} on cluster {}", title(&form), last_segment(&cluster)))?;
            let answer = client.cancel_manifest(&cluster, form.id, reason.as_deref()).await?;
            let mut form = answer.value;
            form.cluster_resource_id = Some(cluster);
            let did = match answer.status {
                StatusCode::ACCEPTED => "cancel requested; its completed steps will be undone",
                _ => "cancelled",
            };
            output.print_change(invocation, &form, did)?;
            match wait {
                true => wait::until_cancelled(&client, invocation, &form, *output).await,
                false => Ok(()),
            }
        }
        ManifestCommand::Expedite { manifest, reason, output } => {
            let (client, cluster, form) = manifest.find(invocation).await?;
            let mut form = client.expedite_manifest(&cluster, form.id, reason.as_deref()).await?.value;
            form.cluster_resource_id = Some(cluster);
            output.print_change(invocation, &form, "expedited")
        }
        ManifestCommand::Delete { manifest, reason, confirm } => {
            let (client, cluster, form) = manifest.find(invocation).await?;
            confirm.ask(&format!(
                "Delete {} of cluster {} and its history",
                title(&form),
                last_segment(&cluster)
            ))?;
            client.delete_manifest(&cluster, form.id, reason.as_deref()).await?;
            output::show(&format!("manifest/{} deleted\n", form.id))
        }
    }
}

async fn list(client: &Client, flags: &ListFlags) -> anyhow::Result<Vec<ManifestForm>> {
    let only_pending = flags.state == [WorkState::Pending];
    let mut forms = match (&flags.cluster, &flags.selector) {
        (Some(cluster), _) => {
            find::manifests_of_clusters(client, vec![find::cluster(client, cluster).await?.id]).await?
        }
        (None, None) if only_pending => client.queued_manifests().all().await?,
        (None, None) => find::newest_first(client.all_manifests().all().await?),
        (None, Some(selector)) => {
            let clusters = client.clusters().all().await?.into_iter();
            let selected = clusters.filter(|it| selector.matches(&it.properties.labels));
            find::manifests_of_clusters(client, selected.map(|it| it.id).collect()).await?
        }
    };
    if let Some(task) = &flags.task {
        let task = find::task(client, task).await?.id;
        forms.retain(|form| Some(form.maintenance_task_id) == task);
    }
    if let Some(schedule) = &flags.schedule {
        let schedule = schedule.strip_prefix("schedule/").unwrap_or(schedule);
        forms.retain(|form| form.created_by_schedule.eq_ignore_ascii_case(schedule));
    }
    forms.retain(|form| flags.state.is_empty() || flags.state.contains(&form.state));
    forms.truncate(flags.limit);
    Ok(forms)
}

fn state(text: &str) -> Result<WorkState, String> {
    let found = WorkState::ALL.into_iter().find(|state| state.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("expected one of {}", WorkState::ALL.map(WorkState::as_str).join(", ")))
}

fn title(form: &ManifestForm) -> String {
    format!("manifest {} ({})", form.id, task_name(form))
}

fn task_name(form: &ManifestForm) -> String {
    match form.task_name.is_empty() {
        true => form.maintenance_task_id.to_string(),
        false => form.task_name.clone(),
    }
}

fn step_text(form: &ManifestForm) -> String {
    form.step.as_ref().map(|step| format!("{}/{} {}", step.index, step.of, step.name)).unwrap_or_default()
}

impl Printable for ManifestForm {
    const KIND: &'static str = "manifest";
    const COLUMNS: &'static [Column] = &[
        Column("ID", Width::Always),
        Column("CLUSTER", Width::Always),
        Column("TASK", Width::Always),
        Column("STATE", Width::Always),
        Column("PHASE", Width::Always),
        Column("STEP", Width::Always),
        Column("ATTEMPT", Width::Always),
        Column("RUN AFTER", Width::Wide),
        Column("RUN BEFORE", Width::Wide),
        Column("PRIORITY", Width::Wide),
        Column("SCHEDULE", Width::Wide),
        Column("BY", Width::Wide),
        Column("AGE", Width::Always),
        Column("STATUS", Width::Wide),
    ];

    fn name(&self) -> String {
        self.id.to_string()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        vec![
            self.name(),
            last_segment(self.cluster_resource_id.as_deref().unwrap_or_default()).to_owned(),
            task_name(self),
            self.state.as_str().to_owned(),
            wire_name(self.phase),
            step_text(self),
            format!("{}/{}", self.attempt, self.max_attempts),
            view.unix(self.run_after),
            view.unix(self.run_before),
            self.priority.to_string(),
            self.created_by_schedule.clone(),
            self.created_by.clone(),
            view.time(self.created_at),
            self.status_text.clone(),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let unix = |seconds: i64| {
            jiff::Timestamp::from_second(seconds)
                .map_or_else(|_| seconds.to_string(), |it| with_age(it, view.now))
        };
        let time = |time: Option<jiff::Timestamp>| time.map(|it| with_age(it, view.now)).unwrap_or_default();
        let parameters = self.parameters.iter().map(|(key, value)| format!("{key}={value}"));
        let version = match self.task_version {
            0 => String::new(),
            version => format!(" version {version}"),
        };
        vec![
            ("ID", self.name()),
            ("Cluster", self.cluster_resource_id.clone().unwrap_or_default()),
            ("Task", format!("{}{version} ({})", task_name(self), self.maintenance_task_id)),
            ("Parameters", parameters.collect::<Vec<_>>().join("\n")),
            ("State", format!("{} ({})", self.state.as_str(), wire_name(self.phase))),
            ("Reason", self.reason.clone()),
            ("Status", self.status_text.clone()),
            (
                "Step",
                self.step
                    .as_ref()
                    .map_or_else(String::new, |it| format!("{} {}", step_text(self), it.message)),
            ),
            ("Attempt", format!("{} of {}", self.attempt, self.max_attempts)),
            ("Priority", self.priority.to_string()),
            ("Run after", unix(self.run_after)),
            ("Run before", unix(self.run_before)),
            ("Schedule", self.created_by_schedule.clone()),
            ("Created", format!("{} by {}", with_age(self.created_at, view.now), self.created_by)),
            ("Started", time(self.started_at)),
            ("Finished", time(self.finished_at)),
        ]
    }
}

/// An entry of a history.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct HistoryRow(Entry);

impl Printable for HistoryRow {
    const KIND: &'static str = "entry";
    const KIND_PLURAL: &'static str = "entries";
    const COLUMNS: &'static [Column] = &[
        Column("WHEN", Width::Always),
        Column("EVENT", Width::Always),
        Column("STEP", Width::Always),
        Column("ATTEMPT", Width::Always),
        Column("TOOK", Width::Always),
        Column("BY", Width::Always),
        Column("CORRELATION", Width::Wide),
        Column("MESSAGE", Width::Always),
    ];

    fn name(&self) -> String {
        absolute(self.0.time)
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let entry = &self.0;
        let event = match entry.to {
            Some(to) => format!("{} {}", wire_name(&entry.event), to.as_str()),
            None => wire_name(&entry.event),
        };
        let message = entry.message.as_deref().unwrap_or_default();
        // A log has many lines; -o json and -o yaml contain all of them.
        let lines = message.lines().count();
        let message = match (message.lines().next(), lines) {
            (Some(first), 2..) => format!("{first} … ({lines} lines)"),
            (first, _) => first.unwrap_or_default().to_owned(),
        };
        vec![
            view.time(entry.time),
            event,
            entry.step.clone().unwrap_or_default().into(),
            entry.attempt.to_string(),
            entry.duration_ms.map(duration_text).unwrap_or_default(),
            entry.actor.clone(),
            entry.correlation_id.map(|id| id.to_string()).unwrap_or_default(),
            message,
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        Self::COLUMNS.iter().map(|column| column.0).zip(self.cells(view)).collect()
    }
}
