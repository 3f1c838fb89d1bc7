//! The plan: upcoming runs, with those that will not start in time.

use api::admin::{Confidence, PlanEntry, PlanForm, PlanGrouping, PlanOutcome, PlanRun};
use client::PlanQuery;
use maud::{Markup, html};

use super::{PageContext, choice};
use crate::command_line;
use crate::fields::Fields;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, command, empty_state,
    manifest_link, pager, timestamp,
};

/// Entries on a page.
const LINES: usize = 200;

/// The plan's page. Runs of one schedule are one row that opens; `each=run` shows every run in a row of its own.
pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let query = page.query;
    let horizon = query.get("for").unwrap_or("30d");
    let grouping = if query.text("each") == "run" { PlanGrouping::Run } else { PlanGrouping::Schedule };
    let plan_query = PlanQuery {
        horizon: horizon.parse().ok(),
        cluster: query.get("cluster").map(str::to_owned),
        schedule: query.get("schedule").map(str::to_owned),
        task: query.get("task").map(str::to_owned),
        only_misses: query.text("only") == "misses",
        grouping,
    };
    let skip: usize = query.get("skip").and_then(|text| text.parse().ok()).unwrap_or(0);
    let (plan, tasks) =
        tokio::join!(page.admin.plan_page(&plan_query, skip, LINES), page.admin.tasks().all());
    let (plan, tasks) = (plan?, tasks.unwrap_or_default());
    let name = |id: uuid::Uuid| {
        let found = tasks.iter().find(|task| task.id == Some(id));
        found.map_or_else(|| id.to_string(), |task| task.name.clone())
    };
    let names: Vec<(String, String)> =
        tasks.iter().map(|task| (task.name.clone(), task.name.clone())).collect();
    let body = html! {
        (lead(&plan, query))
        @if plan.total == 0 {
            (empty_state("Nothing is planned", &html! { p { "Create a " a href="/schedules/new" { "schedule" } " or run a " a href="/tasks" { "task" } "." } }))
        } @else {
            (table(&plan.entries, query, name))
            (pager("/plan", query, skip as u64, plan.entries.len() as u64, plan.total, LINES as u64))
        }
    };
    let json = Fields::default()
        .with("horizon", horizon)
        .with("schedule", query.text("schedule"))
        .with("task", query.text("task"))
        .with("groupBy", grouping.as_str());
    let mut arguments = vec!["shipshape", "plan", "--for", horizon];
    arguments.extend((grouping == PlanGrouping::Run).then_some("--all"));
    Ok(View {
        title: "Plan".to_owned(),
        section: Section::Plan,
        breadcrumbs: Vec::new(),
        json: format!("/admin/maintenanceplan{}", json.query()),
        command: command_line::join(arguments),
        events: PageEvents::Kinds(&["schedule", "cluster"]),
        panels: vec![Panel::fixed("filter", filter(query, &names)), Panel::live("plan", body)],
    })
}

fn filter(query: &Fields, tasks: &[(String, String)]) -> Markup {
    let spans = [("24h", "a day"), ("7d", "a week"), ("30d", "30 days"), ("90d", "90 days")];
    let misses = [("misses".to_owned(), "only runs that do not start in time".to_owned())];
    let each = [("run".to_owned(), "each run".to_owned())];
    html! {
        form class="filter" method="get" action="/plan" aria-label="The plan" {
            label { span { "Period" } select name="for" { @for (value, text) in spans { option value=(value) selected[query.get("for").unwrap_or("30d") == value] { (text) } } } }
            (choice("task", "Task", "any", tasks, query.text("task")))
            label { span { "Schedule" } input type="text" name="schedule" value=(query.text("schedule")) autocomplete="off" placeholder="any"; }
            (choice("only", "Show", "everything", &misses, query.text("only")))
            (choice("each", "Rows", "one for each schedule", &each, query.text("each")))
            div class="buttons" { button type="submit" class="primary" { "Show" } a class="button" href="/plan" { "Clear" } }
        }
    }
}

