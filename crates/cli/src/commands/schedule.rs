//! `shipshape schedule`: schedules, which create manifests.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::admin::{PreviewForm, ScheduleForm};
use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use client::{Client, PendingWork, Topic};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::confirm::Confirm;
use super::find::{self, last_segment};
use super::input::{Document, Documents};
use super::print::{Output, Printable};
use super::table::{self, Column, View, Width, with_age};
use super::time_arg::TimeArg;
use super::{ApplyFlags, Connect, Invocation, WatchFlags, complete};
use crate::output;

/// Commands of schedules.
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// List the schedules
    #[command(visible_alias = "ls")]
    List(WatchFlags),
    /// Show one schedule
    #[command(visible_alias = "get")]
    Show {
        /// The schedule's id
        #[arg(add = ArgValueCandidates::new(complete::schedules))]
        schedule: String,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Store schedules from YAML or JSON; the task may be given by name
    Apply(ApplyFlags),
    /// Show the runs of a schedule without storing it
    Preview {
        #[command(flatten)]
        documents: Documents,
        /// Number of periods
        #[arg(long, value_name = "N", default_value_t = 10)]
        count: u32,
        /// Number of clusters
        #[arg(long, value_name = "N", default_value_t = 100)]
        clusters: u32,
        /// Preview as of this time: 2h from now, Unix seconds, or a time such as 2026-11-30T04:00:00Z
        #[arg(long, value_name = "WHEN")]
        now: Option<TimeArg>,
        #[command(flatten)]
        output: Output,
        #[command(flatten)]
        connect: Connect,
    },
    /// Enable a schedule
    Enable {
        #[command(flatten)]
        switch: Switch,
    },
    /// Disable a schedule and cancel its pending manifests
    Disable {
        #[command(flatten)]
        switch: Switch,
    },
    /// Delete a schedule
    Delete {
        /// The schedule's id
        #[arg(add = ArgValueCandidates::new(complete::schedules))]
        schedule: String,
        /// Keep its pending manifests instead of cancelling them
        #[arg(long)]
        keep_pending: bool,
        /// Reason for the audit log
        #[arg(long)]
        reason: Option<String>,
        #[command(flatten)]
        confirm: Confirm,
        #[command(flatten)]
        connect: Connect,
    },
}

