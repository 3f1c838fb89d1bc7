//! Budgets of concurrent work, their use, and the action that stops all new starts.

use api::admin::BudgetForm;
use maud::{Markup, html};

use super::PageContext;
use crate::command_line;
use crate::view::{BadgeTone, PageError, PageEvents, Panel, Section, View, badge, command, empty_state};

pub(super) async fn view(page: PageContext<'_>) -> Result<View, PageError> {
    let mut budgets = page.admin.budgets().all().await?;
    budgets.sort_by(|a, b| (a.key != "fleet", &a.key).cmp(&(b.key != "fleet", &b.key)));
    let fleet = budgets.iter().find(|budget| budget.key == "fleet");
    let mut panels =
        vec![Panel::live("stop", stop(page, fleet)), Panel::live("budgets", table(page, &budgets))];
    if page.viewer.may_act() {
        panels.push(Panel::fixed("set", set(page)));
    }
    Ok(View {
        title: "Budgets".to_owned(),
        section: Section::Budgets,
        breadcrumbs: Vec::new(),
        json: "/admin/maintenancebudgets".to_owned(),
        command: "shipshape budget list".to_owned(),
        events: PageEvents::Kinds(&["manifest", "operation"]),
        panels,
    })
}

fn stop(page: PageContext<'_>, fleet: Option<&BudgetForm>) -> Markup {
    let is_stopped = fleet.is_some_and(|budget| budget.limit == Some(0));
    html! {
        @if is_stopped {
            div class="note bad" {
                p class="headline" { "All new starts are stopped" }
                p { "Running work continues; no other work starts until the fleet's limit is raised or removed." }
            }
        }
        @if page.viewer.may_act() {
            div class="acts" {
                @if is_stopped {
                    div {
                        (page.viewer.form("budget", "inline", &html! {
                            input type="hidden" name="key" value="fleet";
                            input type="hidden" name="limit" value="none";
                            label { span { "Reason" } input type="text" name="reason" required maxlength="500" autocomplete="off" placeholder="Why maintenance may resume"; }
                            button type="submit" class="primary" { "Resume maintenance" }
                        }))
                        (command("shipshape budget clear fleet --reason WHY"))
                    }
                } @else {
                    div {
                        (page.viewer.form("budget", "inline", &html! {
                            input type="hidden" name="key" value="fleet";
                            input type="hidden" name="limit" value="0";
                            label { span { "Reason" } input type="text" name="reason" required maxlength="500" autocomplete="off" placeholder="Why everything should stop"; }
                            button type="submit" class="danger stop" { "Stop all new starts" }
                        }))
                        (command("shipshape budget set fleet 0 --reason WHY"))
                    }
                }
            }
        }
    }
}

fn table(page: PageContext<'_>, budgets: &[BudgetForm]) -> Markup {
    if budgets.is_empty() {
        let next = html! { p { "The number of workers limits concurrent work. Set a limit for the fleet, a region, a subscription or a task:" } (command("shipshape budget set region/westeurope 5")) };
        return empty_state("No limits are set", &next);
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Limits and their use" }
                thead { tr { th scope="col" { "Budget" } th scope="col" { "In use" } th scope="col" { "Limit" } th scope="col" { "Use" } th scope="col" { "Waiting clusters" } @if page.viewer.may_act() { th scope="col" { "Actions" } } } }
                tbody { @for budget in budgets { (row(page, budget)) } }
            }
        }
    }
}

fn row(page: PageContext<'_>, budget: &BudgetForm) -> Markup {
    let limit = budget.limit;
    html! {
        tr {
            th scope="row" data-label="Budget" { bdi { (budget.key) } }
            td data-label="In use" class="figure" { (budget.used) }
            td data-label="Limit" class="figure" { @match limit { Some(0) => { (badge(BadgeTone::Bad, "0: stopped")) }, Some(limit) => { (limit) }, None => { "none" } } }
            td data-label="Use" { @if let Some(limit) = limit { meter min="0" max=(limit.max(1)) value=(budget.used.min(limit.max(1))) aria-label={ "Use of " (budget.key) } {} @if budget.used >= limit && limit > 0 { " " (badge(BadgeTone::Waiting, "full")) } } }
            td data-label="Waiting clusters" class="figure" { (budget.parked) }
            @if page.viewer.may_act() {
                td data-label="Actions" {
                    (page.viewer.form("budget", "inline", &html! {
                        input type="hidden" name="key" value=(budget.key);
                        input type="hidden" name="limit" value="none";
                        input type="hidden" name="reason" value="removed on the budgets page";
                        button type="submit" aria-label={ "Remove the limit of " (budget.key) } { "Remove" }
                    }))
                }
            }
        }
    }
}

fn set(page: PageContext<'_>) -> Markup {
    let body = html! {
        label { span { "Budget" } input type="text" name="key" required list="budgets" placeholder="fleet, region/westeurope, task/ID…" autocomplete="off"; }
        datalist id="budgets" { option value="fleet" {} option value="region/" {} option value="subscription/" {} option value="task/" {} }
        label { span { "Limit; 0 stops new starts" } input type="number" name="limit" required min="0" max="2147483647"; }
        label class="wide" { span { "Reason" } input type="text" name="reason" required maxlength="500" autocomplete="off"; }
        div class="buttons" { button type="submit" class="primary" { "Set the limit" } }
    };
    html! {
        h2 { "Set a limit" }
        (page.viewer.form("budget", "filter", &body))
        (command(&command_line::join(["shipshape", "budget", "set", "KEY", "LIMIT", "--reason", "WHY"])))
    }
}
