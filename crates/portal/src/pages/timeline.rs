//! Past, present and planned maintenance over time, drawn as bars: a row for each cluster or schedule, planned bars hatched, and a
//! line for now. A table has the same content, for screen readers.

use std::collections::BTreeMap;

use api::admin::{PlanEntry, PlanForm, PlanGrouping, PlanOutcome, TimelineForm};
use api::work::WorkState;
use client::{ClientError, PlanQuery};
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use uuid::Uuid;

use super::PageContext;
use crate::command_line;
use crate::fields::Fields;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_path, empty_state, error_note,
    manifest_link, optional_timestamp, pager, short_name,
};

/// Periods that can be shown: name, title, hours, and hours between two marks.
const SPANS: [(&str, &str, i64, i64); 5] = [
    ("1h", "1 hour", 1, 0),
    ("6h", "6 hours", 6, 1),
    ("24h", "1 day", 24, 3),
    ("7d", "1 week", 7 * 24, 24),
    ("30d", "30 days", 30 * 24, 5 * 24),
];

/// Rows that are drawn, and runs that are requested.
const ROWS: usize = 60;
const RUNS: u32 = 2_000;
/// Planned bars that are requested; the runs of one schedule on one cluster are one bar.
const PLANNED: usize = 2_000;

/// Dimensions of the drawing.
const WIDTH: f64 = 1000.0;
const NAMES: f64 = 190.0;
const ROW: f64 = 24.0;
const TOP: f64 = 28.0;

/// One bar.
#[derive(Debug, Clone)]
struct Bar {
    start: Timestamp,
    end: Timestamp,
    class: &'static str,
    state: &'static str,
    task: String,
    cluster: String,
    schedule: Option<String>,
    manifest: Option<Uuid>,
    is_planned: bool,
    /// How often the schedule runs, for a bar of several runs.
    rhythm: Option<String>,
    /// Number of clusters.
    clusters: u64,
}

/// The period that is shown.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: Timestamp,
    to: Timestamp,
    now: Timestamp,
    mark_hours: i64,
}

impl Window {
    /// Horizontal position of a time, clamped to the drawing.
    fn x(&self, at: Timestamp) -> f64 {
        let whole = self.to.duration_since(self.from).as_secs_f64().max(1.0);
        let part = at.duration_since(self.from).as_secs_f64() / whole;
        NAMES + part.clamp(0.0, 1.0) * (WIDTH - NAMES)
    }
}

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let query = page.query;
    let chosen = query.get("span").unwrap_or("24h");
    let (span, _, hours, mark_hours) =
        SPANS.into_iter().find(|(span, ..)| *span == chosen).unwrap_or(SPANS[2]);
    let shift: i64 = query.get("shift").and_then(|text| text.parse().ok()).unwrap_or(0).clamp(-1000, 1000);
    let now = page.viewer.now;
    let length = SignedDuration::from_hours(hours);
    // By default now is a third from the left; each shift moves by half of the period.
    let begin = now
        .checked_sub(length / 3)
        .and_then(|at| at.checked_add((length / 2) * i32::try_from(shift).unwrap_or(0)));
    let from = begin.unwrap_or(now);
    let to = from.checked_add(length).unwrap_or(now);
    let window = Window { from, to, now, mark_hours };
    let ahead = u64::try_from(to.duration_since(now).as_secs()).unwrap_or(0);
    let by_schedule = query.text("rows") == "schedules";
    let plan_query = PlanQuery {
        horizon: format!("{}s", ahead.max(1)).parse().ok(),
        cluster: query.get("cluster").map(str::to_owned),
        schedule: query.get("schedule").map(str::to_owned),
        grouping: if by_schedule { PlanGrouping::Schedule } else { PlanGrouping::Cluster },
        ..PlanQuery::default()
    };
    let (past, plan, tasks) = tokio::join!(
        async { if from < now { Some(page.admin.timeline(from, to.min(now), RUNS).await) } else { None } },
        async { if ahead > 0 { Some(page.admin.plan_page(&plan_query, 0, PLANNED).await) } else { None } },
        page.admin.tasks().all(),
    );
    let names: BTreeMap<Uuid, String> =
        tasks.unwrap_or_default().into_iter().filter_map(|task| Some((task.id?, task.name))).collect();
    let (bars, notes) = gather(past, plan, &names, window, query);
    let body = drawing(&bars, window, by_schedule, query);
    let filter =
        query.get("cluster").map(|cluster| format!(" of {}", short_name(cluster))).unwrap_or_default();
    Ok(View {
        title: format!("Timeline{filter}"),
        section: Section::Timeline,
        breadcrumbs: Vec::new(),
        json: format!(
            "/admin/maintenancetimeline{}",
            Fields::default()
                .with("from", &from.to_string())
                .with("to", &to.min(now).max(from).to_string())
                .query()
        ),
        command: command_line::join(["shipshape", "plan", "--for", span]),
        events: PageEvents::Kinds(&["manifest", "schedule"]),
        panels: vec![
            Panel::fixed("zoom", zoom(query, span, shift, by_schedule)),
            Panel::live("drawing", html! { (notes) (body) }),
        ],
    })
}

