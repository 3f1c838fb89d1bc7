//! The page of a cluster, in tabs. If a request to the cluster itself fails, its panel shows the error and the others stay.

use api::admin::{AdminCluster, ManifestForm, OperationForm};
use api::doc::ProvisioningState;
use client::{ClientError, ObjectQuery};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::PageContext;
use super::fleet::state;
use super::manifest::{history, state_badge};
use crate::command_line;
use crate::fields::escaped;
use crate::view::{
    BadgeTone, PageError, PageEvents, Panel, Section, View, badge, cluster_path, command, empty_state,
    error_note, manifest_link, optional_timestamp, preformatted, resource_id, timestamp, unix_timestamp,
};

/// Longest list that is shown; the JSON has the rest.
const SHOWN_MAX: usize = 200;

const MACHINE: &str = "Machine.machine.openshift.io";
const MACHINE_SET: &str = "MachineSet.machine.openshift.io";

/// Names of the tabs in the query, and their titles.
const TABS: [(&str, &str); 11] = [
    ("", "Overview"),
    ("health", "Health"),
    ("nodes", "Nodes"),
    ("machines", "Machines"),
    ("machinesets", "MachineSets"),
    ("operators", "ClusterOperators"),
    ("operations", "Operations"),
    ("manifests", "Manifests"),
    ("labels", "Labels"),
    ("events", "Events"),
    ("objects", "Objects"),
];

pub(super) async fn view(
    page: PageContext<'_>,
    subscription: &str,
    group: &str,
    name: &str,
) -> Result<View, PageError> {
    let id = resource_id(subscription, group, name);
    let cluster = page.admin.cluster(&id).await?.value;
    let tab = page.query.text("tab");
    let mut panels = vec![Panel::fixed("tabs", tabs(&cluster.id, tab))];
    let mut json = format!("/admin{}", cluster.id);
    let mut line = command_line::join(["shipshape", "cluster", "show", &cluster.name]);
    match tab {
        "" => overview(page, &cluster, &mut panels).await,
        "health" => {
            let found = page.admin.cluster_health(&cluster.id).await;
            panels.push(Panel::live("health", super::health::tab(&cluster, &found)));
            json = format!("{json}/health");
            line = command_line::join(["shipshape", "health", &cluster.name]);
        }
        "nodes" => {
            let found = objects(page, &cluster.id, "Node", None, true).await;
            panels.push(Panel::live("nodes", list("The nodes cannot be read now", found, nodes)));
            json = format!("{json}/kubernetesobjects?kind=Node");
        }
        "machines" => {
            let found = objects(page, &cluster.id, MACHINE, None, true).await;
            let on = page.viewer.may_act().then_some(&*cluster.id);
            let shown = openshift_list("machines", found, |all| super::machines::machines(all, on));
            panels.push(Panel::live("machines", shown));
            json = format!("{json}/kubernetesobjects?kind={MACHINE}");
            line = command_line::join(["shipshape", "machine", "list", "--cluster", &cluster.name]);
        }
        "machinesets" => {
            let found = objects(page, &cluster.id, MACHINE_SET, None, true).await;
            let on = page.viewer.may_act().then_some(&*cluster.id);
            let shown = openshift_list("MachineSets", found, |all| super::machines::machine_sets(all, on));
            panels.push(Panel::live("machinesets", shown));
            json = format!("{json}/kubernetesobjects?kind={MACHINE_SET}");
            line = command_line::join(["shipshape", "machineset", "list", "--cluster", &cluster.name]);
        }
        "operators" => {
            let found = objects(page, &cluster.id, "ClusterOperator", None, true).await;
            let shown = openshift_list("ClusterOperators", found, operators);
            panels.push(Panel::live("operators", shown));
            json = format!("{json}/kubernetesobjects?kind=ClusterOperator");
        }
        "operations" => {
            operations(page, &cluster.id, &mut panels).await;
            json = format!("{json}/operations");
        }
        "manifests" => {
            let found = page.admin.manifests(&cluster.id).all().await;
            panels.push(Panel::live("manifests", manifests(page, &cluster, found)));
            json = format!("{json}/maintenancemanifests");
            line = command_line::join(["shipshape", "manifest", "list", "--cluster", &cluster.name]);
        }
        "labels" => {
            panels.push(Panel::fixed("labels", labels(page, &cluster)));
            let selectors = page.admin.selectors(&cluster.id).await;
            panels.push(Panel::live("selectors", attributes(&selectors)));
            json = format!("{json}/selectors");
        }
        "events" => {
            let found = objects(page, &cluster.id, "Event", None, true).await;
            panels.push(Panel::live("events", list("The events cannot be read now", found, events)));
            json = format!("{json}/kubernetesobjects?kind=Event&unrestricted=true");
        }
        "objects" => {
            let shown = raw_objects(page, &cluster.id).await;
            panels.push(Panel::fixed("choose", choose(page, &cluster.id)));
            panels.push(Panel::live("objects", shown));
            let query = page.query.with("tab", "").query();
            json = format!("{json}/kubernetesobjects{query}");
        }
        _ => return Err(PageError::not_found("The tab does not exist.")),
    }
    Ok(View {
        title: cluster.name.clone(),
        section: Section::Fleet,
        breadcrumbs: vec![("Fleet".to_owned(), "/fleet".to_owned())],
        json,
        command: line,
        events: PageEvents::Cluster(cluster.id.to_lowercase()),
        panels,
    })
}

