//! The catalogue of tasks, and the page of a task with a form for its parameters to run it on selected clusters, after a preview.

use api::admin::{ManifestRequest, StepForm, TaskForm, TaskSource, UndoForm};
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::PageContext;
use crate::command_line;
use crate::fields::{Fields, escaped};
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, command, empty_state,
    preformatted, short_name,
};

/// Most clusters of one request to run a task; a schedule can have more.
pub(crate) const CLUSTERS_MAX: usize = 200;

/// The preview of a run on a cluster: whether the Admin API would accept it.
#[derive(Debug, Clone)]
pub(crate) struct PreviewOutcome {
    pub(crate) cluster: String,
    pub(crate) result: Result<(), String>,
}

pub(super) async fn list(page: PageContext<'_>) -> Result<View, PageError> {
    let mut tasks = page.admin.tasks().all().await?;
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    let chosen: Vec<&str> = page.query.all("cluster").collect();
    let mut panels = Vec::new();
    if !chosen.is_empty() {
        panels.push(Panel::fixed("chosen", html! {
            div class="note" {
                p { "Select the task to run on " strong { (chosen.len()) @if chosen.len() == 1 { " cluster" } @else { " clusters" } } ": "
                    @for (index, id) in chosen.iter().take(12).enumerate() { @if index > 0 { ", " } bdi { (short_name(id)) } }
                    @if chosen.len() > 12 { " and " (chosen.len() - 12) " more" }
                }
            }
        }));
    }
    let query = page.query.query();
    panels.push(Panel::live("tasks", html! {
        @if tasks.is_empty() {
            (empty_state("No tasks", &html! { p { "Write one as a file and apply it:" } (command("shipshape task apply -f FILE")) }))
        } @else {
            div class="table" {
                table class="cards" {
                    caption class="unseen" { "Tasks" }
                    thead { tr { th scope="col" { "Task" } th scope="col" { "Description" } th scope="col" { "Source" } th scope="col" { "Steps" } th scope="col" { "Time limit" } } }
                    tbody {
                        @for task in &tasks {
                            tr {
                                th scope="row" data-label="Task" { a href={ "/task/" (escaped(&task.name)) (query) } { bdi { (task.name) } } }
                                td data-label="Description" { bdi { (task.title) } @if task.disruptive { " " (badge(BadgeTone::Odd, "disruptive")) } }
                                td data-label="Source" { @if task.source == Some(TaskSource::Data) { "custom, version " (task.version.unwrap_or(0)) } @else { "Shipshape" } }
                                td data-label="Steps" class="figure" { (task.steps.len()) }
                                td data-label="Time limit" class="figure" { (task.time_limit.as_ref().map_or("30m", |limit| limit.as_str())) }
                            }
                        }
                    }
                }
            }
        }
    }));
    Ok(View {
        title: "Tasks".to_owned(),
        section: Section::Tasks,
        breadcrumbs: Vec::new(),
        json: "/admin/maintenancetasks".to_owned(),
        command: "shipshape task list".to_owned(),
        events: PageEvents::Kinds(&["task"]),
        panels,
    })
}

/// The page of a task; `preview` has the filled-in fields and their preview.
pub(crate) async fn details(
    page: PageContext<'_>,
    name: &str,
    preview: Option<(&Fields, &[PreviewOutcome])>,
) -> Result<View, PageError> {
    let task = page.admin.task(name).await?.value;
    let fields = preview.map_or(page.query, |(fields, _)| fields);
    let mut panels = vec![Panel::fixed("about", about(&task))];
    if let Some((fields, outcomes)) = preview {
        panels.push(Panel::fixed("outcome", preview_panel(page, &task, fields, outcomes)));
    }
    if page.viewer.may_act() {
        panels.push(Panel::fixed("run", run_form(page, &task, fields)));
    } else {
        panels.push(Panel::fixed(
            "run",
            html! { p class="quiet" { "Running a task needs the role operator; your role is reader." } },
        ));
    }
    panels.push(Panel::fixed("definition", definition(&task)));
    Ok(View {
        title: task.name.clone(),
        section: Section::Tasks,
        breadcrumbs: vec![("Tasks".to_owned(), "/tasks".to_owned())],
        json: format!("/admin/maintenancetasks/{}", escaped(&task.name)),
        command: command_line::join(["shipshape", "task", "show", &task.name]),
        events: PageEvents::Nothing,
        panels,
    })
}

