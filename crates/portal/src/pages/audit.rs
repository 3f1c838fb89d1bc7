//! Who did what, when and why; and whether the log is whole.

use api::admin::AuditForm;
use client::AuditQuery;
use maud::{Markup, html};

use super::PageContext;
use crate::command_line;
use crate::fields::Fields;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_link, command, moment, nothing,
    trouble,
};

/// So many entries are on a page.
const LINES: u32 = 100;

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let query = page.query;
    let word = |name: &str| query.one(name).map(str::to_owned);
    let asked = AuditQuery {
        actor: word("actor"),
        action: word("action"),
        target: word("target"),
        from: word("from"),
        limit: LINES,
    };
    let (found, chain) = tokio::join!(page.admin.audit(&asked), page.admin.audit_chain());
    let (entries, next) = found?;
    let chain = match chain {
        Err(error) => trouble("Whether the log is whole cannot be told now", &error),
        Ok(chain) => html! {
            div class="lead" {
                @if chain.faults.is_empty() { (badge(BadgeTone::Good, "The log is whole")) } @else { (badge(BadgeTone::Bad, "The log was changed")) }
                span class="figure" { (chain.records) " sealed" }
                @if chain.unsealed > 0 { span class="quiet" { (chain.unsealed) " not sealed yet" } }
                span class="quiet" { "looked through " (moment(chain.checked_at)) }
            }
            @for fault in &chain.faults { div class="note bad" { p { (fault) } } }
            details { summary { "Head of the chain" } p { "Note it somewhere else; a later check can be held against it." } (command(&command_line::join(["shipshape", "audit", "verify", "--expect", &chain.head]))) }
        },
    };
    let mut words = vec!["shipshape", "audit", "list"];
    for (flag, name) in [("--actor", "actor"), ("--action", "action"), ("--target", "target")] {
        if let Some(value) = query.one(name) {
            words.extend([flag, value]);
        }
    }
    let json = ["actor", "action", "target"]
        .iter()
        .fold(Fields::default(), |fields, name| fields.with(name, query.text(name)));
    Ok(View {
        title: "Audit".to_owned(),
        section: Section::Audit,
        above: Vec::new(),
        json: format!("/admin/audit{}", json.query()),
        command: command_line::join(words),
        listens: PageEvents::Nothing,
        panels: vec![
            Panel::still("chain", chain),
            Panel::still("filter", filter(query)),
            Panel::still("entries", table(query, &entries, next.as_deref())),
        ],
    })
}

fn filter(query: &Fields) -> Markup {
    html! {
        form class="filter" method="get" action="/audit" role="search" aria-label="The audit log" {
            label { span { "Who, exactly" } input type="text" name="actor" value=(query.text("actor")) autocomplete="off"; }
            label { span { "What begins with" } input type="text" name="action" value=(query.text("action")) autocomplete="off" placeholder="manifest."; }
            label class="wide" { span { "To what that begins with" } input type="text" name="target" value=(query.text("target")) autocomplete="off" placeholder="/subscriptions/…"; }
            div class="buttons" { button type="submit" class="primary" { "Search" } a class="button" href="/audit" { "Clear" } }
        }
    }
}

/// What was changed, by the name that people know it by where it has a page.
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

fn table(query: &Fields, entries: &[AuditForm], next: Option<&str>) -> Markup {
    if entries.is_empty() {
        return nothing(
            "No entries",
            &html! { p { "Nobody did anything like that. " a href="/audit" { "Show everything" } } },
        );
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Entries, newest first" }
                thead { tr { th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "What" } th scope="col" { "To what" } th scope="col" { "Why" } th scope="col" { "Sealed" } } }
                tbody {
                    @for entry in entries {
                        tr {
                            td data-label="When" { (moment(entry.time)) }
                            td data-label="Who" { bdi { (entry.actor) } }
                            th scope="row" data-label="What" { code { (entry.action) } }
                            td data-label="To what" { (target(&entry.target)) }
                            td data-label="Why" { @if entry.reason.is_empty() { span class="quiet" { "–" } } @else { bdi { (entry.reason) } } }
                            td data-label="Sealed" class="figure" { @match entry.number { Some(number) => { (number) }, None => { span class="quiet" { "not yet" } } } }
                        }
                    }
                }
            }
        }
        nav class="pager" aria-label="Pages" {
            span { (entries.len()) " entries" }
            @if query.one("from").is_some() { a href={ "/audit" (query.with("from", "").query()) } { "← Newest" } }
            @if let Some(next) = next { a rel="next" href={ "/audit" (query.with("from", next).query()) } { "Older →" } }
        }
    }
}
