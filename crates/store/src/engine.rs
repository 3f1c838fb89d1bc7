//! The two engines behind one interface. The set is closed, so it is an enum; each method is implemented once for
//! each engine, and the conformance tests hold them to the same behaviour.

use std::collections::HashSet;
use std::time::Duration;

use api::admin::Entry;
use api::audit::AuditRecord;
use api::work::WorkKind;
use jiff::Timestamp;
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::audit::NewAuditRecord;
use crate::completion::PreparedCompletion;
use crate::document::RawBody;
use crate::feed::{FeedError, FeedPage, Position};
use crate::keyring::SealedSecret;
use crate::notify::{Notifications, Topic};
use crate::open::OpenError;
use crate::postgres::Postgres;
use crate::records::{HealthEvent, HealthSample, Retention};
use crate::sqlite::Sqlite;
use crate::transaction::{CommitResult, Transaction};
use crate::work::{
    Budget, ClaimedWork, CompleteAndClaimResult, CompletionOutcome, LaneView, QueueView, RenewedLease,
    SweepProgress, WorkView,
};
use crate::{DocumentQuery, StoreError, StoredDocument};

/// An open database.
#[derive(Debug, Clone)]
pub(crate) enum Engine {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// Query for the audit log, newest record first.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Exact actor.
    pub actor: Option<String>,
    /// Prefix of the target.
    pub target: Option<String>,
    /// Prefix of the action.
    pub action: Option<String>,
    /// Continue behind this record, toward older ones.
    pub before: Option<AuditPosition>,
    /// Most results.
    pub limit: usize,
}

/// Position of a record in the log; ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditPosition {
    pub(crate) tx: i64,
    pub(crate) seq: i64,
}

impl std::fmt::Display for AuditPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.tx, self.seq)
    }
}

impl std::str::FromStr for AuditPosition {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<AuditPosition, StoreError> {
        let parts = text.split_once('-').and_then(|(tx, seq)| Some((tx.parse().ok()?, seq.parse().ok()?)));
        parts
            .filter(|(tx, seq): &(i64, i64)| *tx >= 0 && *seq >= 0)
            .map(|(tx, seq)| AuditPosition { tx, seq })
            .ok_or_else(|| {
                StoreError::invalid("the position was not issued by a page of the audit log".to_owned())
            })
    }
}

/// A record with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its position.
    pub place: AuditPosition,
    /// The record.
    pub record: AuditRecord,
    /// Writer's mark.
    pub(crate) mac: Option<String>,
    /// Time of sealing, in microseconds.
    pub(crate) sealed_at: Option<i64>,
    /// Whether the sealer rejected it.
    pub(crate) refused: bool,
}

/// Seal of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditSeal {
    pub(crate) place: AuditPosition,
    pub(crate) number: i64,
    pub(crate) seal: String,
    /// Time of sealing, in microseconds; covered by the seal.
    pub(crate) sealed_at: i64,
}

/// Rows that retention removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionTarget {
    /// Feed rows past their age; the newest row always stays.
    Feed,
    /// Tombstones deleted before that age, and whose feed rows are removed.
    Tombstones,
    /// Sealed audit records behind one number up to another, regardless of age; the newest sealed one always stays.
    Audit { from: i64, up_to: i64 },
    /// Named leases that expired before that age. A name that comes back gets a higher fence than any before.
    Leases,
    /// Transitions of health before that age; the newest of each facet stays while its cluster exists.
    HealthEvents,
}

/// One row of a table in an export or import: column name to value. Uuids are hyphenated text, bytes are base64 text,
/// JSON columns are JSON.
pub(crate) type Row = Map<String, Value>;

/// Calls a synchronous method of the engine.
macro_rules! dispatch {
    ($self:ident, $engine:ident => $call:expr) => {
        match $self {
            Engine::Sqlite($engine) => $call,
            Engine::Postgres($engine) => $call,
        }
    };
}

