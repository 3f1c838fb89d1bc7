//! ProgressSink of a verb: what it does and waits for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use api::clock::SharedClock;
use jiff::Timestamp;

use crate::drain::Blocker;

/// ProgressSink about one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgressNote {
    /// The object: `node worker-1`, `pod web/frontend-1`.
    pub about: String,
    /// What is being done, or waited for.
    pub sentence: String,
    /// Since when.
    pub since: Timestamp,
    /// What is waited for, if the verb only waits.
    pub waiting_for: Option<String>,
    /// What blocks a drain.
    pub blockers: Vec<Blocker>,
}

type Sink = dyn Fn(&ProgressNote) + Send + Sync;

/// Receives the progress of a verb. An unchanged sentence is not reported again, so that `since` is accurate.
#[derive(Clone)]
pub struct ProgressSink {
    sink: Arc<Sink>,
    clock: SharedClock,
    latest: Arc<Mutex<HashMap<String, String>>>,
}

impl ProgressSink {
    /// Passes every new note to `sink`, which must not block.
    pub fn new(clock: SharedClock, sink: impl Fn(&ProgressNote) + Send + Sync + 'static) -> ProgressSink {
        ProgressSink { sink: Arc::new(sink), clock, latest: Arc::default() }
    }

    /// Discards all progress.
    pub fn disabled() -> ProgressSink {
        ProgressSink::new(Arc::new(api::clock::SystemClock), |_| {})
    }

    /// Reports what is done for `about`.
    pub(crate) fn say(&self, about: impl Into<String>, sentence: impl Into<String>) {
        self.tell(about.into(), sentence.into(), None, Vec::new());
    }

    /// Reports what is waited for.
    pub(crate) fn wait(&self, about: impl Into<String>, what: &str) {
        self.tell(about.into(), format!("waits for {what}"), Some(what.to_owned()), Vec::new());
    }

    /// Reports what blocks a drain.
    pub(crate) fn blocked(
        &self,
        about: impl Into<String>,
        sentence: impl Into<String>,
        blockers: Vec<Blocker>,
    ) {
        self.tell(about.into(), sentence.into(), None, blockers);
    }

    fn tell(&self, about: String, sentence: String, waiting_for: Option<String>, blockers: Vec<Blocker>) {
        let note = ProgressNote { about, sentence, since: self.clock.now(), waiting_for, blockers };
        {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.get(&note.about) == Some(&note.sentence) {
                return;
            }
            latest.insert(note.about.clone(), note.sentence.clone());
        }
        tracing::debug!("{}: {}", note.about, note.sentence);
        (self.sink)(&note);
    }
}

impl fmt::Debug for ProgressSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

#[cfg(test)]
mod tests {
    use api::clock::ManualClock;

    use super::*;

    #[test]
    fn an_unchanged_sentence_is_reported_once() {
        let label = Arc::new(Mutex::new(Vec::new()));
        let sink = label.clone();
        let progress = ProgressSink::new(ManualClock::at(Timestamp::UNIX_EPOCH), move |note| {
            sink.lock().unwrap().push(note.clone());
        });
        progress.say("node a", "waits for 2 pods");
        progress.say("node a", "waits for 2 pods");
        progress.say("node b", "waits for 2 pods");
        progress.say("node a", "waits for 1 pod");
        let label: Vec<_> =
            label.lock().unwrap().iter().map(|note| format!("{}: {}", note.about, note.sentence)).collect();
        assert_eq!(
            label,
            ["node a: waits for 2 pods", "node b: waits for 2 pods", "node a: waits for 1 pod"]
        );
    }
}
