//! The record of a demonstration in a file: actions that were done are not repeated, even if the user reverted them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use cli::private_file;

/// The file in the data directory.
const FILE: &str = "demo.json";

#[derive(Debug, Default, Serialize, Deserialize)]
struct RecordFile {
    done: BTreeSet<String>,
}

/// The record of a data directory.
#[derive(Debug)]
pub(super) struct Record {
    path: PathBuf,
    content: Mutex<RecordFile>,
}

impl Record {
    /// Reads the record; a missing one is empty.
    pub(super) fn open(data_dir: &Path) -> anyhow::Result<Record> {
        let path = data_dir.join(FILE);
        let content = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .with_context(|| format!("{}: not a record of a demonstration", path.display()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => RecordFile::default(),
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        };
        let record = Record { path, content: Mutex::new(content) };
        record.write(&record.lock())?;
        Ok(record)
    }

    /// Whether the action was done.
    pub(super) fn has(&self, action: &str) -> bool {
        self.lock().done.contains(action)
    }

    /// Records that the action was done.
    pub(super) fn add(&self, action: &str) -> anyhow::Result<()> {
        let mut content = self.lock();
        content.done.insert(action.to_owned());
        self.write(&content)
    }

    fn lock(&self) -> MutexGuard<'_, RecordFile> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file atomically, so that a killed process leaves the old or the new one.
    fn write(&self, content: &RecordFile) -> anyhow::Result<()> {
        let text = serde_json::to_string(content)?;
        private_file::write(&self.path, &text)
    }
}

/// Whether a demonstration was started in this data directory.
pub(super) fn is_in(data_dir: &Path) -> bool {
    data_dir.join(FILE).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completed_actions_are_known_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_in(directory.path()));
        let record = Record::open(directory.path()).unwrap();
        assert!(!record.has("cluster anchor"));
        record.add("cluster anchor").unwrap();
        assert!(record.has("cluster anchor") && is_in(directory.path()));
        assert!(Record::open(directory.path()).unwrap().has("cluster anchor"));
        std::fs::write(directory.path().join(FILE), "[]").unwrap();
        let error = Record::open(directory.path()).unwrap_err().to_string();
        assert!(error.contains("not a record of a demonstration"), "{error}");
    }
}
