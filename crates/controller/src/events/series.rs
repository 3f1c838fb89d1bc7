//! Which events are written and when: repetitions are counted, floods are dropped. No I/O and no clock.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
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
    first: Time,
    last: Time,
    used_at: Instant,
    /// No write before this time.
    not_before: Instant,
    /// Whether it waits in `fresh`.
    is_fresh: bool,
}

/// The series of a controller.
#[derive(Default)]
pub(super) struct SeriesSet {
    series: HashMap<SeriesKey, Series>,
    /// First events, in the order in which they were recorded.
    fresh: VecDeque<SeriesKey>,
    /// Series with repetitions that are not written yet.
    repeated: HashSet<SeriesKey>,
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
            if !series.is_fresh {
                self.repeated.insert(key);
            }
            return Added::Accepted;
        }
        if !self.take_token(&key.object, now) {
            return Added::DroppedRate;
        }
        self.make_room();
        let series = Series {
            name: None,
            count: 1,
            first: time.clone(),
            last: time,
            used_at: now,
            not_before: now,
            is_fresh: true,
        };
        self.series.insert(key.clone(), series);
        self.fresh.push_back(key);
        Added::Accepted
    }

    /// The next event to write. It counts as written; a repetition writes it again, however that ended.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(SeriesKey, Write)> {
        while let Some(key) = self.fresh.pop_front() {
            if self.series.get(&key).is_some_and(|series| series.is_fresh) {
                return self.take(key, now);
            }
        }
        self.repeated.retain(|key| self.series.contains_key(key));
        let is_due = |key: &&SeriesKey| self.is_flushing || self.series[*key].not_before <= now;
        let due = self.repeated.iter().find(is_due)?.clone();
        self.repeated.remove(&due);
        self.take(due, now)
    }

    fn take(&mut self, key: SeriesKey, now: Instant) -> Option<(SeriesKey, Write)> {
        let series = self.series.get_mut(&key)?;
        series.not_before = now + INTERVAL;
        series.is_fresh = false;
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
            series.is_fresh = true;
            self.repeated.remove(key);
            self.fresh.push_back(key.clone());
        }
    }

    /// The time of the next write, if nothing is recorded before.
    pub(super) fn next_write(&self) -> Option<Instant> {
        self.repeated.iter().filter_map(|key| self.series.get(key)).map(|series| series.not_before).min()
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
        if self.tokens.len() >= 2 * SERIES_MAX {
            self.tokens.retain(|_, tokens| accrued(*tokens) < BURST);
            if self.tokens.len() >= SERIES_MAX {
                self.tokens.clear();
            }
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
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::EventType;
    use super::*;

    fn key(object: &str, message: &str) -> SeriesKey {
        let object = ObjectReference { name: Some(object.to_owned()), ..ObjectReference::default() };
        let event = RecordedEvent {
            event_type: EventType::Normal,
            reason: "Created".into(),
            message: message.to_owned(),
        };
        SeriesKey { object: object.into(), event }
    }

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    #[test]
    fn repetitions_are_counted_up_with_one_write_per_interval() {
        let (mut set, start) = (SeriesSet::default(), Instant::now());
        let web = key("web", "a");
        set.add(web.clone(), time(0), start);
        let (found, write) = set.take_due(start).unwrap();
        assert_eq!((&found, write), (&web, Write::Create { count: 1, first: time(0), last: time(0) }));
        set.written(&web, "web.1".to_owned());
        for second in 1..=9 {
            set.add(web.clone(), time(second), start + Duration::from_secs(5));
        }
        assert_eq!(set.take_due(start + Duration::from_secs(59)), None);
        assert_eq!(set.next_write(), Some(start + INTERVAL));
        let (_, write) = set.take_due(start + INTERVAL).unwrap();
        assert_eq!(write, Write::Count { name: "web.1".to_owned(), count: 10, last: time(9) });
        assert_eq!(set.next_write(), None);
    }

    #[test]
    fn an_event_that_the_api_server_has_deleted_is_written_anew_with_its_count() {
        let (mut set, start) = (SeriesSet::default(), Instant::now());
        let web = key("web", "a");
        set.add(web.clone(), time(0), start);
        set.take_due(start);
        set.written(&web, "web.1".to_owned());
        set.add(web.clone(), time(3), start);
        set.take_due(start + INTERVAL);
        set.expired(&web);
        let (_, write) = set.take_due(start + INTERVAL).unwrap();
        assert_eq!(write, Write::Create { count: 2, first: time(0), last: time(3) });
    }

    #[test]
    fn what_is_left_at_the_end_is_written_without_waiting() {
        let (mut set, start) = (SeriesSet::default(), Instant::now());
        let web = key("web", "a");
        set.add(web.clone(), time(0), start);
        set.take_due(start);
        set.written(&web, "web.1".to_owned());
        set.add(web, time(1), start);
        assert_eq!(set.take_due(start), None);
        set.flush();
        assert!(set.take_due(start).is_some());
        assert_eq!(set.take_due(start), None);
    }

    #[test]
    fn an_object_with_too_many_different_events_is_limited_and_others_are_not() {
        let (mut set, start) = (SeriesSet::default(), Instant::now());
        let added = |set: &mut SeriesSet, object: &str, now| {
            (0..40)
                .filter(|at| set.add(key(object, &at.to_string()), time(0), now) == Added::Accepted)
                .count()
        };
        assert_eq!(added(&mut set, "web", start), 25);
        assert_eq!(added(&mut set, "db", start), 25);
        // Repetitions of those that were accepted, and one more by now.
        assert_eq!(added(&mut set, "web", start + REFILL), 26);
    }

    #[test]
    fn a_flood_of_objects_is_bounded() {
        let (mut set, start) = (SeriesSet::default(), Instant::now());
        for at in 0..3 * SERIES_MAX {
            let now = start + Duration::from_millis(u64::try_from(at).unwrap());
            set.add(key(&format!("object-{at}"), "a"), time(0), now);
            set.take_due(now);
        }
        assert!(set.series.len() <= SERIES_MAX);
        assert!(set.tokens.len() <= 2 * SERIES_MAX);
    }
}
