//! Schedules: the list, and the editor with its preview. The scheduler's own code computes the preview, from the form that is
//! stored.

use std::sync::Arc;

use api::admin::{PreviewForm, ScheduleForm, TaskForm};
use axum::Extension;
use axum::extract::State;
use axum::response::{Html, IntoResponse as _, Response};
use client::{Client, ClientError};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::PageContext;
use crate::PortalState;
use crate::command_line;
use crate::fields::{Fields, escaped};
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, command, empty_state,
    error_note, optional_timestamp, timestamp, unix_timestamp,
};

/// Periods and clusters in the preview.
const PERIODS: u32 = 10;
const CLUSTERS: u32 = 20;

/// Selector rows of the form; a schedule with more is written as a file.
const SELECTORS: usize = 6;

/// Operators of selectors.
const OPERATORS: [&str; 10] = ["eq", "ne", "in", "notin", "exists", "prefix", "lt", "le", "gt", "ge"];

pub(super) async fn list(page: PageContext<'_>) -> Result<View, PageError> {
    let (schedules, tasks) = tokio::join!(page.admin.schedules().all(), page.admin.tasks().all());
    let (mut schedules, tasks) = (schedules?, tasks.unwrap_or_default());
    schedules.sort_by(|a, b| a.id.cmp(&b.id));
    let new = html! { p { a class="button primary" href="/schedules/new" { "New schedule" } } };
    let body = if schedules.is_empty() {
        let next = html! {
            p { "A schedule runs a task periodically on all clusters that its selectors match." }
            @if page.viewer.may_act() { (new) }
            (command("shipshape schedule apply -f FILE"))
        };
        empty_state("No schedules yet", &next)
    } else {
        html! {
            @if page.viewer.may_act() { (new) }
            div class="table" {
                table class="cards" {
                    caption class="unseen" { "Schedules" }
                    thead { tr { th scope="col" { "Schedule" } th scope="col" { "State" } th scope="col" { "Task" } th scope="col" { "When" } th scope="col" { "Next period" } th scope="col" { "Clusters" } th scope="col" { "Errors" } @if page.viewer.may_act() { th scope="col" { "Actions" } } } }
                    tbody { @for schedule in &schedules { (row(page, schedule, &tasks)) } }
                }
            }
        }
    };
    Ok(View {
        title: "Schedules".to_owned(),
        section: Section::Schedules,
        breadcrumbs: Vec::new(),
        json: "/admin/maintenanceschedules".to_owned(),
        command: "shipshape schedule list --watch".to_owned(),
        events: PageEvents::Kinds(&["schedule", "task"]),
        panels: vec![Panel::live("schedules", body)],
    })
}

fn row(page: PageContext<'_>, schedule: &ScheduleForm, tasks: &[TaskForm]) -> Markup {
    let status = schedule.status.clone().unwrap_or_default();
    let is_enabled = schedule.state.eq_ignore_ascii_case("enabled");
    let task =
        tasks.iter().find(|task| task.id.is_some_and(|id| id.to_string() == schedule.maintenance_task_id));
    let switch = if is_enabled { "disable" } else { "enable" };
    html! {
        tr {
            th scope="row" data-label="Schedule" { a href={ "/schedule/" (escaped(&schedule.id)) } { bdi { (schedule.id) } } }
            td data-label="State" { @if is_enabled { (badge(BadgeTone::Good, "Enabled")) } @else { (badge(BadgeTone::Quiet, "Disabled")) } }
            td data-label="Task" { @match task { Some(task) => { a href={ "/task/" (escaped(&task.name)) } { (task.name) } }, None => { code { (schedule.maintenance_task_id) } } } }
            td data-label="When" { @for calendar in calendars(schedule) { code { (calendar) } " " } span class="quiet" { (zone(schedule)) } }
            td data-label="Next period" { (optional_timestamp(status.next_periods.first().copied().filter(|_| is_enabled))) }
            td data-label="Clusters" class="figure" { (status.matched) }
            td data-label="Errors" { @if status.errors.is_empty() { span class="quiet" { "–" } } @else { (badge(BadgeTone::Bad, &status.errors.join("; "))) } }
            @if page.viewer.may_act() {
                td data-label="Actions" {
                    (page.viewer.form(&format!("schedule/{}/{switch}", escaped(&schedule.id)), "inline", &html! {
                        button type="submit" aria-label={ (switch) " " (schedule.id) } { @if is_enabled { "Disable" } @else { "Enable" } }
                    }))
                }
            }
        }
    }
}

