//! Which events are written and when: repetitions are counted, floods are dropped. No I/O and no clock.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use super::RecordedEvent;

/// Shortest time between two writes of the same event.
const INTERVAL: Duration = Duration::from_secs(60);

/// A series that did not go on for this long is forgotten; the API server has deleted its event by then.
const SERIES_AGE_MAX: Duration = Duration::from_secs(3600);

/// Series kept in memory; the one that was used longest ago makes room.
const SERIES_MAX: usize = 4096;

/// Different events of one object at once, and the time after which one more is accepted; as client-go.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct EventObject(ObjectReference);

impl From<ObjectReference> for EventObject {
    fn from(mut reference: ObjectReference) -> EventObject {
        // A repetition is one whatever the version.
        reference.resource_version = None;
        EventObject(reference)
    }
}

impl EventObject {
    pub(super) fn reference(&self) -> &ObjectReference {
        &self.0
    }

    pub(super) fn name(&self) -> &str {
        self.0.name.as_deref().unwrap_or_default()
    }

    /// The namespace of its events.
    pub(super) fn namespace(&self) -> &str {
        self.0.namespace.as_deref().filter(|it| !it.is_empty()).unwrap_or("default")
    }
}

impl Eq for EventObject {}

impl Hash for EventObject {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let ObjectReference { api_version, kind, name, namespace, uid, field_path, .. } = &self.0;
        (api_version, kind, name, namespace, uid, field_path).hash(state);
    }
}

/// What makes two events the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeriesKey {
    pub(super) object: EventObject,
    pub(super) event: RecordedEvent,
}

impl Hash for SeriesKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.object.hash(state);
        (self.event.event_type, &self.event.reason, &self.event.message).hash(state);
    }
}

/// Result of adding an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Added {
    Accepted,
    /// The object has too many different events.
    DroppedRate,
}

/// A request to the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Write {
    Create { count: i32, first: Time, last: Time },
    Count { name: String, count: i32, last: Time },
}

struct Series {
    /// The written event.
    name: Option<String>,
    count: i32,
    written_count: i32,
    first: Time,
    last: Time,
    used_at: Instant,
    /// No write before this time.
    not_before: Instant,
    is_queued: bool,
}

/// The series of a controller.
#[derive(Default)]
pub(super) struct SeriesSet {
    series: HashMap<SeriesKey, Series>,
    /// First events, in the order in which they were recorded.
    fresh: VecDeque<SeriesKey>,
    /// Tokens of objects, and when they were counted.
    tokens: HashMap<EventObject, (f64, Instant)>,
    is_flushing: bool,
}

impl SeriesSet {
    pub(super) fn add(&mut self, key: SeriesKey, time: Time, now: Instant) -> Added {
        if let Some(series) = self.series.get_mut(&key)
            && now.saturating_duration_since(series.used_at) < SERIES_AGE_MAX
        {
            series.count = series.count.saturating_add(1);
            series.last = time;
            series.used_at = now;
            return Added::Accepted;
        }
        if !self.take_token(&key.object, now) {
            return Added::DroppedRate;
        }
        self.make_room();
        let series = Series {
            name: None,
            count: 1,
            written_count: 0,
            first: time.clone(),
            last: time,
            used_at: now,
            not_before: now,
            is_queued: true,
        };
        self.series.insert(key.clone(), series);
        self.fresh.push_back(key);
        Added::Accepted
    }

    /// The next event to write. One of [`written`], [`expired`] and [`failed`] must follow.
    ///
    /// [`written`]: SeriesSet::written
    /// [`expired`]: SeriesSet::expired
    /// [`failed`]: SeriesSet::failed
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(SeriesKey, Write)> {
        while let Some(key) = self.fresh.pop_front() {
            if self.series.contains_key(&key) {
                return self.take(key, now);
            }
        }
        let is_flushing = self.is_flushing;
        let is_due = |series: &Series| series.has_news() && (is_flushing || series.not_before <= now);
        let due = self.series.iter().find(|(_, series)| is_due(series)).map(|(key, _)| key.clone())?;
        self.take(due, now)
    }

    fn take(&mut self, key: SeriesKey, now: Instant) -> Option<(SeriesKey, Write)> {
        let series = self.series.get_mut(&key)?;
        series.not_before = now + INTERVAL;
        series.written_count = series.count;
        series.is_queued = false;
        let (count, last) = (series.count, series.last.clone());
        let write = match &series.name {
            Some(name) => Write::Count { name: name.clone(), count, last },
            None => Write::Create { count, first: series.first.clone(), last },
        };
        Some((key, write))
    }

    /// The event was written under this name.
    pub(super) fn written(&mut self, key: &SeriesKey, name: String) {
        if let Some(series) = self.series.get_mut(key) {
            series.name = Some(name);
        }
    }

    /// The API server no longer has the event, so it is written anew.
    pub(super) fn expired(&mut self, key: &SeriesKey) {
        if let Some(series) = self.series.get_mut(key) {
            series.name = None;
            series.is_queued = true;
            self.fresh.push_back(key.clone());
        }
    }

    /// The write failed; the next repetition tries again after the interval.
    pub(super) fn failed(&mut self, key: &SeriesKey) {
        if let Some(series) = self.series.get_mut(key) {
            series.written_count = series.count;
        }
    }

    /// The time of the next write, if nothing is recorded before.
    pub(super) fn next_write(&self) -> Option<Instant> {
        let waiting = self.series.values().filter(|series| series.has_news());
        waiting.map(|series| series.not_before).min()
    }

    /// From now on intervals do not count.
    pub(super) fn flush(&mut self) {
        self.is_flushing = true;
    }

    fn take_token(&mut self, object: &EventObject, now: Instant) -> bool {
        let accrued = |(tokens, at): (f64, Instant)| {
            let elapsed = now.saturating_duration_since(at).as_secs_f64();
            (tokens + elapsed / REFILL.as_secs_f64()).min(BURST)
        };
        if self.tokens.len() >= SERIES_MAX {
            self.tokens.retain(|_, tokens| accrued(*tokens) < BURST);
        }
        let tokens = self.tokens.get(object).map_or(BURST, |tokens| accrued(*tokens));
        if tokens < 1.0 {
            return false;
        }
        self.tokens.insert(object.clone(), (tokens - 1.0, now));
        true
    }

    fn make_room(&mut self) {
        if self.series.len() < SERIES_MAX {
            return;
        }
        // An eighth at once, so that a flood does not search all of them for each event.
        let mut ages: BTreeSet<Instant> = self.series.values().map(|series| series.used_at).collect();
        let kept = ages.split_off(&ages.iter().copied().nth(ages.len() / 8).unwrap_or_else(Instant::now));
        let oldest_kept = kept.first().copied();
        self.series.retain(|_, series| oldest_kept.is_some_and(|oldest| series.used_at >= oldest));
        // Everything in the same instant.
        if self.series.len() >= SERIES_MAX {
            self.series.clear();
        }
        let live: std::collections::HashSet<EventObject> =
            self.series.keys().map(|key| key.object.clone()).collect();
        if self.tokens.len() >= 2 * SERIES_MAX {
            self.tokens.retain(|object, _| live.contains(object));
        }
    }
}

impl Series {
    fn has_news(&self) -> bool {
        !self.is_queued && self.count > self.written_count
    }
}
