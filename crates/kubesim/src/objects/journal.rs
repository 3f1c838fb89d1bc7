//! The journal of one cluster: a file to which every change is written, one line each, before it is acknowledged. A
//! restarted process loads it. The last line may be incomplete after a crash; that change was never acknowledged and
//! is dropped.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{EventType, Object, TableName, WatchEvent};

/// A journal smaller than this is never compacted, because reading it takes no time.
const COMPACT_FROM_BYTES: u64 = 1 << 20;
/// The journal is compacted when it has grown by this factor since the last compaction.
const COMPACT_GROWTH: u64 = 4;

/// The journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// An operation on the file failed.
    #[error("failed to {operation} the journal {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        operation: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A line other than the last one is damaged.
    #[error("the journal {} is damaged at line {line}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// One line of the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The revision of the change.
    pub revision: u64,
    /// The table.
    pub table: String,
    /// The key of a removed object; empty otherwise.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// The object, unless it was removed.
    #[serde(default)]
    pub object: Option<Value>,
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    length: u64,
    length_compacted: u64,
}

impl Journal {
    /// Opens or creates the journal and reads its records.
    pub fn open(path: &Path) -> Result<(Journal, Vec<Record>), JournalError> {
        let io = |operation| move |source| JournalError::Io { path: path.to_owned(), operation, source };
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)
            .map_err(io("open"))?;
        let mut records = Vec::new();
        let mut length = 0_u64;
        let mut reader = BufReader::new(&file);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(io("read"))?;
            if read == 0 || line.last() != Some(&b'\n') {
                break;
            }
            let record = serde_json::from_slice(&line);
            records.push(record.map_err(|source| JournalError::Damaged {
                path: path.to_owned(),
                line: records.len() + 1,
                source,
            })?);
            length += read as u64;
        }
        file.set_len(length).map_err(io("truncate"))?;
        let journal =
            Journal { path: path.to_owned(), file, length, length_compacted: length.min(COMPACT_FROM_BYTES) };
        Ok((journal, records))
    }

    /// Writes the events. On failure none of them remains in the file.
    pub fn append(&mut self, events: &[WatchEvent]) -> Result<(), JournalError> {
        let mut lines = Vec::new();
        for event in events {
            match event.kind {
                EventType::Deleted => write_removal(&mut lines, event),
                EventType::Added | EventType::Modified => {
                    write_object(&mut lines, &event.table, &event.object);
                }
            }
        }
        if let Err(source) = self.file.write_all(&lines) {
            // An incomplete line in the middle would make the whole journal unreadable.
            let _ = self.file.set_len(self.length);
            return Err(JournalError::Io { path: self.path.clone(), operation: "write", source });
        }
        self.length += lines.len() as u64;
        Ok(())
    }

    /// Whether most of the journal is obsolete.
    pub fn needs_compaction(&self) -> bool {
        self.length > COMPACT_FROM_BYTES.max(self.length_compacted) * COMPACT_GROWTH
    }

    /// Rewrites the journal with the current objects only.
    pub fn rewrite<'a>(
        &mut self,
        revision: u64,
        live: impl Iterator<Item = (&'a TableName, &'a Arc<Object>)>,
    ) -> Result<(), JournalError> {
        let path = self.path.clone();
        let io = |operation| move |source| JournalError::Io { path: path.clone(), operation, source };
        let new_path = self.path.with_extension("new");
        // Left by a process that was killed here.
        let _ = std::fs::remove_file(&new_path);
        let file = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&new_path);
        let mut writer = BufWriter::new(file.map_err(io.clone()("rewrite"))?);
        let mut line = Vec::new();
        // This record without an object preserves the revision if the newest change is a removal.
        let marker = Record { revision, table: String::new(), key: String::new(), object: None };
        serde_json::to_writer(&mut line, &marker).map_err(|error| io.clone()("rewrite")(error.into()))?;
        line.push(b'\n');
        for (table, object) in live {
            write_object(&mut line, table, object);
            writer.write_all(&line).map_err(io.clone()("rewrite"))?;
            line.clear();
        }
        writer.write_all(&line).map_err(io.clone()("rewrite"))?;
        let mut file = writer.into_inner().map_err(|error| io.clone()("rewrite")(error.into_error()))?;
        file.sync_data().map_err(io.clone()("rewrite"))?;
        let length = file.seek(SeekFrom::End(0)).map_err(io.clone()("rewrite"))?;
        std::fs::rename(&new_path, &self.path).map_err(io("replace"))?;
        // This is the same file under its new name, so no operation that could fail lies in between.
        self.file = file;
        self.length = length;
        self.length_compacted = length;
        Ok(())
    }
}

fn write_object(lines: &mut Vec<u8>, table: &str, object: &Object) {
    let head = format!("{{\"revision\":{},\"table\":{},\"object\":", object.revision(), Value::from(table));
    lines.extend_from_slice(head.as_bytes());
    lines.extend_from_slice(object.json());
    lines.extend_from_slice(b"}\n");
}

fn write_removal(lines: &mut Vec<u8>, event: &WatchEvent) {
    let (table, key) = (Value::from(&*event.table), Value::from(&*event.key));
    let line =
        format!("{{\"revision\":{},\"table\":{table},\"key\":{key},\"object\":null}}\n", event.revision);
    lines.extend_from_slice(line.as_bytes());
}
