//! The page of a manifest: its state, why it waits, its steps, its history, and the actions to cancel or expedite it.

use std::collections::HashSet;

use api::admin::{Blocker, Entry, EntryEvent, ManifestForm, Phase, TaskForm, Verdict, WhyForm};
use api::work::WorkState;
use client::ClientError;
use maud::{Markup, html};
use serde_json::Value;

use super::PageContext;
use crate::command_line;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, cluster_path, command,
    duration_text, empty_state, error_note, optional_timestamp, preformatted, short_id, short_name,
    timestamp, unix_timestamp,
};

/// Longest history that is shown; the JSON has the rest.
const ENTRIES_MAX: usize = 500;

pub(super) async fn view(page: PageContext<'_>, id: &str) -> Result<View, PageError> {
    let form = page.admin.find_manifest(id).await?.value;
    let cluster = form.cluster_resource_id.clone().unwrap_or_default();
    let task_id = form.maintenance_task_id.to_string();
    let (entries, why, task) = tokio::join!(
        page.admin.history(&cluster, form.id).first(ENTRIES_MAX),
        async {
            match form.state.is_terminal() {
                true => None,
                false => Some(page.admin.why(&cluster, form.id).await),
            }
        },
        page.admin.task(&task_id),
    );
    let task = task.ok().map(|response| response.value);
    let mut panels = vec![Panel::live("state", state_panel(&form, &cluster))];
    if page.viewer.may_act() {
        panels.push(Panel::live("actions", actions(page, &form)));
    }
    if let Some(why) = &why {
        panels.push(Panel::live("why", why_panel(&form, why)));
    }
    let (steps, history) = match &entries {
        Ok(entries) => (steps(&form, entries, task.as_ref()), history("History", entries)),
        Err(error) => (html! {}, error_note("The history cannot be read now", error)),
    };
    panels.push(Panel::live("steps", steps));
    panels.push(Panel::live("history", history));
    let title = if form.task_name.is_empty() { task_id } else { form.task_name.clone() };
    Ok(View {
        title: format!("{title} on {}", short_name(&cluster)),
        section: Section::Work,
        breadcrumbs: vec![
            ("Work".to_owned(), "/work".to_owned()),
            (short_name(&cluster).to_owned(), cluster_path(&cluster)),
        ],
        json: format!("/admin{cluster}/maintenancemanifests/{}", form.id),
        command: command_line::join(["shipshape", "manifest", "show", &short_id(form.id), "--wait"]),
        events: PageEvents::Manifest(form.id),
        panels,
    })
}

/// The badge of a work state and phase.
pub(super) fn state_badge(state: WorkState, phase: Option<Phase>) -> Markup {
    let tone = match state {
        WorkState::Pending => BadgeTone::Waiting,
        WorkState::InProgress => BadgeTone::Busy,
        WorkState::Completed => BadgeTone::Good,
        WorkState::Failed | WorkState::RetriesExceeded => BadgeTone::Bad,
        WorkState::TimedOut => BadgeTone::Odd,
        WorkState::Cancelled => BadgeTone::Quiet,
    };
    let detail = match phase {
        Some(Phase::Cancelling) => Some("cancelling"),
        Some(Phase::Undoing) => Some("undoing"),
        Some(Phase::Waiting) => Some("waiting"),
        Some(Phase::Queued | Phase::Running | Phase::Finished) | None => None,
    };
    match detail {
        Some(detail) => badge(tone, &format!("{state}, {detail}")),
        None => badge(tone, state.as_str()),
    }
}