fn calendars(schedule: &ScheduleForm) -> Vec<&str> {
    let single = Some(schedule.schedule.as_str()).filter(|text| !text.is_empty());
    single.into_iter().chain(schedule.calendars.iter().map(String::as_str)).collect()
}

fn zone(schedule: &ScheduleForm) -> &str {
    if schedule.time_zone.is_empty() { "UTC" } else { &schedule.time_zone }
}

/// The editor of a new or a stored schedule; `filled` is a rejected or previewed form and its error.
pub(crate) async fn editor(
    page: PageContext<'_>,
    id: Option<&str>,
    filled: Option<(&Fields, Option<&str>)>,
) -> Result<View, PageError> {
    let tasks = page.admin.tasks();
    let (tasks, stored) = tokio::join!(tasks.all(), async {
        match id {
            Some(id) => page.admin.schedule(id).await.map(Some),
            None => Ok(None),
        }
    });
    let (mut tasks, stored) = (tasks?, stored?);
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    let etag = stored.as_ref().and_then(|response| response.etag.clone()).unwrap_or_default();
    let stored = stored.map(|response| response.value);
    let fields = match (filled, &stored) {
        (Some((fields, _)), _) => fields.clone(),
        (None, Some(stored)) => schedule_fields(stored),
        (None, None) => Fields::parse("state=Enabled&look-forward=1&start-within=1h")
            .with("task", page.query.text("task")),
    };
    let mut panels = Vec::new();
    if let Some(stored) = &stored {
        panels.push(Panel::live("status", status(stored)));
    }
    if let Some((_, Some(error))) = filled {
        panels.push(Panel::fixed("error", html! { div class="note bad" role="alert" { p { (error) } } }));
    }
    panels.push(Panel::fixed("editor", form(page, id, &fields, &tasks, &etag)));
    let preview = preview_fields(page.admin, &fields).await;
    panels.push(Panel::fixed(
        "ahead",
        html! {
            h2 { "Preview" }
            div id="preview" aria-live="polite" { (preview) }
        },
    ));
    if let Some(stored) = stored.as_ref().filter(|_| page.viewer.may_act()) {
        panels.push(Panel::fixed("switch", actions(page, stored)));
    }
    let title = id.map_or_else(|| "New schedule".to_owned(), str::to_owned);
    let json = id.map_or_else(String::new, |id| format!("/{}", escaped(id)));
    Ok(View {
        title,
        section: Section::Schedules,
        breadcrumbs: vec![("Schedules".to_owned(), "/schedules".to_owned())],
        json: format!("/admin/maintenanceschedules{json}"),
        command: match id {
            Some(id) => command_line::join(["shipshape", "schedule", "show", id, "-o", "yaml"]),
            None => "shipshape schedule preview -f FILE".to_owned(),
        },
        events: id.map_or(PageEvents::Nothing, |id| PageEvents::Schedule(id.to_owned())),
        panels,
    })
}

fn status(stored: &ScheduleForm) -> Markup {
    let status = stored.status.clone().unwrap_or_default();
    let is_enabled = stored.state.eq_ignore_ascii_case("enabled");
    html! {
        div class="lead" {
            @if is_enabled { (badge(BadgeTone::Good, "Enabled")) } @else { (badge(BadgeTone::Quiet, "Disabled")) }
            span { (status.matched) " clusters match" }
            span class="quiet" { "planned " (optional_timestamp(status.last_planned_at)) }
        }
        @if !status.errors.is_empty() { div class="note bad" { @for error in &status.errors { p { (error) } } } }
    }
}

