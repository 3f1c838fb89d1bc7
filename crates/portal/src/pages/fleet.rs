//! All clusters with their state, running and next work. The query of the address filters, sorts and pages, so that a view can be
//! shared by its address.

use std::collections::BTreeMap;

use api::admin::{FleetForm, FleetLine};
use api::doc::ProvisioningState;
use maud::{Markup, html};

use super::{PageContext, choice};
use crate::command_line;
use crate::fields::Fields;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, empty_state, manifest_link,
    pager, sortable_column, timestamp,
};

/// Clusters on a page.
const LINES: u64 = 50;

/// Filters in the query, named as in the Admin API.
const FILTERS: [&str; 8] = ["q", "state", "location", "version", "reachability", "health", "label", "work"];

/// Most options of a select element.
const CHOICES_MAX: usize = 60;

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let query = page.query;
    let skip: u64 = query.get("skip").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut parameters: Vec<(&str, String)> =
        FILTERS.iter().map(|name| (*name, query.text(name).to_owned())).collect();
    parameters.push(("sort", query.text("sort").to_owned()));
    parameters.push(("skip", if skip == 0 { String::new() } else { skip.to_string() }));
    parameters.push(("limit", LINES.to_string()));
    let fleet = page.admin.fleet(&parameters).await?;
    let is_filtered = FILTERS.iter().any(|name| query.get(name).is_some());
    let json = parameters.iter().fold(Fields::default(), |fields, (name, value)| fields.with(name, value));
    let mut panels = vec![Panel::live("summary", summary(&fleet))];
    if fleet.of > 0 {
        panels.push(Panel::fixed("filter", filter(&fleet, query)));
    }
    panels.push(Panel::live("clusters", clusters(page, &fleet, skip, is_filtered)));
    Ok(View {
        title: "Fleet".to_owned(),
        section: Section::Fleet,
        breadcrumbs: Vec::new(),
        json: format!("/admin/fleet{}", json.query()),
        command: "shipshape cluster list --watch".to_owned(),
        events: PageEvents::Kinds(&["cluster", "manifest", "operation"]),
        panels,
    })
}

/// Counts of clusters, each with a link to the clusters that it counts.
fn summary(fleet: &FleetForm) -> Markup {
    let count = |counts: &BTreeMap<String, u64>, key: &str| counts.get(key).copied().unwrap_or(0);
    let in_progress = ["Creating", "Updating", "AdminUpdating", "Deleting"];
    let busy: u64 = in_progress.iter().map(|state| count(&fleet.states, state)).sum();
    let numbers = [
        ("Clusters", fleet.of, "/fleet".to_owned(), ""),
        ("Succeeded", count(&fleet.states, "Succeeded"), "/fleet?state=Succeeded".to_owned(), "good"),
        ("In progress", busy, "/fleet?sort=state".to_owned(), "busy"),
        ("Failed", count(&fleet.states, "Failed"), "/fleet?state=Failed".to_owned(), "bad"),
        ("Degraded", count(&fleet.health, "degraded"), "/fleet?health=degraded".to_owned(), "bad"),
        (
            "Unreachable",
            count(&fleet.reachability, "unreachable"),
            "/fleet?reachability=unreachable".to_owned(),
            "bad",
        ),
    ];
    html! {
        ul class="numbers" aria-label="The fleet in numbers" {
            @for (name, number, href, class) in numbers {
                li class=(if number == 0 { "" } else { class }) {
                    a href=(href) { span class="of" { (number) } span class="label" { (name) } }
                }
            }
        }
    }
}

fn filter(fleet: &FleetForm, query: &Fields) -> Markup {
    let options = |counts: &BTreeMap<String, u64>| -> Vec<(String, String)> {
        let named = counts.iter().filter(|(value, _)| !value.is_empty()).take(CHOICES_MAX);
        named.map(|(value, count)| (value.clone(), format!("{value} ({count})"))).collect()
    };
    let works = [("running", "running"), ("waiting", "waiting"), ("idle", "idle")];
    let works: Vec<_> = works.iter().map(|(value, text)| ((*value).to_owned(), (*text).to_owned())).collect();
    html! {
        form class="filter" method="get" action="/fleet" role="search" aria-label="Clusters" {
            label class="wide" {
                span { "Name, id or label" }
                input type="search" name="q" value=(query.text("q")) autocomplete="off" placeholder="harbour, env=test…";
            }
            (choice("state", "State", "any", &options(&fleet.states), query.text("state")))
            (choice("health", "Health", "any", &options(&fleet.health), query.text("health")))
            (choice("version", "Version", "any", &options(&fleet.versions), query.text("version")))
            (choice("location", "Location", "any", &options(&fleet.locations), query.text("location")))
            (choice("work", "Work", "any", &works, query.text("work")))
            @if let Some(sort) = query.get("sort") { input type="hidden" name="sort" value=(sort); }
            div class="buttons" {
                button type="submit" class="primary" { "Filter" }
                a class="button" href="/fleet" { "Clear" }
            }
        }
    }
}