fn about(task: &TaskForm) -> Markup {
    html! {
        p class="said" { bdi { (task.title) } }
        @if !task.description.is_empty() { p { bdi { (task.description) } } }
        @if task.disruptive { p { (badge(BadgeTone::Odd, "disruptive")) " It can disrupt workloads in the cluster." } }
    }
}

fn definition(task: &TaskForm) -> Markup {
    fn steps(steps: &[StepForm]) -> Markup {
        html! {
            ol class="steps" {
                @for step in steps {
                    li {
                        strong { (if step.name.is_empty() { &step.uses } else { &step.name }) }
                        @if !step.name.is_empty() { " " code { (step.uses) } }
                        @if let Some(timeout) = &step.timeout { " " span class="quiet" { "within " (timeout) } }
                        @if !step.with.is_null() { details { summary { "with" } (preformatted(&serde_saphyr::to_string(&step.with).unwrap_or_default())) } }
                        @match &step.undo {
                            None => {},
                            Some(UndoForm::One(undo)) => { div class="quiet small" { "undone by " code { (undo.uses) } } },
                            Some(UndoForm::Many(undo)) => { div class="quiet small" { "undone by " (undo.len()) " steps" } },
                        }
                    }
                }
            }
        }
    }
    html! { h2 { "Steps" } (steps(&task.steps)) }
}

/// The parameters of a task's schema: names with their schemas, and which are required.
fn parameters(task: &TaskForm) -> Vec<(&str, &Value, bool)> {
    let Some(schema) = &task.parameters else { return Vec::new() };
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let Some(properties) = schema["properties"].as_object() else { return Vec::new() };
    let mut found: Vec<(&str, &Value, bool)> = properties
        .iter()
        .map(|(name, schema)| (name.as_str(), schema, required.contains(&name.as_str())))
        .collect();
    // Required parameters first.
    found.sort_by_key(|(_, _, is_required)| !is_required);
    found
}

fn has_type(schema: &Value, kind: &str) -> bool {
    let kinds = &schema["type"];
    kinds == kind || kinds.as_array().is_some_and(|kinds| kinds.contains(&Value::from(kind)))
}

