//! Schedules: the list, and the editor with its look ahead. What the look ahead shows is made by the very code that will make the
//! manifests, from the very form that is stored.

use std::sync::Arc;

use api::admin::{PreviewForm, ScheduleForm, TaskForm};
use axum::Extension;
use axum::extract::State;
use axum::response::{Html, IntoResponse as _, Response};
use client::ClientError;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::PageContext;
use crate::PortalState;
use crate::command_line;
use crate::fields::{Fields, escaped};
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, command, maybe_moment,
    moment, nothing, second, trouble,
};

/// So many periods and clusters the look ahead shows.
const PERIODS: u32 = 10;
const CLUSTERS: u32 = 20;

/// So many selectors can be filled in; for more there is the file.
const SELECTORS: usize = 6;

/// How an attribute can be compared.
const OPERATORS: [&str; 10] = ["eq", "ne", "in", "notin", "exists", "prefix", "lt", "le", "gt", "ge"];

pub(super) async fn list(page: PageContext<'_>) -> Result<View, PageError> {
    let (schedules, tasks) = tokio::join!(page.admin.schedules().all(), page.admin.tasks().all());
    let (mut schedules, tasks) = (schedules?, tasks.unwrap_or_default());
    schedules.sort_by(|a, b| a.id.cmp(&b.id));
    let new = html! { p { a class="button primary" href="/schedules/new" { "New schedule" } } };
    let body = if schedules.is_empty() {
        let next = html! {
            p { "A schedule runs a task on all clusters that its selectors match, again and again." }
            @if page.viewer.may_act() { (new) }
            (command("shipshape schedule apply -f FILE"))
        };
        nothing("There are no schedules yet", &next)
    } else {
        html! {
            @if page.viewer.may_act() { (new) }
            div class="table" {
                table class="cards" {
                    caption class="unseen" { "Schedules" }
                    thead { tr { th scope="col" { "Schedule" } th scope="col" { "State" } th scope="col" { "Task" } th scope="col" { "When" } th scope="col" { "Next period" } th scope="col" { "Clusters" } th scope="col" { "Trouble" } @if page.viewer.may_act() { th scope="col" { "Act" } } } }
                    tbody { @for schedule in &schedules { (row(page, schedule, &tasks)) } }
                }
            }
        }
    };
    Ok(View {
        title: "Schedules".to_owned(),
        section: Section::Schedules,
        above: Vec::new(),
        json: "/admin/maintenanceschedules".to_owned(),
        command: "shipshape schedule list --watch".to_owned(),
        listens: PageEvents::Kinds(&["schedule", "task"]),
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
            td data-label="Next period" { (maybe_moment(status.next_periods.first().copied().filter(|_| is_enabled))) }
            td data-label="Clusters" class="figure" { (status.matched) }
            td data-label="Trouble" { @if status.errors.is_empty() { span class="quiet" { "–" } } @else { (badge(BadgeTone::Bad, &status.errors.join("; "))) } }
            @if page.viewer.may_act() {
                td data-label="Act" {
                    (page.viewer.form(&format!("schedule/{}/{switch}", escaped(&schedule.id)), "inline", &html! {
                        button type="submit" aria-label={ (switch) " " (schedule.id) } { @if is_enabled { "Disable" } @else { "Enable" } }
                    }))
                }
            }
        }
    }
}

fn calendars(schedule: &ScheduleForm) -> Vec<&str> {
    let one = Some(schedule.schedule.as_str()).filter(|text| !text.is_empty());
    one.into_iter().chain(schedule.calendars.iter().map(String::as_str)).collect()
}

fn zone(schedule: &ScheduleForm) -> &str {
    if schedule.time_zone.is_empty() { "UTC" } else { &schedule.time_zone }
}

/// The editor, empty, of a schedule that is there, or as it was filled in before something was wrong with it.
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
    let etag = stored.as_ref().and_then(|answer| answer.etag.clone()).unwrap_or_default();
    let stored = stored.map(|answer| answer.value);
    let fields = match (filled, &stored) {
        (Some((fields, _)), _) => fields.clone(),
        (None, Some(stored)) => of_schedule(stored),
        (None, None) => Fields::parse("state=Enabled&look-forward=1&start-within=1h")
            .with("task", page.query.text("task")),
    };
    let mut panels = Vec::new();
    if let Some(stored) = &stored {
        panels.push(Panel::live("status", status(stored)));
    }
    if let Some((_, Some(wrong))) = filled {
        panels.push(Panel::still("wrong", html! { div class="note bad" role="alert" { p { (wrong) } } }));
    }
    panels.push(Panel::still("editor", form(page, id, &fields, &tasks, &etag)));
    let ahead = match read(&fields) {
        Ok(form) if has_enough(&form) => {
            preview_panel(&page.admin.preview(&form, PERIODS, CLUSTERS, None).await)
        }
        Ok(_) => {
            html! { p class="quiet" { "Choose a task and say when: then you see here what it would make." } }
        }
        Err(why) => html! { div class="note bad" { p { (why) } } },
    };
    panels.push(Panel::still(
        "ahead",
        html! {
            h2 { "Look ahead" }
            div id="preview" aria-live="polite" { (ahead) }
        },
    ));
    if let Some(stored) = stored.as_ref().filter(|_| page.viewer.may_act()) {
        panels.push(Panel::still("switch", switches(page, stored)));
    }
    let title = id.map_or_else(|| "New schedule".to_owned(), str::to_owned);
    let json = id.map_or_else(String::new, |id| format!("/{}", escaped(id)));
    Ok(View {
        title,
        section: Section::Schedules,
        above: vec![("Schedules".to_owned(), "/schedules".to_owned())],
        json: format!("/admin/maintenanceschedules{json}"),
        command: match id {
            Some(id) => command_line::join(["shipshape", "schedule", "show", id, "-o", "yaml"]),
            None => "shipshape schedule preview -f FILE".to_owned(),
        },
        listens: id.map_or(PageEvents::Nothing, |id| PageEvents::Schedule(id.to_owned())),
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
            span class="quiet" { "looked at " (maybe_moment(status.last_planned_at)) }
        }
        @if !status.errors.is_empty() { div class="note bad" { @for error in &status.errors { p { (error) } } } }
    }
}

