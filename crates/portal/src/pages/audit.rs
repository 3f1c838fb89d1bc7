//! The audit log and its verification.

use api::audit::AuditRecord;
use client::AuditQuery;
use maud::{Markup, html};

use super::PageContext;
use crate::command_line;
use crate::fields::Fields;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, command, empty_state,
    error_note, timestamp,
};

/// Entries on a page.
const LINES: u32 = 100;

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let query = page.query;
    let value = |name: &str| query.get(name).map(str::to_owned);
    let audit_query = AuditQuery {
        actor: value("actor"),
        action: value("action"),
        target: value("target"),
        from: value("from"),
        limit: LINES,
    };
    let (found, chain) = tokio::join!(page.admin.audit(&audit_query), page.admin.audit_chain());
    let (entries, next) = found?;
    let chain = match chain {
        Err(error) => error_note("The log cannot be verified now", &error),
        Ok(chain) => html! {
            div class="lead" {
                @if chain.faults.is_empty() { (badge(BadgeTone::Good, "The log is intact")) } @else { (badge(BadgeTone::Bad, "The log was changed")) }
                span class="figure" { (chain.records) " sealed" }
                @if chain.unsealed > 0 { span class="quiet" { (chain.unsealed) " not sealed yet" } }
                span class="quiet" { "verified " (timestamp(chain.checked_at)) }
            }
            @for fault in &chain.faults { div class="note bad" { p { (fault) } } }
            details { summary { "Head of the chain" } p { "Record it elsewhere to verify the log against it later." } (command(&command_line::join(["shipshape", "audit", "verify", "--expect", &chain.head]))) }
        },
    };
    let mut arguments = vec!["shipshape", "audit", "list"];
    for (flag, name) in [("--actor", "actor"), ("--action", "action"), ("--target", "target")] {
        if let Some(value) = query.get(name) {
            arguments.extend([flag, value]);
        }
    }
    let json = ["actor", "action", "target"]
        .iter()
        .fold(Fields::default(), |fields, name| fields.with(name, query.text(name)));
    Ok(View {
        title: "Audit".to_owned(),
        section: Section::Audit,
        breadcrumbs: Vec::new(),
        json: format!("/admin/audit{}", json.query()),
        command: command_line::join(arguments),
        events: PageEvents::Nothing,
        panels: vec![
            Panel::fixed("chain", chain),
            Panel::fixed("filter", filter(query)),
            Panel::fixed("entries", table(query, &entries, next.as_deref())),
        ],
    })
}

fn filter(query: &Fields) -> Markup {
    html! {
        form class="filter" method="get" action="/audit" role="search" aria-label="The audit log" {
            label { span { "Actor" } input type="text" name="actor" value=(query.text("actor")) autocomplete="off"; }
            label { span { "Action prefix" } input type="text" name="action" value=(query.text("action")) autocomplete="off" placeholder="manifest."; }
            label class="wide" { span { "Target prefix" } input type="text" name="target" value=(query.text("target")) autocomplete="off" placeholder="/subscriptions/…"; }
            div class="buttons" { button type="submit" class="primary" { "Search" } a class="button" href="/audit" { "Clear" } }
        }
    }
}

/// The target of an entry, with a link if it has a page.
fn target(text: &str) -> Markup {
    let segments: Vec<&str> = text.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        [first, _, _, _, _, _, kind, _]
            if *first == "subscriptions" && kind.eq_ignore_ascii_case("openshiftclusters") =>
        {
            html! { "cluster " (cluster_link(text)) }
        }
        ["maintenancemanifests", id] => html! { "manifest " a href={ "/manifest/" (id) } { (id) } },
        ["maintenanceschedules", id] => {
            html! { "schedule " a href={ "/schedule/" (crate::fields::escaped(id)) } { bdi { (id) } } }
        }
        _ => html! { bdi class="long" { (text) } },
    }
}

fn table(query: &Fields, entries: &[AuditRecord], next: Option<&str>) -> Markup {
    if entries.is_empty() {
        return empty_state(
            "No entries",
            &html! { p { "No entry matches the filter. " a href="/audit" { "Show all" } } },
        );
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Entries, newest first" }
                thead { tr { th scope="col" { "Time" } th scope="col" { "Actor" } th scope="col" { "Action" } th scope="col" { "Target" } th scope="col" { "Reason" } th scope="col" { "Sealed" } } }
                tbody {
                    @for record in entries {
                        tr {
                            td data-label="Time" { (timestamp(record.time)) }
                            td data-label="Actor" { bdi { (record.entry.actor) } }
                            th scope="row" data-label="Action" { code { (record.entry.action) } }
                            td data-label="Target" { (target(&record.entry.target)) }
                            td data-label="Reason" { @if record.entry.reason.is_empty() { span class="quiet" { "–" } } @else { bdi { (record.entry.reason) } } }
                            td data-label="Sealed" class="figure" { @match record.number { Some(number) => { (number) }, None => { span class="quiet" { "not yet" } } } }
                        }
                    }
                }
            }
        }
        nav class="pager" aria-label="Pages" {
            span { (entries.len()) " entries" }
            @if query.get("from").is_some() { a href={ "/audit" (query.with("from", "").query()) } { "← Newest" } }
            @if let Some(next) = next { a rel="next" href={ "/audit" (query.with("from", next).query()) } { "Older →" } }
        }
    }
}
