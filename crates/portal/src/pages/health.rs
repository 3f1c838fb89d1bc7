//! Health of clusters, from the record of the monitor: the badge of the fleet page, and the tab of a cluster.

use api::admin::{AdminCluster, ClusterHealth, FleetLine, HealthForm, HealthTransition};
use api::health::HealthStatus;
use client::ClientError;
use maud::{Markup, html};

use crate::view::{BadgeTone, badge, error_note, timestamp};

/// Most transitions that are shown; the JSON has more.
const TRANSITIONS_MAX: usize = 60;

/// The cell of a cluster in the fleet.
pub(super) fn cell(line: &FleetLine) -> Markup {
    let cause = line.health.as_ref().and_then(|it| it.cause.as_deref());
    match (&line.reachability, line.health.as_ref().map(|it| it.status)) {
        (None, _) => badge(BadgeTone::Quiet, "Not checked yet"),
        (Some(it), _) if !it.reachable => html! {
            (badge(BadgeTone::Bad, "Unreachable"))
            div class="quiet small" { "since " (timestamp(it.since)) }
        },
        (Some(_), Some(HealthStatus::Degraded)) => html! {
            (badge(BadgeTone::Odd, "Degraded"))
            @if let Some(cause) = cause { div class="quiet small" { (cause) } }
        },
        (Some(_), Some(HealthStatus::Healthy)) => badge(BadgeTone::Good, "Healthy"),
        (Some(_), _) => badge(BadgeTone::Good, "Reachable"),
    }
}

/// The badge of a status.
fn status(status: HealthStatus) -> Markup {
    match status {
        HealthStatus::Healthy => badge(BadgeTone::Good, "Healthy"),
        HealthStatus::Degraded => badge(BadgeTone::Odd, "Degraded"),
        HealthStatus::Unreachable => badge(BadgeTone::Bad, "Unreachable"),
        HealthStatus::Unknown => badge(BadgeTone::Quiet, "Unknown"),
    }
}

/// The tab of a cluster.
pub(super) fn tab(cluster: &AdminCluster, found: &Result<HealthForm, ClientError>) -> Markup {
    let form = match found {
        Ok(form) => form,
        Err(error) => return error_note("The health cannot be read now", error),
    };
    let Some(health) = &form.health else {
        return html! { p class="quiet" { "The monitor has not visited " (cluster.name) " yet." } };
    };
    html! {
        div class="lead" { (status(health.status)) }
        @if !health.causes.is_empty() {
            div class="note bad" {
                ul {
                    @for cause in &health.causes {
                        li { (cause.message) @if cause.expected { " " span class="quiet" { "expected during maintenance" } } }
                    }
                }
            }
        }
        (facts(form, health))
        h2 { "History " span class="quiet figure" { (form.history.len()) } }
        @if form.history.is_empty() { p class="quiet" { "Nothing has changed in the last 30 days." } }
        @else { (history(&form.history)) }
    }
}

fn facts(form: &HealthForm, health: &ClusterHealth) -> Markup {
    let pools = health.pools.iter().flat_map(|it| {
        let updating = it.updating.iter().map(|it| format!("{it} updating"));
        updating.chain(it.degraded.iter().map(|it| format!("{it} degraded")))
    });
    let pools: Vec<String> = pools.collect();
    html! {
        dl class="facts" {
            dt { "Observed" } dd { (timestamp(health.observed_at)) }
            @if let Some(share) = form.availability {
                dt { "Reachable" } dd class="figure" { (format!("{:.3}", share * 100.0)) " % of 30 days" }
            }
            @for (role, nodes) in &health.nodes {
                dt { "Nodes: " (role) } dd class="figure" { (nodes.ready) " of " (nodes.total) " ready" }
            }
            @if !pools.is_empty() { dt { "Pools" } dd { (pools.join(", ")) } }
            @if let Some(days) = health.certificate_days {
                dt { "Certificates" } dd class="figure" { (days) " days left" }
            }
            @if let Some(alerts) = health.critical_alerts.as_ref().filter(|it| !it.is_empty()) {
                dt { "Critical alerts" } dd { (alerts.join(", ")) }
            }
            @if let Some(risks) = health.drain_risks.as_ref().filter(|it| !it.is_empty()) {
                dt { "Drain risks" } dd { ul { @for risk in risks { li { (risk) } } } }
            }
            @for error in &health.collector_errors {
                dt { "Not observed: " (error.collector) } dd { (error.message) }
            }
        }
    }
}

fn history(transitions: &[HealthTransition]) -> Markup {
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Transitions" }
                thead { tr { th scope="col" { "When" } th scope="col" { "What" } th scope="col" { "From" } th scope="col" { "To" } } }
                tbody {
                    @for it in transitions.iter().take(TRANSITIONS_MAX) {
                        tr {
                            th scope="row" data-label="When" { (timestamp(it.at)) }
                            td data-label="What" { (it.facet) @if it.expected { " " span class="quiet" { "during maintenance" } } }
                            td data-label="From" { (it.previous.as_deref().unwrap_or("–")) }
                            td data-label="To" { (it.value) }
                        }
                    }
                }
            }
        }
    }
}
