//! The log of the last changes, which every watch reads with a cursor of its own. A slow watch costs nothing; one
//! that falls behind the log gets an error.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Object, TableName};

/// Highest number of events: some minutes of a simulated cluster.
const EVENTS_MAX: usize = 1_000;
/// Limit on the size of all events, so that large objects that change often do not fill the memory.
const SIZE_BYTES_MAX: usize = 3 << 20;
/// Limit on the size once events are older than [`OLD`].
const OLD_BYTES_MAX: usize = 256 << 10;
/// Age after which watches are expected to have read an event.
const OLD: Duration = Duration::from_secs(30);
/// Number of events that are always kept, so that a watch of large objects can follow.
const EVENTS_MIN: usize = 100;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// The object was created.
    Added,
    /// The object was replaced.
    Modified,
    /// The object was removed.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct WatchEvent {
    /// The revision of the change.
    pub revision: u64,
    /// The type of the change.
    pub kind: EventType,
    /// The table.
    pub table: TableName,
    /// The key in the table.
    pub key: Arc<str>,
    /// The object after the change; the last state of a removed object.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
}

/// The log of the last changes.
#[derive(Debug)]
pub struct Log {
    events: VecDeque<(Instant, Arc<WatchEvent>)>,
    size_bytes: usize,
    start: u64,
}

impl Log {
    /// An empty log that is complete after `revision`.
    pub fn starting_at(revision: u64) -> Log {
        Log { events: VecDeque::new(), size_bytes: 0, start: revision }
    }

    /// The revision after which the log is complete.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Adds an event and drops the oldest events beyond the limits.
    pub fn push(&mut self, event: WatchEvent) {
        self.size_bytes += event.object.size_bytes();
        self.events.push_back((Instant::now(), Arc::new(event)));
        self.trim();
    }

    /// Drops events beyond the limits.
    pub fn trim(&mut self) {
        while let Some((since, _)) = self.events.front() {
            let count = self.events.len();
            let is_old = self.size_bytes > OLD_BYTES_MAX && since.elapsed() > OLD;
            let surplus =
                count > EVENTS_MAX || ((self.size_bytes > SIZE_BYTES_MAX || is_old) && count > EVENTS_MIN);
            if !surplus {
                break;
            }
            if let Some((_, dropped)) = self.events.pop_front() {
                self.size_bytes -= dropped.object.size_bytes();
                self.start = dropped.revision;
            }
        }
    }

    /// The events after `revision`, or `None` if some of them were dropped.
    pub fn since(&self, revision: u64) -> Option<impl DoubleEndedIterator<Item = &Arc<WatchEvent>>> {
        if revision < self.start {
            return None;
        }
        let from = self.events.partition_point(|(_, event)| event.revision <= revision);
        Some(self.events.range(from..).map(|(_, event)| event))
    }
}
