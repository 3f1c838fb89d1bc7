//! The two engines behind one set of verbs. A closed set, so an enum; each verb is written once for each engine, and
//! the conformance tests hold them to the same behaviour.

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
use crate::records::{HealthSample, Retention};
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

/// Which rows of the audit log a list shows, newest first.
#[derive(Debug, Clone, Default)]
pub struct AuditQuery {
    /// Only of this actor.
    pub actor: Option<String>,
    /// Only of targets that begin with this.
    pub target: Option<String>,
    /// Only of actions that begin with this.
    pub action: Option<String>,
    /// Continue behind this record, toward older ones.
    pub before: Option<AuditPosition>,
    /// At most so many.
    pub limit: usize,
}

/// The place of a record in the log; ordered.
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
                StoreError::invalid("the place is none that a page of the audit log named".to_owned())
            })
    }
}

/// A record with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// Its place.
    pub place: AuditPosition,
    /// The record.
    pub record: AuditRecord,
    /// The mark of whoever wrote it.
    pub(crate) mac: Option<String>,
    /// When it was sealed, in microseconds.
    pub(crate) sealed_at: Option<i64>,
    /// Whether the sealer left it out.
    pub(crate) refused: bool,
}

/// What the sealer gives a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuditSeal {
    pub(crate) place: AuditPosition,
    pub(crate) number: i64,
    pub(crate) seal: String,
    /// When that is, in microseconds; the seal covers it.
    pub(crate) sealed_at: i64,
}

/// What retention removes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetentionTarget {
    /// Feed rows older than that; the newest row always stays.
    Feed,
    /// Tombstones that were deleted before that, and whose feed rows have left.
    Tombstones,
    /// Sealed audit records behind one number up to another, whatever their age; the newest sealed one always stays.
    Audit { from: i64, up_to: i64 },
    /// Named leases that ran out before that. Should the name come back, its fence is higher than any before.
    Leases,
}

/// One row of a table on its way out of, or into, a store: column name to value. Uuids are hyphenated text, bytes
/// are base64 text, JSON columns are JSON.
pub(crate) type Row = Map<String, Value>;

/// What both engines answer at once.
macro_rules! dispatch {
    ($self:ident, $engine:ident => $call:expr) => {
        match $self {
            Engine::Sqlite($engine) => $call,
            Engine::Postgres($engine) => $call,
        }
    };
}

/// What both engines have to be waited for. What waits for a server has much to remember meanwhile: it is put aside, so that
/// whoever works with a file does not carry the room for it about.
macro_rules! dispatch_async {
    ($self:ident, $engine:ident => $call:expr) => {
        match $self {
            Engine::Sqlite($engine) => $call.await,
            Engine::Postgres($engine) => Box::pin($call).await,
        }
    };
}

impl Engine {
    /// The database in words, without password.
    pub(crate) fn location(&self) -> String {
        dispatch!(self, it => it.location())
    }

    /// Waits for what others, here or elsewhere, have written.
    pub(crate) fn notifications(&self, topic: Topic) -> Notifications {
        dispatch!(self, it => it.notifications(topic))
    }

    /// Ends background work and connections; what was answered stays written.
    pub(crate) async fn close(&self) {
        dispatch_async!(self, it => it.close());
    }

