//! Running, waiting and finished manifests of all clusters.

use api::admin::{ManifestForm, TimelineRun};
use client::ClientError;
use jiff::SignedDuration;
use maud::{Markup, html};

use super::PageContext;
use super::manifest::state_badge;
use crate::view::{
    PageError, PageEvents, Panel, Section, View, cluster_link, empty_state, error_note, manifest_link,
    optional_timestamp, unix_timestamp,
};

/// Most waiting and finished manifests that are shown.
const WAITING_MAX: usize = 100;
const FINISHED_MAX: u32 = 100;

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let now = page.viewer.now;
    let day_ago = now.checked_sub(SignedDuration::from_hours(24)).unwrap_or(now);
    let (runs, queued) = tokio::join!(
        page.admin.timeline(day_ago, now, FINISHED_MAX),
        page.admin.queued_manifests().first(WAITING_MAX)
    );
    let (running, finished) = match runs {
        Ok(runs) => {
            let (running, finished): (Vec<_>, Vec<_>) =
                runs.value.into_iter().partition(|run| run.end.is_none());
            (
                runs_table("Running now", &Ok(running)),
                runs_table("Finished in the last 24 hours", &Ok(finished)),
            )
        }
        Err(error) => (error_note("Running work cannot be read now", &error), html! {}),
    };
    Ok(View {
        title: "Work".to_owned(),
        section: Section::Work,
        breadcrumbs: Vec::new(),
        json: "/admin/maintenancemanifests/queued".to_owned(),
        command: "shipshape manifest list --watch".to_owned(),
        events: PageEvents::Kinds(&["manifest"]),
        panels: vec![
            Panel::live("running", running),
            Panel::live("waiting", waiting(&queued)),
            Panel::live("finished", finished),
        ],
    })
}

fn runs_table(title: &str, runs: &Result<Vec<TimelineRun>, ClientError>) -> Markup {
    let Ok(runs) = runs else { return html! {} };
    html! {
        h2 { (title) " " span class="quiet figure" { (runs.len()) } }
        @if runs.is_empty() {
            p class="quiet" { "None." }
        } @else {
            div class="table" {
                table class="cards" {
                    caption class="unseen" { (title) }
                    thead { tr { th scope="col" { "Task" } th scope="col" { "Cluster" } th scope="col" { "State" } th scope="col" { "Started" } th scope="col" { "Finished" } th scope="col" { "Result" } } }
                    tbody {
                        @for run in runs {
                            tr {
                                th scope="row" data-label="Task" { (manifest_link(run.manifest, name(&run.task_name))) }
                                td data-label="Cluster" { (cluster_link(&run.cluster)) }
                                td data-label="State" { (state_badge(run.state, None)) }
                                td data-label="Started" { (optional_timestamp(run.start)) }
                                td data-label="Finished" { (optional_timestamp(run.end)) }
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
        Err(error) => return error_note("Waiting work cannot be read now", error),
    };
    queued.sort_by_key(|form| (form.run_after, form.priority, form.id));
    html! {
        h2 { "Waiting " span class="quiet figure" { (queued.len()) @if queued.len() == WAITING_MAX { "+" } } }
        (queue(&queued))
    }
}

/// Waiting manifests, with their reasons.
pub(super) fn queue(queued: &[&ManifestForm]) -> Markup {
    if queued.is_empty() {
        let next = html! { p { "Run a task from " a href="/tasks" { "Tasks" } ", or create a " a href="/schedules" { "schedule" } "." } };
        return empty_state("No manifest is waiting", &next);
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Waiting manifests" }
                thead { tr { th scope="col" { "Task" } th scope="col" { "Cluster" } th scope="col" { "State" } th scope="col" { "Not before" } th scope="col" { "Requested by" } th scope="col" { "Why it waits" } } }
                tbody {
                    @for form in queued {
                        tr {
                            th scope="row" data-label="Task" { (manifest_link(form.id, name(&form.task_name))) }
                            td data-label="Cluster" { (cluster_link(form.cluster_resource_id.as_deref().unwrap_or_default())) }
                            td data-label="State" { (state_badge(form.state, Some(form.phase))) }
                            td data-label="Not before" { (unix_timestamp(form.run_after)) }
                            td data-label="Requested by" { bdi { (if form.created_by_schedule.is_empty() { &form.created_by } else { &form.created_by_schedule }) } }
                            td data-label="Why it waits" { span class="said" { (form.status_text) } " " a class="small" href={ "/manifest/" (form.id) "#why" } { "all reasons" } }
                        }
                    }
                }
            }
        }
    }
}

fn name(task: &str) -> &str {
    if task.is_empty() { "deleted task" } else { task }
}