fn actions(page: PageContext<'_>, stored: &ScheduleForm) -> Markup {
    let id = escaped(&stored.id);
    let is_enabled = stored.state.eq_ignore_ascii_case("enabled");
    let (verb, title) =
        if is_enabled { ("disable", "Disable and cancel pending manifests") } else { ("enable", "Enable") };
    html! {
        h2 { "Actions" }
        div class="acts" {
            div {
                (page.viewer.form(&format!("schedule/{id}/{verb}"), "inline", &html! {
                    label { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
                    button type="submit" { (title) }
                }))
                (command(&command_line::join(["shipshape", "schedule", verb, &stored.id])))
            }
            div {
                (page.viewer.form(&format!("schedule/{id}/delete"), "inline", &html! {
                    label { span { "Type " code { (stored.id) } " to confirm" } input type="text" name="confirm" required autocomplete="off"; }
                    label { span { "Pending manifests" } select name="pending" { option value="cancel" { "cancel" } option value="keep" { "keep" } } }
                    label { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
                    button type="submit" class="danger" { "Delete" }
                }))
                (command(&command_line::join(["shipshape", "schedule", "delete", &stored.id])))
            }
        }
    }
}

fn form(page: PageContext<'_>, id: Option<&str>, fields: &Fields, tasks: &[TaskForm], etag: &str) -> Markup {
    let input = |name: &str, label: &str, hint: &str| {
        html! { label { span { (label) } input type="text" name=(name) value=(fields.text(name)) placeholder=(hint) autocomplete="off"; } }
    };
    let select = |name: &str, label: &str, options: &[(&str, &str)]| {
        html! {
            label { span { (label) } select name=(name) {
                @for (value, text) in options { option value=(value) selected[fields.text(name).eq_ignore_ascii_case(value)] { (text) } }
            } }
        }
    };
    let body = html! {
        input type="hidden" name="etag" value=(etag);
        fieldset {
            legend { "What" }
            @if let Some(id) = id { input type="hidden" name="id" value=(id); } @else { (input("id", "Name", "rotate-certificates-weekly")) }
            label { span { "Task" } select name="task" required {
                option value="" { "select…" }
                @for task in tasks {
                    @let task_id = task.id.map(|id| id.to_string()).unwrap_or_default();
                    option value=(task_id) selected[task_id == fields.text("task") || task.name == fields.text("task")] { (task.name) " – " (task.title) }
                }
            } }
            (select("state", "State", &[("Enabled", "Enabled"), ("Disabled", "Disabled")]))
            label class="wide" { span { "Parameters, as JSON" } textarea name="parameters" rows="3" spellcheck="false" placeholder="{}" { (fields.text("parameters")) } }
        }
        fieldset {
            legend { "When" }
            label class="wide" { span { "Calendar expressions, one on each line" } textarea name="calendars" rows="2" required spellcheck="false" placeholder="Sat *-*-* 03:00" { (fields.text("calendars")) } }
            (input("time-zone", "Time zone", "UTC"))
            (input("across", "Spread the clusters over", "0s"))
            (select("spread-by", "Spread by", &[("", "cluster"), ("schedule", "schedule")]))
            (input("start-within", "Start within", "1h"))
            label { span { "Periods planned ahead" } input type="number" name="look-forward" min="0" max="100" value=(fields.text("look-forward")); }
            (select("missed", "Missed periods", &[("", "skip"), ("runOnce", "run once")]))
            label { span { "Priority, lower first" } input type="number" name="priority" value=(fields.text("priority")) placeholder="0"; }
        }
        fieldset {
            legend { "Where: clusters that match all of these" }
            p class="quiet" { "At least one. Every cluster has a location: “location exists” matches all. The page of a cluster lists its attributes under Labels." }
            @let rows = selector_rows(fields);
            @for index in 0..SELECTORS {
                @let (key, operator, value) = rows.get(index).cloned().unwrap_or_default();
                div class="selector" {
                    label { span class=[(index > 0).then_some("unseen")] { "Attribute" } input type="text" name="s.key" list="keys" value=(key) placeholder=(if index == 0 { "label.env" } else { "" }) autocomplete="off"; }
                    label { span class=[(index > 0).then_some("unseen")] { "is" } select name="s.operator" { @for option in OPERATORS { option value=(option) selected[option == operator] { (option) } } } }
                    label { span class=[(index > 0).then_some("unseen")] { "Value, or values with commas" } input type="text" name="s.value" value=(value) autocomplete="off"; }
                }
            }
            datalist id="keys" { @for key in ["location", "version", "name", "subscriptionID", "resourceGroup", "provisioningState", "label.env"] { option value=(key) {} } }
            @if let Some(more) = fields.get("selectors") { input type="hidden" name="selectors" value=(more); p class="quiet" { "The schedule has more selectors that this form does not show; they stay: " code { (more) } } }
        }
        @if page.viewer.may_act() {
            label class="wide" { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
            div class="buttons" {
                button type="submit" name="mode" value="preview" { "Preview" }
                button type="submit" name="mode" value="save" class="primary" { "Save" }
            }
        }
    };
    html! {
        (page.viewer.form("schedule", "stack editor", &body))
        (command("shipshape schedule apply -f FILE"))
    }
}

fn selector_rows(fields: &Fields) -> Vec<(String, String, String)> {
    let (keys, operators, values) = (fields.all("s.key"), fields.all("s.operator"), fields.all("s.value"));
    let rows = keys.zip(operators).zip(values);
    rows.map(|((key, operator), value)| (key.trim().to_owned(), operator.to_owned(), value.trim().to_owned()))
        .collect()
}

/// The fields of a stored schedule.
fn schedule_fields(schedule: &ScheduleForm) -> Fields {
    let mut fields = Fields::default()
        .with("id", &schedule.id)
        .with("task", &schedule.maintenance_task_id)
        .with("state", &schedule.state)
        .with("calendars", &calendars(schedule).join("\n"))
        .with("time-zone", &schedule.time_zone)
        .with("across", &schedule.schedule_across)
        .with("spread-by", if schedule.spread_by == "schedule" { "schedule" } else { "" })
        .with("start-within", &schedule.start_within)
        .with("look-forward", &schedule.look_forward_count.to_string())
        .with("missed", if schedule.missed_policy == "runOnce" { "runOnce" } else { "" });
    if schedule.priority != 0 {
        fields = fields.with("priority", &schedule.priority.to_string());
    }
    if !schedule.parameters.is_empty() {
        let text = serde_json::to_string_pretty(&schedule.parameters).unwrap_or_default();
        fields = fields.with("parameters", &text);
    }
    let mut more = Vec::new();
    let mut rows = String::new();
    for (index, selector) in schedule.selectors.iter().enumerate() {
        match plain_selector(selector).filter(|_| index < SELECTORS) {
            Some((key, operator, value)) => {
                rows += &format!(
                    "&s.key={}&s.operator={}&s.value={}",
                    escaped(&key),
                    escaped(&operator),
                    escaped(&value)
                );
            }
            None => more.push(selector.clone()),
        }
    }
    if !more.is_empty() {
        fields = fields.with("selectors", &Value::Array(more).to_string());
    }
    Fields::parse(&format!("{}{rows}", fields.query().trim_start_matches('?')))
}

/// A selector that fits into a row of the form.
fn plain_selector(selector: &Value) -> Option<(String, String, String)> {
    let member = |name: &str| selector.get(name).and_then(Value::as_str).map(str::to_owned);
    let (key, operator) = (member("key")?, member("operator")?);
    let value = match selector.get("values").and_then(Value::as_array) {
        Some(values) => {
            let texts: Option<Vec<&str>> =
                values.iter().map(|value| value.as_str().filter(|it| !it.contains(','))).collect();
            texts?.join(",")
        }
        None => member("value").unwrap_or_default(),
    };
    OPERATORS.contains(&operator.as_str()).then_some((key, operator, value))
}

/// Parses a filled-in form.
pub(crate) fn read(fields: &Fields) -> Result<ScheduleForm, String> {
    let mut selectors = Vec::new();
    for (key, operator, value) in selector_rows(fields).into_iter().filter(|(key, ..)| !key.is_empty()) {
        let mut selector = json!({"key": key, "operator": operator});
        match operator.as_str() {
            "in" | "notin" => {
                let values: Vec<&str> = value.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
                selector["values"] = json!(values);
            }
            "exists" => {}
            _ => selector["value"] = json!(value),
        }
        selectors.push(selector);
    }
    if let Some(more) = fields.get("selectors") {
        let more: Vec<Value> =
            serde_json::from_str(more).map_err(|_| "The selectors are not a JSON list.")?;
        selectors.extend(more);
    }
    let parameters: Map<String, Value> = match fields.get("parameters") {
        None => Map::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| format!("The parameters are not a JSON object: {error}."))?,
    };
    let mut calendars: Vec<String> = fields
        .text("calendars")
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    let schedule = if calendars.len() == 1 { calendars.remove(0) } else { String::new() };
    let number = |name: &str| match fields.get(name) {
        None => Ok(0),
        Some(text) => {
            text.parse::<i64>().map_err(|_| format!("{name} must be a whole number, not {text:?}."))
        }
    };
    Ok(ScheduleForm {
        id: fields.text("id").to_owned(),
        state: fields.text("state").to_owned(),
        maintenance_task_id: fields.text("task").to_owned(),
        schedule,
        calendars,
        time_zone: fields.text("time-zone").to_owned(),
        look_forward_count: number("look-forward")?,
        schedule_across: fields.text("across").to_owned(),
        spread_by: fields.text("spread-by").to_owned(),
        start_within: fields.text("start-within").to_owned(),
        missed_policy: fields.text("missed").to_owned(),
        priority: i32::try_from(number("priority")?).map_err(|_| "The priority is too large.")?,
        selectors,
        parameters,
        status: None,
        reason: fields.get("reason").map(str::to_owned),
    })
}

fn is_complete(form: &ScheduleForm) -> bool {
    !form.maintenance_task_id.is_empty() && (!form.schedule.is_empty() || !form.calendars.is_empty())
}

/// Responds with the preview of the schedule in the form; the script requests it while the user types.
pub(crate) async fn preview(
    State(state): State<Arc<PortalState>>,
    Extension(fields): Extension<Fields>,
) -> Response {
    Html(preview_fields(&state.admin, &fields).await.into_string()).into_response()
}

async fn preview_fields(admin: &Client, fields: &Fields) -> Markup {
    match read(fields) {
        Ok(form) if is_complete(&form) => preview_panel(&admin.preview(&form, PERIODS, CLUSTERS, None).await),
        Ok(_) => html! { p class="quiet" { "Select a task and a calendar to see a preview." } },
        Err(message) => html! { div class="note bad" { p { (message) } } },
    }
}

fn preview_panel(preview: &Result<PreviewForm, ClientError>) -> Markup {
    let preview = match preview {
        Ok(preview) => preview,
        Err(error) => return error_note("The schedule is not valid", error),
    };
    html! {
        @for warning in &preview.warnings { div class="note" { p { (warning) } } }
        div class="ahead" {
            div {
                h3 { "Next periods" }
                @if preview.periods.is_empty() { p class="quiet" { "None: the calendar has no future time." } }
                ol { @for period in &preview.periods { li { (timestamp(*period)) } } }
            }
            div {
                h3 { "Matches " (preview.matched) " of " (preview.of) " clusters" }
                @if preview.matched == 0 { p class="quiet" { "No manifests would be created. The page of a cluster lists its labels and attributes." } }
                @else {
                    div class="table" {
                        table class="cards" {
                            caption class="unseen" { "The first clusters and their earliest starts" }
                            thead { tr { th scope="col" { "Cluster" } th scope="col" { "Earliest starts" } } }
                            tbody {
                                @for cluster in &preview.clusters {
                                    tr {
                                        th scope="row" data-label="Cluster" { (cluster_link(&cluster.id)) }
                                        td data-label="Earliest starts" { @for at in cluster.run_after.iter().take(3) { (unix_timestamp(*at)) " " } @if cluster.run_after.len() > 3 { span class="quiet" { "and " (cluster.run_after.len() - 3) " more" } } }
                                    }
                                }
                            }
                        }
                    }
                    @if preview.matched > preview.clusters.len() as u64 { p class="quiet" { "and " (preview.matched - preview.clusters.len() as u64) " more clusters" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_schedule_survives_the_form_unchanged() {
        let stored: ScheduleForm = serde_json::from_value(json!({
            "id": "weekly", "state": "Enabled", "maintenanceTaskID": "t", "calendars": ["Sat *-*-* 03:00", "Sun 04:00"],
            "timeZone": "Europe/Amsterdam", "lookForwardCount": 2, "scheduleAcross": "2h", "spreadBy": "schedule",
            "startWithin": "4h", "missedPolicy": "runOnce", "priority": -3, "parameters": {"node": "a", "n": 1},
            "selectors": [
                {"key": "label.env", "operator": "eq", "value": "test"},
                {"key": "location", "operator": "in", "values": ["west", "east"]},
                {"key": "label.x", "operator": "exists"},
                {"any": [{"key": "name", "operator": "prefix", "value": "a"}]},
            ],
        }))
        .unwrap();
        assert_eq!(read(&schedule_fields(&stored)).unwrap(), stored);
        let single = ScheduleForm { schedule: "daily".to_owned(), calendars: Vec::new(), ..stored };
        assert_eq!(read(&schedule_fields(&single)).unwrap(), single);
    }

    #[test]
    fn invalid_fields_are_reported() {
        for (text, word) in [
            ("parameters=nonsense", "not a JSON object"),
            ("look-forward=many", "whole number"),
            ("selectors=x", "not a JSON list"),
        ] {
            let error = read(&Fields::parse(text)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
