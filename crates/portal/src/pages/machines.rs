//! The tabs Machines and MachineSets of a cluster.

use maud::{Markup, html};
use serde_json::Value;

use super::cluster::{condition, kubernetes_time, text};
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

pub(super) fn machines(machines: &[Value]) -> Markup {
    if machines.is_empty() {
        return empty_state("This cluster has no machines", &html! { p { "A MachineSet creates them." } });
    }
    let label = |machine: &'_ Value, name: &str| text(machine, &format!("{LABEL}{name}")).to_owned();
    html! {
        div class="table" {
            table class="cards" {
                caption class="unseen" { "Machines" }
                thead { tr { th scope="col" { "Machine" } th scope="col" { "Phase" } th scope="col" { "Node" } th scope="col" { "Type" } th scope="col" { "Zone" } th scope="col" { "Instance" } th scope="col" { "Created" } } }
                tbody {
                    @for machine in machines {
                        @let why = obstacle(machine);
                        @let node = text(machine, "/status/nodeRef/name");
                        @let is_deleted = !text(machine, "/metadata/deletionTimestamp").is_empty();
                        tr {
                            th scope="row" data-label="Machine" { bdi { (text(machine, "/metadata/name")) } }
                            td data-label="Phase" {
                                (phase_badge(if is_deleted { "Deleting" } else { text(machine, "/status/phase") }))
                                @if !why.is_empty() { div class="quiet small" { (why) } }
                            }
                            td data-label="Node" { @if node.is_empty() { span class="quiet" { "none" } } @else { bdi { (node) } } }
                            td data-label="Type" { (label(machine, "instance-type")) }
                            td data-label="Zone" class="figure" { (label(machine, "zone")) }
                            td data-label="Instance" { (text(machine, "/metadata/annotations/machine.openshift.io~1instance-state")) }
                            td data-label="Created" { (kubernetes_time(text(machine, "/metadata/creationTimestamp"))) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn machine_sets(sets: &[Value]) -> Markup {
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
                thead { tr { th scope="col" { "MachineSet" } th scope="col" { "State" } th scope="col" { "Desired" } th scope="col" { "Current" } th scope="col" { "Ready" } th scope="col" { "Available" } th scope="col" { "Created" } } }
                tbody {
                    @for set in sets {
                        @let desired = number(set, "/spec/replicas");
                        @let (current, ready) = (number(set, "/status/replicas"), number(set, "/status/readyReplicas"));
                        @let error = text(set, "/status/errorMessage");
                        tr {
                            th scope="row" data-label="MachineSet" { bdi { (text(set, "/metadata/name")) } }
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
            "status": { "phase": "Running", "conditions": [{ "type": "Drained", "status": "False", "message": "pod shop/web-1 is blocked" }] }
        })])
        .into_string();
        for expected in ["Deleting", "pod shop/web-1 is blocked", "&lt;b&gt;w&lt;/b&gt;", ">2<"] {
            assert!(shown.contains(expected), "{expected}: {shown}");
        }
        assert!(machines(&[]).into_string().contains("no machines"));
    }

    #[test]
    fn a_machine_set_is_ready_when_its_machines_are() {
        let set = |desired: i64, current: i64, ready: i64| {
            let set = json!({ "metadata": { "name": "s" }, "spec": { "replicas": desired }, "status": { "replicas": current, "readyReplicas": ready } });
            machine_sets(&[set]).into_string()
        };
        assert!(set(2, 2, 2).contains("Ready</"));
        assert!(set(2, 2, 1).contains("Waiting for machines"));
        assert!(set(3, 2, 2).contains("Scaling"));
    }
}