fn tabs(id: &str, chosen: &str) -> Markup {
    let path = cluster_path(id);
    html! {
        nav class="tabs" aria-label="Cluster" {
            @for (tab, name) in TABS {
                @let href = if tab.is_empty() { path.clone() } else { format!("{path}?tab={tab}") };
                @if tab == chosen { a href=(href) aria-current="page" { (name) } } @else { a href=(href) { (name) } }
            }
        }
    }
}

async fn overview(page: PageContext<'_>, cluster: &AdminCluster, panels: &mut Vec<Panel>) {
    panels.push(Panel::live("facts", facts(cluster)));
    let open = page.admin.manifests(&cluster.id).all().await;
    let body = match open {
        Ok(all) => {
            let mut open: Vec<&ManifestForm> = all.iter().filter(|form| !form.state.is_terminal()).collect();
            open.sort_by_key(|form| (form.state.as_str(), form.run_after));
            html! {
                h2 { "Open work " span class="quiet figure" { (open.len()) } }
                @if open.is_empty() {
                    p class="quiet" { "No work is running or waiting on this cluster. " a href={ "/tasks?cluster=" (escaped(&cluster.id)) } { "Run a task" } }
                } @else { (manifest_table(&open)) }
            }
        }
        Err(error) => error_note("The work on this cluster cannot be read now", &error),
    };
    panels.push(Panel::live("open", body));
}

fn facts(cluster: &AdminCluster) -> Markup {
    let properties = &cluster.properties;
    let more = |pointer: &str| {
        let (name, rest) = pointer.split_once('/').unwrap_or((pointer, ""));
        let value = properties.more.get(name)?;
        let value = if rest.is_empty() { value } else { value.pointer(&format!("/{rest}"))? };
        value.as_str().map(str::to_owned).filter(|text| !text.is_empty())
    };
    html! {
        div class="lead" {
            (state(properties.provisioning_state, properties.failed_provisioning_state))
            @match &properties.reachability {
                None => { (badge(BadgeTone::Quiet, "API server not checked yet")) },
                Some(it) if it.reachable => { (badge(BadgeTone::Good, "API server reachable")) },
                Some(_) => { (badge(BadgeTone::Bad, "API server unreachable")) },
            }
        }
        @if let Some(it) = properties.reachability.as_ref().filter(|it| !it.reachable) {
            div class="note bad" { p { "Unreachable since " (timestamp(it.since)) @if let Some(message) = &it.message { ": " (message) } "." } }
        }
        dl class="facts" {
            dt { "Version" } dd class="figure" { (properties.version.as_deref().unwrap_or("unknown")) }
            @if let Some(version) = more("clusterProfile/version") { dt { "OpenShift" } dd class="figure" { (version) } }
            dt { "Location" } dd { (cluster.location) }
            dt { "Created" } dd { (timestamp(properties.created_at)) @if properties.imported { " " span class="quiet" { "imported" } } }
            @if let Some(it) = &properties.reachability { dt { "Last checked" } dd { (timestamp(it.checked_at)) } }
            @if let Some(server) = properties.api_server.clone().or_else(|| more("apiserverProfile/url")) { dt { "API server" } dd { code { (server) } } }
            @if let Some(console) = more("consoleProfile/url") { dt { "Console" } dd { code { (console) } } }
            @if let Some(infra) = more("infraId") { dt { "Infrastructure" } dd { code { (infra) } } }
            @if let Some(error) = more("lastAdminUpdateError") { dt { "Last admin update" } dd { (error) } }
            dt { "Labels" } dd {
                @if properties.labels.is_empty() { span class="quiet" { "none" } }
                @else { span class="labels" { @for (name, value) in &properties.labels { span { bdi { (name) "=" (value) } } } } }
            }
            dt { "Id" } dd { code { (cluster.id) } }
            dt { "UUID" } dd { code { (properties.uuid) } }
        }
    }
}

