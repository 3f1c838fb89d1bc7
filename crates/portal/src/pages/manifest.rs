//! One manifest: how it stands, why it waits, its steps as they go, what was undone, its history; and how to stop or hurry it.

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
    maybe_moment, moment, nothing, raw, second, short_id, short_name, span, trouble,
};

/// So much of a history is shown; the rest is in the JSON.
const ENTRIES_MAX: usize = 500;

pub(super) async fn view(page: PageContext<'_>, id: &str) -> Result<View, PageError> {
    let form = page.admin.find_manifest(id).await?.value;
    let cluster = form.cluster_resource_id.clone().unwrap_or_default();
    let task_id = form.maintenance_task_id.to_string();
    let (history, why, task) = tokio::join!(
        page.admin.history(&cluster, form.id).first(ENTRIES_MAX),
        async {
            match form.state.is_terminal() {
                true => None,
                false => Some(page.admin.why(&cluster, form.id).await),
            }
        },
        page.admin.task(&task_id),
    );
    let task = task.ok().map(|answer| answer.value);
    let mut panels = vec![Panel::live("state", state_panel(&form, &cluster))];
    if page.viewer.may_act() {
        panels.push(Panel::live("actions", actions(page, &form)));
    }
    if let Some(why) = &why {
        panels.push(Panel::live("why", why_panel(&form, why)));
    }
    let (steps, past) = match &history {
        Ok(entries) => (steps(&form, entries, task.as_ref()), past("History", entries)),
        Err(error) => (html! {}, trouble("The history cannot be read now", error)),
    };
    panels.push(Panel::live("steps", steps));
    panels.push(Panel::live("history", past));
    let title = if form.task_name.is_empty() { task_id } else { form.task_name.clone() };
    Ok(View {
        title: format!("{title} on {}", short_name(&cluster)),
        section: Section::Work,
        above: vec![
            ("Work".to_owned(), "/work".to_owned()),
            (short_name(&cluster).to_owned(), cluster_path(&cluster)),
        ],
        json: format!("/admin{cluster}/maintenancemanifests/{}", form.id),
        command: command_line::join(["shipshape", "manifest", "show", &short_id(form.id), "--wait"]),
        listens: PageEvents::Manifest(form.id),
        panels,
    })
}

/// How a piece of work stands, at a glance.
pub(super) fn state_badge(state: WorkState, phase: Option<Phase>) -> Markup {
    let tone = match state {
        WorkState::Pending => BadgeTone::Waiting,
        WorkState::InProgress => BadgeTone::Busy,
        WorkState::Completed => BadgeTone::Good,
        WorkState::Failed | WorkState::RetriesExceeded => BadgeTone::Bad,
        WorkState::TimedOut => BadgeTone::Odd,
        WorkState::Cancelled => BadgeTone::Quiet,
    };
    let finer = match phase {
        Some(Phase::Cancelling) => Some("is asked to end"),
        Some(Phase::Undoing) => Some("takes back what it did"),
        Some(Phase::Waiting) => Some("rests"),
        Some(Phase::Queued | Phase::Running | Phase::Finished) | None => None,
    };
    match finer {
        Some(finer) => badge(tone, &format!("{state}, {finer}")),
        None => badge(tone, state.as_str()),
    }
}

