//! Maintenance manifests and their work.
//!
//! Every action on a manifest adds an entry to its history in the same transaction.

use std::collections::{HashMap, HashSet};

use api::admin::{Entry, EntryEvent};
use api::doc::{Cluster, Document as _, Manifest, ResultCode, WorkResult};
use api::work::{WorkKind, WorkState};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

use super::{AuditContext, DesiredState, Documents, ListOptions, PageToken, VersionedDocument, change};
use crate::document::Body;
use crate::store::Store;
use crate::transaction::{Transaction, Write};
use crate::work::{NewWork, WorkLease, WorkView};
use crate::{HealthSample, RequiredState, StoreError};

/// Manifests created, revived or withdrawn in one transaction.
const BLOCK: usize = 500;
/// Attempts of a block when others change its manifests; afterwards they are written one by one.
const TRIES: usize = 5;

/// A manifest and its work.
#[derive(Debug, Clone)]
pub struct ManifestView {
    /// The request.
    pub manifest: VersionedDocument<Manifest>,
    /// Its work; none once retention has removed it.
    pub work: Option<WorkView>,
}

/// Documents that the worker of a manifest needs. A document that this release does not understand counts as absent.
#[derive(Debug, Clone, Default)]
pub struct WorkSummary {
    /// The request.
    pub manifest: Option<Manifest>,
    /// Its cluster.
    pub cluster: Option<Cluster>,
    /// The cluster's newest health sample.
    pub health: Option<HealthSample>,
}

/// Reads and writes manifests.
#[derive(Debug, Clone)]
pub struct Manifests<'a> {
    store: &'a Store,
    documents: Documents<'a, Manifest>,
}

impl<'a> std::ops::Deref for Manifests<'a> {
    type Target = Documents<'a, Manifest>;

    fn deref(&self) -> &Documents<'a, Manifest> {
        &self.documents
    }
}

/// Outcome of a cancel request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It was pending and is cancelled.
    Cancelled,
    /// It runs, or has started and is pending; its current or next holder stops and undoes its effects.
    Requested,
}

/// Outcome of ensuring a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EnsureOutcome {
    /// It was created.
    Created,
    /// It existed: pending, running or finished, or was deleted recently.
    Existed,
    /// Its schedule had withdrawn it; it is pending again, as requested now.
    Revived,
}

