//! The doors of the store: [`Store`] for those who write, [`Reader`] for those who only read, and narrow handles for
//! those who read and write one thing ([`HealthWriter`], [`AuditWriter`]).

use std::ops::Deref;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use api::admin::Entry;
use api::audit::AuditEntry;
use api::clock::SharedClock;
use api::secret::Secret;
use api::work::WorkKind;
use jiff::Timestamp;
use uuid::Uuid;

use crate::audit::{EntryKey, NewAuditRecord};
use crate::completion::PreparedCompletion;
use crate::document::RawBody;
use crate::engine::{AuditQuery, AuditRow, Engine};
use crate::feed::{FEED_PAGE_MAX, FeedError, FeedPage, Position};
use crate::keyring::{Keyring, SealedSecret};
use crate::notify::{Notifications, Topic};
use crate::open::{Location, OpenError, Options, Schema};
use crate::postgres::Postgres;
use crate::records::HealthSample;
use crate::sqlite::Sqlite;
use crate::transaction::{CommitResult, Transaction, Write, validate, validate_ends};
use crate::work::{
    Budget, CLAIM_MAX, ClaimedWork, CompleteAndClaimResult, Completion, CompletionOutcome, LEASE, LaneView,
    NewWork, QueueView, Release, RenewedLease, Signals, SweepProgress, TAKE_OVER_MAX, WorkLease, WorkView,
};
use crate::{DocumentQuery, PAGE_MAX, StoreError, StoredDocument};

/// So many changes of the key are met within one write; more would be no rotation but a fight.
const KEY_CHANGES_MAX: usize = 5;

/// So much ended work is read at once: a chart with more of it could not be read by anybody.
const ENDED_MAX: usize = 5_000;

/// Samples go into one statement in blocks of this size.
const HEALTH_BLOCK: usize = 500;

/// An open store, for those who write. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    reader: Reader,
    pub(crate) clock: SharedClock,
    /// By which audit entries are marked; none while the chain's key is gone.
    entry_key: Arc<RwLock<Option<EntryKey>>>,
}

/// An open store, for those who only read. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(crate) engine: Engine,
    pub(crate) keyring: Keyring,
}

impl Deref for Store {
    type Target = Reader;

    fn deref(&self) -> &Reader {
        &self.reader
    }
}

