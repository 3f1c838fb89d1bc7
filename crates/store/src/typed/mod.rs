//! Typed documents, as services use them, independent of the engine.
//!
//! Every change states who makes it and why ([`AuditContext`]); the audit entry, with digests of the document before
//! and after, is written in the transaction of the change.

mod billing;
mod clusters;
mod manifests;
mod operations;
mod schedules;
mod subscriptions;

use std::borrow::Cow;
use std::marker::PhantomData;

use api::audit::AuditEntry;
use api::doc::{Document, Schedule, Task, Version};
use jiff::Timestamp;
use serde_json::Value;
use uuid::Uuid;

pub use billing::BillingRecords;
pub use clusters::{Clusters, KUBECONFIG, Secrets};
pub use manifests::{CancelOutcome, EnsureOutcome, ManifestView, Manifests, WorkSummary};
pub use operations::{ClusterOutcome, OperationView, Operations};
pub use schedules::PendingManifests;
pub use subscriptions::Subscriptions;

use crate::document::{Body, RawBody};
use crate::merge::overlay;
use crate::store::{Reader, Store};
use crate::transaction::{DocumentUpdate, NewDocument, Transaction, Write};
use crate::{DocumentQuery, Etag, StoreError, StoredDocument};

/// Author and reason of a change, for the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditContext {
    /// A person, a certificate's subject, or a service by name.
    pub actor: String,
    /// The actor's reason; may be empty.
    pub reason: String,
    /// Request or run that the change belongs to.
    pub correlation_id: Option<Uuid>,
}

impl AuditContext {
    /// Context of a service that acts by itself.
    pub fn service(name: &str) -> AuditContext {
        AuditContext { actor: format!("service:{name}"), reason: String::new(), correlation_id: None }
    }

    /// Audit entry of a change, with digests of both states.
    pub fn entry(
        &self,
        action: &str,
        target: &str,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> AuditEntry {
        self.audit_entry(action, target, before.map(Body::new).as_ref(), after.map(Body::new).as_ref())
    }

    /// The same for serialised bodies.
    fn audit_entry(
        &self,
        action: &str,
        target: &str,
        before: Option<&Body>,
        after: Option<&Body>,
    ) -> AuditEntry {
        AuditEntry {
            actor: self.actor.clone(),
            action: action.to_owned(),
            target: target.to_owned(),
            reason: self.reason.clone(),
            correlation_id: self.correlation_id,
            before: before.map(Body::digest),
            after: after.map(Body::digest),
        }
    }
}

/// A document as it was read, with what is needed to write it back.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionedDocument<T> {
    /// Identity.
    pub uuid: Uuid,
    /// Version; a write compares it.
    pub etag: Etag,
    /// Number of changes of the desired state.
    pub generation: i64,
    /// Time of creation.
    pub created: Timestamp,
    /// Time of the last change.
    pub changed: Timestamp,
    /// The document.
    pub document: T,
    /// The stored body, including unknown fields.
    raw: RawBody,
}

impl<T: Document> VersionedDocument<T> {
    pub(crate) fn read(stored: StoredDocument<RawBody>) -> Result<VersionedDocument<T>, StoreError> {
        if stored.kind != T::KIND {
            return Err(StoreError::Gone { uuid: stored.uuid });
        }
        let document = stored.body.read().map_err(|error| StoreError::Broken {
            what: format!("{} {} has a form that this release does not support", T::KIND, stored.uuid),
            source: Some(Box::new(error)),
        })?;
        Ok(VersionedDocument {
            uuid: stored.uuid,
            etag: stored.etag,
            generation: stored.generation,
            created: stored.created,
            changed: stored.changed,
            document,
            raw: stored.body,
        })
    }

    /// The body to store for `wanted`; unknown fields stay.
    fn merged(&self, stored: &Value, wanted: &T) -> Result<Value, StoreError> {
        Ok(overlay(stored, &as_json(&self.document)?, &as_json(wanted)?))
    }
}