fn zoom(query: &Fields, span: &str, shift: i64, by_schedule: bool) -> Markup {
    let at =
        |name: &str, value: &str| format!("/timeline{}", query.with(name, value).with("skip", "").query());
    let moved =
        |by: i64| at("shift", &if shift + by == 0 { String::new() } else { (shift + by).to_string() });
    html! {
        div class="zoom" {
            nav class="tabs" aria-label="Period" {
                @for (value, text, ..) in SPANS {
                    @if value == span { a href=(at("span", value)) aria-current="true" { (text) } } @else { a href=(at("span", value)) { (text) } }
                }
            }
            nav class="tabs" aria-label="When" {
                a href=(moved(-1)) { "← Earlier" } a href=(at("shift", "")) { "Now" } a href=(moved(1)) { "Later →" }
            }
            nav class="tabs" aria-label="Rows" {
                @if by_schedule { a href=(at("rows", "")) { "Clusters" } a href=(at("rows", "schedules")) aria-current="true" { "Schedules" } }
                @else { a href=(at("rows", "")) aria-current="true" { "Clusters" } a href=(at("rows", "schedules")) { "Schedules" } }
            }
        }
        // Outside the drawing, which is absent when it would be empty.
        svg class="patterns" width="0" height="0" aria-hidden="true" focusable="false" {
            defs {
                pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect class="hatch-ground" width="6" height="6" {}
                    rect class="hatch-line" width="2.5" height="6" {}
                }
                pattern id="hatch-bad" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)" {
                    rect class="hatch-ground bad" width="6" height="6" {}
                    rect class="hatch-line bad" width="2.5" height="6" {}
                }
            }
        }
        ul class="legend" aria-label="Colours and shapes" {
            @for (class, state) in [("good", "completed"), ("busy", "running"), ("bad", "failed"), ("odd", "too late"), ("quiet", "cancelled"), ("planned", "planned"), ("planned bad", "planned, too late")] {
                li { svg width="22" height="12" aria-hidden="true" focusable="false" { rect class={ "bar " (class) } x="0.5" y="0.5" width="21" height="11" rx="2" {} } span { (state) } }
            }
        }
    }
}

/// The result of a request, if it was sent.
type OptionalResponse<T> = Option<Result<T, ClientError>>;