async fn objects(
    page: PageContext<'_>,
    id: &str,
    kind: &str,
    namespace: Option<&str>,
    unrestricted: bool,
) -> Result<Value, ClientError> {
    let namespace = namespace.map(str::to_owned);
    page.admin.objects(id, &ObjectQuery { kind: kind.to_owned(), namespace, name: None, unrestricted }).await
}

/// A list of a kind that only OpenShift has.
fn openshift_list(
    what: &str,
    found: Result<Value, ClientError>,
    show: impl Fn(&[Value]) -> Markup,
) -> Markup {
    match found {
        Err(error) if error.status() == Some(http::StatusCode::BAD_REQUEST) => {
            empty_state(&format!("This cluster has no {what}"), &html! { p { "Only OpenShift has them." } })
        }
        found => list(&format!("The {what} cannot be read now"), found, show),
    }
}

fn list(title: &str, found: Result<Value, ClientError>, show: impl Fn(&[Value]) -> Markup) -> Markup {
    match found {
        Ok(found) => show(found["items"].as_array().map(Vec::as_slice).unwrap_or_default()),
        Err(error) => error_note(title, &error),
    }
}

/// The string at a JSON pointer, or the empty string.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|it| it["type"] == kind)
}

fn nodes(nodes: &[Value]) -> Markup {
    if nodes.is_empty() {
        return empty_state(
            "This cluster has no nodes",
            &html! { p { "They appear here when their kubelets register." } },
        );
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Nodes" }
                thead { tr { th scope="col" { "Node" } th scope="col" { "State" } th scope="col" { "Roles" } th scope="col" { "Kubelet" } th scope="col" { "CPU" } th scope="col" { "Memory" } th scope="col" { "Conditions" } th scope="col" { "Created" } } }
                tbody { @for node in nodes { (node_row(node)) } }
            }
        }
    }
}