/// Calls an asynchronous method of the engine. The large future of the PostgreSQL client is boxed, so that futures of
/// SQLite callers stay small.
macro_rules! dispatch_async {
    ($self:ident, $engine:ident => $call:expr) => {
        match $self {
            Engine::Sqlite($engine) => $call.await,
            Engine::Postgres($engine) => Box::pin($call).await,
        }
    };
}

impl Engine {
    /// Location of the database, without password.
    pub(crate) fn location(&self) -> String {
        dispatch!(self, it => it.location())
    }

    /// Notifications of writes by this and other processes.
    pub(crate) fn notifications(&self, topic: Topic) -> Notifications {
        dispatch!(self, it => it.notifications(topic))
    }

    /// Stops background tasks and closes connections; acknowledged writes are on disk.
    pub(crate) async fn close(&self) {
        dispatch_async!(self, it => it.close());
    }

    /// Checks that the database responds.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        match self {
            Engine::Sqlite(it) => it.ping().await,
            Engine::Postgres(it) => it.meta("generation").await.map(drop),
        }
    }

    // Writes.

    pub(crate) async fn commit(&self, transaction: Transaction) -> Result<CommitResult, StoreError> {
        dispatch_async!(self, it => it.commit(transaction))
    }

    pub(crate) async fn claim(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        dispatch_async!(self, it => it.claim(kind, max, owner, lease))
    }

    pub(crate) async fn complete(
        &self,
        completions: &[PreparedCompletion],
    ) -> Result<Vec<CompletionOutcome>, StoreError> {
        dispatch_async!(self, it => it.complete(completions))
    }

    /// Completes work and claims other work.
    pub(crate) async fn complete_and_claim(
        &self,
        completions: &[PreparedCompletion],
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> CompleteAndClaimResult {
        match self {
            Engine::Sqlite(it) => it.complete_and_claim(completions, kind, max, owner, lease).await,
            // In parallel, each with its own connection and locks: one transaction would lock budgets in two rounds.
            Engine::Postgres(it) => {
                let both =
                    async { tokio::join!(it.complete(completions), it.claim(kind, max, owner, lease)) };
                let (completed, claimed) = Box::pin(both).await;
                CompleteAndClaimResult { completed, claimed }
            }
        }
    }

    pub(crate) async fn renew(
        &self,
        owner: Uuid,
        lanes: Vec<Uuid>,
        lease: Duration,
    ) -> Result<Vec<RenewedLease>, StoreError> {
        dispatch_async!(self, it => it.renew(owner, lanes, lease))
    }

    pub(crate) async fn take_over(
        &self,
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Vec<ClaimedWork>, StoreError> {
        dispatch_async!(self, it => it.take_over(kind, max, owner, lease))
    }

    /// Times out unstarted work past its `run_before`, checking `max` rows of work behind `after`.
    pub(crate) async fn expire(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        dispatch_async!(self, it => it.expire(after, max))
    }

    /// Corrects lane heads that do not match the work, checking `max` lanes behind `after`.
    pub(crate) async fn repair(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        dispatch_async!(self, it => it.repair(after, max))
    }

    /// Sets, changes or removes (`None`) a limit.
    pub(crate) async fn set_budget(
        &self,
        key: String,
        limit: Option<u32>,
        audit: Option<NewAuditRecord>,
    ) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.set_budget(key, limit, audit))
    }

    pub(crate) async fn put_health(&self, samples: Vec<HealthSample>) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.put_health(samples))
    }

    /// Sets the time of samples that `observer` wrote last and that still have this reachability; returns their clusters.
    pub(crate) async fn confirm_health(
        &self,
        observer: Uuid,
        clusters: Vec<(Uuid, bool)>,
    ) -> Result<Vec<Uuid>, StoreError> {
        dispatch_async!(self, it => it.confirm_health(observer, clusters))
    }

    /// Stores the buckets of a pool, if `owner` holds the lease `lease`; returns whether it does.
    pub(crate) async fn put_pool(
        &self,
        name: &str,
        lease: &str,
        owner: Uuid,
        buckets: Value,
    ) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.put_pool(name, lease, owner, buckets))
    }

    /// Acquires or renews a named lease; returns its fence, or none while another owner holds it.
    pub(crate) async fn take_lease(
        &self,
        name: &str,
        owner: Uuid,
        lease: Duration,
    ) -> Result<Option<i64>, StoreError> {
        dispatch_async!(self, it => it.take_lease(name, owner, lease))
    }

    pub(crate) async fn release_lease(&self, name: &str, owner: Uuid) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.release_lease(name, owner))
    }

    /// Writes seals and meta values, if `fence` is still that of the lease `name`.
    pub(crate) async fn seal_audit(
        &self,
        name: &str,
        fence: i64,
        sealings: Vec<AuditSeal>,
        meta: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.seal_audit(name, fence, sealings, meta))
    }

    /// Removes up to `max` rows older than `age`; sets the meta values in the same transaction if it removed any.
    pub(crate) async fn trim(
        &self,
        target: RetentionTarget,
        age: Duration,
        max: usize,
        meta: Vec<(String, String)>,
    ) -> Result<usize, StoreError> {
        dispatch_async!(self, it => it.trim(target, age, max, meta))
    }

    /// Removes up to `max` pieces of finished work past the retention of their kind, each with its entries and the
    /// document of the same uuid (which leaves a tombstone and a feed row). PostgreSQL has an index for this; SQLite
    /// checks `rows` rows behind `after` and returns where to continue.
    pub(crate) async fn trim_history(
        &self,
        keep: Retention,
        after: Option<Uuid>,
        rows: usize,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        match self {
            Engine::Sqlite(it) => it.trim_history(keep, after, rows, max).await,
            Engine::Postgres(it) => it.trim_history(keep, max).await,
        }
    }

    /// Removes health samples of deleted clusters, checking `max` samples behind `after`.
    pub(crate) async fn trim_health(
        &self,
        after: Option<Uuid>,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        dispatch_async!(self, it => it.trim_health(after, max))
    }

    /// Sets values that do not exist yet, in one transaction.
    pub(crate) async fn ensure_meta(&self, values: Vec<(String, String)>) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.ensure_meta(values))
    }

    /// Replaces a value, if it is still the expected one.
    pub(crate) async fn replace_meta(
        &self,
        key: String,
        old: String,
        new: String,
    ) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.replace_meta(key, old, new))
    }

    /// Replaces a sealed secret by the same one under another key, if it has not changed meanwhile.
    pub(crate) async fn reseal(&self, old: SealedSecret, new: SealedSecret) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.reseal(old, new))
    }

    // Reads.

    pub(crate) async fn get(&self, uuid: Uuid) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        dispatch_async!(self, it => it.get(uuid))
    }

    /// Paths of deleted documents.
    pub(crate) async fn deleted_paths(&self, uuids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, StoreError> {
        dispatch_async!(self, it => it.deleted_paths(uuids))
    }

    /// Documents and health samples in one read, in no particular order; deleted documents are absent.
    pub(crate) async fn get_with_health(
        &self,
        uuids: Vec<Uuid>,
        clusters: Vec<Uuid>,
    ) -> Result<(Vec<StoredDocument<RawBody>>, Vec<HealthSample>), StoreError> {
        dispatch_async!(self, it => it.get_with_health(uuids, clusters))
    }

    pub(crate) async fn get_many(
        &self,
        uuids: Vec<Uuid>,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        dispatch_async!(self, it => it.get_many(uuids))
    }

    pub(crate) async fn find(&self, id: &str) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        dispatch_async!(self, it => it.find(id))
    }

    pub(crate) async fn version(&self, id: &str) -> Result<Option<(Uuid, crate::Etag)>, StoreError> {
        dispatch_async!(self, it => it.version(id))
    }

    pub(crate) async fn list(
        &self,
        query: DocumentQuery,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        dispatch_async!(self, it => it.list(query))
    }

    pub(crate) async fn secret(&self, owner: Uuid, name: &str) -> Result<Option<SealedSecret>, StoreError> {
        dispatch_async!(self, it => it.secret(owner, name))
    }

    /// All secrets sorted by owner and name, behind `after`; without those sealed by the key `not_of`.
    pub(crate) async fn secrets(
        &self,
        not_of: Option<String>,
        after: Option<(Uuid, String)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        dispatch_async!(self, it => it.secrets(not_of, after, limit))
    }

    /// Live or finished work by id; unknown ids are absent.
    pub(crate) async fn works(&self, ids: Vec<Uuid>) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.works(ids))
    }

    /// Pending work of a lane, in the order in which it will run.
    pub(crate) async fn pending(&self, lane: Uuid, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.pending(lane, limit))
    }

    /// Pending work of one origin, by id.
    pub(crate) async fn pending_for_origin(
        &self,
        origin: &str,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.pending_for_origin(origin, after, limit))
    }

    /// Pending and running work of a kind, by id.
    pub(crate) async fn live(
        &self,
        kind: WorkKind,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.live(kind, after, limit))
    }

    /// Work that is claimed now.
    pub(crate) async fn running(&self, kind: WorkKind, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.running(kind, limit))
    }

    /// Work that finished at `from` or later and started before `to`, most recently finished first, without its
    /// checkpoint.
    pub(crate) async fn finished(
        &self,
        kind: WorkKind,
        from: i64,
        to: i64,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.finished(kind, from, to, limit))
    }

    /// Entries of a piece of work, behind the entry `after`.
    pub(crate) async fn entries(
        &self,
        work: Uuid,
        after: i64,
        limit: usize,
    ) -> Result<Vec<(i64, Entry)>, StoreError> {
        dispatch_async!(self, it => it.entries(work, after, limit))
    }

    pub(crate) async fn entries_dropped(&self, work: Uuid) -> Result<u64, StoreError> {
        dispatch_async!(self, it => it.entries_dropped(work))
    }

    pub(crate) async fn queue(&self, kind: WorkKind) -> Result<QueueView, StoreError> {
        dispatch_async!(self, it => it.queue(kind))
    }

    /// Named leases held now.
    pub(crate) async fn leases(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        dispatch_async!(self, it => it.leases(prefix))
    }

    /// Lanes by id; unknown ones are absent.
    pub(crate) async fn lanes(&self, lanes: Vec<Uuid>) -> Result<Vec<LaneView>, StoreError> {
        dispatch_async!(self, it => it.lanes(lanes))
    }

    pub(crate) async fn lane(&self, lane: Uuid) -> Result<Option<LaneView>, StoreError> {
        dispatch_async!(self, it => it.lane(lane))
    }

    /// Time until the next free lane of that kind is due: zero when one is due, none when nothing is pending.
    pub(crate) async fn until_due(&self, kind: WorkKind) -> Result<Option<Duration>, StoreError> {
        dispatch_async!(self, it => it.until_due(kind))
    }

    pub(crate) async fn budgets(&self) -> Result<Vec<Budget>, StoreError> {
        dispatch_async!(self, it => it.budgets())
    }

    /// The buckets of a pool.
    pub(crate) async fn pool(&self, name: &str) -> Result<Option<Value>, StoreError> {
        dispatch_async!(self, it => it.pool(name))
    }

    /// Transitions of clusters' health at `from` or later, newest first.
    pub(crate) async fn health_events(
        &self,
        clusters: Vec<Uuid>,
        from: i64,
        limit: usize,
    ) -> Result<Vec<HealthEvent>, StoreError> {
        dispatch_async!(self, it => it.health_events(clusters, from, limit))
    }

    pub(crate) async fn health(&self, clusters: Vec<Uuid>) -> Result<Vec<HealthSample>, StoreError> {
        dispatch_async!(self, it => it.health(clusters))
    }

    /// Position behind everything visible now.
    pub(crate) async fn feed_end(&self) -> Result<Position, StoreError> {
        dispatch_async!(self, it => it.feed_end())
    }

    pub(crate) async fn feed_after(&self, position: Position, limit: usize) -> Result<FeedPage, FeedError> {
        dispatch_async!(self, it => it.feed_after(position, limit))
    }

    pub(crate) async fn saved_position(&self, reader: &str) -> Result<Option<Position>, StoreError> {
        dispatch_async!(self, it => it.saved_position(reader))
    }

    pub(crate) async fn meta(&self, key: &str) -> Result<Option<String>, StoreError> {
        dispatch_async!(self, it => it.meta(key))
    }

    pub(crate) async fn audit_list(&self, listing: AuditQuery) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_list(listing))
    }

    /// Unsealed records in feed order that no later commit can precede.
    pub(crate) async fn audit_unsealed(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_unsealed(limit))
    }

    /// Sealed records by number, from `number` on.
    pub(crate) async fn audit_sealed(&self, number: i64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_sealed(number, limit))
    }

    /// Records outside the chain, by position: unsealed ones, rejected ones, and ones at positions that the sealer
    /// has passed.
    pub(crate) async fn audit_unnumbered(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_unnumbered(limit))
    }

    /// Whether the sealer still has to process an entry, including one that is committed but hidden behind an open
    /// transaction; with `unmarked`, only entries without a mark. A position in the future is forged, and nothing
    /// waits for it.
    pub(crate) async fn audit_waits(&self, unmarked: bool) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.audit_waits(unmarked))
    }

    /// The subset of these ids that is in the chain.
    pub(crate) async fn audit_known(&self, ids: Vec<Uuid>) -> Result<HashSet<Uuid>, StoreError> {
        dispatch_async!(self, it => it.audit_known(ids))
    }

    /// Marks records as rejected; returns those that were neither sealed nor rejected before.
    pub(crate) async fn reject_audit(
        &self,
        places: Vec<AuditPosition>,
    ) -> Result<HashSet<AuditPosition>, StoreError> {
        dispatch_async!(self, it => it.reject_audit(places))
    }

    /// The database's time, in microseconds.
    pub(crate) async fn now_micros(&self) -> Result<i64, StoreError> {
        dispatch_async!(self, it => it.now_micros())
    }

    /// Runs the queries of the checks in one snapshot: each returns at most `limit` violations.
    pub(crate) async fn violations(
        &self,
        queries: Vec<String>,
        limit: usize,
    ) -> Result<Vec<Vec<String>>, StoreError> {
        dispatch_async!(self, it => it.violations(queries, limit))
    }

    /// Integrity faults that the engine itself reports of its files or indexes.
    pub(crate) async fn soundness(&self) -> Result<Vec<String>, StoreError> {
        dispatch_async!(self, it => it.soundness())
    }

    /// Time for which the oldest open writing transaction has delayed the feed.
    pub(crate) async fn feed_delay(&self) -> Result<Duration, StoreError> {
        dispatch_async!(self, it => it.feed_delay())
    }

    /// Rows of a table in key order, behind the row `after`.
    pub(crate) async fn dump(
        &self,
        table: &'static crate::transfer::Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        dispatch_async!(self, it => it.dump(table, after, limit))
    }
}

/// An import in progress: one transaction, committed at its end or not at all.
#[derive(Debug)]
pub(crate) enum Import {
    Sqlite(crate::sqlite::Import),
    Postgres(crate::postgres::Import),
}

impl Import {
    /// Starts an import; the database must be empty except for its schema.
    pub(crate) async fn start(engine: &Engine) -> Result<Import, OpenError> {
        Ok(match engine {
            Engine::Sqlite(it) => Import::Sqlite(it.begin_import().await?),
            Engine::Postgres(it) => Import::Postgres(it.begin_import().await?),
        })
    }

    pub(crate) async fn rows(
        &mut self,
        table: &'static crate::transfer::Table,
        rows: Vec<Row>,
    ) -> Result<(), StoreError> {
        match self {
            Import::Sqlite(it) => it.rows(table, rows).await,
            Import::Postgres(it) => it.rows(table, rows).await,
        }
    }

    /// Sets the meta values and commits.
    pub(crate) async fn commit(self, meta: Vec<(String, String)>) -> Result<(), StoreError> {
        match self {
            Import::Sqlite(it) => it.commit(meta).await,
            Import::Postgres(it) => it.commit(meta).await,
        }
    }
}
