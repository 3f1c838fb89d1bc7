//! `shipshape plan`: the predicted runs.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::admin::{PlanEntry, PlanForm, PlanGrouping};
use api::duration::TimeSpan;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::PlanQuery;

use super::find::{self, last_segment};
use super::print::Output;
use super::table::{self, Column, View, Width, absolute, with_age};
use super::{Connect, Invocation, complete};

/// Flags of `shipshape plan`.
#[derive(Debug, Args)]
pub struct PlanCommand {
    /// Length of the predicted period
    #[arg(long = "for", value_name = "DURATION", default_value = "30d")]
    horizon: TimeSpan,
    /// Only of this cluster
    #[arg(long, value_name = "CLUSTER", add = ArgValueCandidates::new(complete::clusters))]
    cluster: Option<String>,
    /// Only of this schedule
    #[arg(long, value_name = "SCHEDULE", add = ArgValueCandidates::new(complete::schedules))]
    schedule: Option<String>,
    /// Only of this task
    #[arg(long, value_name = "TASK", add = ArgValueCandidates::new(complete::tasks))]
    task: Option<String>,
    /// Show each run, instead of one row for all runs of a schedule
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Shows the plan.
pub async fn run(command: &PlanCommand, invocation: &Invocation<'_>) -> anyhow::Result<()> {
    let client = invocation.client(&command.connect)?;
    // Structured output contains every run.
    let grouping = match command.all || command.output.is_structured() {
        true => PlanGrouping::Run,
        false => PlanGrouping::Schedule,
    };
    let mut query = PlanQuery { horizon: Some(command.horizon), grouping, ..PlanQuery::default() };
    if let Some(cluster) = &command.cluster {
        query.cluster = Some(find::cluster(&client, cluster).await?.id);
    }
    if let Some(schedule) = &command.schedule {
        query.schedule = Some(find::schedule(&client, schedule).await?.value.id);
    }
    if let Some(task) = &command.task {
        let id = find::task(&client, task).await?.id.context("the server's task has no id")?;
        query.task = Some(id.to_string());
    }
    let plan = client.plan(&query).await?;
    let names = match command.output.is_human() {
        true => client.tasks().all().await?.into_iter().filter_map(|it| Some((it.id?, it.name))).collect(),
        false => BTreeMap::new(),
    };
    command.output.print_value(invocation, &plan, |view| text(&plan, &names, view))
}

const COLUMNS: [Column; 11] = [
    Column("START", Width::Always),
    Column("IN", Width::Always),
    Column("CLUSTER", Width::Always),
    Column("TASK", Width::Always),
    Column("SCHEDULE", Width::Always),
    Column("RUNS", Width::Always),
    Column("DURATION", Width::Always),
    Column("END", Width::Wide),
    Column("MANIFEST", Width::Wide),
    Column("IN TIME", Width::Always),
    Column("REASON", Width::Always),
];

fn text(plan: &PlanForm, names: &BTreeMap<uuid::Uuid, String>, view: &View) -> String {
    let rows: Vec<Vec<String>> = plan
        .entries
        .iter()
        .map(|entry| {
            vec![
                absolute(entry.start),
                super::age::age(entry.start, view.now).trim_start_matches("in ").to_owned(),
                cluster(entry, view),
                names.get(&entry.task).cloned().unwrap_or_else(|| entry.task.to_string()),
                entry.schedule.clone().unwrap_or_default(),
                entry.rhythm(),
                entry.duration.summary(),
                absolute(entry.end),
                entry.manifest.map(|id| id.to_string()).unwrap_or_default(),
                in_time(entry),
                entry.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let misses = match plan.misses {
        0 => "all start in time".to_owned(),
        1 => "1 does not start in time".to_owned(),
        many => format!("{many} do not start in time"),
    };
    let runs = if plan.runs == 1 { "1 run".to_owned() } else { format!("{} runs", plan.runs) };
    let mut summary = format!("{runs} until {}; {misses}\n", with_age(plan.to, view.now));
    if (plan.entries.len() as u64) < plan.runs {
        summary += "Runs of one schedule are one row; --all shows each of them\n";
    }
    if let Some(truncated) = &plan.truncated {
        summary += &format!("{}\n", truncated.message);
    }
    match rows.is_empty() {
        true => summary,
        false => table::rows(&COLUMNS, &rows, view, true) + &summary,
    }
}

fn cluster(entry: &PlanEntry, view: &View) -> String {
    match &entry.cluster {
        Some(cluster) if view.wide => cluster.clone(),
        Some(cluster) => last_segment(cluster).to_owned(),
        None => format!("{} clusters", entry.clusters),
    }
}

fn in_time(entry: &PlanEntry) -> String {
    match (entry.misses, entry.runs) {
        (0, _) => "yes".to_owned(),
        (1, 1) => "no".to_owned(),
        (misses, runs) => format!("{misses} of {runs} too late"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan() -> PlanForm {
        serde_json::from_value(json!({
            "from": "2026-01-01T00:00:00Z", "to": "2026-01-31T00:00:00Z", "generatedAt": "2026-01-01T00:00:00Z",
            "runs": 289, "misses": 1, "total": 2, "entries": [
                {
                    "clusters": 3, "schedule": "often", "task": uuid::Uuid::nil(), "runAfter": 0, "runs": 288, "every": "5m",
                    "start": "2026-01-01T00:05:00Z", "end": "2026-01-02T00:00:00Z", "outcome": "runs",
                    "duration": {"p50": "1s", "p95": "2s", "runs": 40, "confidence": "measured"},
                },
                {
                    "cluster": "/s/web", "schedule": "weekly", "task": uuid::Uuid::nil(), "runAfter": 0, "misses": 1,
                    "start": "2026-01-01T02:00:00Z", "end": "2026-01-01T02:30:00Z", "outcome": "misses",
                    "duration": {"p50": "5s", "p95": "5s", "runs": 0, "confidence": "declared"},
                    "reason": "the budget fleet is 0",
                },
            ],
        }))
        .unwrap()
    }

    fn lines(plan: &PlanForm) -> Vec<Vec<String>> {
        let names = BTreeMap::from([(uuid::Uuid::nil(), "tidy".to_owned())]);
        let view = View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide: false };
        let cells = |line: &str| {
            let cells = line.split("   ").map(str::trim).filter(|it| !it.is_empty());
            cells.map(str::to_owned).collect()
        };
        text(plan, &names, &view).lines().map(cells).collect()
    }

    #[test]
    fn the_plan_is_a_table_with_a_row_for_each_schedule_and_a_sum() {
        let lines = lines(&plan());
        assert_eq!(
            lines[1],
            [
                "2026-01-01T00:05:00Z",
                "5m",
                "3 clusters",
                "tidy",
                "often",
                "every 5 min, 288 runs",
                "1s..2s, measured in 40 runs",
                "yes",
            ]
        );
        assert_eq!(
            lines[2],
            [
                "2026-01-01T02:00:00Z",
                "120m",
                "web",
                "tidy",
                "weekly",
                "1 run",
                "5s, declared",
                "no",
                "the budget fleet is 0"
            ]
        );
        assert_eq!(lines[3], ["289 runs until 2026-01-31T00:00:00Z (in 30d); 1 does not start in time"]);
        assert_eq!(lines[4], ["Runs of one schedule are one row; --all shows each of them"]);
    }

    #[test]
    fn a_truncated_plan_is_marked_as_such() {
        let mut plan = plan();
        let cut =
            json!({"requestedTo": "2027-01-01T00:00:00Z", "runsMax": 9, "message": "The plan ends early."});
        plan.truncated = serde_json::from_value(cut).unwrap();
        assert_eq!(lines(&plan).last().unwrap(), &["The plan ends early."]);
    }
}