fn state_panel(form: &ManifestForm, cluster: &str) -> Markup {
    html! {
        div class="lead" {
            // The only part of the page that screen readers announce.
            span aria-live="polite" { (state_badge(form.state, Some(form.phase))) }
            @if let Some(step) = form.step.as_ref().filter(|_| !form.state.is_terminal()) {
                span { "Step " span class="figure" { (step.index) " of " (step.of) } ": " strong { (step.name) } }
                progress max=(step.of) value=(step.index.saturating_sub(1)) aria-label="Completed steps" {}
                @if !step.message.is_empty() { span class="quiet" { (step.message) } }
            }
        }
        @if !form.status_text.is_empty() {
            p class="said" { (form.status_text) @if !form.reason.is_empty() { " " span class="quiet" { "(" (form.reason) ")" } } }
        }
        dl class="facts" {
            dt { "Cluster" } dd { (cluster_link(cluster)) }
            dt { "Task" } dd {
                @if form.task_name.is_empty() { code { (form.maintenance_task_id) } }
                @else { a href={ "/task/" (crate::fields::escaped(&form.task_name)) } { (form.task_name) } }
                @if form.task_version > 0 { " " span class="quiet" { "version " (form.task_version) } }
            }
            dt { "Attempt" } dd class="figure" { (form.attempt) " of " (form.max_attempts) }
            dt { "Priority" } dd class="figure" { (form.priority) }
            dt { "Not before" } dd { (unix_timestamp(form.run_after)) }
            dt { "Start before" } dd { (unix_timestamp(form.run_before)) }
            dt { "Requested" } dd { (timestamp(form.created_at)) " by " bdi { (form.created_by) } }
            dt { "Schedule" } dd {
                @if form.created_by_schedule.is_empty() { span class="quiet" { "none; requested on demand" } }
                @else {
                    a href={ "/schedule/" (crate::fields::escaped(&form.created_by_schedule)) } { bdi { (form.created_by_schedule) } }
                }
            }
            dt { "Started" } dd { (optional_timestamp(form.started_at)) }
            dt { "Finished" } dd {
                (optional_timestamp(form.finished_at))
                @if let (Some(from), Some(to)) = (form.started_at, form.finished_at) {
                    " " span class="quiet" { "after " (duration_text(u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0))) }
                }
            }
            dt { "Id" } dd { code { (form.id) } }
        }
        @if !form.parameters.is_empty() {
            h2 { "Parameters" }
            dl class="facts" {
                @for (name, value) in &form.parameters {
                    dt { bdi { (name) } }
                    dd { bdi { (match value { Value::String(text) => text.clone(), other => other.to_string() }) } }
                }
            }
        }
    }
}

