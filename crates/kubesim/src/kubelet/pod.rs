//! What a kubelet does with a pod.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::node::seconds;
use super::views::{NodeView, Outcome, PodView, Wanted};

/// What becomes of a pod next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum PodStep {
    /// It runs, and is ready.
    Run,
    /// Its containers end well.
    Complete,
    /// Its containers end badly, for good.
    Fail,
    /// Its containers end badly and wait to be started again.
    Crash,
    /// It has stopped; its object is removed.
    Remove,
}

/// Where the next step of a pod begins to count, and how things go.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ways {
    pub(super) seed: u64,
    pub(super) pace: f64,
}

impl Ways {
    /// Between `least` and `most` milliseconds, the same for the same pod and step.
    fn draw(self, pod: &PodView, step: PodStep, least: u64, most: u64) -> Duration {
        let mut hasher = DefaultHasher::new();
        (self.seed, &pod.namespace, &pod.name, step).hash(&mut hasher);
        let millis = least + hasher.finish() % (most - least).max(1);
        Duration::from_millis(millis).mul_f64(self.pace.max(0.0))
    }
}

/// The next step of a pod and when it is due; `since` is when the pod came to be as it is.
pub(super) fn next(
    pod: &PodView,
    node: &NodeView,
    since: Timestamp,
    ways: Ways,
) -> Option<(Timestamp, PodStep)> {
    if node.wanted != Wanted::Ready {
        return None;
    }
    let after = |span: Duration| since.saturating_add(span).unwrap_or(Timestamp::MAX);
    if let Some((latest, grace)) = pod.ending {
        if node.refuses_to_drain {
            return None;
        }
        let told = pod.stop.map(|stop| Duration::from_secs(stop.min(grace).into()));
        let span = told.unwrap_or_else(|| ways.draw(pod, PodStep::Remove, 100, 900));
        return Some((after(span).min(latest.max(since)), PodStep::Remove));
    }
    let told = |step| {
        let told = pod.after.map(|seconds| Duration::from_secs(seconds.into()));
        Some((after(told.unwrap_or_else(|| ways.draw(pod, step, 1000, 3000))), step))
    };
    match (pod.phase.as_str(), pod.outcome) {
        (_, Outcome::Stuck) | ("Succeeded" | "Failed", _) => None,
        ("Running", Outcome::Run) if pod.ready => None,
        ("Running", Outcome::Complete) if pod.ready => told(PodStep::Complete),
        ("Running", Outcome::Fail) if pod.ready && pod.restarts_forever => told(PodStep::Crash),
        ("Running", Outcome::Fail) if pod.ready => told(PodStep::Fail),
        // After a crash the wait doubles, up to five minutes, as a kubelet's does.
        ("Running", _) => {
            let wait = Duration::from_secs(10) * (1 << pod.restarts.saturating_sub(1).min(5));
            Some((after(wait.min(Duration::from_secs(300)).mul_f64(ways.pace.max(0.0))), PodStep::Run))
        }
        _ => Some((after(ways.draw(pod, PodStep::Run, 200, 1200)), PodStep::Run)),
    }
}