impl Store {
    /// Opens a store, making and migrating it as the options allow.
    pub async fn open(options: Options) -> Result<Store, OpenError> {
        let engine = match &options.location {
            Location::Sqlite(_) => Engine::Sqlite(Sqlite::open(&options).await?),
            Location::Postgres(_) => Engine::Postgres(Postgres::open(&options).await?),
        };
        let store = Store {
            reader: Reader { engine, keyring: options.keyring },
            clock: options.clock,
            entry_key: Arc::default(),
        };
        let fitted = async {
            crate::rotate::fit_keys(&store).await?;
            Ok(crate::audit::begin(&store).await?)
        };
        match fitted.await {
            Ok(()) => Ok(store),
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }

    /// The schema that a store has, without changing anything.
    pub async fn schema(options: &Options) -> Result<Schema, OpenError> {
        match &options.location {
            Location::Sqlite(_) => Sqlite::schema(options),
            Location::Postgres(_) => Postgres::schema(options).await,
        }
    }

    /// The same store, for those who only read.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// The right to write health samples, and nothing else.
    pub fn health_writer(&self) -> HealthWriter {
        HealthWriter { engine: self.engine.clone() }
    }

    /// The right to write audit entries, and nothing else.
    pub fn audit_writer(&self) -> AuditWriter {
        AuditWriter { store: self.clone() }
    }

    /// Marks audit entries by that key from now on.
    pub(crate) fn mark_entries_with(&self, key: Option<EntryKey>) {
        *self.entry_key.write().unwrap_or_else(std::sync::PoisonError::into_inner) = key;
    }

    /// An audit entry with the mark by which the sealer knows that we wrote it.
    fn marked(&self, entry: AuditEntry) -> NewAuditRecord {
        let key = self.entry_key.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        NewAuditRecord::new(entry, key.as_ref())
    }

    /// Makes all changes of a transaction, or none.
    pub async fn commit(&self, mut transaction: Transaction) -> Result<CommitResult, StoreError> {
        validate(&transaction)?;
        for write in &mut transaction.writes {
            if let Write::Audit(record) = write {
                *record = self.marked(record.entry.clone());
            }
        }
        if !transaction
            .writes
            .iter()
            .any(|write| matches!(write, Write::PutSecret(_) | Write::EnsureSecret(_)))
        {
            return self.engine.commit(transaction).await;
        }
        for _ in 0..KEY_CHANGES_MAX {
            match self.engine.commit(transaction.clone()).await {
                // Somebody rotated the key since we sealed; nothing was written. Once more, with the new key.
                Err(StoreError::StaleKey { current, .. }) => {
                    transaction = self.sealed_anew(transaction, &current)?;
                }
                outcome => return outcome,
            }
        }
        self.engine.commit(transaction).await
    }

    fn sealed_anew(&self, mut transaction: Transaction, key_id: &str) -> Result<Transaction, StoreError> {
        crate::rotate::prefer_key(&self.keyring, key_id)?;
        for write in &mut transaction.writes {
            if let Write::PutSecret(sealed) | Write::EnsureSecret(sealed) = write {
                let plain = self.keyring.open(sealed)?;
                *sealed = self.keyring.seal_with(key_id, sealed.owner, &sealed.name, plain.expose())?;
            }
        }
        Ok(transaction)
    }

    /// Seals a secret for [`Transaction::put_secret`].
    pub fn seal(&self, owner: Uuid, name: &str, plain: &[u8]) -> Result<SealedSecret, StoreError> {
        self.keyring.seal(owner, name, plain)
    }

    /// Adds work to the queue; all of it or none.
    pub async fn enqueue(&self, work: Vec<NewWork>) -> Result<(), StoreError> {
        let transaction = work.into_iter().fold(Transaction::new(), Transaction::enqueue);
        self.commit(transaction).await.map(drop)
    }

    /// Takes up to `max` (and [`CLAIM_MAX`]) pieces of work that are due, one from each free lane, the longest due
    /// first. Never claim what cannot be started at once.
    pub async fn claim(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.claim_for(kind, max, owner, LEASE).await
    }

    /// The same, with a lease of another length.
    pub async fn claim_for(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.engine.claim(kind, max.min(CLAIM_MAX), owner, lease).await
    }

    /// Remembers that a step is done, and learns what the holder is asked to do.
    pub async fn checkpoint(
        &self,
        lease: WorkLease,
        step: &str,
        data: serde_json::Value,
    ) -> Result<Signals, StoreError> {
        let committed = self.commit(Transaction::new().checkpoint(lease, step, data)).await?;
        Ok(committed.signals(lease.work))
    }

    /// Ends many pieces of work; each stands alone.
    pub async fn complete(&self, completions: &[Completion]) -> Result<Vec<CompletionOutcome>, StoreError> {
        let ends: Vec<PreparedCompletion> =
            completions.iter().map(PreparedCompletion::new).collect::<Result<_, _>>()?;
        self.end(&ends).await
    }

    async fn end(&self, ends: &[PreparedCompletion]) -> Result<Vec<CompletionOutcome>, StoreError> {
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        validate_ends(ends)?;
        self.engine.complete(ends).await
    }

    /// Ends work and claims what may take its place, with as few commits as will do: one on SQLite, where a lane that an end
    /// frees can be claimed in the same turn; two side by side on PostgreSQL, and the slower one is waited for.
    pub async fn complete_and_claim(
        &self,
        ends: &[PreparedCompletion],
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> CompleteAndClaimResult {
        if max == 0 || ends.is_empty() || validate_ends(ends).is_err() {
            let ended = self.end(ends).await;
            return CompleteAndClaimResult {
                completed: ended,
                claimed: self.claim_for(kind, max, owner, lease).await,
            };
        }
        self.engine.complete_and_claim(ends, kind, max.min(CLAIM_MAX), owner, lease).await
    }

    /// Gives work back to be continued later.
    pub async fn release(&self, release: Release) -> Result<(), StoreError> {
        self.commit(Transaction::new().release(release)).await.map(drop)
    }

    /// Prolongs the leases on lanes that this process holds. What is not among the answers is lost.
    pub async fn renew(&self, owner: Uuid, lanes: Vec<Uuid>) -> Result<Vec<RenewedLease>, StoreError> {
        self.renew_for(owner, lanes, LEASE).await
    }

    /// The same, with a lease of another length.
    pub async fn renew_for(
        &self,
        owner: Uuid,
        lanes: Vec<Uuid>,
        lease: Duration,
    ) -> Result<Vec<RenewedLease>, StoreError> {
        if lanes.is_empty() {
            return Ok(Vec::new());
        }
        self.engine.renew(owner, lanes, lease).await
    }

    /// Takes over up to `max` pieces of work whose holders' leases ran out.
    pub async fn take_over(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.take_over_for(kind, max, owner, LEASE).await
    }

    /// The same, with a lease of another length.
    pub async fn take_over_for(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.engine.take_over(kind, max.min(TAKE_OVER_MAX), owner, lease).await
    }

    /// Closes fresh work past its time, looking at `max` pieces behind `after`.
    pub async fn expire(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        self.engine.expire(after, max).await
    }

    /// Corrects heads that do not agree with the work, looking at `max` lanes behind `after`. That it ever finds one
    /// is an alarm.
    pub async fn repair(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        self.engine.repair(after, max).await
    }

    /// Sets, changes or (with none) removes a limit on how much runs at once.
    pub async fn set_budget(
        &self,
        key: &str,
        limit: Option<u32>,
        audit: Option<AuditEntry>,
    ) -> Result<(), StoreError> {
        if key.is_empty() || key.len() > crate::transaction::BUDGET_BYTES_MAX || key.contains('\0') {
            return Err(StoreError::invalid(format!(
                "budget {key:?}: its name must have 1 to 200 bytes and no NUL"
            )));
        }
        if limit.is_some_and(|limit| i32::try_from(limit).is_err()) {
            return Err(StoreError::invalid(format!(
                "budget {key:?}: its limit must be at most {}",
                i32::MAX
            )));
        }
        let audit = audit.map(|entry| self.marked(entry));
        self.engine.set_budget(key.to_owned(), limit, audit).await
    }

    /// Takes or renews a named lease, for what only one process may do; its fence, or none while somebody else has it.
    pub async fn take_lease(
        &self,
        name: &str,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        self.engine.take_lease(name, owner, lease).await
    }

    /// Gives a named lease back early.
    pub async fn release_lease(&self, name: &str, owner: Uuid) -> Result<(), StoreError> {
        self.engine.release_lease(name, owner).await
    }
}

impl Reader {
    /// Opens a store that others may be writing to; a schema that does not fit is refused.
    pub async fn open(options: Options) -> Result<Reader, OpenError> {
        let engine = match &options.location {
            Location::Sqlite(_) => Engine::Sqlite(Sqlite::open_to_read(&options)?),
            Location::Postgres(_) => Engine::Postgres(Postgres::open_to_read(&options).await?),
        };
        let reader = Reader { engine, keyring: options.keyring };
        crate::rotate::check_keys(&reader).await?;
        Ok(reader)
    }

    /// Ends background work and connections; what was answered stays written.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// The database in words, without password.
    pub fn location(&self) -> String {
        self.engine.location()
    }

    /// Waits for what others, here or on other hosts, have written.
    pub fn notifications(&self, topic: Topic) -> Notifications {
        self.engine.notifications(topic)
    }

    /// Answers when the database does, and when nothing is known that would keep us from writing to it.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.engine.ping().await
    }

    /// A living document.
    pub async fn get(&self, uuid: Uuid) -> Result<Option<StoredDocument>, StoreError> {
        self.get_raw(uuid).await?.map(StoredDocument::open).transpose()
    }

    pub(crate) async fn get_raw(&self, uuid: Uuid) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        self.engine.get(uuid).await
    }