fn node_row(node: &Value) -> Markup {
    let is_ready = condition(node, "Ready").is_some_and(|it| it["status"] == "True");
    let is_cordoned = node["spec"]["unschedulable"] == true;
    let roles: Vec<&str> = node["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flat_map(|labels| labels.keys())
        .filter_map(|label| label.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    let by = text(node, "/metadata/annotations/shipshape.dev~1cordoned-by");
    let odd: Vec<String> = node["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|it| it["type"] != "Ready" && it["status"] != "False")
        .map(|it| format!("{}: {}", text(it, "/type"), text(it, "/reason")))
        .collect();
    html! {
        tr {
            th scope="row" data-label="Node" { bdi { (text(node, "/metadata/name")) } }
            td data-label="State" {
                @if is_ready { (badge(BadgeTone::Good, "Ready")) } @else { (badge(BadgeTone::Bad, "Not ready")) }
                @if is_cordoned { " " (badge(BadgeTone::Odd, "Cordoned")) @if !by.is_empty() { div class="quiet small" { "by " (by) } } }
                @if !is_ready { @if let Some(ready) = condition(node, "Ready") { div class="quiet small" { (text(ready, "/message")) } } }
            }
            td data-label="Roles" { (roles.join(", ")) }
            td data-label="Kubelet" class="figure" { (text(node, "/status/nodeInfo/kubeletVersion")) }
            td data-label="CPU" class="figure" { (text(node, "/status/capacity/cpu")) }
            td data-label="Memory" class="figure" { (text(node, "/status/capacity/memory")) }
            td data-label="Conditions" { @if odd.is_empty() { span class="quiet" { "–" } } @else { (odd.join("; ")) } }
            td data-label="Created" { (kubernetes_time(text(node, "/metadata/creationTimestamp"))) }
        }
    }
}

/// A timestamp of a Kubernetes object.
pub(super) fn kubernetes_time(text: &str) -> Markup {
    match text.parse::<Timestamp>() {
        Ok(at) => timestamp(at),
        Err(_) => html! { (text) },
    }
}

fn operators(operators: &[Value]) -> Markup {
    if operators.is_empty() {
        return empty_state(
            "This cluster has no ClusterOperators",
            &html! { p { "OpenShift creates them during its installation." } },
        );
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "ClusterOperators" }
                thead { tr { th scope="col" { "Operator" } th scope="col" { "Version" } th scope="col" { "State" } th scope="col" { "Message" } th scope="col" { "Since" } } }
                tbody {
                    @for operator in operators {
                        @let is = |kind: &str| condition(operator, kind).is_some_and(|it| it["status"] == "True");
                        @let kind = if is("Degraded") { "Degraded" } else if is("Progressing") { "Progressing" } else { "Available" };
                        @let shown = condition(operator, kind);
                        tr {
                            th scope="row" data-label="Operator" { bdi { (text(operator, "/metadata/name")) } }
                            td data-label="Version" class="figure" {
                                (operator["status"]["versions"].as_array().into_iter().flatten().find(|it| it["name"] == "operator").map(|it| text(it, "/version")).unwrap_or("–"))
                            }
                            td data-label="State" {
                                @if is("Degraded") { (badge(BadgeTone::Bad, "Degraded")) " " }
                                @if is("Progressing") { (badge(BadgeTone::Busy, "Progressing")) " " }
                                @if is("Available") { (badge(BadgeTone::Good, "Available")) } @else { (badge(BadgeTone::Bad, "Not available")) }
                            }
                            td data-label="Message" { (shown.map(|it| text(it, "/message")).unwrap_or_default()) }
                            td data-label="Since" { (kubernetes_time(shown.map(|it| text(it, "/lastTransitionTime")).unwrap_or_default())) }
                        }
                    }
                }
            }
        }
    }
}

fn events(events: &[Value]) -> Markup {
    let mut events: Vec<&Value> = events.iter().collect();
    let time = |event: &Value| {
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        times
            .iter()
            .map(|pointer| text(event, pointer))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    events.sort_by_key(|event| std::cmp::Reverse(time(event)));
    if events.is_empty() {
        return empty_state("No events", &html! { p { "Kubernetes keeps them for an hour." } });
    }
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Events of the cluster, newest first" }
                thead { tr { th scope="col" { "When" } th scope="col" { "Type" } th scope="col" { "Reason" } th scope="col" { "About" } th scope="col" { "Message" } th scope="col" { "Count" } } }
                tbody {
                    @for event in events.into_iter().take(SHOWN_MAX) {
                        tr {
                            td data-label="When" { (kubernetes_time(&time(event))) }
                            td data-label="Type" { @if event["type"] == "Warning" { (badge(BadgeTone::Odd, "Warning")) } @else { (badge(BadgeTone::Quiet, text(event, "/type"))) } }
                            td data-label="Reason" { bdi { (text(event, "/reason")) } }
                            th scope="row" data-label="About" {
                                bdi { (text(event, "/involvedObject/kind")) " " (text(event, "/involvedObject/namespace")) @if !text(event, "/involvedObject/namespace").is_empty() { "/" } (text(event, "/involvedObject/name")) }
                            }
                            td data-label="Message" { bdi { (text(event, "/message")) } }
                            td data-label="Count" class="figure" { (event["count"].as_i64().unwrap_or(1)) }
                        }
                    }
                }
            }
        }
    }
}

