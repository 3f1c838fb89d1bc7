//! Events of the simulator's own controllers and kubelets, for `kubectl describe` and `kubectl get events`. An event
//! that repeats counts up instead of becoming another object. Their number is limited, because one process holds
//! hundreds of clusters: in all, by a rate, and for each object. What exceeds a limit is not recorded.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::access::User;
use crate::fields;
use crate::kinds::{self, Kind};
use crate::objects::{Change, object_key};
use crate::state::{State, time};
use crate::verbs::{self, Caller, Target, WriteOptions};

/// Highest number of recorded events of a cluster; the oldest are removed first.
const EVENTS_MAX: usize = 300;
/// Age at which a recorded event is removed, as in a real server.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Number of events that a cluster can record at once.
const BURST: f64 = 150.0;
/// Number of further events per second.
const EVENTS_PER_SECOND: f64 = 5.0;
/// The same limits for the events of one source about one object, as in a real recorder.
const OBJECT_BURST: f64 = 25.0;
const OBJECT_EVENTS_PER_SECOND: f64 = 1.0 / 300.0;
/// Highest number of objects with a limit of their own; beyond it the limits start afresh.
const OBJECTS_MAX: usize = 512;
/// Longest message that a real server accepts.
const MESSAGE_BYTES_MAX: usize = 1024;

/// The importance of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Severity {
    /// For information.
    Normal,
    /// Something failed.
    Warning,
}

/// Who reports an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventSource<'a> {
    /// A controller.
    Controller(&'static str),
    /// The scheduler, which uses the newer form of events, with an action.
    Scheduler {
        /// What it did or tried, such as `Binding`.
        action: &'static str,
    },
    /// The kubelet of a node.
    Kubelet {
        /// The name of the node.
        node: &'a str,
    },
}

impl EventSource<'_> {
    fn component(self) -> &'static str {
        match self {
            EventSource::Controller(name) => name,
            EventSource::Scheduler { .. } => "default-scheduler",
            EventSource::Kubelet { .. } => "kubelet",
        }
    }
}

/// An event to record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EventReport<'a> {
    /// Who reports it.
    pub source: EventSource<'a>,
    /// The object that it is about: `kind`, `apiVersion` and the metadata.
    pub object: &'a Value,
    /// The part of the object, such as `spec.containers{main}`; empty for the whole.
    pub field_path: &'a str,
    /// The importance.
    pub severity: Severity,
    /// The machine-readable reason.
    pub reason: &'a str,
    /// The message for people.
    pub message: &'a str,
}

/// What a cluster remembers of its recorded events to stay within the limits.
#[derive(Debug, Default)]
pub(crate) struct EventLimits {
    all: Bucket,
    objects: HashMap<u64, Bucket>,
    /// The keys of recorded events with their revision and time, the oldest first; `None` before the first event.
    recorded: Option<VecDeque<(Arc<str>, u64, Timestamp)>>,
}

/// The allowance of a source of events.
#[derive(Debug, Default, Clone, Copy)]
struct Bucket {
    used: f64,
    at: Option<Timestamp>,
}

impl Bucket {
    /// Takes one from the allowance, which is full in the beginning.
    fn take(&mut self, burst: f64, per_second: f64, now: Timestamp) -> bool {
        let elapsed = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64().max(0.0));
        self.at = Some(now);
        self.used = (self.used - elapsed * per_second).max(0.0);
        if self.used + 1.0 > burst {
            return false;
        }
        self.used += 1.0;
        true
    }
}

impl EventLimits {
    fn allow(&mut self, report: &EventReport<'_>, now: Timestamp) -> bool {
        let mut hasher = DefaultHasher::new();
        (report.source.component(), uid(report.object)).hash(&mut hasher);
        if self.objects.len() >= OBJECTS_MAX {
            self.objects.clear();
        }
        let object = self.objects.entry(hasher.finish()).or_default();
        object.take(OBJECT_BURST, OBJECT_EVENTS_PER_SECOND, now)
            && self.all.take(BURST, EVENTS_PER_SECOND, now)
    }

    /// Removes the recorded events that are too old or too many.
    pub(crate) fn trim(&mut self, state: &mut State, now: Timestamp) {
        let Some(recorded) = &mut self.recorded else { return };
        let mut changes = Vec::new();
        // An event that was counted up since goes to the end of the queue, once each time.
        for _ in 0..recorded.len() {
            let Some((_, _, since)) = recorded.front() else { break };
            if recorded.len() <= EVENTS_MAX && now.duration_since(*since) < LIFETIME {
                break;
            }
            let Some((key, revision, _)) = recorded.pop_front() else { break };
            match state.objects.get(TABLE, &key) {
                Some(found) if found.revision() != revision => {
                    recorded.push_back((key, found.revision(), now));
                }
                Some(_) => changes.push(Change::Remove(TABLE.into(), key)),
                None => {}
            }
        }
        // A journal that cannot be written is reported by the requests that need it.
        let _ = state.commit(changes);
    }
}

