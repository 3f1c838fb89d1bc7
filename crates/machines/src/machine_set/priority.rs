//! Which Machines of a MachineSet are deleted first. Pure.

use std::cmp::Ordering;
use std::sync::Arc;

use api::crd::machine::{DeletePolicy, Machine, names};
use jiff::Timestamp;
use kube::ResourceExt;

const MUST: f64 = 100.0;
const BETTER: f64 = 50.0;
const PREFER: f64 = 40.0;
const COULD: f64 = 20.0;
const MUST_NOT: f64 = 0.0;

/// Highest score that age alone gives, so that Machines that are marked or failed always go first.
const BELOW_MUST: f64 = 99.0;
/// Age in seconds by which the score of the oldest Machines has risen by two thirds: a hundred days.
const AGE_SCALE_S: f64 = 8_640_000.0;

/// The `count` Machines that are deleted first. Among equals the order of `machines` decides, which is by name.
pub(crate) fn select(
    machines: &[Arc<Machine>],
    count: usize,
    policy: Option<&DeletePolicy>,
    now: Timestamp,
) -> Result<Vec<Arc<Machine>>, String> {
    let priority: fn(&Machine, Timestamp) -> f64 = match policy {
        None | Some(DeletePolicy::Random) => random,
        Some(DeletePolicy::Newest) => newest,
        Some(DeletePolicy::Oldest) => oldest,
        Some(DeletePolicy::Unrecognized(text)) if text.is_empty() => random,
        Some(DeletePolicy::Unrecognized(text)) => return Err(format!("unsupported delete policy {text}")),
    };
    let mut ranked: Vec<(f64, &Arc<Machine>)> =
        machines.iter().map(|machine| (priority(machine, now), machine)).collect();
    ranked.sort_by(|one, other| other.0.partial_cmp(&one.0).unwrap_or(Ordering::Equal));
    Ok(ranked.into_iter().take(count).map(|(_, machine)| machine.clone()).collect())
}

fn is_marked(machine: &Machine) -> bool {
    let annotations = machine.annotations();
    let marks = [names::DELETE_MACHINE, names::DELETE_MACHINE_OLD];
    marks.iter().any(|mark| annotations.get(*mark).is_some_and(|value| !value.is_empty()))
}

fn has_failed(machine: &Machine) -> bool {
    let status = machine.status.as_ref();
    status.is_some_and(|status| status.error_reason.is_some() || status.error_message.is_some())
}

fn random(machine: &Machine, _: Timestamp) -> f64 {
    if machine.metadata.deletion_timestamp.is_some() {
        MUST
    } else if is_marked(machine) || has_failed(machine) {
        BETTER
    } else if machine.status.as_ref().is_none_or(|status| status.node_ref.is_none()) {
        PREFER
    } else {
        COULD
    }
}

fn oldest(machine: &Machine, now: Timestamp) -> f64 {
    if is_first(machine) { MUST } else { age_score(machine, now) }
}

fn newest(machine: &Machine, now: Timestamp) -> f64 {
    if is_first(machine) { MUST } else { (MUST - age_score(machine, now)).min(BELOW_MUST) }
}

fn is_first(machine: &Machine) -> bool {
    machine.metadata.deletion_timestamp.is_some() || is_marked(machine) || has_failed(machine)
}

/// Rises with the age towards a limit; 0 without a creation time, or with one in the future.
fn age_score(machine: &Machine, now: Timestamp) -> f64 {
    let Some(created) = machine.metadata.creation_timestamp.as_ref() else { return MUST_NOT };
    let age = now.duration_since(created.0).as_secs_f64();
    if age <= 0.0 { MUST_NOT } else { BETTER * (1.0 - (-age / AGE_SCALE_S).exp()) }
}
