//! The tabs Machines and MachineSets of a cluster.

use maud::{Markup, html};
use serde_json::Value;

use super::cluster::{condition, kubernetes_time, text};
use crate::fields::escaped;
use crate::view::{BadgeTone, badge, empty_state};

const LABEL: &str = "/metadata/labels/machine.openshift.io~1";

fn phase_badge(phase: &str) -> Markup {
    let tone = match phase {
        "Running" => BadgeTone::Good,
        "Failed" => BadgeTone::Bad,
        "Deleting" => BadgeTone::Odd,
        _ => BadgeTone::Busy,
    };
    badge(tone, if phase.is_empty() { "New" } else { phase })
}

/// What holds a machine up, in the words of its controllers.
fn obstacle(machine: &Value) -> &str {
    let error = text(machine, "/status/errorMessage");
    if !error.is_empty() {
        return error;
    }
    ["Drainable", "Drained", "Terminable", "InstanceExists"]
        .iter()
        .filter_map(|kind| condition(machine, kind))
        .find(|it| it["status"] != "True")
        .map(|it| text(it, "/message"))
        .unwrap_or_default()
}

/// The page of a task on a cluster, with these parameters filled in.
fn task_page(task: &str, cluster: &str, parameters: &[(&str, &str)]) -> String {
    let parameters = parameters.iter().map(|(name, value)| format!("&p.{name}={}", escaped(value)));
    format!("/task/{task}?cluster={}{}", escaped(cluster), parameters.collect::<String>())
}

/// Whether a MachineSet would replace the machine.
fn is_replaceable(machine: &Value) -> bool {
    let owners = machine.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|it| it["controller"] == true && it["kind"] == "MachineSet")
}