fn gather(
    past: OptionalResponse<TimelineForm>,
    plan: OptionalResponse<PlanForm>,
    names: &BTreeMap<Uuid, String>,
    window: Window,
    query: &Fields,
) -> (Vec<Bar>, Markup) {
    let mut bars = Vec::new();
    let mut notes = Vec::new();
    match past {
        None => {}
        Some(Err(error)) => notes.push(error_note("Past runs cannot be read now", &error)),
        Some(Ok(past)) => {
            for run in past.value {
                let (class, state) = match run.state {
                    WorkState::Completed => ("good", "completed"),
                    WorkState::InProgress | WorkState::Pending => ("busy", "running"),
                    WorkState::Failed | WorkState::RetriesExceeded => ("bad", "failed"),
                    WorkState::TimedOut => ("odd", "too late"),
                    WorkState::Cancelled => ("quiet", "cancelled"),
                };
                let end = run.end.unwrap_or(window.now);
                bars.push(Bar {
                    start: run.start.unwrap_or(end),
                    end,
                    class,
                    state,
                    task: run.task_name,
                    cluster: run.cluster,
                    schedule: run.schedule,
                    manifest: Some(run.manifest),
                    is_planned: false,
                    rhythm: None,
                    clusters: 1,
                });
            }
        }
    }
    match plan {
        None => {}
        Some(Err(error)) => notes.push(error_note("The plan cannot be read now", &error)),
        Some(Ok(plan)) => {
            if plan.total > plan.entries.len() as u64 {
                let message = format!(
                    "Only the first {} of {} planned rows are drawn.",
                    plan.entries.len(),
                    plan.total
                );
                notes.push(html! { p class="said" { (message) } });
            }
            if let Some(truncated) = &plan.truncated {
                notes.push(html! { p class="said" { (truncated.message) } });
            }
            bars.extend(plan.entries.into_iter().map(|entry| planned(entry, names)));
        }
    }
    let (cluster, schedule) = (query.text("cluster"), query.text("schedule"));
    bars.retain(|bar| {
        let in_time = bar.end >= window.from && bar.start < window.to;
        let of_cluster = cluster.is_empty() || bar.cluster.eq_ignore_ascii_case(cluster);
        let of_schedule = schedule.is_empty() || bar.schedule.as_deref() == Some(schedule);
        in_time && of_cluster && of_schedule
    });
    // Running manifests are also in the plan; only the bar of the run is drawn.
    let running: std::collections::HashSet<Uuid> =
        bars.iter().filter(|bar| !bar.is_planned).filter_map(|bar| bar.manifest).collect();
    bars.retain(|bar| !bar.is_planned || bar.manifest.is_none_or(|id| !running.contains(&id)));
    (bars, html! { @for note in notes { (note) } })
}

/// The bar of a run, or of all runs of a schedule.
fn planned(entry: PlanEntry, names: &BTreeMap<Uuid, String>) -> Bar {
    let is_series = entry.runs > 1;
    let (class, state) = match (entry.outcome, is_series) {
        (PlanOutcome::Runs, false) => ("planned", "planned"),
        (PlanOutcome::Runs, true) => ("planned series", "planned"),
        (PlanOutcome::Misses, false) => ("planned bad", "planned, does not start in time"),
        (PlanOutcome::Misses, true) => ("planned bad series", "planned, some do not start in time"),
    };
    Bar {
        start: entry.start,
        end: entry.end,
        class,
        state,
        task: names.get(&entry.task).cloned().unwrap_or_else(|| entry.task.to_string()),
        rhythm: is_series.then(|| entry.rhythm()),
        clusters: entry.clusters,
        cluster: entry.cluster.unwrap_or_default(),
        schedule: entry.schedule,
        manifest: entry.manifest,
        is_planned: true,
    }
}

