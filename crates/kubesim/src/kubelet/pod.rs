//! What a kubelet does with a pod.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::node::seconds;
use super::views::{NodeState, NodeView, PodOutcome, PodView};

/// The next action for a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PodStep {
    /// The containers start and become ready.
    Run,
    /// The containers exit successfully.
    Complete,
    /// The containers fail permanently.
    Fail,
    /// The containers fail and wait for their restart.
    Crash,
    /// The pod has stopped; its object is removed.
    Remove,
}

/// The seed and the factor of delays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delays {
    pub(super) seed: u64,
    pub(super) factor: f64,
}

impl Delays {
    /// A delay between `least` and `most` milliseconds, the same for the same pod and step.
    fn draw(self, pod: &PodView, step: PodStep, least: u64, most: u64) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.seed, &pod.namespace, &pod.name, step).hash(&mut hasher);
        let millis = least + hasher.finish() % (most - least).max(1);
        Duration::from_millis(millis).mul_f64(self.factor.max(0.0))
    }
}

/// The next step of a pod and its time; `since` is when the pod entered its current state.
pub(super) fn next(
    pod: &PodView,
    node: &NodeView,
    since: Timestamp,
    delays: Delays,
) -> Option<(Timestamp, PodStep)> {
    if node.state != NodeState::Ready {
        return None;
    }
    let after = |span: Duration| since.saturating_add(span).unwrap_or(Timestamp::MAX);
    if let Some((latest, grace)) = pod.deletion {
        if node.refuses_drain {
            return None;
        }
        let delay = pod.stop.map(|stop| Duration::from_secs(stop.min(grace).into()));
        let span = delay.unwrap_or_else(|| delays.draw(pod, PodStep::Remove, 100, 900));
        return Some((after(span).min(latest.max(since)), PodStep::Remove));
    }
    let reach_outcome = |step| {
        let delay = pod.after.map(|seconds| Duration::from_secs(seconds.into()));
        Some((after(delay.unwrap_or_else(|| delays.draw(pod, step, 1000, 3000))), step))
    };
    match (pod.phase.as_str(), pod.outcome) {
        (_, PodOutcome::Stuck) | ("Succeeded" | "Failed", _) => None,
        ("Running", PodOutcome::Run) if pod.ready => None,
        ("Running", PodOutcome::Complete) if pod.ready => reach_outcome(PodStep::Complete),
        ("Running", PodOutcome::Fail) if pod.ready && pod.restarts_forever => reach_outcome(PodStep::Crash),
        ("Running", PodOutcome::Fail) if pod.ready => reach_outcome(PodStep::Fail),
        // After a crash the back-off doubles, up to five minutes, as in a kubelet.
        ("Running", _) => {
            let wait = Duration::from_secs(10) * (1 << pod.restarts.saturating_sub(1).min(5));
            Some((after(wait.min(Duration::from_secs(300)).mul_f64(delays.factor.max(0.0))), PodStep::Run))
        }
        _ => Some((after(delays.draw(pod, PodStep::Run, 200, 1200)), PodStep::Run)),
    }
}

/// Whether the kubelet of this node stops a pod that is deleted.
pub(super) fn stops(pod: &PodView, node: &NodeView) -> bool {
    pod.deletion.is_some() && node.state == NodeState::Ready && !node.refuses_drain
}

/// The status of a pod after a step; `None` for its removal.
pub(super) fn status(pod: &PodView, step: PodStep, now: Timestamp) -> Option<Value> {
    let now = seconds(now);
    let (phase, ready, restarts) = match step {
        PodStep::Run => ("Running", true, pod.restarts),
        PodStep::Complete => ("Succeeded", false, pod.restarts),
        PodStep::Fail => ("Failed", false, pod.restarts),
        PodStep::Crash => ("Running", false, pod.restarts + 1),
        PodStep::Remove => return None,
    };
    let terminated = |code: u8, reason: &str| json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now } });
    let state = match step {
        PodStep::Run => json!({ "running": { "startedAt": now } }),
        PodStep::Complete => terminated(0, "Completed"),
        PodStep::Fail => terminated(1, "Error"),
        _ => {
            json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off restarting failed container" } })
        }
    };
    let containers: Vec<Value> = pod
        .containers
        .iter()
        .map(|(name, image)| {
            json!({
                "name": name, "image": image, "imageID": format!("simulated://{image}"), "containerID": format!("simulated://{}/{name}", pod.uid),
                "ready": ready, "started": step == PodStep::Run, "restartCount": restarts, "state": state,
                "lastState": if step == PodStep::Crash { terminated(1, "Error") } else { json!({}) }
            })
        })
        .collect();
    let condition = |kind: &str, status: bool| {
        let mut condition = json!({ "type": kind, "status": if status { "True" } else { "False" }, "lastTransitionTime": now });
        if !status && kind != "Initialized" {
            condition["reason"] =
                if step == PodStep::Complete { "PodCompleted" } else { "ContainersNotReady" }.into();
        }
        condition
    };
    let address = address(&pod.uid);
    Some(json!({ "status": {
        "phase": phase, "hostIP": "192.0.2.1", "podIP": address, "podIPs": [{ "ip": address }], "startTime": now,
        "containerStatuses": containers,
        "conditions": [
            condition("Initialized", true), condition("Ready", ready), condition("ContainersReady", ready), condition("PodScheduled", true),
        ]
    } }))
}