fn run_form(page: PageContext<'_>, task: &TaskForm, fields: &Fields) -> Markup {
    let chosen: Vec<&str> =
        fields.all("cluster").flat_map(str::lines).map(str::trim).filter(|id| !id.is_empty()).collect();
    let body = html! {
        fieldset {
            legend { "Parameters" }
            @let parameters = parameters(task);
            @if parameters.is_empty() { p class="quiet" { "This task has no parameters." } }
            @for (name, schema, is_required) in parameters { (field(name, schema, is_required, fields)) }
        }
        fieldset {
            legend { "Clusters" }
            label class="wide" {
                span { "Resource ids, one on each line" }
                textarea name="cluster" rows=(chosen.len().clamp(2, 8)) required spellcheck="false" { (chosen.join("\n")) }
            }
            p class="quiet" { "Or select them on the " a href="/fleet" { "fleet" } " page." }
        }
        fieldset {
            legend { "When and why" }
            label { span { "Not before (UTC)" } input type="datetime-local" name="run-after" value=(fields.text("run-after")); }
            label { span { "Priority, lower first" } input type="number" name="priority" value=(fields.text("priority")) placeholder="0"; }
            label class="wide" { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off" value=(fields.text("reason")); }
        }
        div class="buttons" {
            button type="submit" name="mode" value="preview" class="primary" { "Preview" }
            button type="submit" name="mode" value="run" { "Run" }
        }
    };
    html! {
        h2 { "Run" }
        (page.viewer.form(&format!("task/{}/run", escaped(&task.name)), "stack", &body))
        (command(&run_command(task, fields, &chosen)))
    }
}

/// The CLI command with the same parameters.
fn run_command(task: &TaskForm, fields: &Fields, chosen: &[&str]) -> String {
    let mut arguments = vec!["shipshape".to_owned(), "task".to_owned(), "run".to_owned(), task.name.clone()];
    for cluster in chosen.iter().take(5) {
        arguments.extend(["--cluster".to_owned(), short_name(cluster).to_owned()]);
    }
    if chosen.is_empty() {
        arguments.extend(["--cluster".to_owned(), "NAME".to_owned()]);
    }
    for (name, ..) in parameters(task) {
        if let Some(value) = fields.get(&format!("p.{name}")) {
            arguments.extend(["-p".to_owned(), format!("{name}={value}")]);
        }
    }
    arguments.push("--dry-run".to_owned());
    command_line::join(arguments.iter().map(String::as_str))
}

/// The input of a parameter, by its schema.
fn field(name: &str, schema: &Value, is_required: bool, fields: &Fields) -> Markup {
    let key = format!("p.{name}");
    let default = match &schema["default"] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let value = fields.get(&key).unwrap_or_default();
    let description = schema["description"].as_str().unwrap_or_default();
    let choices = schema["enum"].as_array();
    let is_large = has_type(schema, "array") || has_type(schema, "object");
    html! {
        label class=[is_large.then_some("wide")] {
            span { bdi { (name) } @if is_required { " " span class="quiet" { "required" } } @if !description.is_empty() { " " span class="quiet" { "– " bdi { (description) } } } }
            @if let Some(choices) = choices {
                select name=(key) required[is_required] {
                    @if !is_required { option value="" { "default" @if !default.is_empty() { ": " (default) } } }
                    @for choice in choices {
                        @let text = match choice { Value::String(text) => text.clone(), other => other.to_string() };
                        option value=(text) selected[text == value] { (text) }
                    }
                }
            } @else if has_type(schema, "boolean") {
                select name=(key) required[is_required] {
                    @if !is_required { option value="" { "default" @if !default.is_empty() { ": " (default) } } }
                    option value="true" selected[value == "true"] { "true" }
                    option value="false" selected[value == "false"] { "false" }
                }
            } @else if has_type(schema, "integer") || has_type(schema, "number") {
                input type="number" name=(key) value=(value) placeholder=(default) required[is_required]
                    step=(if has_type(schema, "integer") { "1" } else { "any" })
                    min=[schema["minimum"].as_number().map(ToString::to_string)]
                    max=[schema["maximum"].as_number().map(ToString::to_string)];
            } @else if has_type(schema, "array") || has_type(schema, "object") {
                textarea name=(key) rows="3" required[is_required] placeholder=(if default.is_empty() { "as JSON" } else { &default }) spellcheck="false" { (value) }
            } @else {
                input type="text" name=(key) value=(value) placeholder=(default) required[is_required] autocomplete="off"
                    maxlength=[schema["maxLength"].as_u64().map(|length| length.to_string())];
            }
        }
    }
}

/// The preview for each cluster, and the button to run the task.
fn preview_panel(
    page: PageContext<'_>,
    task: &TaskForm,
    fields: &Fields,
    outcomes: &[PreviewOutcome],
) -> Markup {
    let accepted = outcomes.iter().filter(|outcome| outcome.result.is_ok()).count();
    let confirm = html! {
        @for (name, value) in fields.iter() {
            @if name != "csrf" && name != "mode" { input type="hidden" name=(name) value=(value); }
        }
        div class="buttons" {
            button type="submit" name="mode" value="run" class="primary" { "Run on " (accepted) @if accepted == 1 { " cluster" } @else { " clusters" } }
        }
    };
    html! {
        h2 { "Preview" }
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Preview for each cluster" }
                thead { tr { th scope="col" { "Cluster" } th scope="col" { "Result" } th scope="col" { "Message" } } }
                tbody {
                    @for outcome in outcomes {
                        tr {
                            th scope="row" data-label="Cluster" { (cluster_link(&outcome.cluster)) }
                            @match &outcome.result {
                                Ok(()) => { td data-label="Result" { (badge(BadgeTone::Good, "would be accepted")) } td data-label="Message" { "A manifest would be created; nothing was written." } },
                                Err(why) => { td data-label="Result" { (badge(BadgeTone::Bad, "would be rejected")) } td data-label="Message" { bdi { (why) } } },
                            }
                        }
                    }
                }
            }
        }
        @if accepted > 0 { (page.viewer.form(&format!("task/{}/run", escaped(&task.name)), "stack", &confirm)) }
    }
}

