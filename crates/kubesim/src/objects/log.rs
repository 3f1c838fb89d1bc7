//! What changed last: a bounded log that every watch reads with a cursor of its own. A watcher that is slow costs nothing;
//! one that falls out of the log is told so.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Object, TableName};

/// At most this many events are kept: some minutes of a simulated cluster.
const EVENTS_MAX: usize = 1_000;
/// At most this much is kept, so that large objects that change often do not fill the memory...
const SIZE_BYTES_MAX: usize = 3 << 20;
/// ...and less of what is older than a watcher takes to catch up...
const OLD_BYTES_MAX: usize = 256 << 10;
/// ...which is this...
const OLD: Duration = Duration::from_secs(30);
/// ...but always this many events, so that a watcher of large objects has a chance to follow.
const EVENTS_MIN: usize = 100;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    /// It is new.
    Added,
    /// It was replaced.
    Modified,
    /// It is gone.
    Deleted,
}

/// One change of one object.
#[derive(Debug)]
pub struct WatchEvent {
    /// The revision that the change made.
    pub revision: u64,
    /// What happened.
    pub kind: EventType,
    /// The table.
    pub table: TableName,
    /// The key in the table.
    pub key: Arc<str>,
    /// The object after the change; for a removed one, as it was last.
    pub object: Arc<Object>,
    /// The object before the change.
    pub previous: Option<Arc<Object>>,
}

/// The last changes.
#[derive(Debug)]
pub struct Log {
    events: VecDeque<(Instant, Arc<WatchEvent>)>,
    size_bytes: usize,
    start: u64,
}

impl Log {
    /// An empty log that is whole after `revision`.
    pub fn starting_at(revision: u64) -> Log {
        Log { events: VecDeque::new(), size_bytes: 0, start: revision }
    }

    /// The log is whole after this revision.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Adds an event and drops the oldest beyond the bounds.
    pub fn push(&mut self, event: WatchEvent) {
        self.size_bytes += event.object.size_bytes();
        self.events.push_back((Instant::now(), Arc::new(event)));
        self.trim();
    }

    /// Drops what is beyond the bounds.
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

    /// The events after `revision`, or nothing when some of them are gone.
    pub fn since(&self, revision: u64) -> Option<impl DoubleEndedIterator<Item = &Arc<WatchEvent>>> {
        if revision < self.start {
            return None;
        }
        let from = self.events.partition_point(|(_, event)| event.revision <= revision);
        Some(self.events.range(from..).map(|(_, event)| event))
    }
}