fn as_json<T: Document>(document: &T) -> Result<Value, StoreError> {
    serde_json::to_value(document).map_err(|error| StoreError::Broken {
        what: format!("a {} cannot be written as JSON", T::KIND),
        source: Some(Box::new(error)),
    })
}

/// Whether a change concerns the desired state or only the observed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DesiredState {
    /// The desired state changed; the generation is raised.
    Changed,
    /// Only the observed state changed.
    Unchanged,
}

impl Transaction {
    /// Creates a document, with an audit entry.
    pub fn create<T: Document>(
        self,
        uuid: Uuid,
        document: &T,
        context: &AuditContext,
    ) -> Result<Transaction, StoreError> {
        let (id, body) = (document.path(), Body::new(&as_json(document)?));
        let entry = context.audit_entry(&format!("{}.create", T::KIND), &id, None, Some(&body));
        let new = NewDocument {
            uuid,
            id,
            kind: T::KIND.to_owned(),
            parent: document.scope(),
            body,
            unique_keys: document.unique_keys(),
        };
        Ok(self.with(Write::Create(new)).audit(entry))
    }

    /// Updates a document at the version that was read, with an audit entry. Without a difference it adds nothing.
    pub fn update<T: Document>(
        self,
        read: &VersionedDocument<T>,
        wanted: &T,
        desired_state: DesiredState,
        context: &AuditContext,
    ) -> Result<Transaction, StoreError> {
        let Some((update, before)) = change(read, wanted, desired_state)? else { return Ok(self) };
        let (before, after) = (Body::new(&before), &update.body);
        let action = format!("{}.update", T::KIND);
        let entry = context.audit_entry(&action, &wanted.path(), Some(&before), Some(after));
        Ok(self.with(Write::Update(update)).audit(entry))
    }

    /// Fails unless that document is still at the version that was read.
    pub fn expect<T: Document>(self, read: &VersionedDocument<T>) -> Transaction {
        self.with(Write::Expect { uuid: read.uuid, etag: read.etag })
    }

    /// Updates the observed state of a document, never the desired one: a status written by the responsible service.
    /// Nobody decided it, so there is no audit entry, only a feed row.
    pub fn observe<T: Document>(
        self,
        read: &VersionedDocument<T>,
        seen: &T,
    ) -> Result<Transaction, StoreError> {
        Ok(match change(read, seen, DesiredState::Unchanged)? {
            Some((update, _)) => self.with(Write::Update(update)),
            None => self,
        })
    }

    /// Deletes a document at the version that was read, with an audit entry.
    pub fn remove<T: Document>(self, read: &VersionedDocument<T>, context: &AuditContext) -> Transaction {
        // It was read as a document, so it is JSON.
        let before = read.raw.value().ok();
        let entry =
            context.entry(&format!("{}.delete", T::KIND), &read.document.path(), before.as_deref(), None);
        self.delete(read.uuid, read.etag).audit(entry)
    }
}

/// Update that makes a document `wanted`, and its stored body; none when it is equal.
fn change<'a, T: Document>(
    read: &'a VersionedDocument<T>,
    wanted: &T,
    desired_state: DesiredState,
) -> Result<Option<(DocumentUpdate, Cow<'a, Value>)>, StoreError> {
    let stored = read.raw.value()?;
    let body = read.merged(&stored, wanted)?;
    if body == *stored {
        return Ok(None);
    }
    if wanted.path() != read.document.path() || wanted.scope() != read.document.scope() {
        let (from, to) = (read.document.path(), wanted.path());
        return Err(StoreError::invalid(format!(
            "{} {from} cannot become {to}: a path does not change",
            T::KIND
        )));
    }
    let keys = wanted.unique_keys();
    let update = DocumentUpdate {
        uuid: read.uuid,
        etag: read.etag,
        body: Body::new(&body),
        desired: desired_state == DesiredState::Changed,
        unique_keys: (keys != read.document.unique_keys()).then_some(keys),
    };
    Ok(Some((update, stored)))
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The documents.
    pub items: Vec<VersionedDocument<T>>,
    /// Token of the next page; none at the end.
    pub next: Option<PageToken>,
}