/// Flags of `enable` and `disable`.
#[derive(Debug, Clone, clap::Args)]
pub struct Switch {
    /// The schedule's id
    #[arg(add = ArgValueCandidates::new(complete::schedules))]
    schedule: String,
    /// Reason for the audit log
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Runs the command.
pub async fn run(command: &ScheduleCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    match command {
        ScheduleCommand::List(flags) => {
            let client = invocation.client(&flags.connect)?;
            let names = task_names(&client).await?;
            let list = || async {
                let forms = client.schedules().all().await?;
                Ok(forms.into_iter().map(|form| ScheduleRow::new(form, &names)).collect::<Vec<_>>())
            };
            flags.print(invocation, &client, Topic::Schedules, list).await
        }
        ScheduleCommand::Show { schedule, output, connect } => {
            let client = invocation.client(connect)?;
            let form = find::schedule(&client, schedule).await?.value;
            output.print(invocation, &ScheduleRow::new(form, &task_names(&client).await?))
        }
        ScheduleCommand::Apply(flags) => {
            let documents = flags.read()?;
            let client = invocation.client(&flags.connect)?;
            for document in documents {
                let Document { place, mut value } = document;
                resolve_task(&client, &place, &mut value).await?;
                let stored = client.put_schedule(&value, None).await.with_context(|| place)?;
                let did = if stored.is_created() { "created" } else { "configured" };
                let row = ScheduleRow::new(stored.value, &BTreeMap::new());
                flags.output.print_change(invocation, &row, did)?;
            }
            Ok(())
        }
        ScheduleCommand::Preview { documents, count, clusters, now, output, connect } => {
            let Document { place, mut value } = documents.read_single()?;
            let client = invocation.client(connect)?;
            resolve_task(&client, &place, &mut value).await?;
            let at = now.and_then(|when| jiff::Timestamp::from_second(when.unix(invocation.now())).ok());
            let at_text = at.map(|at| at.to_string());
            let preview =
                client.preview(&value, *count, *clusters, at_text.as_deref()).await.with_context(|| place)?;
            output.print_value(invocation, &preview, |view| {
                preview_text(&preview, &View { now: at.unwrap_or(view.now), wide: view.wide })
            })
        }
        ScheduleCommand::Enable { switch } => set_state(switch, "Enabled", "enabled", invocation).await,
        ScheduleCommand::Disable { switch } => set_state(switch, "Disabled", "disabled", invocation).await,
        ScheduleCommand::Delete { schedule, keep_pending, reason, confirm, connect } => {
            let client = invocation.client(connect)?;
            let form = find::schedule(&client, schedule).await?.value;
            let (pending, action) = match keep_pending {
                true => (PendingWork::Keep, "keep its pending manifests"),
                false => (PendingWork::Cancel, "cancel its pending manifests"),
            };
            confirm.ask(&format!("Delete schedule {} and {action}", form.id))?;
            client.delete_schedule(&form.id, pending, reason.as_deref()).await?;
            output::show(&format!("schedule/{} deleted\n", form.id))
        }
    }
}

async fn set_state(
    switch: &Switch,
    state: &str,
    did: &str,
    invocation: &Invocation<'_>,
) -> anyhow::Result<()> {
    let client = invocation.client(&switch.connect)?;
    let found = find::schedule(&client, &switch.schedule).await?;
    let mut form = found.value;
    form.state = state.to_owned();
    form.status = None;
    form.reason = switch.reason.clone();
    // The etag protects a change between this read and this write.
    let stored = client.put_schedule(&form, found.etag.as_deref()).await?;
    switch.output.print_change(invocation, &ScheduleRow::new(stored.value, &BTreeMap::new()), did)
}

/// Replaces the name of a task in a document by its id.
async fn resolve_task(client: &Client, place: &str, schedule: &mut Value) -> anyhow::Result<()> {
    let Some(name) = schedule.get("maintenanceTaskID").and_then(Value::as_str).map(str::to_owned) else {
        return Ok(());
    };
    if name.is_empty() || Uuid::parse_str(&name).is_ok() {
        return Ok(());
    }
    let task = find::task(client, &name).await.with_context(|| format!("{place}: maintenanceTaskID"))?;
    schedule["maintenanceTaskID"] = serde_json::to_value(task.id)?;
    Ok(())
}

/// Names of tasks by id; schedules refer to tasks by id.
async fn task_names(client: &Client) -> anyhow::Result<BTreeMap<String, String>> {
    let tasks = client.tasks().all().await?;
    Ok(tasks.into_iter().filter_map(|task| Some((task.id?.to_string(), task.name))).collect())
}

fn preview_text(preview: &PreviewForm, view: &View) -> String {
    let mut text = format!("{} of {} clusters match\n", preview.matched, preview.of);
    text += "Periods\n";
    for period in &preview.periods {
        text += &format!("  {}\n", with_age(*period, view.now));
    }
    if !preview.clusters.is_empty() {
        let columns = [Column("CLUSTER", Width::Always), Column("RUN AFTER", Width::Always)];
        let times = |times: &[i64]| {
            let shown = times.iter().map(|seconds| View { wide: true, ..*view }.unix(*seconds));
            shown.collect::<Vec<_>>().join(", ")
        };
        let name = |id: &str| if view.wide { id.to_owned() } else { last_segment(id).to_owned() };
        let rows: Vec<Vec<String>> =
            preview.clusters.iter().map(|it| vec![name(&it.id), times(&it.run_after)]).collect();
        text += &table::rows(&columns, &rows, view, true);
    }
    for warning in &preview.warnings {
        text += &format!("warning: {warning}\n");
    }
    text
}

/// A schedule with the name of its task.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct ScheduleRow {
    form: ScheduleForm,
    #[serde(skip)]
    task: String,
}

impl ScheduleRow {
    fn new(form: ScheduleForm, names: &BTreeMap<String, String>) -> ScheduleRow {
        let task = names.get(&form.maintenance_task_id).unwrap_or(&form.maintenance_task_id).clone();
        ScheduleRow { form, task }
    }

    fn calendar(&self) -> String {
        match self.form.schedule.is_empty() {
            false => self.form.schedule.clone(),
            true => self.form.calendars.join("; "),
        }
    }
}

