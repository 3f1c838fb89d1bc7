//! Logs of simulated containers: the last lines of each, in memory.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

/// Limit on the log of a container; the oldest lines are dropped first.
const LOG_BYTES_MAX: usize = 16 << 10;

/// The logs of one cluster's containers, by the uid of the pod and the name of the container.
#[derive(Debug)]
pub struct Logs {
    texts: Mutex<HashMap<(String, String), String>>,
    changed: watch::Sender<u64>,
}

impl Default for Logs {
    fn default() -> Logs {
        Logs { texts: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Logs {
    /// Appends a line.
    pub fn append(&self, pod_uid: &str, container: &str, line: &str) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let text = texts.entry((pod_uid.to_owned(), container.to_owned())).or_default();
        text.push_str(line);
        text.push('\n');
        while text.len() > LOG_BYTES_MAX {
            let end = text.find('\n').map_or(text.len(), |index| index + 1);
            text.drain(..end);
        }
        drop(texts);
        self.changed.send_modify(|count| *count += 1);
    }

    /// The stored part of a container's log.
    pub fn read(&self, pod_uid: &str, container: &str) -> String {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(&(pod_uid.to_owned(), container.to_owned())).cloned().unwrap_or_default()
    }

    /// Removes the logs of a deleted pod.
    pub(crate) fn forget(&self, pod_uid: &str) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.retain(|(uid, _), _| uid != pod_uid);
    }

    /// Notifies about every line.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
