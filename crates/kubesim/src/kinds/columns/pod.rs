//! Cells of pods, most of all their status.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cells::human_duration;

/// The state of all containers of a pod.
struct Summary {
    reason: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

pub(super) fn ready(object: &Value, _: Timestamp) -> Value {
    let summary = summary(object);
    json!(format!("{}/{}", summary.ready, summary.total))
}

pub(super) fn status(object: &Value, _: Timestamp) -> Value {
    json!(summary(object).reason)
}

pub(super) fn restarts(object: &Value, now: Timestamp) -> Value {
    let summary = summary(object);
    match summary.last_restart {
        Some(last) if summary.restarts != 0 => {
            json!(format!(
                "{} ({} ago)",
                summary.restarts,
                human_duration(now.as_second() - last.as_second())
            ))
        }
        _ => json!(summary.restarts.to_string()),
    }
}

pub(super) fn readiness_gates(object: &Value, _: Timestamp) -> Value {
    let Some(gates) = object["spec"]["readinessGates"].as_array().filter(|gates| !gates.is_empty()) else {
        return json!("<none>");
    };
    let open = gates
        .iter()
        .filter(|gate| condition(object, gate["conditionType"].as_str().unwrap_or_default()) == Some("True"))
        .count();
    json!(format!("{open}/{}", gates.len()))
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().find(|condition| condition["type"] == kind)?["status"].as_str()
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[], Vec::as_slice)
}

fn summary(object: &Value) -> Summary {
    let (spec, status) = (&object["spec"], &object["status"]);
    let phase = status["phase"].as_str().unwrap_or_default();
    let own = status["reason"].as_str().filter(|reason| !reason.is_empty());
    let gated = list(status, "conditions")
        .iter()
        .any(|condition| condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated");
    let mut summary = Summary {
        reason: if gated { "SchedulingGated" } else { own.unwrap_or(phase) }.to_owned(),
        ready: 0,
        total: list(spec, "containers").len(),
        restarts: 0,
        last_restart: None,
    };
    let sidecars: Vec<&str> = list(spec, "initContainers")
        .iter()
        .filter(|container| container["restartPolicy"] == "Always")
        .filter_map(|container| container["name"].as_str())
        .collect();
    summary.total += sidecars.len();
    let initializing = summary.initialize(spec, status, &sidecars);
    if !initializing || condition(object, "Initialized") == Some("True") {
        summary.run(object, &sidecars);
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        if own == Some("NodeLost") {
            summary.reason = "Unknown".to_owned();
        } else if !matches!(phase, "Succeeded" | "Failed") {
            summary.reason = "Terminating".to_owned();
        }
    }
    summary
}

impl Summary {
    /// Reads the init containers; true while one of them has not completed.
    fn initialize(&mut self, spec: &Value, status: &Value, sidecars: &[&str]) -> bool {
        let total = list(spec, "initContainers").len();
        for (index, container) in list(status, "initContainerStatuses").iter().enumerate() {
            self.count_restarts(container);
            let is_sidecar = container["name"].as_str().is_some_and(|name| sidecars.contains(&name));
            let terminated = &container["state"]["terminated"];
            let waiting = container["state"]["waiting"]["reason"].as_str().unwrap_or_default();
            if !terminated.is_null() && terminated["exitCode"] == 0 {
                continue;
            }
            if is_sidecar && container["started"] == true {
                self.ready += usize::from(container["ready"] == true);
                continue;
            }
            self.reason = if !terminated.is_null() {
                format!("Init:{}", ended(terminated))
            } else if !waiting.is_empty() && waiting != "PodInitializing" {
                format!("Init:{waiting}")
            } else {
                format!("Init:{index}/{total}")
            };
            return true;
        }
        false
    }

    fn run(&mut self, object: &Value, sidecars: &[&str]) {
        (self.restarts, self.last_restart) = (0, None);
        for container in list(&object["status"], "initContainerStatuses") {
            if container["name"].as_str().is_some_and(|name| sidecars.contains(&name)) {
                self.count_restarts(container);
            }
        }
        let (mut running, mut failed) = (false, None);
        for container in list(&object["status"], "containerStatuses").iter().rev() {
            self.count_restarts(container);
            let terminated = &container["state"]["terminated"];
            let waiting = container["state"]["waiting"]["reason"].as_str().unwrap_or_default();
            if !waiting.is_empty() {
                self.reason = waiting.to_owned();
            } else if !terminated.is_null() {
                self.reason = ended(terminated);
                if terminated["exitCode"] != 0 {
                    failed = Some(self.reason.clone());
                }
            } else if container["ready"] == true && !container["state"]["running"].is_null() {
                running = true;
                self.ready += 1;
            }
        }
        if self.reason == "Completed" {
            if running && condition(object, "Ready") == Some("True") {
                self.reason = "Running".to_owned();
            } else if let Some(failed) = failed {
                self.reason = failed;
            } else if running {
                self.reason = "NotReady".to_owned();
            }
        }
    }

    fn count_restarts(&mut self, container: &Value) {
        self.restarts += container["restartCount"].as_i64().unwrap_or(0);
        let finished = container["lastState"]["terminated"]["finishedAt"].as_str();
        self.last_restart = self.last_restart.max(finished.and_then(|time| time.parse().ok()));
    }
}

/// The reason of a terminated container.
fn ended(terminated: &Value) -> String {
    match (terminated["reason"].as_str(), terminated["signal"].as_i64()) {
        (Some(reason), _) if !reason.is_empty() => reason.to_owned(),
        (_, Some(signal)) if signal != 0 => format!("Signal:{signal}"),
        _ => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or(0)),
    }
}
