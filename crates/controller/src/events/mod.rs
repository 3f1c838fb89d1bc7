//! Events that people see with `kubectl describe` and `kubectl get events`.
//!
//! They are Events of core/v1 with a count, as client-go's recorder writes them: every kubectl, dashboard and test suite reads those, and
//! the roles of existing manifests allow them. The same event of the same object is written once and then counted up, at most once in
//! an interval. Recording never waits: a full queue drops the event and counts that.

use std::borrow::Cow;
use std::time::Duration;

use api::clock::SharedClock;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::error::error_chain;
use crate::health::Heartbeat;
use crate::informers::Observability;
use crate::metrics::EventOutcome;

mod series;

use series::{Added, SeriesKey, SeriesSet, Write};

/// Events that wait to be written. More is a flood that nobody reads.
const QUEUE_MAX: usize = 1000;

/// Longest time in which the remaining events are written at the end.
const FLUSH_MAX: Duration = Duration::from_secs(3);

/// Interval of the heartbeat, and the time without one after which the writer hangs: longer than a request may take.
const BEAT: Duration = Duration::from_secs(5);
const HANGS_AFTER: Duration = Duration::from_secs(120);

/// The API server accepts this many bytes.
const MESSAGE_MAX: usize = 1024;

/// Names of objects have at most 253 characters, and 17 are ours.
const NAME_PREFIX_MAX: usize = 236;

/// Whether an event is good news.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Things go as they should.
    Normal,
    /// Somebody may want to look.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// An event to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Its type.
    pub event_type: EventType,
    /// A word in CamelCase for programs.
    pub reason: Cow<'static, str>,
    /// A sentence for people; cut at 1 KiB. No secrets.
    pub message: String,
}

/// Records events of one controller. Cheap to clone.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<(ObjectReference, RecordedEvent)>,
    observability: Observability,
}

impl EventRecorder {
    /// A recorder for `controller`, and the writer that must run for its events to be written. `process` names this process.
    pub fn new(
        client: Client,
        controller: &'static str,
        process: &str,
        clock: SharedClock,
        observability: Observability,
    ) -> (EventRecorder, EventWriter) {
        let (queue, recorded) = mpsc::channel(QUEUE_MAX);
        let writer = EventWriter {
            client,
            controller,
            process: process.to_owned(),
            clock,
            observability: observability.clone(),
            recorded,
            series: SeriesSet::default(),
        };
        (EventRecorder { queue, observability }, writer)
    }

    /// Records an event of `object`.
    pub fn record<K>(&self, object: &K, event: RecordedEvent)
    where
        K: Resource<DynamicType: Default>,
    {
        self.record_of(object.object_ref(&K::DynamicType::default()), event);
    }