/// An address that is most likely unique.
fn address(uid: &str) -> String {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let [a, b, ..] = hasher.finish().to_be_bytes();
    format!("10.244.{a}.{}", b.max(1))
}

/// The log lines of a step.
pub(super) fn log_lines(pod: &PodView, step: PodStep, now: Timestamp) -> Vec<String> {
    let line = |text: &str| format!("{} {text}", seconds(now));
    match step {
        PodStep::Run => {
            let started = line(&format!("{} started on {}", pod.name, pod.node));
            let own = pod.log.iter().flat_map(|text| text.lines().map(str::to_owned));
            std::iter::once(started).chain(own).collect()
        }
        // What really ran has logged its end itself.
        PodStep::Complete | PodStep::Fail | PodStep::Crash if !pod.runnable.is_empty() => Vec::new(),
        PodStep::Complete => vec![line("done")],
        PodStep::Fail | PodStep::Crash => vec![line("failed, as its annotation requests")],
        PodStep::Remove => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAYS: Delays = Delays { seed: 7, factor: 1.0 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(phase: &str, outcome: PodOutcome) -> PodView {
        PodView { phase: phase.to_owned(), ready: phase == "Running", outcome, ..PodView::example() }
    }

    fn node() -> NodeView {
        NodeView {
            name: "n".to_owned(),
            uid: "u".to_owned(),
            state: NodeState::Ready,
            refuses_drain: false,
            address: None,
            ready: Some(true),
        }
    }

    fn step(pod: &PodView) -> Option<PodStep> {
        next(pod, &node(), at(0), DELAYS).map(|it| it.1)
    }

    #[test]
    fn a_pod_runs_and_then_reaches_its_outcome() {
        assert_eq!(step(&pod("Pending", PodOutcome::Run)), Some(PodStep::Run));
        assert_eq!(step(&pod("Running", PodOutcome::Run)), None);
        assert_eq!(step(&pod("Running", PodOutcome::Complete)), Some(PodStep::Complete));
        assert_eq!(step(&pod("Running", PodOutcome::Fail)), Some(PodStep::Crash));
        assert_eq!(step(&pod("Pending", PodOutcome::Stuck)), None);
        assert_eq!(step(&pod("Succeeded", PodOutcome::Complete)), None);
    }

    #[test]
    fn a_pod_that_may_not_restart_fails_permanently() {
        let once = PodView { restarts_forever: false, ..pod("Running", PodOutcome::Fail) };
        assert_eq!(step(&once), Some(PodStep::Fail));
    }

    #[test]
    fn the_back_off_grows_with_each_crash() {
        let crashed = |restarts| PodView { ready: false, restarts, ..pod("Running", PodOutcome::Fail) };
        let wait = |restarts| next(&crashed(restarts), &node(), at(0), DELAYS).unwrap().0;
        assert_eq!((wait(1), wait(2), wait(30)), (at(10), at(20), at(300)));
    }

    #[test]
    fn stopping_takes_the_annotated_time_and_at_most_the_grace_period() {
        let deleted = |stop| PodView {
            stop: Some(stop),
            deletion: Some((at(30), 30)),
            ..pod("Running", PodOutcome::Run)
        };
        assert_eq!(next(&deleted(5), &node(), at(0), DELAYS), Some((at(5), PodStep::Remove)));
        assert_eq!(next(&deleted(500), &node(), at(0), DELAYS), Some((at(30), PodStep::Remove)));
    }

    #[test]
    fn nothing_stops_on_a_node_that_refuses_to_drain_or_is_not_ready() {
        let deleted = PodView { deletion: Some((at(30), 30)), ..pod("Running", PodOutcome::Run) };
        let refuses = NodeView { refuses_drain: true, ..node() };
        assert_eq!(next(&deleted, &refuses, at(0), DELAYS), None);
        let not_ready = NodeView { state: NodeState::NotReady, ..node() };
        assert_eq!(next(&deleted, &not_ready, at(0), DELAYS), None);
        assert_eq!(next(&pod("Pending", PodOutcome::Run), &not_ready, at(0), DELAYS), None);
    }

    #[test]
    fn the_seed_determines_the_delay() {
        let due = |seed| {
            next(&pod("Pending", PodOutcome::Run), &node(), at(0), Delays { seed, factor: 1.0 }).unwrap().0
        };
        assert_eq!(due(1), due(1));
        assert!((0..20).any(|seed| due(seed) != due(1)));
        assert_eq!(
            next(&pod("Pending", PodOutcome::Run), &node(), at(0), Delays { seed: 1, factor: 0.0 })
                .unwrap()
                .0,
            at(0)
        );
    }
}
