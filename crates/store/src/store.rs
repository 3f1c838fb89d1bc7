//! The handles of the store: [`Store`] for writers, [`Reader`] for readers, and narrow handles for services that
//! write one thing ([`HealthWriter`], [`WorkerRegistry`], [`AuditWriter`]).

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
use crate::records::{HealthEvent, HealthSample};
use crate::registry::WorkerRegistry;
use crate::sqlite::Sqlite;
use crate::transaction::{CommitResult, Transaction, Write, validate, validate_ends};
use crate::work::{
    Budget, CLAIM_MAX, ClaimedWork, CompleteAndClaimResult, Completion, CompletionOutcome, LEASE, LaneView,
    NewWork, QueueView, Release, RenewedLease, Signals, SweepProgress, TAKE_OVER_MAX, WorkLease, WorkView,
};
use crate::{DocumentQuery, PAGE_MAX, StoreError, StoredDocument};

/// Most key changes that one write follows; more would be no rotation but a conflict of two.
const KEY_CHANGES_MAX: usize = 5;

/// Most finished work in one read: more would not fit a chart.
const ENDED_MAX: usize = 5_000;

/// Samples in one statement.
const HEALTH_BLOCK: usize = 500;

/// An open store for writers. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    reader: Reader,
    pub(crate) clock: SharedClock,
    /// Key of the writer marks on audit entries; none while the chain's key is missing.
    entry_key: Arc<RwLock<Option<EntryKey>>>,
}