fn clusters(page: PageContext<'_>, fleet: &FleetForm, skip: u64, is_filtered: bool) -> Markup {
    if fleet.of == 0 {
        return empty_state(
            "No clusters yet",
            &html! {
                p { "Create one on the simulated cloud, or import one by its kubeconfig:" }
                (crate::view::command("shipshape cluster create harbour --wait"))
                (crate::view::command("shipshape cluster import harbour --kubeconfig FILE"))
            },
        );
    }
    if fleet.value.is_empty() && is_filtered {
        return empty_state(
            "No cluster matches",
            &html! { p { "None of " (fleet.of) " clusters matches the filter. " a href="/fleet" { "Show all" } } },
        );
    }
    let query = page.query;
    let may_act = page.viewer.may_act();
    let column = |key: &str, title: &str| sortable_column("/fleet", query, key, title);
    html! {
        form method="get" action="/tasks" {
            div class="table" {
                table class="cards" {
                    caption class="unseen" { "Clusters" }
                    thead {
                        tr {
                            @if may_act { th scope="col" class="tick" { span class="unseen" { "Select" } } }
                            (column("name", "Cluster"))
                            (column("state", "State"))
                            (column("health", "Health"))
                            (column("version", "Version"))
                            (column("location", "Location"))
                            th scope="col" { "Now" }
                            (column("next", "Next"))
                        }
                    }
                    tbody {
                        @for line in &fleet.value { (row(line, may_act)) }
                    }
                }
            }
            div class="under" {
                @if may_act {
                    div class="bulk" {
                        button type="submit" { "Run a task on the selected clusters…" }
                        span class="quiet" { "Next, select the task and preview its effect." }
                    }
                }
                (pager("/fleet", query, skip, fleet.value.len() as u64, fleet.matched, LINES))
            }
        }
        @if may_act {
            (crate::view::command(&command_line::join(["shipshape", "task", "run", "TASK", "--cluster", "NAME", "--dry-run"])))
        }
    }
}

fn row(line: &FleetLine, may_act: bool) -> Markup {
    html! {
        tr id={ "c-" (line.uuid) } {
            @if may_act {
                td class="tick" { input type="checkbox" name="cluster" value=(line.id) aria-label={ "Select " (line.name) }; }
            }
            th scope="row" data-label="Cluster" {
                (cluster_link(&line.id))
                @if !line.labels.is_empty() {
                    div class="labels" {
                        @for (name, value) in line.labels.iter().take(4) { span { bdi { (name) "=" (value) } } }
                        @if line.labels.len() > 4 { span { "+" (line.labels.len() - 4) } }
                    }
                }
            }
            td data-label="State" { (state(line.provisioning_state, line.failed_provisioning_state)) }
            td data-label="Health" { (super::health::cell(line)) }
            td data-label="Version" class="figure" { (line.version.as_deref().unwrap_or("–")) }
            td data-label="Location" { (line.location) }
            td data-label="Now" {
                @match &line.running {
                    None => { span class="quiet" { "–" } },
                    Some(work) => {
                        @if work.kind == "manifest" { (manifest_link(work.id, &work.title)) } @else { (work.title) }
                        @if let Some(step) = &work.step {
                            div class="quiet small" { (step.name) " " span class="figure" { (step.index) "/" (step.of) } }
                        }
                    },
                }
            }
            td data-label="Next" {
                @match &line.next {
                    None => { span class="quiet" { "–" } },
                    Some(next) => {
                        @match next.due { Some(due) => { (timestamp(due)) }, None => { "as soon as possible" } }
                        @if let Some(budget) = &next.waits_for { div class="quiet small" { "waiting for budget " (budget) } }
                    },
                }
            }
        }
    }
}

/// The badge of a provisioning state.
pub(super) fn state(state: ProvisioningState, failed: Option<ProvisioningState>) -> Markup {
    match state {
        ProvisioningState::Succeeded => badge(BadgeTone::Good, "Succeeded"),
        ProvisioningState::Failed => {
            let text =
                failed.map_or_else(|| "Failed".to_owned(), |failed| format!("Failed while {failed:?}"));
            badge(BadgeTone::Bad, &text)
        }
        ProvisioningState::Creating
        | ProvisioningState::Updating
        | ProvisioningState::AdminUpdating
        | ProvisioningState::Deleting => badge(BadgeTone::Busy, &format!("{state:?}")),
    }
}
