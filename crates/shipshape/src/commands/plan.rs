//! `shipshape plan`: what will run where and when.

use std::collections::BTreeMap;

use anyhow::Context as _;
use api::admin::{PlanForm, PlanOutcome};
use api::duration::TimeSpan;
use clap::Args;
use clap_complete::engine::ArgValueCandidates;
use client::PlanQuery;

use super::find::{self, short_name};
use super::form::Output;
use super::table::{self, Column, View, Width, absolute, both};
use super::{Connect, Desk, complete};

/// Which part of the plan.
#[derive(Debug, Args)]
pub(crate) struct PlanCommand {
    /// How far ahead
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
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    connect: Connect,
}

/// Shows the plan.
pub(crate) async fn run(command: &PlanCommand, desk: &Desk<'_>) -> anyhow::Result<()> {
    let client = desk.client(&command.connect)?;
    let mut query = PlanQuery { horizon: Some(command.horizon), ..PlanQuery::default() };
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
    let names = match command.output.is_for_people() {
        true => client.tasks().all().await?.into_iter().filter_map(|it| Some((it.id?, it.name))).collect(),
        false => BTreeMap::new(),
    };
    command.output.plain(desk, &plan, |view| text(&plan, &names, view))
}

const COLUMNS: [Column; 9] = [
    Column("START", Width::Always),
    Column("IN", Width::Always),
    Column("CLUSTER", Width::Always),
    Column("TASK", Width::Always),
    Column("SCHEDULE", Width::Always),
    Column("END", Width::Wide),
    Column("MANIFEST", Width::Wide),
    Column("OUTCOME", Width::Always),
    Column("REASON", Width::Always),
];

fn text(plan: &PlanForm, names: &BTreeMap<uuid::Uuid, String>, view: &View) -> String {
    let rows: Vec<Vec<String>> = plan
        .entries
        .iter()
        .map(|entry| {
            let outcome = match entry.outcome {
                PlanOutcome::Runs => "runs",
                PlanOutcome::Misses => "misses",
            };
            vec![
                absolute(entry.start),
                super::age::age(entry.start, view.now).trim_start_matches("in ").to_owned(),
                if view.wide { entry.cluster.clone() } else { short_name(&entry.cluster).to_owned() },
                names.get(&entry.task).cloned().unwrap_or_else(|| entry.task.to_string()),
                entry.schedule.clone().unwrap_or_default(),
                absolute(entry.end),
                entry.manifest.map(|id| id.to_string()).unwrap_or_default(),
                outcome.to_owned(),
                entry.reason.clone().unwrap_or_default(),
            ]
        })
        .collect();
    let misses = match plan.misses {
        0 => "none misses its window".to_owned(),
        1 => "1 misses its window".to_owned(),
        many => format!("{many} miss their windows"),
    };
    let summary = format!("{} runs until {}; {misses}\n", plan.entries.len(), both(plan.to, view.now));
    match rows.is_empty() {
        true => summary,
        false => table::rows(&COLUMNS, &rows, view, true) + &summary,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_a_table_with_a_sum() {
        let plan: PlanForm = serde_json::from_value(serde_json::json!({
            "from": "2026-01-01T00:00:00Z", "to": "2026-01-31T00:00:00Z", "generatedAt": "2026-01-01T00:00:00Z",
            "misses": 1, "entries": [{
                "cluster": "/s/web", "schedule": "weekly", "task": uuid::Uuid::nil(), "runAfter": 0,
                "start": "2026-01-01T02:00:00Z", "end": "2026-01-01T02:30:00Z", "durationFrom": "limit",
                "outcome": "misses", "reason": "the budget fleet is 0",
            }],
        }))
        .unwrap();
        let names = BTreeMap::from([(uuid::Uuid::nil(), "tidy".to_owned())]);
        let view = View { now: "2026-01-01T00:00:00Z".parse().unwrap(), wide: false };
        let text = text(&plan, &names, &view);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1].split("   ").map(str::trim).filter(|it| !it.is_empty()).collect::<Vec<_>>(),
            ["2026-01-01T02:00:00Z", "120m", "web", "tidy", "weekly", "misses", "the budget fleet is 0"]
        );
        assert_eq!(lines[2], "1 runs until 2026-01-31T00:00:00Z (in 30d); 1 misses its window");
    }
}