    /// Answers when the database does.
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
        ends: &[PreparedCompletion],
    ) -> Result<Vec<CompletionOutcome>, StoreError> {
        dispatch_async!(self, it => it.complete(ends))
    }

    /// Ends work and claims what may take its place.
    pub(crate) async fn complete_and_claim(
        &self,
        ends: &[PreparedCompletion],
        kind: WorkKind,
        max: usize,
        owner: Uuid,
        lease: Duration,
    ) -> CompleteAndClaimResult {
        match self {
            Engine::Sqlite(it) => it.complete_and_claim(ends, kind, max, owner, lease).await,
            // Side by side, each with a connection and locks of its own: both at once would lock budgets in two rounds.
            Engine::Postgres(it) => {
                let both = async { tokio::join!(it.complete(ends), it.claim(kind, max, owner, lease)) };
                let (ended, claimed) = Box::pin(both).await;
                CompleteAndClaimResult { completed: ended, claimed }
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

    /// Closes fresh work past its `run_before`, looking at `max` rows of work behind `after`.
    pub(crate) async fn expire(&self, after: Option<Uuid>, max: usize) -> Result<SweepProgress, StoreError> {
        dispatch_async!(self, it => it.expire(after, max))
    }

    /// Corrects heads that do not agree with the work, looking at `max` lanes behind `after`.
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

    /// Takes or renews a named lease; its fence, or none when somebody else has it.
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

    /// Writes what the sealer found, if `fence` is still that of the lease `name`; and sets meta values with it.
    pub(crate) async fn seal_audit(
        &self,
        name: &str,
        fence: i64,
        sealings: Vec<AuditSeal>,
        meta: Vec<(String, String)>,
    ) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.seal_audit(name, fence, sealings, meta))
    }

    /// Removes up to `max` rows that are older than `age`, and sets meta values in the same transaction when it did.
    pub(crate) async fn trim(
        &self,
        stale: RetentionTarget,
        age: Duration,
        max: usize,
        meta: Vec<(String, String)>,
    ) -> Result<usize, StoreError> {
        dispatch_async!(self, it => it.trim(stale, age, max, meta))
    }

    /// Removes up to `max` pieces of finished work that are older than their kind is kept, each with what was told of it
    /// and with the document of the same uuid (which leaves a tombstone and a feed row). One engine has an index of
    /// what is old; the other looks at `look` rows behind `after`, and says where to go on.
    pub(crate) async fn trim_history(
        &self,
        keep: Retention,
        after: Option<Uuid>,
        look: usize,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        match self {
            Engine::Sqlite(it) => it.trim_history(keep, after, look, max).await,
            Engine::Postgres(it) => it.trim_history(keep, max).await,
        }
    }

    /// Removes the health of clusters that are gone, looking at `max` samples behind `after`.
    pub(crate) async fn trim_health(
        &self,
        after: Option<Uuid>,
        max: usize,
    ) -> Result<SweepProgress, StoreError> {
        dispatch_async!(self, it => it.trim_health(after, max))
    }

    /// Sets those values of which there are none yet, all in one transaction.
    pub(crate) async fn ensure_meta(&self, values: Vec<(String, String)>) -> Result<(), StoreError> {
        dispatch_async!(self, it => it.ensure_meta(values))
    }

    /// Replaces a value, unless it is another by now.
    pub(crate) async fn replace_meta(
        &self,
        key: String,
        old: String,
        new: String,
    ) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.replace_meta(key, old, new))
    }

    /// Replaces a sealed secret by itself under another key, unless it changed meanwhile.
    pub(crate) async fn reseal(&self, old: SealedSecret, new: SealedSecret) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.reseal(old, new))
    }

    // Reads.

    pub(crate) async fn get(&self, uuid: Uuid) -> Result<Option<StoredDocument<RawBody>>, StoreError> {
        dispatch_async!(self, it => it.get(uuid))
    }

    /// The paths of those that were deleted.
    pub(crate) async fn deleted_paths(&self, uuids: Vec<Uuid>) -> Result<Vec<(Uuid, String)>, StoreError> {
        dispatch_async!(self, it => it.deleted_paths(uuids))
    }

    /// Many at once, in no particular order; those that do not live are absent.
    /// Documents, and how clusters were seen last, read together.
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
        listing: DocumentQuery,
    ) -> Result<Vec<StoredDocument<RawBody>>, StoreError> {
        dispatch_async!(self, it => it.list(listing))
    }

    pub(crate) async fn secret(&self, owner: Uuid, name: &str) -> Result<Option<SealedSecret>, StoreError> {
        dispatch_async!(self, it => it.secret(owner, name))
    }

    /// All secrets in the order of owner and name, behind `after`; only those of other keys than `not_of` if given.
    pub(crate) async fn secrets(
        &self,
        not_of: Option<String>,
        after: Option<(Uuid, String)>,
        limit: usize,
    ) -> Result<Vec<SealedSecret>, StoreError> {
        dispatch_async!(self, it => it.secrets(not_of, after, limit))
    }

    /// Work by id, live or ended; unknown ids are absent.
    pub(crate) async fn works(&self, ids: Vec<Uuid>) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.works(ids))
    }

    /// The pending work of a lane, in the order in which it will run.
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

    /// Work that somebody holds now.
    pub(crate) async fn running(&self, kind: WorkKind, limit: usize) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.running(kind, limit))
    }

    /// Work that ended at `from` or later and began before `to`, the newest end first, without its checkpoint.
    pub(crate) async fn finished(
        &self,
        kind: WorkKind,
        from: i64,
        to: i64,
        limit: usize,
    ) -> Result<Vec<WorkView>, StoreError> {
        dispatch_async!(self, it => it.finished(kind, from, to, limit))
    }

    /// What was told of a piece of work, behind the entry `after`.
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

    /// Named leases that are held now.
    pub(crate) async fn leases(&self, prefix: &str) -> Result<Vec<(String, Timestamp)>, StoreError> {
        dispatch_async!(self, it => it.leases(prefix))
    }

    /// Lanes by their names; unknown ones are absent.
    pub(crate) async fn lanes(&self, lanes: Vec<Uuid>) -> Result<Vec<LaneView>, StoreError> {
        dispatch_async!(self, it => it.lanes(lanes))
    }

    pub(crate) async fn lane(&self, lane: Uuid) -> Result<Option<LaneView>, StoreError> {
        dispatch_async!(self, it => it.lane(lane))
    }

    /// How long until the next free lane of that kind is due; zero when one is due; none when none waits.
    pub(crate) async fn until_due(&self, kind: WorkKind) -> Result<Option<Duration>, StoreError> {
        dispatch_async!(self, it => it.until_due(kind))
    }

    pub(crate) async fn budgets(&self) -> Result<Vec<Budget>, StoreError> {
        dispatch_async!(self, it => it.budgets())
    }

    pub(crate) async fn health(&self, clusters: Vec<Uuid>) -> Result<Vec<HealthSample>, StoreError> {
        dispatch_async!(self, it => it.health(clusters))
    }

    /// The place behind everything that is visible now.
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

    /// Records that the sealer has not reached, in feed order; only those that nothing can come before any more.
    pub(crate) async fn audit_unsealed(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_unsealed(limit))
    }

    /// Sealed records in the order of their numbers, from `number` on.
    pub(crate) async fn audit_sealed(&self, number: i64, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_sealed(number, limit))
    }

    /// Records that are not in the chain, in the order of their places: those to be sealed, those that the sealer left out,
    /// and those that it will never come to.
    pub(crate) async fn audit_unnumbered(&self, limit: usize) -> Result<Vec<AuditRow>, StoreError> {
        dispatch_async!(self, it => it.audit_unnumbered(limit))
    }

    /// Whether the sealer has still to come to an entry, also to one that is committed but behind a transaction that is
    /// still open; with `unmarked`, to one that carries no mark. A place that nothing can have been written at yet is
    /// somebody's invention, and nobody waits for it.
    pub(crate) async fn audit_waits(&self, unmarked: bool) -> Result<bool, StoreError> {
        dispatch_async!(self, it => it.audit_waits(unmarked))
    }

    /// Which of these ids are in the chain.
    pub(crate) async fn audit_known(&self, ids: Vec<Uuid>) -> Result<HashSet<Uuid>, StoreError> {
        dispatch_async!(self, it => it.audit_known(ids))
    }

    /// Leaves records out of the chain; those that it left out, which are neither in it nor were left out before.
    pub(crate) async fn refuse_audit(
        &self,
        places: Vec<AuditPosition>,
    ) -> Result<HashSet<AuditPosition>, StoreError> {
        dispatch_async!(self, it => it.refuse_audit(places))
    }

    /// The database's time, in microseconds.
    pub(crate) async fn now_micros(&self) -> Result<i64, StoreError> {
        dispatch_async!(self, it => it.now_micros())
    }

    /// Runs the checks' queries in one snapshot: each gives the sentences' subjects, at most `limit` of them.
    pub(crate) async fn violations(
        &self,
        queries: Vec<String>,
        limit: usize,
    ) -> Result<Vec<Vec<String>>, StoreError> {
        dispatch_async!(self, it => it.violations(queries, limit))
    }

    /// What the engine itself says of the soundness of its files or indexes; empty when all is well.
    pub(crate) async fn soundness(&self) -> Result<Vec<String>, StoreError> {
        dispatch_async!(self, it => it.soundness())
    }

    /// For how long the oldest open transaction that writes has held the feed back.
    pub(crate) async fn held_back(&self) -> Result<Duration, StoreError> {
        dispatch_async!(self, it => it.held_back())
    }

    /// Rows of a table in the order of its key, behind the row `after`.
    pub(crate) async fn dump(
        &self,
        table: &'static crate::transfer::Table,
        after: Option<Row>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        dispatch_async!(self, it => it.dump(table, after, limit))
    }
}

/// An import that is under way: one transaction, committed at its end or not at all.
#[derive(Debug)]
pub(crate) enum Import {
    Sqlite(crate::sqlite::Import),
    Postgres(crate::postgres::Import),
}

impl Import {
    /// Begins; the database must be empty but for its schema.
    pub(crate) async fn begin(engine: &Engine) -> Result<Import, OpenError> {
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
