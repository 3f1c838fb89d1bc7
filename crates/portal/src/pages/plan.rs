//! What will run where and when, with what will not begin in time marked.

use api::admin::{PlanEntry, PlanOutcome};
use client::PlanQuery;
use jiff::Timestamp;
use maud::{Markup, html};

use super::{Desk, choice};
use crate::fields::Fields;
use crate::shell;
use crate::view::{
    Fault, Listens, Panel, Section, Tone, View, badge, cluster_link, command, manifest_link, moment, nothing,
    pager,
};

/// So many runs are on a page.
const LINES: usize = 200;

pub(super) async fn view(desk: Desk<'_>) -> Result<View, Fault> {
    let query = desk.query;
    let horizon = query.one("for").unwrap_or("30d");
    let asked = PlanQuery {
        horizon: horizon.parse().ok(),
        cluster: query.one("cluster").map(str::to_owned),
        schedule: query.one("schedule").map(str::to_owned),
        task: query.one("task").map(str::to_owned),
    };
    let (plan, tasks) = tokio::join!(desk.admin.plan(&asked), desk.admin.tasks().all());
    let (plan, tasks) = (plan?, tasks.unwrap_or_default());
    let name = |id: uuid::Uuid| {
        let found = tasks.iter().find(|task| task.id == Some(id));
        found.map_or_else(|| id.to_string(), |task| task.name.clone())
    };
    let only_misses = query.text("only") == "misses";
    let entries: Vec<&PlanEntry> =
        plan.entries.iter().filter(|entry| !only_misses || entry.outcome == PlanOutcome::Misses).collect();
    let skip: usize = query.one("skip").and_then(|text| text.parse().ok()).unwrap_or(0).min(entries.len());
    let shown = &entries[skip..(skip + LINES).min(entries.len())];
    let names: Vec<(String, String)> =
        tasks.iter().map(|task| (task.name.clone(), task.name.clone())).collect();
    let body = html! {
        div class="lead" {
            span { strong class="figure" { (plan.entries.len()) } " runs until " (moment(plan.to)) }
            @if plan.misses > 0 { a href="/plan?only=misses" { (badge(Tone::Bad, &format!("{} will not begin in time", plan.misses))) } }
            @else { (badge(Tone::Good, "all begin in time")) }
        }
        @if entries.is_empty() {
            (nothing("Nothing is planned", &html! { p { "Make a " a href="/schedules/new" { "schedule" } " or run a " a href="/tasks" { "task" } " later." } }))
        } @else {
            (table(shown, name))
            (pager("/plan", query, skip as u64, shown.len() as u64, entries.len() as u64, LINES as u64))
        }
    };
    let json = Fields::default()
        .with("horizon", horizon)
        .with("schedule", query.text("schedule"))
        .with("task", query.text("task"));
    Ok(View {
        title: "Plan".to_owned(),
        section: Section::Plan,
        above: Vec::new(),
        json: format!("/admin/maintenanceplan{}", json.query()),
        command: shell::line(["shipshape", "plan", "--for", horizon]),
        listens: Listens::Kinds(&["schedule", "cluster"]),
        panels: vec![Panel::still("filter", filter(query, &names)), Panel::live("plan", body)],
    })
}

fn filter(query: &Fields, tasks: &[(String, String)]) -> Markup {
    let spans = [("24h", "a day"), ("7d", "a week"), ("30d", "30 days"), ("90d", "90 days")];
    let misses = [("misses".to_owned(), "only what begins too late".to_owned())];
    html! {
        form class="filter" method="get" action="/plan" aria-label="The plan" {
            label { span { "How far" } select name="for" { @for (value, text) in spans { option value=(value) selected[query.one("for").unwrap_or("30d") == value] { (text) } } } }
            (choice("task", "Task", "any", tasks, query.text("task")))
            label { span { "Schedule" } input type="text" name="schedule" value=(query.text("schedule")) autocomplete="off" placeholder="any"; }
            (choice("only", "Show", "everything", &misses, query.text("only")))
            div class="buttons" { button type="submit" class="primary" { "Show" } a class="button" href="/plan" { "Clear" } }
        }
    }
}

fn table(entries: &[&PlanEntry], name: impl Fn(uuid::Uuid) -> String) -> Markup {
    let day = |at: Timestamp| at.strftime("%A, %Y-%m-%d").to_string();
    let mut days: Vec<(String, Vec<&PlanEntry>)> = Vec::new();
    for entry in entries {
        let of_day = day(entry.start);
        match days.last_mut() {
            Some((last, of_last)) if *last == of_day => of_last.push(entry),
            _ => days.push((of_day, vec![entry])),
        }
    }
    html! {
        @for (day, entries) in &days {
            h2 { (day) " " span class="quiet figure" { (entries.len()) } }
            div class="table" {
                table class="cards" {
                    caption class="unseen" { "Runs of " (day) }
                    thead { tr { th scope="col" { "Begins" } th scope="col" { "Ends" } th scope="col" { "Task" } th scope="col" { "Cluster" } th scope="col" { "Schedule" } th scope="col" { "In time?" } } }
                    tbody {
                        @for entry in entries {
                            tr {
                                td data-label="Begins" { (moment(entry.start)) }
                                td data-label="Ends" { (moment(entry.end)) }
                                th scope="row" data-label="Task" {
                                    @let task = name(entry.task);
                                    @match entry.manifest { Some(id) => { (manifest_link(id, &task)) }, None => { (task) } }
                                }
                                td data-label="Cluster" { (cluster_link(&entry.cluster)) }
                                td data-label="Schedule" { @match &entry.schedule { Some(schedule) => { a href={ "/schedule/" (crate::fields::escaped(schedule)) } { bdi { (schedule) } } }, None => { span class="quiet" { "–" } } } }
                                td data-label="In time?" {
                                    @match entry.outcome {
                                        PlanOutcome::Runs => { (badge(Tone::Good, "yes")) },
                                        PlanOutcome::Misses => { (badge(Tone::Bad, "no")) },
                                    }
                                    @if let Some(reason) = &entry.reason { div class="quiet small" { (reason) } }
                                    @if entry.outcome == PlanOutcome::Misses { @if let Some(id) = entry.manifest { (command(&shell::line(["shipshape", "why", &crate::view::short_id(id)]))) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