fn lead(plan: &PlanForm, query: &Fields) -> Markup {
    html! {
        div class="lead" {
            span { strong class="figure" { (plan.runs) } @if plan.runs == 1 { " run until " } @else { " runs until " } (timestamp(plan.to)) }
            @match plan.misses {
                0 => { (badge(BadgeTone::Good, "all start in time")) },
                1 => { a href="/plan?only=misses" { (badge(BadgeTone::Bad, "1 does not start in time")) } },
                many => { a href="/plan?only=misses" { (badge(BadgeTone::Bad, &format!("{many} do not start in time"))) } },
            }
            @if query.text("each") == "run" { a href={ "/plan" (query.with("each", "").with("skip", "").query()) } { "One row for each schedule" } }
        }
        @if let Some(truncated) = &plan.truncated { p class="said" { (truncated.message) } }
    }
}

fn table(entries: &[PlanEntry], query: &Fields, name: impl Fn(uuid::Uuid) -> String) -> Markup {
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Planned runs, by their first start" }
                thead { tr { th scope="col" { "Start" } th scope="col" { "Task" } th scope="col" { "Clusters" } th scope="col" { "Schedule" } th scope="col" { "Runs" } th scope="col" { "Duration" } th scope="col" { "In time?" } } }
                tbody { @for entry in entries { (row(entry, query, &name(entry.task))) } }
            }
        }
    }
}

fn row(entry: &PlanEntry, query: &Fields, task: &str) -> Markup {
    html! {
        tr {
            td data-label="Start" { (timestamp(entry.start)) @if entry.runs == 1 { div class="quiet small" { "ends " (timestamp(entry.end)) } } }
            th scope="row" data-label="Task" { @match entry.manifest { Some(id) => { (manifest_link(id, task)) }, None => { (task) } } }
            td data-label="Clusters" { @match &entry.cluster { Some(cluster) => { (cluster_link(cluster)) }, None => { span class="figure" { (entry.clusters) } " clusters" } } }
            td data-label="Schedule" { @match &entry.schedule { Some(schedule) => { a href={ "/schedule/" (crate::fields::escaped(schedule)) } { bdi { (schedule) } } }, None => { span class="quiet" { "–" } } } }
            td data-label="Runs" { @if entry.runs == 1 { (entry.rhythm()) } @else { (runs(entry, query)) } }
            td data-label="Duration" { (duration(entry)) }
            td data-label="In time?" {
                @match (entry.misses, entry.runs) {
                    (0, _) => { (badge(BadgeTone::Good, "yes")) },
                    (1, 1) => { (badge(BadgeTone::Bad, "no")) },
                    (misses, runs) => { (badge(BadgeTone::Bad, &format!("{misses} of {runs} too late"))) },
                }
                @if let Some(reason) = &entry.reason { div class="quiet small" { (reason) } }
                @if entry.outcome == PlanOutcome::Misses { @if let Some(id) = entry.manifest { (command(&command_line::join(["shipshape", "why", &crate::view::short_id(id)]))) } }
            }
        }
    }
}

/// The runs of one schedule: a summary that opens to the first runs, with a link to all.
fn runs(entry: &PlanEntry, query: &Fields) -> Markup {
    let schedule = entry.schedule.as_deref().unwrap_or_default();
    let each = query.with("each", "run").with("schedule", schedule).with("skip", "");
    html! {
        details {
            summary { (entry.rhythm()) }
            ol class="small" { @for run in &entry.first { li { (first(run)) } } }
            @if entry.runs > entry.first.len() as u64 { a href={ "/plan" (each.query()) } { "All " (entry.runs) " runs" } }
        }
    }
}

fn first(run: &PlanRun) -> Markup {
    html! {
        (timestamp(run.start)) " on " (cluster_link(&run.cluster))
        @if run.outcome == PlanOutcome::Misses { " " (badge(BadgeTone::Bad, "too late")) }
        @if let Some(reason) = &run.reason { " " span class="quiet" { (reason) } }
    }
}

/// The expected duration of a run, and its confidence.
fn duration(entry: &PlanEntry) -> Markup {
    let duration = &entry.duration;
    let confidence = match duration.confidence {
        Confidence::Measured => format!("measured in {} runs", duration.runs),
        Confidence::FewRuns => format!("few runs ({})", duration.runs),
        Confidence::Declared => "declared by the task".to_owned(),
        Confidence::Assumed => "assumed from its steps".to_owned(),
    };
    html! {
        span class="figure" { (duration.p50) @if duration.p50 != duration.p95 { "–" (duration.p95) } }
        div class="quiet small" { (confidence) }
    }
}