impl Printable for ScheduleRow {
    const KIND: &'static str = "schedule";
    const COLUMNS: &'static [Column] = &[
        Column("ID", Width::Always),
        Column("STATE", Width::Always),
        Column("TASK", Width::Always),
        Column("CALENDAR", Width::Always),
        Column("ZONE", Width::Wide),
        Column("ACROSS", Width::Wide),
        Column("START WITHIN", Width::Wide),
        Column("MISSED", Width::Wide),
        Column("MATCHED", Width::Always),
        Column("NEXT", Width::Always),
        Column("LAST PLANNED", Width::Wide),
        Column("ERRORS", Width::Wide),
    ];

    fn name(&self) -> String {
        self.form.id.clone()
    }

    fn cells(&self, view: &View) -> Vec<String> {
        let status = self.form.status.as_ref();
        let next = status.and_then(|status| status.next_periods.first().copied());
        vec![
            self.form.id.clone(),
            self.form.state.clone(),
            self.task.clone(),
            self.calendar(),
            self.form.time_zone.clone(),
            self.form.schedule_across.clone(),
            self.form.start_within.clone(),
            self.form.missed_policy.clone(),
            status.map(|status| status.matched.to_string()).unwrap_or_default(),
            view.optional_time(next),
            view.optional_time(status.and_then(|status| status.last_planned_at)),
            status.map(|status| status.errors.join("; ")).unwrap_or_default(),
        ]
    }

    fn details(&self, view: &View) -> Vec<(&'static str, String)> {
        let form = &self.form;
        let status = form.status.clone().unwrap_or_default();
        let periods = status.next_periods.iter().map(|period| with_age(*period, view.now));
        let selectors = form.selectors.iter().map(Value::to_string);
        let parameters = form.parameters.iter().map(|(key, value)| format!("{key}={value}"));
        let planned = status.last_planned_at.map(|time| {
            format!(
                "{}: {} clusters match; of its last change, {} created and {} withdrawn",
                with_age(time, view.now),
                status.matched,
                status.created,
                status.cancelled
            )
        });
        vec![
            ("ID", form.id.clone()),
            ("State", form.state.clone()),
            ("Task", format!("{} ({})", self.task, form.maintenance_task_id)),
            ("Calendar", self.calendar()),
            ("Time zone", form.time_zone.clone()),
            ("Look forward", form.look_forward_count.to_string()),
            ("Across", form.schedule_across.clone()),
            ("Spread by", form.spread_by.clone()),
            ("Start within", form.start_within.clone()),
            ("Missed", form.missed_policy.clone()),
            ("Priority", form.priority.to_string()),
            ("Selectors", selectors.collect::<Vec<_>>().join("\n")),
            ("Parameters", parameters.collect::<Vec<_>>().join("\n")),
            ("Planned", planned.unwrap_or_default()),
            ("Next", periods.collect::<Vec<_>>().join("\n")),
            ("Errors", status.errors.join("\n")),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preview_shows_periods_clusters_and_warnings() {
        let preview = PreviewForm {
            periods: vec!["2026-01-01T04:00:00Z".parse().unwrap()],
            matched: 1,
            of: 3,
            clusters: vec![api::admin::PreviewCluster {
                id: "/s/x/web".into(),
                run_after: vec![1_767_240_000],
            }],
            warnings: vec!["no cluster has it".into()],
        };
        let view = View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide: false };
        assert_eq!(
            preview_text(&preview, &view),
            "1 of 3 clusters match\nPeriods\n  2026-01-01T04:00:00Z (in 4h)\nCLUSTER   RUN AFTER\n\
             web       2026-01-01T04:00:00Z\nwarning: no cluster has it\n"
        );
    }

    #[test]
    fn a_schedule_shows_the_name_of_its_task_and_is_serialized_as_received() {
        let form =
            ScheduleForm { id: "weekly".into(), maintenance_task_id: "t".into(), ..ScheduleForm::default() };
        let row =
            ScheduleRow::new(form.clone(), &BTreeMap::from([("t".to_owned(), "restart-web".to_owned())]));
        let view = View { now: jiff::Timestamp::UNIX_EPOCH, wide: false };
        assert_eq!(row.cells(&view)[2], "restart-web");
        assert_eq!(serde_json::to_value(&row).unwrap(), serde_json::to_value(&form).unwrap());
    }
}