    /// Living documents, in no particular order; those that do not live are absent.
    pub async fn get_many(&self, uuids: Vec<Uuid>) -> Result<Vec<StoredDocument>, StoreError> {
        self.many_raw(uuids).await?.into_iter().map(StoredDocument::open).collect()
    }

    pub(crate) async fn many_raw(
        &self,
        uuids: Vec<Uuid>,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        self.engine.get_many(uuids).await
    }

    /// The paths that deleted documents had, for those who hear of the deletion; forgotten with the feed.
    pub async fn deleted_paths(&self, uuids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, StoreError> {
        self.engine.deleted_paths(uuids).await
    }

    /// The living document of that path, in any spelling.
    pub async fn find(&self, path: &str) -> Result<Option<StoredDocument>, StoreError> {
        self.find_raw(path).await?.map(StoredDocument::open).transpose()
    }

    pub(crate) async fn find_raw(&self, path: &str) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        if path.contains('\0') {
            return Ok(None);
        }
        self.engine.find(&path.to_lowercase()).await
    }

    /// Which document lives at that path, and in which version: whoever kept what it made of one learns whether that is still
    /// true, without reading the document again.
    pub async fn version(&self, path: &str) -> Result<Option<(Uuid, crate::Etag)>, StoreError> {
        if path.contains('\0') {
            return Ok(None);
        }
        self.engine.version(&path.to_lowercase()).await
    }