    /// Records a normal event of `object`.
    pub fn normal<K>(&self, object: &K, reason: impl Into<Cow<'static, str>>, message: impl Into<String>)
    where
        K: Resource<DynamicType: Default>,
    {
        let (reason, message) = (reason.into(), message.into());
        self.record(object, RecordedEvent { event_type: EventType::Normal, reason, message });
    }

    /// Records a warning about `object`.
    pub fn warning<K>(&self, object: &K, reason: impl Into<Cow<'static, str>>, message: impl Into<String>)
    where
        K: Resource<DynamicType: Default>,
    {
        let (reason, message) = (reason.into(), message.into());
        self.record(object, RecordedEvent { event_type: EventType::Warning, reason, message });
    }

    /// Records an event of the object of a reference.
    pub fn record_of(&self, object: ObjectReference, event: RecordedEvent) {
        if self.queue.try_send((object, event)).is_err() {
            self.observability.metrics.event(EventOutcome::DroppedQueueFull);
        }
    }
}

/// Writes the events of a recorder.
#[must_use = "events are written while this runs"]
pub struct EventWriter {
    client: Client,
    controller: &'static str,
    process: String,
    clock: SharedClock,
    observability: Observability,
    recorded: mpsc::Receiver<(ObjectReference, RecordedEvent)>,
    series: SeriesSet,
}

impl EventWriter {
    /// Writes events until `shutdown`, and then what is left for a moment. Also returns when all recorders are dropped.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let name = format!("events of {}", self.controller);
        let beat = self.observability.health.heartbeat(&name, HANGS_AFTER);
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.write_due(&beat) => {}
            }
            let next = self.series.next_write();
            tokio::select! {
                () = shutdown.cancelled() => break,
                _ = beats.tick() => beat.beat(),
                recorded = self.recorded.recv() => match recorded {
                    Some((object, event)) => self.add(object, event),
                    None => break,
                },
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
        let flush = async {
            while let Ok((object, event)) = self.recorded.try_recv() {
                self.add(object, event);
            }
            self.series.flush();
            self.write_due(&beat).await;
        };
        if timeout(FLUSH_MAX, flush).await.is_err() {
            tracing::info!(controller = self.controller, "Not all events could be written before the end");
        }
    }

    fn add(&mut self, object: ObjectReference, mut event: RecordedEvent) {
        truncate(&mut event.message, MESSAGE_MAX);
        let time = Time(self.clock.now());
        if self.series.add(SeriesKey { object: object.into(), event }, time, Instant::now())
            == Added::DroppedRate
        {
            self.observability.metrics.event(EventOutcome::DroppedRate);
        }
    }

    async fn write_due(&mut self, beat: &Heartbeat) {
        while let Some((key, write)) = self.series.take_due(Instant::now()) {
            beat.beat();
            let namespace = key.object.namespace().to_owned();
            let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
            let result = match &write {
                Write::Create { count, first, last } => {
                    let event = self.event(&key, &namespace, *count, first, last);
                    api.create(&PostParams::default(), &event).await
                }
                Write::Count { name, count, last } => {
                    let patch = Patch::Merge(json!({"count": count, "lastTimestamp": last}));
                    api.patch(name, &PatchParams::default(), &patch).await
                }
            };
            match result {
                Ok(written) => {
                    self.observability.metrics.event(EventOutcome::Written);
                    self.series.written(&key, written.metadata.name.unwrap_or_default());
                }
                // The API server keeps events for an hour.
                Err(kube::Error::Api(status))
                    if status.code == 404 && matches!(write, Write::Count { .. }) =>
                {
                    self.series.expired(&key);
                }
                // An event is no reason to try again: its cause is in the status of the object, and repeats.
                Err(error) => {
                    self.observability.metrics.event(EventOutcome::Failed);
                    let (controller, reason) = (self.controller, &key.event.reason);
                    tracing::debug!(controller, "Cannot write the event {reason}: {}", error_chain(&error));
                }
            }
        }
    }

    fn event(&self, key: &SeriesKey, namespace: &str, count: i32, first: &Time, last: &Time) -> Event {
        Event {
            metadata: ObjectMeta {
                name: Some(event_name(key.object.name())),
                namespace: Some(namespace.to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: key.object.reference().clone(),
            type_: Some(key.event.event_type.as_str().to_owned()),
            reason: Some(key.event.reason.clone().into_owned()),
            message: Some(key.event.message.clone()),
            count: Some(count),
            first_timestamp: Some(first.clone()),
            last_timestamp: Some(last.clone()),
            source: Some(EventSource {
                component: Some(self.controller.to_owned()),
                host: Some(self.process.clone()),
            }),
            reporting_component: Some(self.controller.to_owned()),
            reporting_instance: Some(self.process.clone()),
            ..Event::default()
        }
    }
}

/// A unique name that begins with the object's, as those of other recorders.
fn event_name(object: &str) -> String {
    let is_allowed =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter);
    let mut prefix = if object.chars().all(is_allowed) { object.to_owned() } else { String::new() };
    truncate(&mut prefix, NAME_PREFIX_MAX);
    let prefix = prefix.trim_end_matches(['-', '.']);
    let prefix = if prefix.is_empty() { "event" } else { prefix };
    let (unique, _) = uuid::Uuid::new_v4().as_u64_pair();
    format!("{prefix}.{unique:016x}")
}

fn truncate(text: &mut String, bytes_max: usize) {
    text.truncate(text.floor_char_boundary(bytes_max));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_event_is_valid_whatever_the_object_is_called() {
        assert!(event_name("worker-1").starts_with("worker-1."));
        assert!(event_name("system:node").starts_with("event."));
        assert!(event_name("").starts_with("event."));
        let long = format!("{}-b", "a".repeat(NAME_PREFIX_MAX - 1));
        assert!(event_name(&long).starts_with("aaa") && !event_name(&long).contains("-."));
        assert!(event_name(&"a".repeat(300)).len() <= 253);
    }

    #[test]
    fn a_message_is_cut_between_characters() {
        let mut message = format!("{}é", "x".repeat(MESSAGE_MAX - 1));
        truncate(&mut message, MESSAGE_MAX);
        assert_eq!(message.len(), MESSAGE_MAX - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_api_server_neither_blocks_who_records_nor_makes_the_process_unhealthy() {
        use tower::Layer;

        let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
        });
        let limited = crate::limits::TimeLimit(Duration::from_secs(30)).layer(silent);
        let observability = Observability::default();
        let clock = std::sync::Arc::new(api::clock::SystemClock);
        let client = Client::new(limited, "default");
        let (recorder, writer) = EventRecorder::new(client, "sample", "pod-1", clock, observability.clone());
        let mut tasks = tokio::task::JoinSet::new();
        let shutdown = CancellationToken::new();
        tasks.spawn(writer.run(shutdown.clone()));
        let object = k8s_openapi::api::core::v1::ConfigMap::default();
        for at in 0..2 * QUEUE_MAX {
            recorder.normal(&object, "Created", at.to_string());
        }
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(observability.health.check(), Ok(()));
        }
        shutdown.cancel();
        let stopped = timeout(FLUSH_MAX + Duration::from_secs(1), tasks.join_next()).await;
        assert!(stopped.is_ok(), "the end does not wait for the API server");
    }
}
