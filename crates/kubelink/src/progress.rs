//! What a verb is doing and waiting for, told while it happens.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use api::clock::SharedClock;
use jiff::Timestamp;

use crate::drain::Blocker;

/// One sentence about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is about: `node worker-1`, `pod web/frontend-1`.
    pub about: String,
    /// What is being done, or waited for.
    pub sentence: String,
    /// Since when this has been so.
    pub since: Timestamp,
    /// What is waited for, when it is nothing but that.
    pub waiting_for: Option<String>,
    /// What holds up a drain.
    pub blockers: Vec<Blocker>,
}

type Sink = dyn Fn(&Note) + Send + Sync;

/// Takes notes from a verb. A sentence that has not changed is not told again, so that `since` is the truth.
#[derive(Clone)]
pub struct Progress {
    sink: Arc<Sink>,
    clock: SharedClock,
    latest: Arc<Mutex<HashMap<String, String>>>,
}

impl Progress {
    /// Hands every new note to `sink`, which must not block.
    pub fn new(clock: SharedClock, sink: impl Fn(&Note) + Send + Sync + 'static) -> Progress {
        Progress { sink: Arc::new(sink), clock, latest: Arc::default() }
    }

    /// Tells nobody.
    pub fn silent() -> Progress {
        Progress::new(Arc::new(api::clock::SystemClock), |_| {})
    }

    /// Says what is so for `about` now.
    pub(crate) fn say(&self, about: impl Into<String>, sentence: impl Into<String>) {
        self.tell(about.into(), sentence.into(), None, Vec::new());
    }

    /// Says what is waited for.
    pub(crate) fn wait(&self, about: impl Into<String>, what: &str) {
        self.tell(about.into(), format!("waits for {what}"), Some(what.to_owned()), Vec::new());
    }

    /// Says what holds up a drain.
    pub(crate) fn hold(&self, about: impl Into<String>, sentence: impl Into<String>, blockers: Vec<Blocker>) {
        self.tell(about.into(), sentence.into(), None, blockers);
    }

    fn tell(&self, about: String, sentence: String, waiting_for: Option<String>, blockers: Vec<Blocker>) {
        let note = Note { about, sentence, since: self.clock.now(), waiting_for, blockers };
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

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

#[cfg(test)]
mod tests {
    use api::clock::ManualClock;

    use super::*;

    #[test]
    fn a_sentence_is_told_once_until_it_changes() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = told.clone();
        let progress = Progress::new(ManualClock::at(Timestamp::UNIX_EPOCH), move |note| {
            sink.lock().unwrap().push(note.clone());
        });
        progress.say("node a", "waits for 2 pods");
        progress.say("node a", "waits for 2 pods");
        progress.say("node b", "waits for 2 pods");
        progress.say("node a", "waits for 1 pod");
        let told: Vec<_> =
            told.lock().unwrap().iter().map(|note| format!("{}: {}", note.about, note.sentence)).collect();
        assert_eq!(told, ["node a: waits for 2 pods", "node b: waits for 2 pods", "node a: waits for 1 pod"]);
    }
}
