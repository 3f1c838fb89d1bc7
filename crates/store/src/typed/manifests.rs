//! Maintenance manifests: what was asked, and how its work fares.

use std::collections::HashMap;

use api::doc::{Document as _, Manifest};
use api::work::WorkKind;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{By, Documents, PageToken, Selection, Versioned};
use crate::StoreError;
use crate::store::Store;
use crate::transaction::Transaction;
use crate::work::{NewWork, WorkView};

/// A manifest and its work.
#[derive(Debug, Clone)]
pub struct ManifestView {
    /// What was asked.
    pub manifest: Versioned<Manifest>,
    /// How it fares; none once retention has removed it.
    pub work: Option<WorkView>,
}

/// Manifests, to be read and written.
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

/// What became of a request to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was pending and is cancelled.
    AtOnce,
    /// It runs; whoever runs it was asked to stop.
    Asked,
}

impl<'a> Manifests<'a> {
    pub(super) fn new(store: &'a Store) -> Manifests<'a> {
        Manifests { store, documents: store.documents() }
    }

    /// Creates manifests with their work, all or none. A manifest whose id is there already is refused.
    pub async fn create(&self, manifests: &[(Manifest, Vec<String>)], by: &By) -> Result<(), StoreError> {
        let mut transaction = Transaction::new();
        for (manifest, budgets) in manifests {
            let work = NewWork {
                run_after: Some(manifest.run_after),
                run_before: Some(manifest.run_before),
                priority: manifest.priority,
                budgets: budgets.clone(),
                ..NewWork::new(manifest.id, manifest.cluster, WorkKind::Manifest)
            };
            transaction = transaction.create(manifest.id, manifest, by)?.enqueue(work);
        }
        self.store.commit(transaction).await.map(drop)
    }

    /// A manifest and its work.
    pub async fn view(&self, id: Uuid) -> Result<Option<ManifestView>, StoreError> {
        let Some(manifest) = self.get(id).await? else { return Ok(None) };
        Ok(Some(ManifestView { manifest, work: self.store.work(id).await? }))
    }

    /// A page of a cluster's manifests with their work: two queries, however long the page.
    pub async fn of_cluster(
        &self,
        cluster: Uuid,
        from: Option<PageToken>,
        limit: usize,
    ) -> Result<(Vec<ManifestView>, Option<PageToken>), StoreError> {
        let page = self
            .list(Selection { scope: Some(cluster.to_string()), from, limit, ..Selection::default() })
            .await?;
        let works = self.store.works(page.items.iter().map(|it| it.uuid).collect()).await?;
        let mut works: HashMap<Uuid, WorkView> = works.into_iter().map(|work| (work.id, work)).collect();
        let views = page
            .items
            .into_iter()
            .map(|manifest| ManifestView { work: works.remove(&manifest.uuid), manifest });
        Ok((views.collect(), page.next))
    }

    /// Cancels a manifest that is pending, or asks for the end of one that runs.
    pub async fn cancel(&self, read: &Versioned<Manifest>, by: &By) -> Result<Cancelled, StoreError> {
        let entry = by.entry("manifest.cancel", &read.document.path(), None, None);
        let result = json!({ "message": "cancelled", "by": by.actor, "reason": by.reason });
        // It may begin, or be given back, between two looks; three turns are more than any such dance.
        let mut refusal = StoreError::NoSuchWork { work: read.uuid };
        for _ in 0..3 {
            let withdraw = Transaction::new().withdraw(read.uuid, result.clone()).audit(entry.clone());
            match self.store.commit(withdraw).await {
                Ok(_) => return Ok(Cancelled::AtOnce),
                Err(StoreError::WrongState { state, .. }) if state == "InProgress" => {}
                Err(other) => return Err(other),
            }
            match self.store.commit(Transaction::new().request_cancel(read.uuid).audit(entry.clone())).await {
                Ok(_) => return Ok(Cancelled::Asked),
                Err(other @ StoreError::WrongState { .. }) => refusal = other,
                Err(other) => return Err(other),
            }
        }
        Err(refusal)
    }

    /// Makes a pending manifest the next of its cluster.
    pub async fn expedite(&self, read: &Versioned<Manifest>, by: &By) -> Result<(), StoreError> {
        let entry = by.entry("manifest.expedite", &read.document.path(), None, Some(&Value::from(0)));
        self.store.commit(Transaction::new().expedite(read.uuid).audit(entry)).await.map(drop)
    }
}