    /// A page of documents.
    pub async fn list(&self, listing: DocumentQuery) -> Result<Vec<StoredDocument>, StoreError> {
        self.list_raw(listing).await?.into_iter().map(StoredDocument::open).collect()
    }

    pub(crate) async fn list_raw(
        &self,
        listing: DocumentQuery,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        let limit = listing.limit.clamp(1, PAGE_MAX);
        let has_nul = |text: &String| text.contains('\0');
        if has_nul(&listing.kind) || [&listing.parent, &listing.prefix].into_iter().flatten().any(has_nul) {
            return Ok(Vec::new());
        }
        self.engine.list(DocumentQuery { limit, ..listing }).await
    }

    /// A secret, opened.
    pub async fn secret(&self, owner: Uuid, name: &str) -> Result<Option<Secret<Vec<u8>>>, StoreError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let sealed = self.engine.secret(owner, name).await?;
        sealed.map(|sealed| self.keyring.open(&sealed)).transpose()
    }

    /// Seals a text that a caller carries and brings back, such as where a list goes on.
    pub fn seal_text(&self, purpose: &str, text: &str) -> Result<String, StoreError> {
        self.keyring.seal_text(purpose, text)
    }

    /// Opens such a text; none when it is none that this store sealed for that purpose.
    pub fn open_text(&self, purpose: &str, text: &str) -> Option<String> {
        self.keyring.open_text(purpose, text)
    }

    /// Work by its id, live or ended.
    pub async fn work(&self, id: Uuid) -> Result<Option<WorkView>, StoreError> {
        Ok(self.engine.works(vec![id]).await?.pop())
    }

    /// Many pieces of work at once; unknown ids are absent.
    pub async fn works(&self, ids: Vec<Uuid>) -> Result<Vec<WorkView>, StoreError> {
        self.engine.works(ids).await
    }

    /// The pending work of a lane, in the order in which it will run.
    pub async fn pending(&self, lane: Uuid, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        self.engine.pending(lane, limit.clamp(1, PAGE_MAX)).await
    }

    /// Pending work of one origin, by id, behind `after`.
    pub async fn pending_for_origin(
        &self,
        origin: &str,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        if origin.contains('\0') {
            return Ok(Vec::new());
        }
        self.engine.pending_for_origin(origin, after, limit.clamp(1, PAGE_MAX)).await
    }

    /// Pending and running work of a kind, by id, behind `after`.
    pub async fn live(
        &self,
        kind: WorkKind,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        self.engine.live(kind, after, limit.clamp(1, PAGE_MAX)).await
    }

    /// Work of a kind that somebody holds now; at most so many.
    pub async fn running(&self, kind: WorkKind, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        self.engine.running(kind, limit.clamp(1, PAGE_MAX)).await
    }

    /// Work of a kind that ended at `from` or later and began before `to`, or never did, the newest end first; at most so
    /// many, without their checkpoints. All history is looked through for it.
    pub async fn finished(
        &self,
        kind: WorkKind,
        from: Timestamp,
        to: Timestamp,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        let limit = limit.clamp(1, ENDED_MAX);
        self.engine.finished(kind, from.as_microsecond(), to.as_microsecond(), limit).await
    }

    /// What was told of a piece of work, oldest first, behind the entry `after`; each with its number.
    pub async fn entries(
        &self,
        work: Uuid,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        self.engine.entries(work, after.unwrap_or(0).max(0), limit.clamp(1, PAGE_MAX)).await
    }

    /// How many entries were left out of a log that was full.
    pub async fn entries_dropped(&self, work: Uuid) -> Result<u64, StoreError> {
        self.engine.entries_dropped(work).await
    }

    /// How a kind of work stands.
    pub async fn queue(&self, kind: WorkKind) -> Result<QueueView, StoreError> {
        self.engine.queue(kind).await
    }

    /// The named leases that begin with `prefix` and are held now, each with the time at which it runs out.
    pub async fn leases(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        if prefix.contains('\0') {
            return Ok(Vec::new());
        }
        self.engine.leases(prefix).await
    }

    /// Many lanes at once, in no particular order; those that never had work are absent.
    pub async fn lanes(&self, lanes: Vec<Uuid>) -> Result<Vec<LaneView>, StoreError> {
        self.engine.lanes(lanes).await
    }

    /// A lane.
    pub async fn lane(&self, lane: Uuid) -> Result<Option<LaneView>, StoreError> {
        self.engine.lane(lane).await
    }

    /// How long until work of that kind can be claimed; none when none waits.
    pub async fn until_due(&self, kind: WorkKind) -> Result<Option<Duration>, StoreError> {
        self.engine.until_due(kind).await
    }

    /// All limits and their use.
    pub async fn budgets(&self) -> Result<Vec<Budget>, StoreError> {
        self.engine.budgets().await
    }

    /// The newest samples of these clusters; those never looked at are absent.
    pub async fn health(&self, clusters: Vec<Uuid>) -> Result<Vec<HealthSample>, StoreError> {
        self.engine.health(clusters).await
    }

    /// The place in the feed behind everything that is visible now.
    pub async fn feed_end(&self) -> Result<Position, StoreError> {
        self.engine.feed_end().await
    }

    /// What came behind a position.
    pub async fn feed_after(&self, position: Position, limit: usize) -> Result<FeedPage, FeedError> {
        self.engine.feed_after(position, limit.clamp(1, FEED_PAGE_MAX)).await
    }

    /// How far a feed reader had come when it last said so.
    pub async fn saved_position(&self, reader: &str) -> Result<Option<Position>, StoreError> {
        if reader.contains('\0') {
            return Ok(None);
        }
        self.engine.saved_position(reader).await
    }

    /// A page of the audit log, newest first.
    pub async fn audit_list(&self, listing: AuditQuery) -> Result<Vec<AuditRow>, StoreError> {
        let limit = listing.limit.clamp(1, PAGE_MAX);
        let texts = [&listing.actor, &listing.target, &listing.action];
        if texts.into_iter().flatten().any(|text| text.contains('\0')) {
            return Ok(Vec::new());
        }
        self.engine.audit_list(AuditQuery { limit, ..listing }).await
    }
}

/// Writes health samples, and nothing else: what the monitor is handed.
#[derive(Debug, Clone)]
pub struct HealthWriter {
    engine: Engine,
}

impl HealthWriter {
    /// Remembers the newest sample of each cluster, with the store's time.
    pub async fn put(&self, samples: Vec<HealthSample>) -> Result<(), StoreError> {
        for block in samples.chunks(HEALTH_BLOCK) {
            self.engine.put_health(block.to_vec()).await?;
        }
        Ok(())
    }
}

/// Writes audit entries, and nothing else: what the gateway is handed.
#[derive(Debug, Clone)]
pub struct AuditWriter {
    store: Store,
}

impl AuditWriter {
    /// Adds entries to the log.
    pub async fn put(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.store.commit(entries.into_iter().fold(Transaction::new(), Transaction::audit)).await.map(drop)
    }
}