/// Parses a filled-in form: the clusters, and the request.
pub(crate) fn request(task: &TaskForm, fields: &Fields) -> Result<(Vec<String>, ManifestRequest), String> {
    let mut clusters: Vec<String> = fields
        .all("cluster")
        .flat_map(str::lines)
        .map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty())
        .collect();
    clusters.sort();
    clusters.dedup();
    if clusters.is_empty() {
        return Err("Select at least one cluster.".to_owned());
    }
    if clusters.len() > CLUSTERS_MAX {
        return Err(format!("At most {CLUSTERS_MAX} clusters at once; create a schedule for more."));
    }
    let mut parameter_values = Map::new();
    for (name, schema, _) in parameters(task) {
        let Some(text) = fields.get(&format!("p.{name}")) else { continue };
        let value = if has_type(schema, "string") {
            Value::from(text)
        } else {
            serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
        };
        parameter_values.insert(name.to_owned(), value);
    }
    let run_after = match fields.get("run-after") {
        None => None,
        Some(text) => {
            let at = text.parse::<jiff::civil::DateTime>().ok();
            let at = at.and_then(|at| at.to_zoned(jiff::tz::TimeZone::UTC).ok());
            Some(at.ok_or("The time must have the form 2026-01-31T12:00.")?.timestamp().as_second())
        }
    };
    let priority = match fields.get("priority") {
        None => None,
        Some(text) => Some(text.parse::<i32>().map_err(|_| "The priority must be a whole number.")?),
    };
    let request = ManifestRequest {
        maintenance_task_id: task.id.map(|id| id.to_string()).unwrap_or_default(),
        priority,
        run_after,
        run_before: None,
        parameters: parameter_values,
        status_text: None,
        reason: fields.get("reason").map(str::to_owned),
    };
    Ok((clusters, request))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn task() -> TaskForm {
        serde_json::from_value(json!({
            "id": "6f1d0a52-7a53-4a6b-9a0e-3a4f7a3b2c11", "name": "t", "title": "t", "steps": [],
            "parameters": {"type": "object", "required": ["node"], "properties": {
                "node": {"type": "string"}, "count": {"type": "integer"}, "deep": {"type": "boolean"}, "list": {"type": "array"},
            }},
        }))
        .unwrap()
    }

    #[test]
    fn a_filled_in_form_is_read_by_the_schema() {
        let fields = Fields::parse(
            "p.node=5&p.count=3&p.deep=true&p.list=%5B1%5D&cluster=%2Fb%0A%2Fa&cluster=%2Fa&run-after=2026-01-31T12:00",
        );
        let (clusters, request) = request(&task(), &fields).unwrap();
        assert_eq!(clusters, ["/a", "/b"]);
        let expect = json!({"node": "5", "count": 3, "deep": true, "list": [1]});
        assert_eq!(Value::Object(request.parameters), expect);
        assert_eq!(request.run_after, Some(1_769_860_800));
    }

    #[test]
    fn invalid_fields_are_reported() {
        let check = |text: &str, word: &str| {
            let error = request(&task(), &Fields::parse(text)).unwrap_err();
            assert!(error.contains(word), "{error}");
        };
        check("p.node=5", "at least one cluster");
        check("cluster=/a&run-after=tomorrow", "The time");
        check("cluster=/a&priority=high", "priority");
        let many: Vec<String> = (0..=CLUSTERS_MAX).map(|number| format!("cluster=/{number}")).collect();
        check(&many.join("&"), "At most");
    }
}
