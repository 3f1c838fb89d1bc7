//! What runs, what waits and what ended: the way to a manifest when one does not know its cluster.

use api::admin::{ManifestForm, TimelineRun};
use client::ClientError;
use jiff::SignedDuration;
use maud::{Markup, html};

use super::PageContext;
use super::manifest::state_badge;
use crate::view::{
    PageError, PageEvents, Panel, Section, View, cluster_link, manifest_link, maybe_moment, nothing, second,
    trouble,
};

/// So many of what waits and of what ended are shown.
const WAITING_MAX: usize = 100;
const ENDED_MAX: u32 = 100;

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let now = page.viewer.now;
    let day_ago = now.checked_sub(SignedDuration::from_hours(24)).unwrap_or(now);
    let (runs, queued) = tokio::join!(
        page.admin.timeline(day_ago, now, ENDED_MAX),
        page.admin.queued_manifests().first(WAITING_MAX)
    );
    let (running, ended) = match runs {
        Ok(runs) => {
            let (running, ended): (Vec<_>, Vec<_>) =
                runs.value.into_iter().partition(|run| run.end.is_none());
            (runs_table("Running now", &Ok(running)), runs_table("Ended within a day", &Ok(ended)))
        }
        Err(error) => (trouble("What runs cannot be told now", &error), html! {}),
    };
    Ok(View {
        title: "Work".to_owned(),
        section: Section::Work,
        above: Vec::new(),
        json: "/admin/maintenancemanifests/queued".to_owned(),
        command: "shipshape manifest list --watch".to_owned(),
        listens: PageEvents::Kinds(&["manifest"]),
        panels: vec![
            Panel::live("running", running),
            Panel::live("waiting", waiting(&queued)),
            Panel::live("ended", ended),
        ],
    })
}

fn runs_table(title: &str, runs: &Result<Vec<TimelineRun>, ClientError>) -> Markup {
    let Ok(runs) = runs else { return html! {} };
    html! {
        h2 { (title) " " span class="quiet figure" { (runs.len()) } }
        @if runs.is_empty() {
            p class="quiet" { "Nothing." }
        } @else {
            div class="table" {
                table class="cards" {
                    caption class="unseen" { (title) }
                    thead { tr { th scope="col" { "Task" } th scope="col" { "Cluster" } th scope="col" { "State" } th scope="col" { "Began" } th scope="col" { "Ended" } th scope="col" { "Result" } } }
                    tbody {
                        @for run in runs {
                            tr {
                                th scope="row" data-label="Task" { (manifest_link(run.manifest, name(&run.task_name))) }
                                td data-label="Cluster" { (cluster_link(&run.cluster)) }
                                td data-label="State" { (state_badge(run.state, None)) }
                                td data-label="Began" { (maybe_moment(run.start)) }
                                td data-label="Ended" { (maybe_moment(run.end)) }
                                td data-label="Result" { span class="said" { (run.status_text) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn waiting(queued: &Result<Vec<ManifestForm>, ClientError>) -> Markup {
    let mut queued = match queued {
        Ok(queued) => queued.iter().collect::<Vec<_>>(),
        Err(error) => return trouble("What waits cannot be told now", error),
    };
    queued.sort_by_key(|form| (form.run_after, form.priority, form.id));
    html! {
        h2 { "Waiting " span class="quiet figure" { (queued.len()) @if queued.len() == WAITING_MAX { "+" } } }
        (queue(&queued))
    }
}

/// Manifests that wait, with why.
pub(super) fn queue(queued: &[&ManifestForm]) -> Markup {
    if queued.is_empty() {
        let next = html! { p { "Run a task from " a href="/tasks" { "Tasks" } ", or let a " a href="/schedules" { "schedule" } " ask for it." } };
        return nothing("Nothing waits", &next);
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Manifests that wait" }
                thead { tr { th scope="col" { "Task" } th scope="col" { "Cluster" } th scope="col" { "State" } th scope="col" { "Not before" } th scope="col" { "Asked for by" } th scope="col" { "Why it waits" } } }
                tbody {
                    @for form in queued {
                        tr {
                            th scope="row" data-label="Task" { (manifest_link(form.id, name(&form.task_name))) }
                            td data-label="Cluster" { (cluster_link(form.cluster_resource_id.as_deref().unwrap_or_default())) }
                            td data-label="State" { (state_badge(form.state, Some(form.phase))) }
                            td data-label="Not before" { (second(form.run_after)) }
                            td data-label="Asked for by" { bdi { (if form.created_by_schedule.is_empty() { &form.created_by } else { &form.created_by_schedule }) } }
                            td data-label="Why it waits" { span class="said" { (form.status_text) } " " a class="small" href={ "/manifest/" (form.id) "#why" } { "every reason" } }
                        }
                    }
                }
            }
        }
    }
}

fn name(task: &str) -> &str {
    if task.is_empty() { "a task that is gone" } else { task }
}