fn actions(page: PageContext<'_>, form: &ManifestForm) -> Markup {
    if form.state.is_terminal() {
        return html! { p class="quiet" { "The work is finished; there is nothing to cancel." } };
    }
    let id = short_id(form.id);
    let is_cancelling = form.phase == Phase::Cancelling || form.phase == Phase::Undoing;
    let is_started = form.state == WorkState::InProgress || form.started_at.is_some();
    let cancel = html! {
        label { span { "Reason" } input type="text" name="reason" required maxlength="500" autocomplete="off" placeholder="Why it is cancelled"; }
        button type="submit" class="danger" { @if is_started { "Cancel and undo" } @else { "Cancel manifest" } }
    };
    html! {
        h2 { "Actions" }
        div class="acts" {
            div {
                @if is_cancelling { p { "Cancellation requested; the work stops at its next safe point." } }
                @else { (page.viewer.form(&format!("manifest/{}/cancel", form.id), "inline", &cancel)) }
                (command(&command_line::join(["shipshape", "manifest", "cancel", &id, "--reason", "WHY"])))
            }
            @if form.state == WorkState::Pending && form.run_after > 0 {
                div {
                    (page.viewer.form(&format!("manifest/{}/expedite", form.id), "inline", &html! {
                        label { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off" placeholder="Why it should not wait"; }
                        button type="submit" { "Expedite: next on its cluster" }
                    }))
                    (command(&command_line::join(["shipshape", "manifest", "expedite", &id])))
                }
            }
        }
    }
}

fn why_panel(form: &ManifestForm, why: &Result<WhyForm, ClientError>) -> Markup {
    let why = match why {
        Ok(why) => why,
        Err(error) => return error_note("The reasons to wait cannot be read now", error),
    };
    html! {
        h2 { @match why.verdict { Verdict::Blocked => "Why it waits", Verdict::Running => "What it waits for", _ => "Is anything blocking it?" } }
        @match why.verdict {
            Verdict::Ready => { p { "Nothing blocks it: it starts at the next poll." } },
            Verdict::Running => { (running(why)) },
            Verdict::Finished => { p { "Nothing: it is finished." } },
            Verdict::Blocked => {
                p {
                    @match why.earliest_start {
                        Some(at) => { "Earliest start: " (timestamp(at)) "." },
                        None => { "The earliest start is unknown." },
                    }
                }
            },
        }
        @if !why.blockers.is_empty() { (blockers(&why.blockers)) }
        (command(&command_line::join(["shipshape", "why", &short_id(form.id)])))
    }
}

/// The current step of running work, its last message and its deadline.
fn running(why: &WhyForm) -> Markup {
    html! {
        @match &why.step {
            None => { p { "Running; the first step has not reported yet." } },
            Some(step) => {
                p { @if why.undoing { "Undoing step " } @else { "Running step " } strong { (step.name) } ", " (step.index) " of " (step.of) "." }
                @if !step.message.is_empty() { p class="said" { (step.message) } }
                dl class="facts" {
                    dt { "Since" } dd { (timestamp(step.since)) }
                    dt { "Deadline" } dd { (optional_timestamp(step.deadline)) }
                }
            },
        }
    }
}

fn blockers(blockers: &[Blocker]) -> Markup {
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Blockers" }
                thead { tr { th scope="col" { "Blocker" } th scope="col" { "Message" } th scope="col" { "Owner" } th scope="col" { "Since" } th scope="col" { "Until" } } }
                tbody {
                    @for blocker in blockers {
                        tr {
                            th scope="row" data-label="Blocker" { (badge(BadgeTone::Waiting, &format!("{:?}", blocker.code))) }
                            td data-label="Message" { (blocker.message) }
                            td data-label="Owner" { (format!("{:?}", blocker.owner)) }
                            td data-label="Since" { (optional_timestamp(blocker.since)) }
                            td data-label="Until" { (optional_timestamp(blocker.until)) }
                        }
                    }
                }
            }
        }
    }
}

/// The newest entries of a step.
struct StepHistory<'a> {
    name: &'a str,
    last: Option<&'a Entry>,
    started: Option<&'a Entry>,
    undone: bool,
}

fn steps(form: &ManifestForm, entries: &[Entry], task: Option<&TaskForm>) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    let mut seen = HashSet::new();
    let task_steps = task.into_iter().flat_map(|task| &task.steps);
    let task_steps =
        task_steps.map(|step| if step.name.is_empty() { step.uses.as_str() } else { step.name.as_str() });
    for name in task_steps.chain(entries.iter().filter_map(|entry| entry.step.as_deref())) {
        if seen.insert(name) {
            names.push(name);
        }
    }
    let mut found = Vec::new();
    for name in names {
        let step_entries = || entries.iter().rev().filter(|entry| entry.step.as_deref() == Some(name));
        let ends = [EntryEvent::StepFinished, EntryEvent::StepFailed];
        found.push(StepHistory {
            name,
            last: step_entries()
                .find(|entry| ends.contains(&entry.event) || entry.event == EntryEvent::StepStarted),
            started: step_entries().find(|entry| entry.event == EntryEvent::StepStarted),
            undone: step_entries().any(|entry| entry.event == EntryEvent::Undone),
        });
    }
    if found.is_empty() {
        return html! {};
    }
    let current =
        form.step.as_ref().filter(|_| form.state == WorkState::InProgress).map(|step| step.name.as_str());
    html! {
        h2 { "Steps" }
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Steps of the task, in order" }
                thead { tr { th scope="col" { "Step" } th scope="col" { "State" } th scope="col" { "Started" } th scope="col" { "Duration" } th scope="col" { "Output" } } }
                tbody { @for step in &found { (step_row(step, current, form)) } }
            }
        }
    }
}