/// An open store for readers. Cheap to clone.
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
    /// Opens a store, creating and migrating it as the options allow.
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
            crate::rotate::adopt_keys(&store).await?;
            Ok(crate::audit::start(&store).await?)
        };
        match fitted.await {
            Ok(()) => Ok(store),
            Err(error) => {
                store.close().await;
                Err(error)
            }
        }
    }

    /// Schema version of a store, without changing anything.
    pub async fn schema(options: &Options) -> Result<Schema, OpenError> {
        match &options.location {
            Location::Sqlite(_) => Sqlite::schema(options),
            Location::Postgres(_) => Postgres::schema(options).await,
        }
    }

    /// The same store, read-only.
    pub fn reader(&self) -> Reader {
        self.reader.clone()
    }

    /// A handle that can only write health samples.
    pub fn health_writer(&self) -> HealthWriter {
        HealthWriter { engine: self.engine.clone() }
    }

    /// A handle that can only write the membership of workers in a pool.
    pub fn worker_registry(&self, pool: &'static str) -> WorkerRegistry {
        WorkerRegistry::new(self.engine.clone(), pool)
    }

    /// A handle that can only write audit entries.
    pub fn audit_writer(&self) -> AuditWriter {
        AuditWriter { store: self.clone() }
    }

    /// Sets the key that marks audit entries.
    pub(crate) fn set_entry_key(&self, key: Option<EntryKey>) {
        *self.entry_key.write().unwrap_or_else(std::sync::PoisonError::into_inner) = key;
    }

    /// Adds the writer's mark to an audit entry.
    fn marked(&self, entry: AuditEntry) -> NewAuditRecord {
        let key = self.entry_key.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        NewAuditRecord::new(entry, key.as_ref())
    }

    /// Commits all changes of a transaction, or none.
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
                // Another process rotated the key since sealing, and nothing was written: seal again with the new
                // key.
                Err(StoreError::StaleKey { current, .. }) => {
                    transaction = self.reseal_transaction(transaction, &current)?;
                }
                outcome => return outcome,
            }
        }
        self.engine.commit(transaction).await
    }

    fn reseal_transaction(
        &self,
        mut transaction: Transaction,
        key_id: &str,
    ) -> Result<Transaction, StoreError> {
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

    /// Enqueues work; all of it or none.
    pub async fn enqueue(&self, work: Vec<NewWork>) -> Result<(), StoreError> {
        let transaction = work.into_iter().fold(Transaction::new(), Transaction::enqueue);
        self.commit(transaction).await.map(drop)
    }

    /// Claims up to `max` (and [`CLAIM_MAX`]) pieces of due work, one from each free lane, longest due first. Claim
    /// only what can start at once.
    pub async fn claim(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.claim_for(kind, max, owner, LEASE).await
    }

    /// The same, with another lease duration.
    pub async fn claim_for(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.engine.claim(kind, max.min(CLAIM_MAX), owner, lease).await
    }

    /// Stores a finished step; returns the signals to the holder.
    pub async fn checkpoint(
        &self,
        lease: WorkLease,
        step: &str,
        data: serde_json::Value,
    ) -> Result<Signals, StoreError> {
        let committed = self.commit(Transaction::new().checkpoint(lease, step, data)).await?;
        Ok(committed.signals(lease.work))
    }

    /// Completes many pieces of work; each succeeds or fails alone.
    pub async fn complete(&self, completions: &[Completion]) -> Result<Vec<CompletionOutcome>, StoreError> {
        let prepared: Vec<PreparedCompletion> =
            completions.iter().map(PreparedCompletion::new).collect::<Result<_, _>>()?;
        self.complete_prepared(&prepared).await
    }

    async fn complete_prepared(
        &self,
        completions: &[PreparedCompletion],
    ) -> Result<Vec<CompletionOutcome>, StoreError> {
        if completions.is_empty() {
            return Ok(Vec::new());
        }
        validate_ends(completions)?;
        self.engine.complete(completions).await
    }

    /// Completes work and claims other work with the fewest commits: one on SQLite, where a lane freed by a
    /// completion can be claimed at once; two in parallel on PostgreSQL.
    pub async fn complete_and_claim(
        &self,
        completions: &[PreparedCompletion],
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> CompleteAndClaimResult {
        if max == 0 || completions.is_empty() || validate_ends(completions).is_err() {
            let completed = self.complete_prepared(completions).await;
            return CompleteAndClaimResult {
                completed,
                claimed: self.claim_for(kind, max, owner, lease).await,
            };
        }
        self.engine.complete_and_claim(completions, kind, max.min(CLAIM_MAX), owner, lease).await
    }

    /// Releases work to be continued later.
    pub async fn release(&self, release: Release) -> Result<(), StoreError> {
        self.commit(Transaction::new().release(release)).await.map(drop)
    }

    /// Renews the leases on lanes that this process holds. Lanes missing in the result are lost.
    pub async fn renew(&self, owner: Uuid, lanes: Vec<Uuid>) -> Result<Vec<RenewedLease>, StoreError> {
        self.renew_for(owner, lanes, LEASE).await
    }

    /// The same, with another lease duration.
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

    /// Takes over up to `max` pieces of work whose leases expired.
    pub async fn take_over(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.take_over_for(kind, max, owner, LEASE).await
    }

    /// The same, with another lease duration.
    pub async fn take_over_for(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        self.engine.take_over(kind, max.min(TAKE_OVER_MAX), owner, lease).await
    }

    /// Times out unstarted work past its `run_before`, checking `max` pieces behind `after`.
    pub async fn expire(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        self.engine.expire(after, max).await
    }

    /// Corrects lane heads that do not match the work, checking `max` lanes behind `after`. Any correction points to
    /// a bug.
    pub async fn repair(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        self.engine.repair(after, max).await
    }

    /// Sets, changes or (with none) removes a limit on concurrent work.
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

    /// Acquires or renews a named lease, for duties of one process; returns its fence, or none while another owner
    /// holds it.
    pub async fn take_lease(
        &self,
        name: &str,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        self.engine.take_lease(name, owner, lease).await
    }

    /// Releases a named lease early.
    pub async fn release_lease(&self, name: &str, owner: Uuid) -> Result<(), StoreError> {
        self.engine.release_lease(name, owner).await
    }
}

impl Reader {
    /// Opens a store that others may write to; fails on an unsupported schema.
    pub async fn open(options: Options) -> Result<Reader, OpenError> {
        let engine = match &options.location {
            Location::Sqlite(_) => Engine::Sqlite(Sqlite::open_to_read(&options)?),
            Location::Postgres(_) => Engine::Postgres(Postgres::open_to_read(&options).await?),
        };
        let reader = Reader { engine, keyring: options.keyring };
        crate::rotate::check_keys(&reader).await?;
        Ok(reader)
    }

    /// Stops background tasks and closes connections; acknowledged writes are on disk.
    pub async fn close(&self) {
        self.engine.close().await;
    }

    /// Location of the database, without password.
    pub fn location(&self) -> String {
        self.engine.location()
    }

    /// Notifications of writes by this and other processes, on any host.
    pub fn notifications(&self, topic: Topic) -> Notifications {
        self.engine.notifications(topic)
    }

    /// Checks that the database responds, and that no known condition prevents writes.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.engine.ping().await
    }

    /// Document by identity; none when it is deleted.
    pub async fn get(&self, uuid: Uuid) -> Result<Option<StoredDocument>, StoreError> {
        self.get_raw(uuid).await?.map(StoredDocument::open).transpose()
    }

    pub(crate) async fn get_raw(&self, uuid: Uuid) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        self.engine.get(uuid).await
    }

    /// Documents by identity, in no particular order; deleted ones are absent.
    pub async fn get_many(&self, uuids: Vec<Uuid>) -> Result<Vec<StoredDocument>, StoreError> {
        self.many_raw(uuids).await?.into_iter().map(StoredDocument::open).collect()
    }

    pub(crate) async fn many_raw(
        &self,
        uuids: Vec<Uuid>,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        self.engine.get_many(uuids).await
    }

    /// Paths of deleted documents, for readers of the feed; kept as long as the feed.
    pub async fn deleted_paths(&self, uuids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, StoreError> {
        self.engine.deleted_paths(uuids).await
    }

    /// Document by path, in any case; none when it is deleted.
    pub async fn find(&self, path: &str) -> Result<Option<StoredDocument>, StoreError> {
        self.find_raw(path).await?.map(StoredDocument::open).transpose()
    }

    pub(crate) async fn find_raw(&self, path: &str) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        if path.contains('\0') {
            return Ok(None);
        }
        self.engine.find(&path.to_lowercase()).await
    }

    /// Identity and version of the document at that path: a cheap check whether something derived from it is still
    /// current.
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

    /// Decrypted secret.
    pub async fn secret(&self, owner: Uuid, name: &str) -> Result<Option<Secret<Vec<u8>>>, StoreError> {
        if name.contains('\0') {
            return Ok(None);
        }
        let sealed = self.engine.secret(owner, name).await?;
        sealed.map(|sealed| self.keyring.open(&sealed)).transpose()
    }

    /// Seals a text that a client stores and returns, such as a page token.
    pub fn seal_text(&self, purpose: &str, text: &str) -> Result<String, StoreError> {
        self.keyring.seal_text(purpose, text)
    }

    /// Opens such a text; none unless this store sealed it for that purpose.
    pub fn open_text(&self, purpose: &str, text: &str) -> Option<String> {
        self.keyring.open_text(purpose, text)
    }

    /// Live or finished work by id.
    pub async fn work(&self, id: Uuid) -> Result<Option<WorkView>, StoreError> {
        Ok(self.engine.works(vec![id]).await?.pop())
    }

    /// Many pieces of work by id; unknown ids are absent.
    pub async fn works(&self, ids: Vec<Uuid>) -> Result<Vec<WorkView>, StoreError> {
        self.engine.works(ids).await
    }

    /// Pending work of a lane, in the order in which it will run.
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

    /// Claimed work of a kind, up to `limit`.
    pub async fn running(&self, kind: WorkKind, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        self.engine.running(kind, limit.clamp(1, PAGE_MAX)).await
    }

    /// Work of a kind that finished at `from` or later and started before `to`, or never did, most recently finished
    /// first, up to `limit`, without checkpoints. Scans the whole history.
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

    /// Entries of a piece of work, oldest first, behind the entry `after`; each with its number.
    pub async fn entries(
        &self,
        work: Uuid,
        after: Option<i64>,
        limit: usize,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        self.engine.entries(work, after.unwrap_or(0).max(0), limit.clamp(1, PAGE_MAX)).await
    }

    /// Number of entries dropped from a full history.
    pub async fn entries_dropped(&self, work: Uuid) -> Result<u64, StoreError> {
        self.engine.entries_dropped(work).await
    }

    /// Figures of the queue of a kind.
    pub async fn queue(&self, kind: WorkKind) -> Result<QueueView, StoreError> {
        self.engine.queue(kind).await
    }

    /// Named leases with this prefix that are held now, each with its expiry.
    pub async fn leases(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        if prefix.contains('\0') {
            return Ok(Vec::new());
        }
        self.engine.leases(prefix).await
    }

    /// Many lanes, in no particular order; lanes that never had work are absent.
    pub async fn lanes(&self, lanes: Vec<Uuid>) -> Result<Vec<LaneView>, StoreError> {
        self.engine.lanes(lanes).await
    }

    /// One lane.
    pub async fn lane(&self, lane: Uuid) -> Result<Option<LaneView>, StoreError> {
        self.engine.lane(lane).await
    }

    /// Time until work of that kind can be claimed; none when nothing is pending.
    pub async fn until_due(&self, kind: WorkKind) -> Result<Option<Duration>, StoreError> {
        self.engine.until_due(kind).await
    }

    /// All limits and their use.
    pub async fn budgets(&self) -> Result<Vec<Budget>, StoreError> {
        self.engine.budgets().await
    }

    /// Newest samples of these clusters; clusters without one are absent.
    pub async fn health(&self, clusters: Vec<Uuid>) -> Result<Vec<HealthSample>, StoreError> {
        self.engine.health(clusters).await
    }

    /// Transitions of the health of these clusters at `from` or later, newest first, up to `limit`.
    pub async fn health_events(
        &self,
        clusters: Vec<Uuid>,
        from: Timestamp,
        limit: usize,
    ) -> Result<Vec<HealthEvent>, StoreError> {
        self.engine.health_events(clusters, from.as_microsecond(), limit.clamp(1, ENDED_MAX)).await
    }

    /// Position behind everything visible in the feed now.
    pub async fn feed_end(&self) -> Result<Position, StoreError> {
        self.engine.feed_end().await
    }

    /// Page of changes behind a position.
    pub async fn feed_after(&self, position: Position, limit: usize) -> Result<FeedPage, FeedError> {
        self.engine.feed_after(position, limit.clamp(1, FEED_PAGE_MAX)).await
    }

    /// Position that a feed reader saved last.
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