/// Position in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageToken {
    scope: String,
    path: String,
}

impl std::fmt::Display for PageToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use base64::Engine as _;
        let text = Value::from(vec![self.scope.clone(), self.path.clone()]).to_string();
        f.write_str(&base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text))
    }
}

impl std::str::FromStr for PageToken {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<PageToken, StoreError> {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok();
        let parts: Option<(String, String)> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        parts
            .filter(|(scope, path)| !scope.contains('\0') && !path.contains('\0'))
            .map(|(scope, path)| PageToken { scope, path })
            .ok_or_else(|| StoreError::invalid("the token was not issued by a list of this store".to_owned()))
    }
}

/// Options of a list.
#[derive(Debug, Clone, Default)]
pub struct ListOptions {
    /// Scope.
    pub scope: Option<String>,
    /// Path prefix; the result is then sorted by path.
    pub prefix: Option<String>,
    /// Token to continue from.
    pub from: Option<PageToken>,
    /// Most results.
    pub limit: usize,
}

/// Reads the documents of one type.
#[derive(Debug, Clone, Copy)]
pub struct Documents<'a, T> {
    reader: &'a Reader,
    of: PhantomData<T>,
}

impl<T: Document> Documents<'_, T> {
    /// Document by identity; none when it is deleted.
    pub async fn get(&self, uuid: Uuid) -> Result<Option<VersionedDocument<T>>, StoreError> {
        let stored = self.reader.get_raw(uuid).await?.filter(|stored| stored.kind == T::KIND);
        stored.map(VersionedDocument::read).transpose()
    }

    /// Document by path, in any case; none when it is deleted.
    pub async fn find(&self, path: &str) -> Result<Option<VersionedDocument<T>>, StoreError> {
        let stored = self.reader.find_raw(path).await?.filter(|stored| stored.kind == T::KIND);
        stored.map(VersionedDocument::read).transpose()
    }

    /// One page.
    pub async fn list(&self, selection: ListOptions) -> Result<Page<T>, StoreError> {
        let limit = selection.limit.clamp(1, crate::PAGE_MAX);
        let listing = DocumentQuery {
            kind: T::KIND.to_owned(),
            parent: selection.scope,
            prefix: selection.prefix,
            after: selection.from.map(|token| (token.scope, token.path)),
            limit,
        };
        let stored = self.reader.list_raw(listing).await?;
        let next = stored.last().filter(|_| stored.len() == limit);
        let next = next.map(|last| PageToken { scope: last.parent.clone(), path: last.id.clone() });
        let items = stored.into_iter().map(VersionedDocument::read).collect::<Result<_, _>>()?;
        Ok(Page { items, next })
    }

    /// Reads all of them, page by page, and passes each to `handle`.
    pub async fn for_each(&self, mut handle: impl FnMut(VersionedDocument<T>)) -> Result<(), StoreError> {
        let mut from = None;
        loop {
            let page =
                self.list(ListOptions { from, limit: crate::PAGE_MAX, ..ListOptions::default() }).await?;
            page.items.into_iter().for_each(&mut handle);
            from = page.next;
            if from.is_none() {
                return Ok(());
            }
        }
    }
}

/// Reads and writes the documents of one type.
#[derive(Debug, Clone, Copy)]
pub struct Collection<'a, T> {
    store: &'a Store,
    documents: Documents<'a, T>,
}

impl<'a, T> std::ops::Deref for Collection<'a, T> {
    type Target = Documents<'a, T>;

    fn deref(&self) -> &Documents<'a, T> {
        &self.documents
    }
}