/// The machines of a cluster; with links to what can be done to them, if the viewer may act on the cluster `on`.
pub(super) fn machines(machines: &[Value], on: Option<&str>) -> Markup {
    if machines.is_empty() {
        return empty_state("This cluster has no machines", &html! { p { "A MachineSet creates them." } });
    }
    let label = |machine: &'_ Value, name: &str| text(machine, &format!("{LABEL}{name}")).to_owned();
    // Azure and others name the node as the machine; then the column would say everything twice.
    let has_nodes = machines.iter().any(|it| {
        let node = text(it, "/status/nodeRef/name");
        !node.is_empty() && node != text(it, "/metadata/name")
    });
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Machines" }
                thead { tr { th scope="col" { "Machine" } th scope="col" { "Phase" } @if has_nodes { th scope="col" { "Node" } } th scope="col" { "Type" } th scope="col" { "Zone" } th scope="col" { "Instance" } th scope="col" { "Created" } @if on.is_some() { th scope="col" { "Actions" } } } }
                tbody {
                    @for machine in machines {
                        @let name = text(machine, "/metadata/name");
                        @let why = obstacle(machine);
                        @let node = text(machine, "/status/nodeRef/name");
                        @let is_deleted = !text(machine, "/metadata/deletionTimestamp").is_empty();
                        tr {
                            th scope="row" data-label="Machine" {
                                bdi { (name) }
                                @if !why.is_empty() { div class="quiet small" { (why) } }
                            }
                            td data-label="Phase" { (phase_badge(if is_deleted { "Deleting" } else { text(machine, "/status/phase") })) }
                            @if has_nodes {
                                td data-label="Node" { @if node.is_empty() { span class="quiet" { "none" } } @else { bdi { (node) } } }
                            }
                            td data-label="Type" { (label(machine, "instance-type")) }
                            td data-label="Zone" class="figure" { (label(machine, "zone")) }
                            td data-label="Instance" { (text(machine, "/metadata/annotations/machine.openshift.io~1instance-state")) }
                            td data-label="Created" { (kubernetes_time(text(machine, "/metadata/creationTimestamp"))) }
                            @if let Some(cluster) = on {
                                td data-label="Actions" {
                                    @if is_replaceable(machine) && !is_deleted {
                                        a href=(task_page("replace-machine", cluster, &[("machine", name)])) { "Replace…" }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The MachineSets of a cluster; with links to what can be done to them, if the viewer may act on the cluster `on`.
pub(super) fn machine_sets(sets: &[Value], on: Option<&str>) -> Markup {
    if sets.is_empty() {
        return empty_state(
            "This cluster has no MachineSets",
            &html! { p { "The installation creates one in each zone." } },
        );
    }
    let number = |set: &Value, pointer: &str| set.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "MachineSets" }
                thead { tr { th scope="col" { "MachineSet" } th scope="col" { "State" } th scope="col" { "Desired" } th scope="col" { "Current" } th scope="col" { "Ready" } th scope="col" { "Available" } th scope="col" { "Created" } @if on.is_some() { th scope="col" { "Actions" } } } }
                tbody {
                    @for set in sets {
                        @let name = text(set, "/metadata/name");
                        @let desired = number(set, "/spec/replicas");
                        @let (current, ready) = (number(set, "/status/replicas"), number(set, "/status/readyReplicas"));
                        @let error = text(set, "/status/errorMessage");
                        tr {
                            th scope="row" data-label="MachineSet" { bdi { (name) } }
                            td data-label="State" {
                                @if current != desired { (badge(BadgeTone::Busy, "Scaling")) }
                                @else if ready < desired { (badge(BadgeTone::Busy, "Waiting for machines")) }
                                @else { (badge(BadgeTone::Good, "Ready")) }
                                @if !error.is_empty() { div class="quiet small" { (error) } }
                            }
                            td data-label="Desired" class="figure" { (desired) }
                            td data-label="Current" class="figure" { (current) }
                            td data-label="Ready" class="figure" { (ready) }
                            td data-label="Available" class="figure" { (number(set, "/status/availableReplicas")) }
                            td data-label="Created" { (kubernetes_time(text(set, "/metadata/creationTimestamp"))) }
                            @if let Some(cluster) = on {
                                td data-label="Actions" {
                                    @let parameters = [("machineSet", name), ("replicas", &*desired.to_string())];
                                    a href=(task_page("scale-machineset", cluster, &parameters)) { "Scale…" }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_shows_its_phase_and_what_holds_it_up() {
        let shown = machines(&[json!({
            "metadata": { "name": "<b>w</b>", "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": { "machine.openshift.io/zone": "2" } },
            "status": { "phase": "Running", "nodeRef": { "name": "n" }, "conditions": [{ "type": "Drained", "status": "False", "message": "pod shop/web-1 is blocked" }] }
        })], None)
        .into_string();
        for expected in
            ["Deleting", "pod shop/web-1 is blocked", "&lt;b&gt;w&lt;/b&gt;", ">2<", ">Node<", ">n<"]
        {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert!(machines(&[], None).into_string().contains("no machines"));
    }

    #[test]
    fn who_may_act_gets_links_to_tasks_on_machines_that_would_be_replaced() {
        let owners = json!([{ "kind": "MachineSet", "name": "s", "controller": true }]);
        let worker = json!({ "metadata": { "name": "w&1", "ownerReferences": owners } });
        let master = json!({ "metadata": { "name": "m" } });
        let link = "/task/replace-machine?cluster=%2Fa%2Fb&amp;p.machine=w%261\"";
        let shown = machines(&[worker.clone(), master], Some("/a/b")).into_string();
        assert!(shown.contains(link), "{shown}");
        assert!(!shown.contains(">Node<"), "no node has another name: {shown}");
        assert_eq!(shown.matches("Replace…").count(), 1, "nothing would replace the other one: {shown}");
        assert!(!machines(&[worker], None).into_string().contains("Replace…"));
        let set = json!({ "metadata": { "name": "s" }, "spec": { "replicas": 3 } });
        let shown = machine_sets(std::slice::from_ref(&set), Some("/a")).into_string();
        assert!(
            shown.contains("/task/scale-machineset?cluster=%2Fa&amp;p.machineSet=s&amp;p.replicas=3\""),
            "{shown}"
        );
        assert!(!machine_sets(&[set], None).into_string().contains("Scale…"));
    }

    #[test]
    fn a_machine_set_is_ready_when_its_machines_are() {
        let set = |desired: i64, current: i64, ready: i64| {
            let set = json!({ "metadata": { "name": "s" }, "spec": { "replicas": desired }, "status": { "replicas": current, "readyReplicas": ready } });
            machine_sets(&[set], None).into_string()
        };
        assert!(set(2, 2, 2).contains("Ready</"));
        assert!(set(2, 2, 1).contains("Waiting for machines"));
        assert!(set(3, 2, 2).contains("Scaling"));
    }
}
