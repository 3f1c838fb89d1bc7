//! Clients that run for the length of a slice, each a task of its own as in a service.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use store::{AuditContext, DesiredState, Etag, Store, Transaction, VersionedDocument};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::Note;

/// Runs clients until the slice is over; returns their combined operations per second.
pub(crate) async fn rate<W>(
    count: usize,
    slice: Duration,
    client: impl Fn(usize, Instant) -> W,
) -> anyhow::Result<f64>
where
    W: Future<Output = anyhow::Result<usize>> + Send + 'static,
{
    let started = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..count {
        clients.spawn(client(number, started + slice));
    }
    let mut done = 0;
    while let Some(ended) = clients.join_next().await {
        done += ended.context("a client ended unasked")??;
    }
    Ok(done as f64 / started.elapsed().as_secs_f64())
}

/// Documents of about 1 KB, each with a client that changes it repeatedly.
#[derive(Debug, Clone)]
pub(crate) struct Writers {
    store: Store,
    notes: Arc<Vec<Mutex<VersionedDocument<Note>>>>,
    audited: bool,
}

impl Writers {
    pub(crate) async fn new(store: Store, count: usize) -> anyhow::Result<Writers> {
        let context = AuditContext::service("bench");
        let mut notes = Vec::with_capacity(count);
        for number in 0..count {
            let (uuid, _) = store.collection::<Note>().create(&Note::new(number), &context).await?;
            let note =
                store.documents::<Note>().get(uuid).await?.context("a document that was just created")?;
            notes.push(Mutex::new(note));
        }
        Ok(Writers { store, notes: Arc::new(notes), audited: true })
    }

    /// The same, changing observed state: without audit records.
    pub(crate) fn observing(&self) -> Writers {
        Writers { audited: false, ..self.clone() }
    }

    /// Changes per second; each with its feed row and, unless they only observe, its audit record.
    pub(crate) async fn rate(&self, slice: Duration) -> anyhow::Result<f64> {
        rate(self.notes.len(), slice, |number, end| {
            let writers = self.clone();
            async move { Ok(writers.write(number, end).await?.len()) }
        })
        .await
    }

    /// Changes one document until the end; returns its expected feed rows.
    pub(crate) async fn write(&self, number: usize, end: Instant) -> anyhow::Result<Vec<(Uuid, Etag)>> {
        let context = AuditContext::service("bench");
        let mut note = self.notes[number].lock().await;
        let mut wanted = note.document.clone();
        let mut written = Vec::new();
        while Instant::now() < end {
            wanted.count += 1;
            let transaction = match self.audited {
                true => Transaction::new().update(&note, &wanted, DesiredState::Unchanged, &context)?,
                false => Transaction::new().observe(&note, &wanted)?,
            };
            let committed = self.store.commit(transaction).await?;
            note.etag = committed.etag(note.uuid).context("the etag of what was changed")?;
            written.push((note.uuid, note.etag));
        }
        // The next slice continues from the stored state.
        *note = self
            .store
            .documents::<Note>()
            .get(note.uuid)
            .await?
            .context("a document that is being changed")?;
        Ok(written)
    }
}