/// The table of events.
const TABLE: &str = "/events";

/// Records an event, within the limits.
pub(crate) fn record(state: &mut State, limits: &mut EventLimits, report: &EventReport<'_>, now: Timestamp) {
    let Some(kind) = kinds::find("", "Event") else { return };
    if !limits.allow(report, now) {
        return;
    }
    if limits.recorded.is_none() {
        limits.recorded = Some(stored(state, now));
    }
    limits.trim(state, now);
    let namespace = match text(report.object, "namespace") {
        "" => "default",
        namespace => namespace,
    };
    let name = event_name(report);
    if let Some(mut value) = state.read(kind, namespace, &name) {
        count_up(&mut value, now);
        let _ = state.put(kind, value);
        return;
    }
    let value = event(report, namespace, &name, now);
    let target = Target {
        kind: kind.clone(),
        namespace: namespace.to_owned(),
        name: String::new(),
        subresource: String::new(),
    };
    // A namespace that is being deleted accepts no events.
    if let Ok(written) = verbs::create(state, &target, value, &options(report), &caller(report, now))
        && let Some(recorded) = &mut limits.recorded
    {
        recorded.push_back((object_key(namespace, &name).into(), written.object.revision(), now));
    }
}

/// The events that an earlier run of the cluster has left, the oldest first.
fn stored(state: &State, now: Timestamp) -> VecDeque<(Arc<str>, u64, Timestamp)> {
    let mut found: Vec<_> = state
        .objects
        .range(TABLE, "", "")
        .map(|(key, object)| (key.clone(), object.revision(), now))
        .collect();
    found.sort_by_key(|(_, revision, _)| *revision);
    found.into()
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

fn uid(object: &Value) -> &str {
    text(object, "uid")
}

/// The same event has the same name, so that it is found again without a search.
fn event_name(report: &EventReport<'_>) -> String {
    let mut hasher = DefaultHasher::new();
    let EventReport { source, object, field_path, reason, message, .. } = report;
    (source.component(), uid(object), field_path, reason, message).hash(&mut hasher);
    let name = text(object, "name");
    format!("{}.{:016x}", name.get(..name.len().min(200)).unwrap_or_default(), hasher.finish())
}

fn options(report: &EventReport<'_>) -> WriteOptions {
    let manager = match report.source {
        EventSource::Controller(_) => "kube-controller-manager",
        EventSource::Scheduler { .. } => "kube-scheduler",
        EventSource::Kubelet { .. } => "kubelet",
    };
    WriteOptions { manager: manager.to_owned(), ..WriteOptions::default() }
}

fn caller(report: &EventReport<'_>, now: Timestamp) -> Caller {
    let name = match report.source {
        EventSource::Controller(_) => "system:kube-controller-manager".to_owned(),
        EventSource::Scheduler { .. } => "system:kube-scheduler".to_owned(),
        EventSource::Kubelet { node } => format!("system:node:{node}"),
    };
    Caller::internal(User::new(&name, ["system:authenticated"]), now)
}

fn micro_time(now: Timestamp) -> String {
    format!("{now:.6}")
}

fn event(report: &EventReport<'_>, namespace: &str, name: &str, now: Timestamp) -> Value {
    let object = report.object;
    let mut involved = json!({
        "kind": object["kind"], "apiVersion": object["apiVersion"], "name": text(object, "name"), "uid": uid(object),
    });
    for (field, value) in [
        ("namespace", text(object, "namespace")),
        ("resourceVersion", text(object, "resourceVersion")),
        ("fieldPath", report.field_path),
    ] {
        if !value.is_empty() {
            involved[field] = json!(value);
        }
    }
    let mut message = report.message;
    while message.len() > MESSAGE_BYTES_MAX {
        let end = (0..=MESSAGE_BYTES_MAX).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
        message = &message[..end];
    }
    let severity = match report.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    let component = report.source.component();
    let mut event = json!({
        "metadata": {"name": name, "namespace": namespace}, "involvedObject": involved, "reason": report.reason,
        "message": message, "type": severity, "reportingComponent": component, "reportingInstance": "",
        "source": {"component": component}, "firstTimestamp": time(now), "lastTimestamp": time(now), "count": 1,
        "eventTime": null,
    });
    match report.source {
        EventSource::Controller(_) => {}
        EventSource::Scheduler { action } => {
            for (field, value) in [
                ("action", json!(action)),
                ("eventTime", json!(micro_time(now))),
                ("reportingInstance", json!("default-scheduler-kubesim")),
                ("source", json!({})),
                ("firstTimestamp", Value::Null),
                ("lastTimestamp", Value::Null),
                ("count", json!(0)),
            ] {
                event[field] = value;
            }
        }
        EventSource::Kubelet { node } => {
            event["source"]["host"] = json!(node);
            event["reportingInstance"] = json!(node);
        }
    }
    event
}

/// Counts a repetition.
fn count_up(event: &mut Value, now: Timestamp) {
    if event["eventTime"].is_null() {
        let count = event["count"].as_i64().unwrap_or(1).saturating_add(1);
        fields::set(event, &["count"], json!(count));
        fields::set(event, &["lastTimestamp"], json!(time(now)));
    } else {
        let count = event["series"]["count"].as_i64().unwrap_or(1).saturating_add(1);
        fields::set(event, &["series"], json!({"count": count, "lastObservedTime": micro_time(now)}));
    }
}

/// The object of an event: its kind and metadata, for reporters that have no more of it.
pub(crate) fn reference(kind: &Kind, namespace: &str, name: &str, uid: &str) -> Value {
    let mut object = json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}});
    kind.set_type_meta(&mut object);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn state() -> State {
        let mut state = State::new(Objects::in_memory());
        let kind = kinds::find("", "Namespace").unwrap();
        state.put(kind, json!({"metadata": {"name": "ns"}})).unwrap();
        state
    }

    fn pod(name: &str) -> Value {
        reference(kinds::find("", "Pod").unwrap(), "ns", name, &format!("uid-of-{name}"))
    }

    fn report<'a>(object: &'a Value, message: &'a str) -> EventReport<'a> {
        EventReport {
            source: EventSource::Controller("test-controller"),
            object,
            field_path: "",
            severity: Severity::Normal,
            reason: "Tested",
            message,
        }
    }

    fn events(state: &State) -> Vec<Value> {
        state.objects.range(TABLE, "", "").map(|(_, event)| event.value()).collect()
    }

    #[test]
    fn a_repeated_event_counts_up() {
        let (mut state, mut limits, pod) = (state(), EventLimits::default(), pod("a"));
        for second in 0..3 {
            record(&mut state, &mut limits, &report(&pod, "it works"), at(second));
        }
        record(&mut state, &mut limits, &report(&pod, "it works well"), at(3));
        let counts: Vec<Value> = events(&state).iter().map(|event| event["count"].clone()).collect();
        assert!(counts == [3, 1] || counts == [1, 3], "{counts:?}");
    }

    #[test]
    fn events_of_one_object_are_limited() {
        let (mut state, mut limits, pod) = (state(), EventLimits::default(), pod("a"));
        for number in 0..100 {
            record(&mut state, &mut limits, &report(&pod, &format!("pod {number}")), at(0));
        }
        assert_eq!(events(&state).len(), 25);
        record(&mut state, &mut limits, &report(&pod, "later"), at(301));
        assert_eq!(events(&state).len(), 26);
    }

    #[test]
    fn all_events_of_a_cluster_are_limited_in_rate_and_number() {
        let (mut state, mut limits) = (state(), EventLimits::default());
        let mut fill = |state: &mut State, start: usize, second: i64| {
            for number in start..start + 500 {
                record(state, &mut limits, &report(&pod(&format!("p{number}")), "it works"), at(second));
            }
        };
        fill(&mut state, 0, 0);
        assert_eq!(events(&state).len(), 150);
        fill(&mut state, 1000, 600);
        assert_eq!(events(&state).len(), 300);
        fill(&mut state, 2000, 1200);
        assert!(events(&state).len() <= EVENTS_MAX + 1);
    }

    #[test]
    fn an_event_is_removed_after_an_hour_unless_it_repeats() {
        let (mut state, mut limits) = (state(), EventLimits::default());
        record(&mut state, &mut limits, &report(&pod("a"), "once"), at(0));
        record(&mut state, &mut limits, &report(&pod("b"), "again"), at(0));
        record(&mut state, &mut limits, &report(&pod("b"), "again"), at(1800));
        limits.trim(&mut state, at(3600));
        let left: Vec<Value> = events(&state).iter().map(|event| event["message"].clone()).collect();
        assert_eq!(left, ["again"]);
    }
}