/// A pod's status after a step; none for its removal.
pub(super) fn status(pod: &PodView, step: PodStep, now: Timestamp) -> Option<Value> {
    let now = seconds(now);
    let (phase, ready, restarts) = match step {
        PodStep::Run => ("Running", true, pod.restarts),
        PodStep::Complete => ("Succeeded", false, pod.restarts),
        PodStep::Fail => ("Failed", false, pod.restarts),
        PodStep::Crash => ("Running", false, pod.restarts + 1),
        PodStep::Remove => return None,
    };
    let ended = |code: u8, reason: &str| json!({ "terminated": { "exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now } });
    let state = match step {
        PodStep::Run => json!({ "running": { "startedAt": now } }),
        PodStep::Complete => ended(0, "Completed"),
        PodStep::Fail => ended(1, "Error"),
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
                "lastState": if step == PodStep::Crash { ended(1, "Error") } else { json!({}) }
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

/// An address that is most likely nobody else's.
fn address(uid: &str) -> String {
    let mut hasher = DefaultHasher::new();
    uid.hash(&mut hasher);
    let [a, b, ..] = hasher.finish().to_be_bytes();
    format!("10.244.{a}.{}", b.max(1))
}

/// What a pod says when it begins or ends.
pub(super) fn words(pod: &PodView, step: PodStep, now: Timestamp) -> Vec<String> {
    let line = |text: &str| format!("{} {text}", seconds(now));
    match step {
        PodStep::Run => {
            let begun = line(&format!("{} started on {}", pod.name, pod.node));
            let own = pod.log.iter().flat_map(|text| text.lines().map(str::to_owned));
            std::iter::once(begun).chain(own).collect()
        }
        PodStep::Complete => vec![line("done")],
        PodStep::Fail | PodStep::Crash => vec![line("failed, as it was told to")],
        PodStep::Remove => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: Ways = Ways { seed: 7, pace: 1.0 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn pod(phase: &str, outcome: Outcome) -> PodView {
        PodView {
            namespace: "ns".to_owned(),
            name: "web-1".to_owned(),
            uid: "u".to_owned(),
            node: "n".to_owned(),
            phase: phase.to_owned(),
            ready: phase == "Running",
            restarts: 0,
            restarts_forever: true,
            containers: vec![("main".to_owned(), "image".to_owned())],
            outcome,
            after: None,
            stop: None,
            log: None,
            ending: None,
        }
    }

    fn node() -> NodeView {
        NodeView {
            name: "n".to_owned(),
            uid: "u".to_owned(),
            wanted: Wanted::Ready,
            refuses_to_drain: false,
            ready: Some(true),
        }
    }

    fn step(pod: &PodView) -> Option<PodStep> {
        next(pod, &node(), at(0), WAYS).map(|it| it.1)
    }

    #[test]
    fn a_pod_runs_and_then_comes_to_its_outcome() {
        assert_eq!(step(&pod("Pending", Outcome::Run)), Some(PodStep::Run));
        assert_eq!(step(&pod("Running", Outcome::Run)), None);
        assert_eq!(step(&pod("Running", Outcome::Complete)), Some(PodStep::Complete));
        assert_eq!(step(&pod("Running", Outcome::Fail)), Some(PodStep::Crash));
        assert_eq!(step(&pod("Pending", Outcome::Stuck)), None);
        assert_eq!(step(&pod("Succeeded", Outcome::Complete)), None);
    }

    #[test]
    fn a_pod_that_may_not_restart_fails_for_good() {
        let once = PodView { restarts_forever: false, ..pod("Running", Outcome::Fail) };
        assert_eq!(step(&once), Some(PodStep::Fail));
    }

    #[test]
    fn a_crash_is_followed_by_a_longer_wait_each_time() {
        let crashed = |restarts| PodView { ready: false, restarts, ..pod("Running", Outcome::Fail) };
        let wait = |restarts| next(&crashed(restarts), &node(), at(0), WAYS).unwrap().0;
        assert_eq!((wait(1), wait(2), wait(30)), (at(10), at(20), at(300)));
    }

    #[test]
    fn stopping_takes_the_told_time_and_never_more_than_the_grace() {
        let ending =
            |stop| PodView { stop: Some(stop), ending: Some((at(30), 30)), ..pod("Running", Outcome::Run) };
        assert_eq!(next(&ending(5), &node(), at(0), WAYS), Some((at(5), PodStep::Remove)));
        assert_eq!(next(&ending(500), &node(), at(0), WAYS), Some((at(30), PodStep::Remove)));
    }

    #[test]
    fn nothing_stops_on_a_node_that_refuses_to_drain_or_is_not_ready() {
        let ending = PodView { ending: Some((at(30), 30)), ..pod("Running", Outcome::Run) };
        let refuses = NodeView { refuses_to_drain: true, ..node() };
        assert_eq!(next(&ending, &refuses, at(0), WAYS), None);
        let silent = NodeView { wanted: Wanted::NotReady, ..node() };
        assert_eq!(next(&ending, &silent, at(0), WAYS), None);
        assert_eq!(next(&pod("Pending", Outcome::Run), &silent, at(0), WAYS), None);
    }

    #[test]
    fn the_same_seed_draws_the_same_delay_and_another_one_another() {
        let due =
            |seed| next(&pod("Pending", Outcome::Run), &node(), at(0), Ways { seed, pace: 1.0 }).unwrap().0;
        assert_eq!(due(1), due(1));
        assert!((0..20).any(|seed| due(seed) != due(1)));
        assert_eq!(
            next(&pod("Pending", Outcome::Run), &node(), at(0), Ways { seed: 1, pace: 0.0 }).unwrap().0,
            at(0)
        );
    }
}