fn drawing(bars: &[Bar], window: Window, by_schedule: bool, query: &Fields) -> Markup {
    // Rows are keyed by their names in lower case: plan and history may spell the same cluster differently.
    let mut rows: BTreeMap<String, (String, Vec<&Bar>)> = BTreeMap::new();
    for bar in bars {
        let name = match by_schedule {
            true => bar.schedule.as_deref().unwrap_or("on demand"),
            false => &bar.cluster,
        };
        rows.entry(name.to_lowercase()).or_insert_with(|| (name.to_owned(), Vec::new())).1.push(bar);
    }
    if rows.is_empty() {
        return empty_state(
            "No maintenance in this period",
            &html! { p { "Select a longer period, create a " a href="/schedules/new" { "schedule" } ", or run a " a href="/tasks" { "task" } "." } },
        );
    }
    let of = rows.len();
    let skip: usize = query.get("skip").and_then(|text| text.parse().ok()).unwrap_or(0).min(of);
    let shown: Vec<(&String, &Vec<&Bar>)> =
        rows.values().skip(skip).take(ROWS).map(|(name, bars)| (name, bars)).collect();
    let height = TOP + ROW * shown.len() as f64 + 6.0;
    html! {
        div class="drawing" tabindex="0" role="region" aria-label="Maintenance over time" {
            svg viewBox={ "0 0 " (WIDTH) " " (height) } preserveAspectRatio="xMinYMin meet" class="timeline" role="group" aria-label="Maintenance over time; the table below has the same content" {
                @for mark in marks(window) {
                    line class="mark" x1=(n(window.x(mark))) x2=(n(window.x(mark))) y1=(TOP - 6.0) y2=(height) {}
                    text class="when" x=(n(window.x(mark) + 3.0)) y="14" { (label(mark, window)) }
                }
                @for (index, (name, bars)) in shown.iter().enumerate() {
                    @let y = TOP + ROW * index as f64;
                    @if index % 2 == 0 { rect class="ground" x="0" y=(n(y)) width=(WIDTH) height=(ROW) {} }
                    @let href = if by_schedule { format!("/schedule/{}", crate::fields::escaped(name)) } else { cluster_path(name) };
                    a href=(href) { text class="name" x="4" y=(n(y + 16.0)) { (shortened(if by_schedule { name } else { short_name(name) })) title { (if by_schedule { name } else { short_name(name) }) } } }
                    // Series share the height, so that none hides another; single runs are drawn over them.
                    @let series: Vec<&&Bar> = bars.iter().filter(|bar| bar.rhythm.is_some()).collect();
                    @let share = (ROW - 8.0) / series.len().max(1) as f64;
                    @for (nth, bar) in series.iter().enumerate() { (draw_bar(bar, window, y + 4.0 + share * nth as f64, share)) }
                    @for bar in bars.iter().filter(|bar| bar.rhythm.is_none()) { (draw_bar(bar, window, y + 4.0, ROW - 8.0)) }
                }
                @if window.now >= window.from && window.now <= window.to {
                    line class="now" x1=(n(window.x(window.now))) x2=(n(window.x(window.now))) y1="16" y2=(n(height)) {}
                    text class="now" x=(n(window.x(window.now) + 3.0)) y=(n(TOP - 2.0)) { "now" }
                }
            }
        }
        (pager("/timeline", query, skip as u64, shown.len() as u64, of as u64, ROWS as u64))
        details {
            summary { "As a table" }
            (table(&shown))
        }
    }
}

fn draw_bar(bar: &Bar, window: Window, y: f64, height: f64) -> Markup {
    let (from, to) = (window.x(bar.start), window.x(bar.end));
    let until = if bar.rhythm.is_some() { "%Y-%m-%d %H:%M:%S UTC" } else { "%H:%M:%S UTC" };
    let rhythm = bar.rhythm.as_ref().map(|it| format!(", {it}")).unwrap_or_default();
    let description = format!(
        "{} on {}, {}{rhythm}, {} to {}",
        bar.task,
        place(bar),
        bar.state,
        bar.start.strftime("%Y-%m-%d %H:%M:%S UTC"),
        bar.end.strftime(until),
    );
    let rect = html! {
        rect class={ "bar " (bar.class) } x=(n(from)) y=(n(y)) width=(n((to - from).max(4.0))) height=(n(height)) rx="2" { title { (description) } }
    };
    let href = match (bar.manifest, &bar.rhythm) {
        (Some(id), _) => Some(format!("/manifest/{id}")),
        (None, Some(_)) => Some(each_run(bar)),
        (None, None) => None,
    };
    html! { @match href { Some(href) => { a href=(href) aria-label=(description) { (rect) } }, None => { (rect) } } }
}

/// Path of the plan with each run of a bar.
fn each_run(bar: &Bar) -> String {
    let query = Fields::default()
        .with("each", "run")
        .with("schedule", bar.schedule.as_deref().unwrap_or_default())
        .with("cluster", &bar.cluster);
    format!("/plan{}", query.query())
}

