//! A writer process for tests, to be killed: it creates and changes notes as fast as it can, and prints each
//! acknowledged write, `UUID ETAG BYTES .`, one line at once. It exits when its standard input ends.
//!
//! `note_writer STORE KEYS`: a path or URL, and the key file.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use api::clock::SystemClock;
use api::doc::Document;
use serde::{Deserialize, Serialize};
use store::{AuditContext, Keyring, Location, Options, Store};
use tokio::task::JoinSet;
use uuid::Uuid;

/// Concurrent writers.
const WRITERS: usize = 4;

/// The same document type as in the tests, which read what this process wrote.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    id: String,
    shelf: String,
    text: String,
}

impl Document for Note {
    const KIND: &'static str = "note";

    fn path(&self) -> String {
        self.id.to_lowercase()
    }

    fn scope(&self) -> String {
        self.shelf.clone()
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    let (Some(place), Some(keys)) = (arguments.next(), arguments.next()) else {
        eprintln!("note_writer: give a store and a key file");
        return Ok(ExitCode::from(2));
    };
    // In a separate thread: blocking on the input must not block the runtime's shutdown.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::abort();
    });
    let location = if place.contains("://") { place.parse()? } else { Location::Sqlite(place.into()) };
    let options = Options::new(location, Keyring::read(Path::new(&keys))?, Arc::new(SystemClock));
    let store = Store::open(options).await?;
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        writers.spawn(write(store.clone()));
    }
    while let Some(ended) = writers.join_next().await {
        ended??;
    }
    Ok(ExitCode::SUCCESS)
}

/// Creates a note and changes it twice, for ever. Some texts are long, so that the WAL is checkpointed often.
async fn write(store: Store) -> anyhow::Result<()> {
    let context = AuditContext::service("note_writer");
    for round in 0.. {
        let bytes = [20, 2_000, 30_000][round % 3];
        let id = format!("/notes/{}", Uuid::new_v4());
        let mut note = Note { id, shelf: "/shelf".to_owned(), text: "x".repeat(bytes) };
        let (uuid, etag) = store.collection().create(&note, &context).await?;
        answered(&format!("{uuid} {etag} {bytes} .\n"))?;
        for more in 1..=2 {
            let Some(read) = store.documents::<Note>().get(uuid).await? else {
                anyhow::bail!("{uuid} is gone")
            };
            note.text = "y".repeat(bytes + more);
            let etag = store.collection().update(&read, &note, &context).await?;
            answered(&format!("{uuid} {etag} {} .\n", bytes + more))?;
        }
    }
    Ok(())
}

fn answered(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes())?;
    Ok(out.flush()?)
}