impl<T: Document> Collection<'_, T> {
    /// Creates a document under a new identity.
    pub async fn create(&self, document: &T, context: &AuditContext) -> Result<(Uuid, Etag), StoreError> {
        let uuid = Uuid::now_v7();
        self.store.commit(Transaction::new().create(uuid, document, context)?).await?;
        Ok((uuid, Etag::FIRST))
    }

    /// Updates a document at the version that was read; returns its new version.
    pub async fn update(
        &self,
        read: &VersionedDocument<T>,
        wanted: &T,
        context: &AuditContext,
    ) -> Result<Etag, StoreError> {
        let committed = self
            .store
            .commit(Transaction::new().update(read, wanted, DesiredState::Changed, context)?)
            .await?;
        Ok(committed.etag(read.uuid).unwrap_or(read.etag))
    }

    /// Creates or updates the document of that path; with `if_match` only at that version. Returns identity, version,
    /// and whether it is new.
    pub async fn put(
        &self,
        wanted: &T,
        if_match: Option<Etag>,
        context: &AuditContext,
    ) -> Result<(Uuid, Etag, bool), StoreError> {
        let create = |uuid| Transaction::new().create(uuid, wanted, context);
        let update = |read: &VersionedDocument<T>| {
            Transaction::new().update(read, wanted, DesiredState::Changed, context)
        };
        self.put_with(wanted, if_match, create, update).await
    }

    /// The same with transactions that may write more than the document.
    async fn put_with(
        &self,
        wanted: &T,
        if_match: Option<Etag>,
        create: impl Fn(Uuid) -> Result<Transaction, StoreError>,
        update: impl Fn(&VersionedDocument<T>) -> Result<Transaction, StoreError>,
    ) -> Result<(Uuid, Etag, bool), StoreError> {
        // Two attempts: it may be created, changed or deleted between the read and the write.
        for last in [false, true] {
            let outcome = match self.find(&wanted.path()).await? {
                Some(read) => {
                    if let Some(expected) = if_match.filter(|it| *it != read.etag) {
                        return Err(StoreError::Changed { uuid: read.uuid, expected, found: read.etag });
                    }
                    let committed = self.store.commit(update(&read)?).await;
                    committed.map(|it| (read.uuid, it.etag(read.uuid).unwrap_or(read.etag), false))
                }
                None if if_match.is_some() => return Err(StoreError::Gone { uuid: Uuid::nil() }),
                None => {
                    let uuid = Uuid::now_v7();
                    self.store.commit(create(uuid)?).await.map(|_| (uuid, Etag::FIRST, true))
                }
            };
            match outcome {
                Err(StoreError::Exists { .. } | StoreError::Gone { .. } | StoreError::Changed { .. })
                    if !last && if_match.is_none() => {}
                outcome => return outcome,
            }
        }
        unreachable!("the second attempt returns")
    }

    /// Deletes a document at the version that was read.
    pub async fn delete(
        &self,
        read: &VersionedDocument<T>,
        context: &AuditContext,
    ) -> Result<(), StoreError> {
        self.store.commit(Transaction::new().remove(read, context)).await.map(drop)
    }
}

impl Reader {
    /// The documents of one type.
    pub fn documents<T: Document>(&self) -> Documents<'_, T> {
        Documents { reader: self, of: PhantomData }
    }
}

impl Store {
    /// The documents of one type, for writing too.
    pub fn collection<T: Document>(&self) -> Collection<'_, T> {
        Collection { store: self, documents: self.documents() }
    }

    /// Subscriptions, with the removal of their clusters.
    pub fn subscriptions(&self) -> Subscriptions<'_> {
        Subscriptions::new(self)
    }

    /// Installable versions.
    pub fn versions(&self) -> Collection<'_, Version> {
        self.collection()
    }

    /// Schedules.
    pub fn schedules(&self) -> Collection<'_, Schedule> {
        self.collection()
    }

    /// Tasks that teams wrote.
    pub fn tasks(&self) -> Collection<'_, Task> {
        self.collection()
    }

    /// Clusters, with the operations that change them.
    pub fn clusters(&self) -> Clusters<'_> {
        Clusters::new(self)
    }

    /// Asynchronous operations.
    pub fn operations(&self) -> Operations<'_> {
        Operations::new(self)
    }

    /// Maintenance manifests.
    pub fn manifests(&self) -> Manifests<'_> {
        Manifests::new(self)
    }

    /// Billing records.
    pub fn billing(&self) -> BillingRecords<'_> {
        BillingRecords::new(self)
    }
}