fn place(bar: &Bar) -> String {
    match bar.cluster.as_str() {
        "" => format!("{} clusters", bar.clusters),
        cluster => short_name(cluster).to_owned(),
    }
}

/// A coordinate with one decimal.
fn n(number: f64) -> String {
    format!("{number:.1}")
}

fn shortened(name: &str) -> String {
    const NAME_MAX: usize = 26; // as many as fit beside the bars
    match name.char_indices().nth(NAME_MAX) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Round hours or days within the window.
fn marks(window: Window) -> Vec<Timestamp> {
    let step = if window.mark_hours == 0 { 600 } else { window.mark_hours * 3600 };
    let first = window.from.as_second().div_euclid(step) + 1;
    (first..first + 64)
        .map_while(|number| Timestamp::from_second(number * step).ok())
        .take_while(|at| *at < window.to)
        .collect()
}

fn label(at: Timestamp, window: Window) -> String {
    let is_midnight = at.as_second().rem_euclid(86_400) == 0;
    let format = if window.mark_hours >= 24 || is_midnight { "%m-%d" } else { "%H:%M" };
    at.strftime(format).to_string()
}

fn table(rows: &[(&String, &Vec<&Bar>)]) -> Markup {
    let mut bars: Vec<&&Bar> = rows.iter().flat_map(|(_, bars)| bars.iter()).collect();
    bars.sort_by_key(|bar| bar.start);
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Past, running and planned maintenance" }
                thead { tr { th scope="col" { "Start" } th scope="col" { "End" } th scope="col" { "Task" } th scope="col" { "Cluster" } th scope="col" { "Schedule" } th scope="col" { "State" } } }
                tbody {
                    @for bar in bars.into_iter().take(500) {
                        tr {
                            td data-label="Start" { (optional_timestamp(Some(bar.start))) }
                            td data-label="End" { (optional_timestamp(Some(bar.end))) }
                            th scope="row" data-label="Task" { @match bar.manifest { Some(id) => { (manifest_link(id, &bar.task)) }, None => { (bar.task) } } }
                            td data-label="Cluster" { @if bar.cluster.is_empty() { (place(bar)) } @else { a href=(cluster_path(&bar.cluster)) { bdi { (short_name(&bar.cluster)) } } } }
                            td data-label="Schedule" { (bar.schedule.as_deref().unwrap_or("–")) @if let Some(rhythm) = &bar.rhythm { div class="small" { a href=(each_run(bar)) { (rhythm) } } } }
                            td data-label="State" { (badge(tone(bar), bar.state)) }
                        }
                    }
                }
            }
        }
    }
}

fn tone(bar: &Bar) -> BadgeTone {
    match bar.class {
        "good" => BadgeTone::Good,
        "busy" => BadgeTone::Busy,
        "bad" | "planned bad" | "planned bad series" => BadgeTone::Bad,
        "odd" => BadgeTone::Odd,
        "planned" | "planned series" => BadgeTone::Waiting,
        _ => BadgeTone::Quiet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
        Window { from: at(0), to: at(3600), now: at(1200), mark_hours: 0 }
    }

    #[test]
    fn times_are_drawn_in_proportion_and_never_outside() {
        let window = window();
        let at = |second: i64| window.x(Timestamp::from_second(1_800_000_000 + second).unwrap());
        assert_eq!((at(0), at(1800), at(3600)), (NAMES, (NAMES + WIDTH) / 2.0, WIDTH));
        assert_eq!((at(-500), at(9999)), (NAMES, WIDTH));
    }

    #[test]
    fn marks_are_round_and_within_the_window() {
        let marks = marks(window());
        assert_eq!(marks.len(), 5);
        assert!(marks.iter().all(|mark| mark.as_second() % 600 == 0));
    }

    #[test]
    fn a_long_name_is_cut_at_a_character() {
        assert_eq!(shortened(&"ä".repeat(40)).chars().count(), 27);
        assert_eq!(shortened("short"), "short");
    }
}