fn state_panel(form: &ManifestForm, cluster: &str) -> Markup {
    html! {
        div class="lead" {
            // Whoever listens to the page instead of looking at it is told of this and of nothing else.
            span aria-live="polite" { (state_badge(form.state, Some(form.phase))) }
            @if let Some(step) = form.step.as_ref().filter(|_| !form.state.is_terminal()) {
                span { "Step " span class="figure" { (step.index) " of " (step.of) } ": " strong { (step.name) } }
                progress max=(step.of) value=(step.index.saturating_sub(1)) aria-label="Steps that are done" {}
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
            dt { "Not before" } dd { (second(form.run_after)) }
            dt { "Begin before" } dd { (second(form.run_before)) }
            dt { "Asked for" } dd { (moment(form.created_at)) " by " bdi { (form.created_by) } }
            dt { "Schedule" } dd {
                @if form.created_by_schedule.is_empty() { span class="quiet" { "none; somebody asked for it" } }
                @else {
                    a href={ "/schedule/" (crate::fields::escaped(&form.created_by_schedule)) } { bdi { (form.created_by_schedule) } }
                }
            }
            dt { "Began" } dd { (maybe_moment(form.started_at)) }
            dt { "Ended" } dd {
                (maybe_moment(form.finished_at))
                @if let (Some(from), Some(to)) = (form.started_at, form.finished_at) {
                    " " span class="quiet" { "after " (span(u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0))) }
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
        return html! { p class="quiet" { "It has ended; there is nothing to stop." } };
    }
    let id = short_id(form.id);
    let is_asked = form.phase == Phase::Cancelling || form.phase == Phase::Undoing;
    let begun = form.state == WorkState::InProgress || form.started_at.is_some();
    let cancel = html! {
        label { span { "Reason" } input type="text" name="reason" required maxlength="500" autocomplete="off" placeholder="Why it should end"; }
        button type="submit" class="danger" { @if begun { "Stop it and undo what it did" } @else { "Cancel it" } }
    };
    html! {
        h2 { "Act" }
        div class="acts" {
            div {
                @if is_asked { p { "It was asked to end, and does so at its next safe point." } }
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
        Err(error) => return trouble("Why it waits cannot be told now", error),
    };
    html! {
        h2 { @match why.verdict { Verdict::Blocked => "Why it waits", Verdict::Running => "What it waits for", _ => "Does something stand in its way?" } }
        @match why.verdict {
            Verdict::Ready => { p { "Nothing stands in its way: it begins at the next look." } },
            Verdict::Running => { (running(why)) },
            Verdict::Finished => { p { "Nothing: it has ended." } },
            Verdict::Blocked => {
                p {
                    @match why.earliest_start {
                        Some(at) => { "It can begin at " (moment(at)) " at the earliest." },
                        None => { "When it can begin is not known." },
                    }
                }
            },
        }
        @if !why.blockers.is_empty() { (blockers(&why.blockers)) }
        (command(&command_line::join(["shipshape", "why", &short_id(form.id)])))
    }
}

/// The step that running work is in, what it last reported, and until when it may take.
fn running(why: &WhyForm) -> Markup {
    html! {
        @match &why.step {
            None => { p { "It is at work; its first step has not reported yet." } },
            Some(step) => {
                p { @if why.undoing { "Undoing step " } @else { "It is at work in step " } strong { (step.name) } ", " (step.index) " of " (step.of) "." }
                @if !step.message.is_empty() { p class="said" { (step.message) } }
                dl class="facts" {
                    dt { "Since" } dd { (moment(step.since)) }
                    dt { "May take until" } dd { (maybe_moment(step.deadline)) }
                }
            },
        }
    }
}

fn blockers(blockers: &[Blocker]) -> Markup {
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Everything that stands in its way" }
                thead { tr { th scope="col" { "What" } th scope="col" { "In words" } th scope="col" { "Whose it is" } th scope="col" { "Since" } th scope="col" { "Until" } } }
                tbody {
                    @for blocker in blockers {
                        tr {
                            th scope="row" data-label="What" { (badge(BadgeTone::Waiting, &format!("{:?}", blocker.code))) }
                            td data-label="In words" { (blocker.message) }
                            td data-label="Whose it is" { (format!("{:?}", blocker.owner)) }
                            td data-label="Since" { (maybe_moment(blocker.since)) }
                            td data-label="Until" { (maybe_moment(blocker.until)) }
                        }
                    }
                }
            }
        }
    }
}

/// What became of a step in the newest attempt.
struct Step<'a> {
    name: &'a str,
    last: Option<&'a Entry>,
    started: Option<&'a Entry>,
    undone: bool,
}

fn steps(form: &ManifestForm, entries: &[Entry], task: Option<&TaskForm>) -> Markup {
    let mut names: Vec<&str> = Vec::new();
    let mut known = HashSet::new();
    let of_task = task.into_iter().flat_map(|task| &task.steps);
    let of_task =
        of_task.map(|step| if step.name.is_empty() { step.uses.as_str() } else { step.name.as_str() });
    for name in of_task.chain(entries.iter().filter_map(|entry| entry.step.as_deref())) {
        if known.insert(name) {
            names.push(name);
        }
    }
    let mut found = Vec::new();
    for name in names {
        let of_step = || entries.iter().rev().filter(|entry| entry.step.as_deref() == Some(name));
        let ends = [EntryEvent::StepFinished, EntryEvent::StepFailed];
        found.push(Step {
            name,
            last: of_step()
                .find(|entry| ends.contains(&entry.event) || entry.event == EntryEvent::StepStarted),
            started: of_step().find(|entry| entry.event == EntryEvent::StepStarted),
            undone: of_step().any(|entry| entry.event == EntryEvent::Undone),
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
                thead { tr { th scope="col" { "Step" } th scope="col" { "State" } th scope="col" { "Began" } th scope="col" { "Took" } th scope="col" { "Output" } } }
                tbody { @for step in &found { (step_row(step, current, form)) } }
            }
        }
    }
}

fn step_row(step: &Step<'_>, current: Option<&str>, form: &ManifestForm) -> Markup {
    let event = step.last.map(|entry| entry.event);
    let is_current = current == Some(step.name) && event != Some(EntryEvent::StepFinished);
    let (tone, word) = match event {
        _ if step.undone => (BadgeTone::Odd, "undone"),
        _ if is_current => (BadgeTone::Busy, "at work"),
        Some(EntryEvent::StepFinished) => (BadgeTone::Good, "done"),
        Some(EntryEvent::StepFailed) => (BadgeTone::Bad, "failed"),
        Some(_) => (BadgeTone::Odd, "left"),
        None if form.state.is_terminal() => (BadgeTone::Quiet, "not begun"),
        None => (BadgeTone::Waiting, "to come"),
    };
    let message = step.last.and_then(|entry| entry.message.as_deref()).unwrap_or_default();
    let message = match &form.step {
        Some(progress) if is_current && !progress.message.is_empty() => progress.message.as_str(),
        _ => message,
    };
    html! {
        tr {
            th scope="row" data-label="Step" { (step.name) }
            td data-label="State" { (badge(tone, word)) }
            td data-label="Began" { (maybe_moment(step.started.or(step.last).map(|entry| entry.time))) }
            td data-label="Took" class="figure" {
                @match step.last.and_then(|entry| entry.duration_ms) { Some(ms) => { (span(ms)) }, None => { span class="quiet" { "–" } } }
            }
            td data-label="Output" { (output(message)) }
        }
    }
}

/// What a step said: a line as it is, more behind a fold.
pub(super) fn output(message: &str) -> Markup {
    match message.lines().count() {
        0 => html! { span class="quiet" { "–" } },
        1 => html! { span class="said" { (message) } },
        lines => html! {
            details { summary { (message.lines().next().unwrap_or_default()) " " span class="quiet" { "(" (lines) " lines)" } } (raw(message)) }
        },
    }
}

/// What happened, newest last.
pub(super) fn past(title: &str, entries: &[Entry]) -> Markup {
    if entries.is_empty() {
        return nothing(
            "Nothing has happened yet",
            &html! { p { "What happens to it is told here, as it happens." } },
        );
    }
    html! {
        h2 { (title) }
        ol class="past" {
            @for entry in entries {
                li {
                    (moment(entry.time))
                    span class="event" { (event(entry.event)) }
                    span {
                        @if let Some(step) = &entry.step { strong { (step) } " " }
                        @if let (Some(from), Some(to)) = (entry.from, entry.to) { (from) " → " (to) " " }
                        @if let Some(message) = &entry.message { (output(message)) " " }
                        span class="quiet" {
                            bdi { (entry.actor) }
                            @if entry.attempt > 0 { ", attempt " (entry.attempt) }
                            @if let Some(ms) = entry.duration_ms { ", " (span(ms)) }
                        }
                    }
                }
            }
        }
    }
}

fn event(event: EntryEvent) -> &'static str {
    match event {
        EntryEvent::Created => "asked for",
        EntryEvent::Claimed => "begun",
        EntryEvent::StepStarted => "step begun",
        EntryEvent::StepFinished => "step done",
        EntryEvent::StepFailed => "step failed",
        EntryEvent::Retried => "to be tried again",
        EntryEvent::Yielded => "given back",
        EntryEvent::TakenOver => "taken over",
        EntryEvent::CancelRequested => "asked to end",
        EntryEvent::Undone => "undone",
        EntryEvent::Expedited => "expedited",
        EntryEvent::Revived => "wanted again",
        EntryEvent::Finished => "ended",
    }
}