fn step_row(step: &StepHistory<'_>, current: Option<&str>, form: &ManifestForm) -> Markup {
    let event = step.last.map(|entry| &entry.event);
    let is_current = current == Some(step.name) && event != Some(&EntryEvent::StepFinished);
    let (tone, text) = match event {
        _ if step.undone => (BadgeTone::Odd, "undone"),
        _ if is_current => (BadgeTone::Busy, "running"),
        Some(EntryEvent::StepFinished) => (BadgeTone::Good, "done"),
        Some(EntryEvent::StepFailed) => (BadgeTone::Bad, "failed"),
        Some(_) => (BadgeTone::Odd, "interrupted"),
        None if form.state.is_terminal() => (BadgeTone::Quiet, "not started"),
        None => (BadgeTone::Waiting, "pending"),
    };
    let message = step.last.and_then(|entry| entry.message.as_deref()).unwrap_or_default();
    let message = match &form.step {
        Some(progress) if is_current && !progress.message.is_empty() => progress.message.as_str(),
        _ => message,
    };
    html! {
        tr {
            th scope="row" data-label="Step" { (step.name) }
            td data-label="State" { (badge(tone, text)) }
            td data-label="Started" { (optional_timestamp(step.started.or(step.last).map(|entry| entry.time))) }
            td data-label="Duration" class="figure" {
                @match step.last.and_then(|entry| entry.duration_ms) { Some(ms) => { (duration_text(ms)) }, None => { span class="quiet" { "–" } } }
            }
            td data-label="Output" { (output(message)) }
        }
    }
}

/// The output of a step; several lines are folded.
pub(super) fn output(message: &str) -> Markup {
    match message.lines().count() {
        0 => html! { span class="quiet" { "–" } },
        1 => html! { span class="said" { (message) } },
        lines => html! {
            details { summary { (message.lines().next().unwrap_or_default()) " " span class="quiet" { "(" (lines) " lines)" } } (preformatted(message)) }
        },
    }
}

/// The history of work, newest last.
pub(super) fn history(title: &str, entries: &[Entry]) -> Markup {
    if entries.is_empty() {
        return empty_state("No history yet", &html! { p { "Entries appear here when the work starts." } });
    }
    html! {
        h2 { (title) }
        ol class="past" {
            @for entry in entries {
                li {
                    (timestamp(entry.time))
                    span class="event" { (event(&entry.event)) }
                    span {
                        @if let Some(step) = &entry.step { strong { (step) } " " }
                        @if let (Some(from), Some(to)) = (entry.from, entry.to) { (from) " → " (to) " " }
                        @if let Some(message) = &entry.message { (output(message)) " " }
                        span class="quiet" {
                            bdi { (entry.actor) }
                            @if entry.attempt > 0 { ", attempt " (entry.attempt) }
                            @if let Some(ms) = entry.duration_ms { ", " (duration_text(ms)) }
                        }
                    }
                }
            }
        }
    }
}

fn event(event: &EntryEvent) -> &str {
    match event {
        EntryEvent::Created => "requested",
        EntryEvent::Claimed => "started",
        EntryEvent::StepStarted => "step started",
        EntryEvent::StepFinished => "step finished",
        EntryEvent::StepFailed => "step failed",
        EntryEvent::Retried => "retry scheduled",
        EntryEvent::Yielded => "released",
        EntryEvent::TakenOver => "taken over",
        EntryEvent::CancelRequested => "cancellation requested",
        EntryEvent::Undone => "undone",
        EntryEvent::Expedited => "expedited",
        EntryEvent::Revived => "revived",
        EntryEvent::Finished => "finished",
        EntryEvent::Other(name) => name,
    }
}