async fn operations(page: PageContext<'_>, id: &str, panels: &mut Vec<Panel>) {
    let mut all: Vec<OperationForm> = match page.admin.operations(id).all().await {
        Ok(all) => all,
        Err(error) => {
            return panels
                .push(Panel::live("operations", error_note("The operations cannot be read now", &error)));
        }
    };
    all.sort_by_key(|operation| std::cmp::Reverse(operation.start_time));
    if all.is_empty() {
        let next = html! { p { "Creates, updates and deletes appear here. An imported cluster has none." } };
        return panels.push(Panel::live("operations", empty_state("No operations", &next)));
    }
    // The newest operation by default.
    let requested = page.query.get("operation");
    let chosen =
        all.iter().find(|operation| requested.is_some_and(|requested| requested == operation.id.to_string()));
    let chosen = chosen.unwrap_or(&all[0]);
    let steps = page.admin.operation_history(id, chosen.id).first(SHOWN_MAX).await;
    let path = cluster_path(id);
    panels.push(Panel::live("operations", html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Operations, newest first" }
                thead { tr { th scope="col" { "Operation" } th scope="col" { "State" } th scope="col" { "Step" } th scope="col" { "Started" } th scope="col" { "Finished" } th scope="col" { "Error" } } }
                tbody {
                    @for operation in all.iter().take(SHOWN_MAX) {
                        tr {
                            th scope="row" data-label="Operation" {
                                @let href = format!("{path}?tab=operations&operation={}", operation.id);
                                @let verb = format!("{:?}", operation.verb);
                                @if operation.id == chosen.id { a href=(href) aria-current="true" { (verb) } } @else { a href=(href) { (verb) } }
                                div class="quiet small" { code { (operation.id) } }
                            }
                            td data-label="State" {
                                @match operation.status {
                                    ProvisioningState::Succeeded => { (badge(BadgeTone::Good, "Succeeded")) },
                                    ProvisioningState::Failed => { (badge(BadgeTone::Bad, "Failed")) },
                                    other => { (badge(BadgeTone::Busy, &format!("{other:?}"))) },
                                }
                            }
                            td data-label="Step" {
                                @match operation.step.as_ref().filter(|_| operation.end_time.is_none()) {
                                    Some(step) => { (step.name) " " span class="quiet figure" { (step.index) "/" (step.of) } div class="quiet small" { (step.message) } },
                                    None => { span class="quiet" { "–" } },
                                }
                            }
                            td data-label="Started" { (timestamp(operation.start_time)) }
                            td data-label="Finished" { (optional_timestamp(operation.end_time)) }
                            td data-label="Error" { @if let Some(error) = &operation.error { strong { (error.code) } " " (error.message) } @else { span class="quiet" { "–" } } }
                        }
                    }
                }
            }
        }
        (command(&command_line::join(["shipshape", "operation", "show", &chosen.id.to_string()])))
    }));
    let body = match steps {
        Ok(entries) => history(&format!("Steps of {:?}, {}", chosen.verb, chosen.id), &entries),
        Err(error) => error_note("The steps cannot be read now", &error),
    };
    panels.push(Panel::live("steps", body));
}

fn manifests(
    page: PageContext<'_>,
    cluster: &AdminCluster,
    found: Result<Vec<ManifestForm>, ClientError>,
) -> Markup {
    let all = match found {
        Ok(all) => all,
        Err(error) => return error_note("The manifests cannot be read now", &error),
    };
    let run = html! { p { a class="button" href={ "/tasks?cluster=" (escaped(&cluster.id)) } { "Run a task on this cluster…" } } };
    if all.is_empty() {
        let next = html! { p { "No maintenance ran on this cluster, and none is planned." } @if page.viewer.may_act() { (run) } };
        return empty_state("No manifests", &next);
    }
    let mut all: Vec<&ManifestForm> = all.iter().collect();
    all.sort_by_key(|form| std::cmp::Reverse((form.finished_at.is_none(), form.created_at)));
    html! {
        @if page.viewer.may_act() { (run) }
        (manifest_table(&all[..all.len().min(SHOWN_MAX)]))
    }
}

fn manifest_table(forms: &[&ManifestForm]) -> Markup {
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Manifests" }
                thead { tr { th scope="col" { "Task" } th scope="col" { "State" } th scope="col" { "Step" } th scope="col" { "Not before" } th scope="col" { "Started" } th scope="col" { "Finished" } th scope="col" { "Result or reason to wait" } } }
                tbody {
                    @for form in forms {
                        tr {
                            th scope="row" data-label="Task" { (manifest_link(form.id, if form.task_name.is_empty() { "deleted task" } else { &form.task_name })) }
                            td data-label="State" { (state_badge(form.state, Some(form.phase))) }
                            td data-label="Step" {
                                @match &form.step { Some(step) => { (step.name) " " span class="quiet figure" { (step.index) "/" (step.of) } }, None => { span class="quiet" { "–" } } }
                            }
                            td data-label="Not before" { (unix_timestamp(form.run_after)) }
                            td data-label="Started" { (optional_timestamp(form.started_at)) }
                            td data-label="Finished" { (optional_timestamp(form.finished_at)) }
                            td data-label="Result or reason to wait" { span class="said" { (form.status_text) } }
                        }
                    }
                }
            }
        }
    }
}