/// Writes health samples and their history only; for the monitor.
#[derive(Debug, Clone)]
pub struct HealthWriter {
    engine: Engine,
}

impl HealthWriter {
    /// Stores the newest sample of each cluster, with the store's time, and an event for each facet that has changed since its last
    /// event, also when another process wrote that.
    pub async fn put(&self, samples: Vec<HealthSample>) -> Result<(), StoreError> {
        for block in samples.chunks(HEALTH_BLOCK) {
            self.engine.put_health(block.to_vec()).await?;
        }
        Ok(())
    }

    /// Sets the time of the samples of clusters that `observer` observed again, each reachable or not as before. It rewrites no
    /// sample. Returns the clusters whose sample it was: the others' were written by somebody else meanwhile.
    pub async fn confirm(
        &self,
        observer: Uuid,
        clusters: Vec<(Uuid, bool)>,
    ) -> Result<Vec<Uuid>, StoreError> {
        let mut confirmed = Vec::with_capacity(clusters.len());
        for block in clusters.chunks(HEALTH_BLOCK) {
            confirmed.extend(self.engine.confirm_health(observer, block.to_vec()).await?);
        }
        Ok(confirmed)
    }
}

/// Writes audit entries only; for the gateway.
#[derive(Debug, Clone)]
pub struct AuditWriter {
    store: Store,
}

impl AuditWriter {
    /// Adds entries to the audit log.
    pub async fn put(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.store.commit(entries.into_iter().fold(Transaction::new(), Transaction::audit)).await.map(drop)
    }
}