impl<'a> Manifests<'a> {
    pub(super) fn new(store: &'a Store) -> Manifests<'a> {
        Manifests { store, documents: store.documents() }
    }

    /// Reads the documents of claimed manifests in one query; returns a summary for each lease, in order.
    pub async fn summaries(&self, leases: &[WorkLease]) -> Result<Vec<WorkSummary>, StoreError> {
        let lanes: Vec<Uuid> = leases.iter().map(|lease| lease.lane).collect();
        let uuids = leases.iter().map(|lease| lease.work).chain(lanes.iter().copied()).collect();
        let (documents, health) = self.store.engine.get_with_health(uuids, lanes).await?;
        let mut health: HashMap<Uuid, HealthSample> = health.into_iter().map(|it| (it.cluster, it)).collect();
        let (mut manifests, mut clusters) = (HashMap::new(), HashMap::new());
        for stored in documents {
            if stored.kind == Manifest::KIND {
                manifests.extend(stored.body.read::<Manifest>().ok().map(|it| (stored.uuid, it)));
            } else if stored.kind == Cluster::KIND {
                clusters.extend(stored.body.read::<Cluster>().ok().map(|it| (stored.uuid, it)));
            }
        }
        let summary = |lease: &WorkLease| WorkSummary {
            manifest: manifests.remove(&lease.work),
            cluster: clusters.remove(&lease.lane),
            health: health.remove(&lease.lane),
        };
        Ok(leases.iter().map(summary).collect())
    }

    /// Creates manifests with their work, all or none. Fails when an id exists already.
    pub async fn create(
        &self,
        manifests: &[(Manifest, Vec<String>)],
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let mut transaction = Transaction::new();
        for (manifest, budgets) in manifests {
            transaction = create_manifest(transaction, manifest, budgets, context)?;
        }
        self.store.commit(transaction).await.map(drop)
    }

    /// Ensures that these manifests exist: creates missing ones and revives those that their schedule had withdrawn,
    /// with the window, priority and parameters of this call. All others stay unchanged: a slot that a person
    /// cancelled stays cancelled. Returns the outcome of each, in order.
    ///
    /// Concurrent calls create each manifest once.
    pub async fn ensure(
        &self,
        manifests: &[(Manifest, Vec<String>)],
        context: &AuditContext,
    ) -> Result<Vec<EnsureOutcome>, StoreError> {
        let mut ensured = Vec::with_capacity(manifests.len());
        for block in manifests.chunks(BLOCK) {
            ensured.extend(self.ensure_block(block, context).await?);
        }
        Ok(ensured)
    }

    async fn ensure_block(
        &self,
        block: &[(Manifest, Vec<String>)],
        context: &AuditContext,
    ) -> Result<Vec<EnsureOutcome>, StoreError> {
        for _ in 0..TRIES {
            match self.ensure_at_once(block, context).await {
                Err(error) if is_overtaken(&error) => {}
                outcome => return outcome,
            }
        }
        let mut ensured = Vec::with_capacity(block.len());
        for single in block.chunks(1) {
            let mut outcome = self.ensure_at_once(single, context).await;
            for _ in 1..TRIES {
                match outcome {
                    Err(ref error) if is_overtaken(error) => {
                        outcome = self.ensure_at_once(single, context).await;
                    }
                    _ => break,
                }
            }
            ensured.extend(match outcome {
                // Neither existing nor creatable: its path is free, but a deleted manifest still has its identity.
                Err(StoreError::Exists { .. }) => vec![EnsureOutcome::Existed],
                outcome => outcome?,
            });
        }
        Ok(ensured)
    }

    /// Reads the existing manifests and writes the missing ones; fails on a concurrent change.
    async fn ensure_at_once(
        &self,
        block: &[(Manifest, Vec<String>)],
        context: &AuditContext,
    ) -> Result<Vec<EnsureOutcome>, StoreError> {
        let ids: Vec<Uuid> = block.iter().map(|(manifest, _)| manifest.id).collect();
        let documents = self.store.many_raw(ids.clone()).await?;
        let mut documents: HashMap<Uuid, _> = documents.into_iter().map(|it| (it.uuid, it)).collect();
        let works: HashMap<Uuid, WorkView> =
            self.store.works(ids).await?.into_iter().map(|it| (it.id, it)).collect();
        let (mut transaction, mut ensured) = (Transaction::new(), Vec::with_capacity(block.len()));
        let mut seen = HashSet::new();
        for (manifest, budgets) in block {
            let (document, work) = (documents.remove(&manifest.id), works.get(&manifest.id));
            let outcome = match (document, work) {
                _ if !seen.insert(manifest.id) => EnsureOutcome::Existed,
                (None, None) => {
                    transaction = create_manifest(transaction, manifest, budgets, context)?;
                    EnsureOutcome::Created
                }
                (Some(document), Some(work)) if is_superseded(work) => {
                    transaction = revive_manifest(
                        transaction,
                        &VersionedDocument::read(document)?,
                        manifest,
                        budgets,
                        context,
                    )?;
                    EnsureOutcome::Revived
                }
                _ => EnsureOutcome::Existed,
            };
            ensured.push(outcome);
        }
        if !transaction.is_empty() {
            self.store.commit(transaction).await?;
        }
        Ok(ensured)
    }

    /// Cancels those of these manifests that are pending and have had no effect, and leaves the others; returns the
    /// cancelled ones. Each stores the result.
    pub async fn withdraw(
        &self,
        ids: &[Uuid],
        result: impl Into<WorkResult>,
        context: &AuditContext,
    ) -> Result<Vec<Uuid>, StoreError> {
        let result = result.into();
        let mut withdrawn = Vec::new();
        for block in ids.chunks(BLOCK) {
            withdrawn.extend(self.withdraw_block(block, &result, context).await?);
        }
        Ok(withdrawn)
    }

    async fn withdraw_block(
        &self,
        block: &[Uuid],
        result: &WorkResult,
        context: &AuditContext,
    ) -> Result<Vec<Uuid>, StoreError> {
        let mut ids = block.to_vec();
        loop {
            match self.withdraw_at_once(&ids, result, context).await {
                // It has started: it is left out, and the others are tried again.
                Err(StoreError::WrongState { work, .. } | StoreError::NoSuchWork { work })
                    if ids.contains(&work) =>
                {
                    ids.retain(|id| *id != work);
                }
                outcome => return outcome,
            }
        }
    }

    async fn withdraw_at_once(
        &self,
        block: &[Uuid],
        result: &WorkResult,
        context: &AuditContext,
    ) -> Result<Vec<Uuid>, StoreError> {
        let mut pending = self.store.works(block.to_vec()).await?;
        pending.retain(|work| work.kind == WorkKind::Manifest && work.state == WorkState::Pending);
        let mut transaction = Transaction::new();
        for work in &pending {
            let message = result.message.as_deref().or(reason(context));
            let entry = Entry {
                from: Some(WorkState::Pending),
                to: Some(WorkState::Cancelled),
                message: message.map(str::to_owned),
                ..action_entry(EntryEvent::Finished, work.attempt, context)
            };
            transaction = transaction
                .withdraw(work.id, result.clone())
                .record(work.id, entry)
                .audit(context.entry("manifest.withdraw", &path(work.id), None, None));
        }
        if !transaction.is_empty() {
            self.store.commit(transaction).await?;
        }
        Ok(pending.into_iter().map(|work| work.id).collect())
    }

    /// Manifests whose ids start with `id`, of any cluster, up to `limit`.
    pub async fn find_by_id_prefix(
        &self,
        id: &str,
        limit: usize,
    ) -> Result<Vec<VersionedDocument<Manifest>>, StoreError> {
        let prefix = Some(format!("/maintenancemanifests/{}", id.to_lowercase()));
        Ok(self.list(ListOptions { prefix, limit, ..ListOptions::default() }).await?.items)
    }

    /// A manifest and its work.
    pub async fn view(&self, id: Uuid) -> Result<Option<ManifestView>, StoreError> {
        let Some(manifest) = self.get(id).await? else { return Ok(None) };
        Ok(Some(ManifestView { manifest, work: self.store.work(id).await? }))
    }

    /// Page of a cluster's manifests with their work, in two queries.
    pub async fn list_for_cluster(
        &self,
        cluster: Uuid,
        from: Option<PageToken>,
        limit: usize,
    ) -> Result<(Vec<ManifestView>, Option<PageToken>), StoreError> {
        self.page(ListOptions { scope: Some(cluster.to_string()), from, limit, ..ListOptions::default() })
            .await
    }

    /// Page of all manifests with their work, by id.
    pub async fn list_all(
        &self,
        from: Option<PageToken>,
        limit: usize,
    ) -> Result<(Vec<ManifestView>, Option<PageToken>), StoreError> {
        let prefix = Some("/maintenancemanifests/".to_owned());
        self.page(ListOptions { prefix, from, limit, ..ListOptions::default() }).await
    }

    async fn page(&self, options: ListOptions) -> Result<(Vec<ManifestView>, Option<PageToken>), StoreError> {
        let page = self.list(options).await?;
        let works = self.store.works(page.items.iter().map(|it| it.uuid).collect()).await?;
        let mut works: HashMap<Uuid, WorkView> = works.into_iter().map(|work| (work.id, work)).collect();
        let views = page
            .items
            .into_iter()
            .map(|manifest| ManifestView { work: works.remove(&manifest.uuid), manifest });
        Ok((views.collect(), page.next))
    }

    /// Cancels a pending manifest, or requests a running one to cancel. One that has started and is pending gets a
    /// request too: its next holder undoes its effects.
    pub async fn cancel(
        &self,
        read: &VersionedDocument<Manifest>,
        context: &AuditContext,
    ) -> Result<CancelOutcome, StoreError> {
        let audit = context.entry("manifest.cancel", &read.document.path(), None, None);
        let result = WorkResult::cancelled(context.actor.clone(), reason(context));
        // It may start, or be released, between the reads; three attempts cover every such sequence.
        let mut last_error = StoreError::NoSuchWork { work: read.uuid };
        for _ in 0..3 {
            let attempt = self.store.work(read.uuid).await?.map_or(0, |work| work.attempt);
            let ended = Entry {
                from: Some(WorkState::Pending),
                to: Some(WorkState::Cancelled),
                ..action_entry(EntryEvent::Finished, attempt, context)
            };
            let withdraw = Transaction::new().withdraw(read.uuid, result.clone()).record(read.uuid, ended);
            match self.store.commit(withdraw.audit(audit.clone())).await {
                Ok(_) => return Ok(CancelOutcome::Cancelled),
                Err(StoreError::WrongState { state, required, .. })
                    if state == WorkState::InProgress || required == RequiredState::Fresh => {}
                Err(other) => return Err(other),
            }
            let requested = action_entry(EntryEvent::CancelRequested, attempt, context);
            let request = Transaction::new().request_cancel(read.uuid).record(read.uuid, requested);
            match self.store.commit(request.audit(audit.clone())).await {
                Ok(_) => return Ok(CancelOutcome::Requested),
                Err(other @ StoreError::WrongState { .. }) => last_error = other,
                Err(other) => return Err(other),
            }
        }
        Err(last_error)
    }

    /// Makes a pending manifest the next of its cluster. Fails as timed out when it is too late to start.
    pub async fn expedite(
        &self,
        read: &VersionedDocument<Manifest>,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let audit = context.entry("manifest.expedite", &read.document.path(), None, Some(&Value::from(0)));
        let attempt = self.store.work(read.uuid).await?.map_or(0, |work| work.attempt);
        let entry = action_entry(EntryEvent::Expedited, attempt, context);
        let transaction = Transaction::new().expedite(read.uuid).record(read.uuid, entry).audit(audit);
        self.store.commit(transaction).await.map(drop)
    }

    /// Removes a manifest with its work and entries. Fails while it runs, and after it has started until it has
    /// finished: its effects could not be undone any more.
    pub async fn delete(
        &self,
        read: &VersionedDocument<Manifest>,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        let discard = Write::Discard { work: read.uuid };
        self.store.commit(Transaction::new().with(discard).remove(read, context)).await.map(drop)
    }
}

fn create_manifest(
    transaction: Transaction,
    manifest: &Manifest,
    budgets: &[String],
    context: &AuditContext,
) -> Result<Transaction, StoreError> {
    let entry = Entry { to: Some(WorkState::Pending), ..action_entry(EntryEvent::Created, 0, context) };
    Ok(transaction
        .create(manifest.id, manifest, context)?
        .enqueue(new_work(manifest, budgets))
        .record(manifest.id, entry))
}

fn revive_manifest(
    transaction: Transaction,
    read: &VersionedDocument<Manifest>,
    wanted: &Manifest,
    budgets: &[String],
    context: &AuditContext,
) -> Result<Transaction, StoreError> {
    let entry = Entry {
        from: Some(WorkState::Cancelled),
        to: Some(WorkState::Pending),
        ..action_entry(EntryEvent::Revived, 0, context)
    };
    let changed = change(read, wanted, DesiredState::Changed)?;
    let (before, update) = match changed {
        Some((update, before)) => (before, Some(update)),
        None => (read.raw.value()?, None),
    };
    let before = Body::new(&before);
    let after = update.as_ref().map_or(&before, |it| &it.body);
    let audit = context.audit_entry("manifest.revive", &wanted.path(), Some(&before), Some(after));
    let transaction =
        transaction.with(Write::Revive(new_work(wanted, budgets))).record(wanted.id, entry).audit(audit);
    Ok(match update {
        Some(update) => transaction.with(Write::Update(update)),
        None => transaction,
    })
}

fn new_work(manifest: &Manifest, budgets: &[String]) -> NewWork {
    NewWork {
        run_after: Some(manifest.run_after),
        run_before: Some(manifest.run_before),
        priority: manifest.priority,
        budgets: budgets.to_vec(),
        origin: manifest.created_by_schedule.clone(),
        ..NewWork::new(manifest.id, manifest.cluster, WorkKind::Manifest)
    }
}

/// Entry of an action; the store sets its time.
fn action_entry(event: EntryEvent, attempt: i32, context: &AuditContext) -> Entry {
    Entry {
        message: reason(context).map(str::to_owned),
        correlation_id: context.correlation_id,
        ..Entry::new(Timestamp::UNIX_EPOCH, event, context.actor.clone(), attempt)
    }
}

fn reason(context: &AuditContext) -> Option<&str> {
    Some(context.reason.as_str()).filter(|reason| !reason.is_empty())
}

fn is_superseded(work: &WorkView) -> bool {
    work.state == WorkState::Cancelled
        && work.result.as_ref().is_some_and(|result| result.has_code(&ResultCode::SUPERSEDED))
}

/// Whether a write failed because of a concurrent change.
fn is_overtaken(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Exists { .. }
            | StoreError::Changed { .. }
            | StoreError::Gone { .. }
            | StoreError::WrongState { .. }
            | StoreError::NoSuchWork { .. }
    )
}

fn path(id: Uuid) -> String {
    format!("/maintenancemanifests/{id}")
}