fn labels(page: PageContext<'_>, cluster: &AdminCluster) -> Markup {
    let lines: Vec<String> =
        cluster.properties.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let path = cluster_path(&cluster.id);
    let form = html! {
        label class="wide" {
            span { "Labels, one name=value on each line" }
            textarea name="labels" rows=(lines.len().clamp(3, 12)) spellcheck="false" { (lines.join("\n")) }
        }
        label class="wide" { span { "Reason" } input type="text" name="reason" maxlength="500" autocomplete="off"; }
        div class="buttons" { button type="submit" class="primary" { "Replace the labels" } }
    };
    html! {
        h2 { "Labels" }
        @if page.viewer.may_act() {
            (page.viewer.form(path.trim_start_matches('/'), "stack", &form))
            (command(&command_line::join(["shipshape", "cluster", "label", &cluster.name, "NAME=VALUE"])))
        } @else if lines.is_empty() {
            p class="quiet" { "This cluster has no labels." }
        } @else {
            ul { @for line in &lines { li { bdi { (line) } } } }
        }
    }
}

fn attributes(selectors: &Result<std::collections::BTreeMap<String, String>, ClientError>) -> Markup {
    match selectors {
        Ok(selectors) => html! {
            h2 { "Attributes for the selectors of schedules" }
            dl class="facts" { @for (key, value) in selectors { dt { bdi { (key) } } dd { bdi { (value) } } } }
        },
        Err(error) => error_note("The attributes cannot be read now", error),
    }
}

fn choose(page: PageContext<'_>, id: &str) -> Markup {
    let query = page.query;
    let common = [
        "Node",
        "ClusterVersion",
        "ClusterOperator",
        "Machine",
        "MachineSet",
        "Namespace",
        "Pod",
        "Deployment.apps",
        "ConfigMap",
        "PodDisruptionBudget",
        "CertificateSigningRequest",
        "Lease",
    ];
    html! {
        form class="filter" method="get" action=(cluster_path(id)) aria-label="Objects" {
            input type="hidden" name="tab" value="objects";
            label { span { "Kind" } input type="text" name="kind" list="kinds" value=(query.text("kind")) required autocomplete="off" placeholder="Node, Deployment.apps…"; }
            datalist id="kinds" { @for kind in common { option value=(kind) {} } }
            label { span { "Namespace" } input type="text" name="namespace" value=(query.text("namespace")) autocomplete="off" placeholder="all"; }
            label { span { "Name" } input type="text" name="name" value=(query.text("name")) autocomplete="off" placeholder="all"; }
            label class="check" { input type="checkbox" name="unrestricted" value="true" checked[query.get("unrestricted").is_some()]; span { "Include objects that do not belong to the platform" } }
            div class="buttons" { button type="submit" class="primary" { "Show" } }
        }
        p class="quiet" { "Secrets are never shown." }
    }
}

async fn raw_objects(page: PageContext<'_>, id: &str) -> Markup {
    let value = |name: &str| page.query.get(name).map(str::to_owned);
    let Some(kind) = value("kind") else {
        return empty_state(
            "Select a kind",
            &html! { p { "The objects are read from the cluster and shown as YAML." } },
        );
    };
    let unrestricted = page.query.get("unrestricted").is_some();
    let query = ObjectQuery { kind, namespace: value("namespace"), name: value("name"), unrestricted };
    let found = match page.admin.objects(id, &query).await {
        Ok(found) => found,
        Err(error) => return error_note("The objects cannot be read now", &error),
    };
    let Some(items) = found["items"].as_array() else {
        return html! { (preformatted(&yaml(&found))) };
    };
    if items.is_empty() {
        return empty_state("No objects", &html! { p { "The cluster has no such objects." } });
    }
    html! {
        p class="quiet" { (items.len()) " objects" @if found["metadata"]["continue"] == "cut" { "; more are not shown" } }
        @for item in items.iter().take(SHOWN_MAX) {
            details class="object" open[items.len() == 1] {
                summary {
                    bdi { @if !text(item, "/metadata/namespace").is_empty() { (text(item, "/metadata/namespace")) "/" } (text(item, "/metadata/name")) }
                }
                (preformatted(&yaml(item)))
            }
        }
    }
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}