fn switches(page: PageContext<'_>, stored: &ScheduleForm) -> Markup {
    let id = escaped(&stored.id);
    let is_enabled = stored.state.eq_ignore_ascii_case("enabled");
    let (verb, word) =
        if is_enabled { ("disable", "Disable it: withdraw what waits") } else { ("enable", "Enable it") };
    html! {
        h2 { "Act" }
        div class="acts" {
            div {
                (page.viewer.form(&format!("schedule/{id}/{verb}"), "inline", &html! {
                    label { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
                    button type="submit" { (word) }
                }))
                (command(&command_line::join(["shipshape", "schedule", verb, &stored.id])))
            }
            div {
                (page.viewer.form(&format!("schedule/{id}/delete"), "inline", &html! {
                    label { span { "Type " code { (stored.id) } " to delete it" } input type="text" name="confirm" required autocomplete="off"; }
                    label { span { "What it has pending" } select name="pending" { option value="cancel" { "is cancelled" } option value="keep" { "stays" } } }
                    label { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
                    button type="submit" class="danger" { "Delete it" }
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
    let word = |name: &str, label: &str, words: &[(&str, &str)]| {
        html! {
            label { span { (label) } select name=(name) {
                @for (value, text) in words { option value=(value) selected[fields.text(name).eq_ignore_ascii_case(value)] { (text) } }
            } }
        }
    };
    let body = html! {
        input type="hidden" name="etag" value=(etag);
        fieldset {
            legend { "What" }
            @if let Some(id) = id { input type="hidden" name="id" value=(id); } @else { (input("id", "Name", "rotate-certificates-weekly")) }
            label { span { "Task" } select name="task" required {
                option value="" { "choose…" }
                @for task in tasks {
                    @let task_id = task.id.map(|id| id.to_string()).unwrap_or_default();
                    option value=(task_id) selected[task_id == fields.text("task") || task.name == fields.text("task")] { (task.name) " – " (task.title) }
                }
            } }
            (word("state", "State", &[("Enabled", "Enabled"), ("Disabled", "Disabled")]))
            label class="wide" { span { "Parameters, as JSON" } textarea name="parameters" rows="3" spellcheck="false" placeholder="{}" { (fields.text("parameters")) } }
        }
        fieldset {
            legend { "When" }
            label class="wide" { span { "Calendar, one expression on each line" } textarea name="calendars" rows="2" required spellcheck="false" placeholder="Sat *-*-* 03:00" { (fields.text("calendars")) } }
            (input("time-zone", "Time zone", "UTC"))
            (input("across", "Spread the clusters over", "0s"))
            (word("spread-by", "Spread by", &[("", "cluster"), ("schedule", "schedule")]))
            (input("start-within", "Begin within", "1h"))
            label { span { "Periods made ahead" } input type="number" name="look-forward" min="0" max="100" value=(fields.text("look-forward")); }
            (word("missed", "A missed period", &[("", "is skipped"), ("runOnce", "is run once")]))
            label { span { "Priority, lower first" } input type="number" name="priority" value=(fields.text("priority")) placeholder="0"; }
        }
        fieldset {
            legend { "Where: clusters that match all of these" }
            p class="quiet" { "At least one. Every cluster has a location: “location exists” means them all. What else a cluster has is on its page, under Labels." }
            @let rows = selector_rows(fields);
            @for index in 0..SELECTORS {
                @let (key, operator, value) = rows.get(index).cloned().unwrap_or_default();
                div class="selector" {
                    label { span class=[(index > 0).then_some("unseen")] { "Attribute" } input type="text" name="s.key" list="keys" value=(key) placeholder=(if index == 0 { "label.env" } else { "" }) autocomplete="off"; }
                    label { span class=[(index > 0).then_some("unseen")] { "is" } select name="s.operator" { @for known in OPERATORS { option value=(known) selected[known == operator] { (known) } } } }
                    label { span class=[(index > 0).then_some("unseen")] { "Value, or values with commas" } input type="text" name="s.value" value=(value) autocomplete="off"; }
                }
            }
            datalist id="keys" { @for key in ["location", "version", "name", "subscriptionID", "resourceGroup", "provisioningState", "label.env"] { option value=(key) {} } }
            @if let Some(more) = fields.one("selectors") { input type="hidden" name="selectors" value=(more); p class="quiet" { "It has further selectors that this form does not show; they are kept: " code { (more) } } }
        }
        @if page.viewer.may_act() {
            label class="wide" { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
            div class="buttons" {
                button type="submit" name="mode" value="preview" { "Look ahead" }
                button type="submit" name="mode" value="save" class="primary" { "Store it" }
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
fn of_schedule(schedule: &ScheduleForm) -> Fields {
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
    let word = |name: &str| selector.get(name).and_then(Value::as_str).map(str::to_owned);
    let (key, operator) = (word("key")?, word("operator")?);
    let value = match selector.get("values").and_then(Value::as_array) {
        Some(values) => {
            let words: Option<Vec<&str>> =
                values.iter().map(|value| value.as_str().filter(|it| !it.contains(','))).collect();
            words?.join(",")
        }
        None => word("value").unwrap_or_default(),
    };
    OPERATORS.contains(&operator.as_str()).then_some((key, operator, value))
}

/// The schedule that a filled-in form asks for.
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
    if let Some(more) = fields.one("selectors") {
        let more: Vec<Value> =
            serde_json::from_str(more).map_err(|_| "The further selectors are no JSON list.")?;
        selectors.extend(more);
    }
    let parameters: Map<String, Value> = match fields.one("parameters") {
        None => Map::new(),
        Some(text) => serde_json::from_str(text)
            .map_err(|error| format!("The parameters are no JSON object: {error}."))?,
    };
    let mut calendars: Vec<String> = fields
        .text("calendars")
        .lines()
        .map(|line| line.trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect();
    let schedule = if calendars.len() == 1 { calendars.remove(0) } else { String::new() };
    let number = |name: &str| match fields.one(name) {
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
        reason: fields.one("reason").map(str::to_owned),
    })
}

fn has_enough(form: &ScheduleForm) -> bool {
    !form.maintenance_task_id.is_empty() && (!form.schedule.is_empty() || !form.calendars.is_empty())
}

/// What the schedule in the form would make; asked by the script while somebody types.
pub(crate) async fn preview(
    State(state): State<Arc<PortalState>>,
    Extension(fields): Extension<Fields>,
) -> Response {
    let body = match read(&fields) {
        Ok(form) if has_enough(&form) => {
            preview_panel(&state.admin.preview(&form, PERIODS, CLUSTERS, None).await)
        }
        Ok(_) => {
            html! { p class="quiet" { "Choose a task and say when: then you see here what it would make." } }
        }
        Err(why) => html! { div class="note bad" { p { (why) } } },
    };
    Html(body.into_string()).into_response()
}

fn preview_panel(preview: &Result<PreviewForm, ClientError>) -> Markup {
    let preview = match preview {
        Ok(preview) => preview,
        Err(error) => return trouble("It could not be stored like this", error),
    };
    html! {
        @for warning in &preview.warnings { div class="note" { p { (warning) } } }
        div class="ahead" {
            div {
                h3 { "Next periods" }
                @if preview.periods.is_empty() { p class="quiet" { "None: this time never comes." } }
                ol { @for period in &preview.periods { li { (moment(*period)) } } }
            }
            div {
                h3 { "Matches " (preview.matched) " of " (preview.of) " clusters" }
                @if preview.matched == 0 { p class="quiet" { "Nothing would be made. Look at the labels and attributes of a cluster on its page." } }
                @else {
                    div class="table" {
                        table class="cards" {
                            caption class="unseen" { "The first clusters and their times" }
                            thead { tr { th scope="col" { "Cluster" } th scope="col" { "Its manifests may begin at" } } }
                            tbody {
                                @for cluster in &preview.clusters {
                                    tr {
                                        th scope="row" data-label="Cluster" { (cluster_link(&cluster.id)) }
                                        td data-label="Its manifests may begin at" { @for at in cluster.run_after.iter().take(3) { (second(*at)) " " } @if cluster.run_after.len() > 3 { span class="quiet" { "and " (cluster.run_after.len() - 3) " more" } } }
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
        assert_eq!(read(&of_schedule(&stored)).unwrap(), stored);
        let one = ScheduleForm { schedule: "daily".to_owned(), calendars: Vec::new(), ..stored };
        assert_eq!(read(&of_schedule(&one)).unwrap(), one);
    }

    #[test]
    fn what_cannot_be_meant_is_told() {
        for (text, word) in [
            ("parameters=nonsense", "no JSON"),
            ("look-forward=many", "whole number"),
            ("selectors=x", "no JSON list"),
        ] {
            let error = read(&Fields::parse(text)).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
