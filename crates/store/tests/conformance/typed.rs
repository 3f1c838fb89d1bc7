//! The typed layer: it keeps unknown fields, writes nothing when nothing changed, and puts everything that belongs
//! together into one transaction.

use api::doc::{Cluster, Document, Manifest, Operation, ProvisioningState, Verb};
use api::secret::Secret;
use api::work::{Ending, WorkKind, WorkState};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{
    AuditContext, AuditQuery, AuditRow, CancelOutcome, ClusterOutcome, Completion, ListOptions, PageToken,
    Store, StoreError, VersionedDocument, WorkLease,
};
use uuid::Uuid;

use crate::fixture::{
    Note, at, billing, cluster, context, counter, feed_from, manifest, operation, version, written,
};
use crate::raw::RawDatabase;

async fn audited(store: &Store) -> Vec<AuditRow> {
    store.audit_list(AuditQuery { limit: 100, ..AuditQuery::default() }).await.unwrap()
}

async fn note(store: &Store, uuid: Uuid) -> VersionedDocument<Note> {
    store.documents().get(uuid).await.unwrap().unwrap()
}

/// A note as a newer release writes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct NewerNote {
    #[serde(flatten)]
    note: Note,
    colour: String,
    margins: serde_json::Value,
}

impl Document for NewerNote {
    const KIND: &'static str = Note::KIND;

    fn path(&self) -> String {
        self.note.path()
    }

    fn scope(&self) -> String {
        self.note.scope()
    }
}

on_both_engines! {
    async fn fields_of_a_newer_release_survive_a_change_by_an_older_one(env: &TestEnvironment) {
        let store = &env.store;
        let newer = NewerNote { note: Note::fresh().holding("k"), colour: "red".to_owned(), margins: json!({ "left": [1, { "a": null }] }) };
        let (uuid, _) = store.collection().create(&newer, &context()).await.unwrap();
        let read = note(store, uuid).await;
        store.collection().update(&read, &Note { key: None, ..read.document.saying("by the older") }, &context()).await.unwrap();
        let now = store.documents::<NewerNote>().get(uuid).await.unwrap().unwrap();
        let expect = NewerNote { note: Note { key: None, ..newer.note.saying("by the older") }, ..newer };
        assert_eq!(now.document, expect);
        assert!(store.get(uuid).await.unwrap().unwrap().body.get("key").is_none());
    }
}

on_both_engines! {
    async fn observed_state_is_in_the_feed_and_not_in_the_audit_log(env: &TestEnvironment) {
        let store = &env.store;
        let read = written(store, &Note::fresh()).await;
        let (start, audits) = (store.feed_end().await.unwrap(), audited(store).await.len());
        let seen = store::Transaction::new().observe(&read, &read.document.saying("seen")).unwrap();
        let committed = store.commit(seen.clone()).await.unwrap();
        let now = store.documents::<Note>().get(read.uuid).await.unwrap().unwrap();
        assert_eq!((now.document.text.as_str(), now.generation), ("seen", read.generation));
        assert_eq!(committed.etag(read.uuid), Some(now.etag));
        assert!(now.etag > read.etag);
        assert_eq!(audited(store).await.len(), audits);
        crate::fixture::eventually("the change is in the feed", async || {
            let changes = crate::fixture::feed_from(store, start).await.unwrap();
            changes.iter().any(|it| it.uuid == read.uuid).then_some(())
        })
        .await;
        // Like every write it compares the version; and an equal document is not written.
        assert!(matches!(store.commit(seen).await, Err(StoreError::Changed { .. })));
        assert!(store::Transaction::new().observe(&now, &now.document).unwrap().is_empty());
    }
}

on_both_engines! {
    async fn a_change_that_changes_nothing_writes_nothing(env: &TestEnvironment) {
        let store = &env.store;
        let read = written(store, &Note::fresh().saying("same")).await;
        let (before, position) = (audited(store).await.len(), store.feed_end().await.unwrap());
        assert_eq!(store.collection().update(&read, &read.document, &context()).await.unwrap(), read.etag);
        let (uuid, etag, new) = store.collection().put(&read.document, None, &context()).await.unwrap();
        assert_eq!((uuid, etag, new), (read.uuid, read.etag, false));
        assert_eq!(note(store, read.uuid).await, read);
        assert_eq!(audited(store).await.len(), before);
        // At most the creation itself is delivered behind that position, should the feed have been delayed.
        let versions: Vec<_> = feed_from(store, position).await.unwrap().iter().filter_map(version).collect();
        assert!(versions.iter().all(|it| *it == (read.uuid, read.etag, false)), "{versions:?}");
    }
}

on_both_engines! {
    async fn a_unique_key_has_one_living_holder_and_is_freed_and_moved_with_it(env: &TestEnvironment) {
        let store = &env.store;
        let using = |name: &str, credential: &str, group: &str| Cluster {
            credential: Some(credential.to_owned()),
            managed_resource_group: Some(group.to_owned()),
            ..cluster(name)
        };
        let create = async |cluster: &Cluster| store.clusters().create(cluster, &context()).await;
        let taken = |outcome: Result<_, StoreError>, key: &str| match outcome {
            Err(StoreError::KeyTaken { key: taken }) => assert_eq!(taken, key),
            outcome => panic!("{:?}", outcome.map(|_: (Uuid, store::Etag)| ())),
        };
        let (first, _) = create(&using("one", "App-1", "Group-1")).await.unwrap();
        taken(create(&using("two", "APP-1", "group-2")).await, "credential:app-1");
        taken(create(&using("two", "app-2", "GROUP-1")).await, "resource-group:group-1");
        let (second, _) = create(&using("two", "app-2", "group-2")).await.unwrap();

        // A change moves the key; the old one is free at once, the new one must be.
        let read = store.clusters().get(second).await.unwrap().unwrap();
        taken(store.clusters().update(&read, &using("two", "app-1", "group-2"), &context()).await.map(|etag| (second, etag)), "credential:app-1");
        store.clusters().update(&read, &using("two", "app-3", "group-2"), &context()).await.unwrap();
        create(&using("three", "app-2", "group-3")).await.unwrap();
        taken(create(&using("four", "app-3", "group-4")).await, "credential:app-3");

        // Deletion frees it; and nothing of a rejected creation is stored.
        let read = store.clusters().get(first).await.unwrap().unwrap();
        store.clusters().delete(&read, &context()).await.unwrap();
        create(&using("four", "app-1", "group-1")).await.unwrap();
        let all = store.clusters().list(ListOptions { limit: 10, ..ListOptions::default() }).await.unwrap();
        assert_eq!(all.items.iter().map(|it| it.document.name.as_str()).collect::<Vec<_>>(), ["four", "three", "two"]);
        // A key is unique across kinds as well: it is the key that is unique, not the document.
        let held = written(store, &Note::fresh().holding("x")).await;
        assert!(matches!(store.collection().create(&Note::fresh().holding("x"), &context()).await, Err(StoreError::KeyTaken { .. })));
        store.collection().update(&held, &Note { key: None, ..held.document.clone() }, &context()).await.unwrap();
        written(store, &Note::fresh().holding("x")).await;
    }
}

on_both_engines! {
    async fn lists_are_paged_by_scope_by_prefix_and_over_the_whole_fleet(env: &TestEnvironment) {
        let store = &env.store;
        let mut expect = Vec::new();
        for shelf in ["/b", "/a", "/a/x", "/c"] {
            for number in 0..7 {
                let note = Note::at(&format!("{}-{number}", &shelf[1..])).on(shelf);
                written(store, &note).await;
                expect.push((shelf.to_owned(), note.id));
            }
        }
        expect.sort();
        let walk = async |selection: ListOptions| {
            let (mut seen, mut from): (Vec<(String, String)>, Option<PageToken>) = (Vec::new(), None);
            loop {
                let page = store.documents::<Note>().list(ListOptions { from, ..selection.clone() }).await.unwrap();
                assert!(page.items.len() <= selection.limit.max(1));
                seen.extend(page.items.into_iter().map(|it| (it.document.shelf, it.document.id)));
                // As it goes over the wire and comes back.
                let Some(next) = page.next else { return seen };
                from = Some(next.to_string().parse().unwrap());
            }
        };
        for limit in [1, 3, 7, 28, 1000] {
            assert_eq!(walk(ListOptions { limit, ..ListOptions::default() }).await, expect, "by {limit}");
            let a: Vec<_> = expect.iter().filter(|it| it.0 == "/a").cloned().collect();
            assert_eq!(walk(ListOptions { scope: Some("/a".to_owned()), limit, ..ListOptions::default() }).await, a);
            let prefix = ListOptions { scope: Some("/a".to_owned()), prefix: Some("/notes/a-3".to_owned()), limit, ..ListOptions::default() };
            assert_eq!(walk(prefix).await, [("/a".to_owned(), "/notes/a-3".to_owned())]);
            // A path prefix is found in any scope.
            let everywhere = ListOptions { prefix: Some("/notes/a".to_owned()), limit, ..ListOptions::default() };
            let begins: Vec<_> = expect.iter().filter(|it| it.1.starts_with("/notes/a")).cloned().collect();
            assert_eq!(walk(everywhere).await.len(), begins.len(), "by {limit}");
            let nowhere = ListOptions { prefix: Some("/notes/zz".to_owned()), limit, ..ListOptions::default() };
            assert_eq!(walk(nowhere).await, []);
        }
        // A limit of zero counts as one, and a huge one is bounded.
        assert_eq!(store.documents::<Note>().list(ListOptions { limit: 0, ..ListOptions::default() }).await.unwrap().items.len(), 1);
        assert_eq!(store.documents::<Note>().list(ListOptions { limit: usize::MAX, ..ListOptions::default() }).await.unwrap().items.len(), 28);

        for hostile in ["", "x", "!!!", "W10", "WyJhIl0", "WyJhIiwiYiIsImMiXQ", "WzEsMl0", "eyJhIjoxfQ", "WyJhXHUwMDAwIiwiYiJd", "AAAA", "////", "WyJhIiwiYiJd=="] {
            let rejection = hostile.parse::<PageToken>().unwrap_err().to_string();
            assert_eq!(rejection, "the token was not issued by a list of this store", "{hostile:?}");
        }
        // A well-formed token of an unknown position starts a list somewhere; it breaks nothing.
        let somewhere: PageToken = "WyInOyBkcm9wIHRhYmxlIGRvY3VtZW50czsgLS0iLCIlIl0".parse().unwrap();
        store.documents::<Note>().list(ListOptions { from: Some(somewhere), limit: 5, ..ListOptions::default() }).await.unwrap();
    }
}

on_both_engines! {
    async fn put_makes_a_document_be_so_but_only_as_the_version_that_was_named(env: &TestEnvironment) {
        let store = &env.store;
        let wanted = Note::fresh();
        let nobody = store.collection().put(&wanted, Some(at(1)), &context()).await;
        assert!(matches!(nobody, Err(StoreError::Gone { .. })));
        let (uuid, first, new) = store.collection().put(&wanted, None, &context()).await.unwrap();
        assert!(new);
        let (same, second, new) = store.collection().put(&wanted.saying("two"), Some(first), &context()).await.unwrap();
        assert_eq!((same, counter(second), new), (uuid, 2, false));
        match store.collection().put(&wanted.saying("three"), Some(first), &context()).await {
            Err(StoreError::Changed { expected, found, .. }) => assert_eq!((expected, found), (first, second)),
            outcome => panic!("{outcome:?}"),
        }
        store.collection().put(&wanted.saying("four"), None, &context()).await.unwrap();
        assert_eq!(note(store, uuid).await.document.text, "four");
        // A path does not change: the document keeps its identity, its scope and its name.
        let read = note(store, uuid).await;
        let elsewhere = store.collection().update(&read, &Note::fresh(), &context()).await.unwrap_err().to_string();
        assert!(elsewhere.ends_with("a path does not change"), "{elsewhere}");
        let other_shelf = store.collection().update(&read, &read.document.on("/other"), &context()).await;
        assert!(matches!(other_shelf, Err(StoreError::Invalid { .. })));
    }
}

async fn claim(store: &Store, kind: WorkKind, lane: Uuid) -> WorkLease {
    let claimed = store.claim(kind, 50, Uuid::new_v4()).await.unwrap();
    claimed.into_iter().map(|it| it.lease).find(|it| it.lane == lane).unwrap()
}

on_both_engines! {
    async fn a_cluster_is_created_changed_and_removed_together_with_its_operations(env: &TestEnvironment) {
        let (store, me) = (&env.store, AuditContext::service("backend"));
        // Created: cluster, operation, work and audit, all or none.
        let create = operation(Uuid::now_v7(), Verb::Create);
        let wanted = Cluster { provisioning_state: ProvisioningState::Creating, operation: Some(create.id), ..cluster("c") };
        store.clusters().start_create(&wanted, &create, &Default::default(), &context()).await.unwrap();
        let twice = operation(Uuid::now_v7(), Verb::Create);
        assert!(matches!(store.clusters().start_create(&wanted, &twice, &Default::default(), &context()).await, Err(StoreError::Exists { .. })));
        assert!(store.operations().get(twice.id).await.unwrap().is_none());
        assert!(store.work(twice.id).await.unwrap().is_none());

        let view = store.operations().view(create.id).await.unwrap().unwrap();
        assert_eq!(view.work.unwrap().state, WorkState::Pending);
        let lease = claim(store, WorkKind::Operation, create.cluster).await;
        let read = store.clusters().get(create.cluster).await.unwrap().unwrap();
        let ended = Operation { status: ProvisioningState::Succeeded, end_time: Some(Timestamp::UNIX_EPOCH), ..create.clone() };
        let done = Cluster { provisioning_state: ProvisioningState::Succeeded, operation: None, ..wanted.clone() };
        let completion = Completion::new(lease, Ending::Completed, json!({ "message": "made" }));
        let finish = async |completion: Completion| {
            store.operations().finish(&view.operation, &ended, ClusterOutcome::Updated(&read, &done), completion, &me).await
        };
        // A lost lease changes neither the operation nor the cluster.
        let stale = Completion { lease: WorkLease { fence: lease.fence - 1, ..lease }, ..completion.clone() };
        assert!(matches!(finish(stale).await, Err(StoreError::LostLease { .. })));
        assert_eq!(store.clusters().get(create.cluster).await.unwrap().unwrap().document, wanted);
        finish(completion).await.unwrap();
        let read = store.clusters().get(create.cluster).await.unwrap().unwrap();
        assert_eq!((&read.document, read.generation), (&done, 1));
        assert_eq!(store.operations().get(create.id).await.unwrap().unwrap().document, ended);
        assert_eq!(store.work(create.id).await.unwrap().unwrap().state, WorkState::Completed);

        // Changed, then removed: its pending work is removed with it.
        let update = operation(create.cluster, Verb::Update);
        let changed = Cluster { location: "south".to_owned(), ..done };
        let etag = store.clusters().start_update(&read, &changed, &update, &Default::default(), &context()).await.unwrap();
        assert!(etag > read.etag);
        assert!(matches!(store.clusters().start_update(&read, &changed, &operation(create.cluster, Verb::Update), &Default::default(), &context()).await, Err(StoreError::Changed { .. })));
        let pending = manifest(create.cluster);
        store.manifests().create(&[(pending.clone(), vec![])], &context()).await.unwrap();
        let lease = claim(store, WorkKind::Operation, create.cluster).await;
        let read = store.clusters().get(create.cluster).await.unwrap().unwrap();
        assert_eq!(read.generation, 2);
        let operation = store.operations().get(update.id).await.unwrap().unwrap();
        let completion = Completion::new(lease, Ending::Completed, json!({}));
        store.operations().finish(&operation, &operation.document, ClusterOutcome::Deleted(&read), completion, &me).await.unwrap();
        assert!(store.clusters().get(create.cluster).await.unwrap().is_none());
        let view = store.manifests().view(pending.id).await.unwrap().unwrap();
        assert_eq!(view.work.unwrap().state, WorkState::Cancelled);
        assert!(store.pending(create.cluster, 9).await.unwrap().is_empty());
    }
}

on_both_engines! {
    async fn a_cluster_is_imported_again_and_forgotten(env: &TestEnvironment) {
        let store = &env.store;
        let config = |text: &str| Secret::new(text.as_bytes().to_vec());
        let imported = Cluster { imported: true, ..cluster("mine") };
        let (uuid, first, new) = store.clusters().import(&imported, &config("one"), &context()).await.unwrap();
        assert!(new);
        // Again: another kubeconfig, the same identity; the time of creation stays.
        let moved = Cluster { location: "south".to_owned(), created_at: Timestamp::from_second(99).unwrap(), ..imported.clone() };
        let (same, second, new) = store.clusters().import(&moved, &config("two"), &context()).await.unwrap();
        assert_eq!((same, new), (uuid, false));
        assert!(second > first);
        let read = store.clusters().get(uuid).await.unwrap().unwrap();
        assert_eq!((read.document.location.as_str(), read.document.created_at), ("south", Timestamp::UNIX_EPOCH));
        assert_eq!(store.clusters().kubeconfig(uuid).await.unwrap().unwrap().expose(), b"two");
        // Only the kubeconfig may differ: then the document does not change, and there is still an audit entry.
        let before = audited(store).await.len();
        store.clusters().import(&read.document, &config("three"), &context()).await.unwrap();
        assert_eq!(store.clusters().get(uuid).await.unwrap().unwrap().etag, second);
        assert_eq!(store.clusters().kubeconfig(uuid).await.unwrap().unwrap().expose(), b"three");
        let records = audited(store).await;
        assert_eq!((records.len(), records[0].record.entry.action.as_str()), (before + 1, "cluster.import"));

        // A provisioned cluster is not taken over by an import.
        store.clusters().create(&cluster("ours"), &context()).await.unwrap();
        assert!(matches!(store.clusters().import(&cluster("ours"), &config("x"), &context()).await, Err(StoreError::Exists { .. })));

        // Removed only when nothing runs on it; and then with all pending work.
        let (one, two) = (manifest(uuid), manifest(uuid));
        store.manifests().create(&[(one.clone(), vec![]), (two.clone(), vec![])], &context()).await.unwrap();
        let lease = claim(store, WorkKind::Manifest, uuid).await;
        let read = store.clusters().get(uuid).await.unwrap().unwrap();
        assert!(matches!(store.clusters().forget(&read, &context()).await, Err(StoreError::WrongState { .. })));
        store.complete(&[Completion::new(lease, Ending::Completed, json!({}))]).await.unwrap();
        store.clusters().forget(&read, &context()).await.unwrap();
        assert!(store.clusters().kubeconfig(uuid).await.unwrap().is_none());
        let states: Vec<_> = store.manifests().list_for_cluster(uuid, None, 9).await.unwrap().0.iter().map(|it| it.work.as_ref().unwrap().state).collect();
        assert_eq!(states, [WorkState::Completed, WorkState::Cancelled]);
    }
}

on_both_engines! {
    async fn started_pending_work_is_neither_deleted_nor_removed_with_its_cluster(env: &TestEnvironment) {
        let store = &env.store;
        let mine = Cluster { imported: true, ..cluster("half-done") };
        let (uuid, ..) = store.clusters().import(&mine, &Secret::new(b"x".to_vec()), &context()).await.unwrap();
        let started = manifest(uuid);
        store.manifests().create(&[(started.clone(), vec![])], &context()).await.unwrap();
        let lease = claim(store, WorkKind::Manifest, uuid).await;
        let rest = std::time::Duration::from_secs(3600);
        store.release(store::Release { started: true, ..store::Release::new(lease, rest, false) }).await.unwrap();
        let fresh = manifest(uuid);
        store.manifests().create(&[(fresh.clone(), vec![])], &context()).await.unwrap();
        let read = store.clusters().get(uuid).await.unwrap().unwrap();
        let manifest = store.manifests().get(started.id).await.unwrap().unwrap();
        for refused in
            [store.clusters().forget(&read, &context()).await, store.manifests().delete(&manifest, &context()).await]
        {
            match refused {
                Err(StoreError::WrongState { work, state, .. }) => {
                    assert_eq!((work, state), (started.id, WorkState::Pending));
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(store.work(started.id).await.unwrap().unwrap().state, WorkState::Pending);
        assert_eq!(store.work(fresh.id).await.unwrap().unwrap().state, WorkState::Pending);
        // When it has finished, both may be removed.
        store.manifests().cancel(&manifest, &context()).await.unwrap();
        let lease = claim(store, WorkKind::Manifest, uuid).await;
        store.complete(&[Completion::new(lease, Ending::Cancelled, json!({}))]).await.unwrap();
        store.manifests().delete(&manifest, &context()).await.unwrap();
        store.clusters().forget(&read, &context()).await.unwrap();
        assert_eq!(store.work(fresh.id).await.unwrap().unwrap().state, WorkState::Cancelled);
    }
}

on_both_engines! {
    async fn a_cluster_is_forgotten_or_worked_on_but_never_both(env: &TestEnvironment) {
        let store = &env.store;
        let other = if env.is_shared() { env.another().await } else { store.clone() };
        let mut forgotten = 0;
        for round in 0..100 {
            let mine = Cluster { imported: true, ..cluster(&format!("c{round}")) };
            let (uuid, ..) = store.clusters().import(&mine, &Secret::new(b"x".to_vec()), &context()).await.unwrap();
            let order = manifest(uuid);
            store.manifests().create(&[(order.clone(), vec![])], &context()).await.unwrap();
            let read = store.clusters().get(uuid).await.unwrap().unwrap();
            let (clusters, me) = (store.clusters(), context());
            let (outcome, claimed) =
                tokio::join!(clusters.forget(&read, &me), other.claim(WorkKind::Manifest, 1, Uuid::new_v4()));
            let claimed = claimed.unwrap();
            match outcome {
                Ok(()) => {
                    assert!(claimed.is_empty(), "round {round}: forgotten while it was worked on");
                    assert_eq!(store.work(order.id).await.unwrap().unwrap().state, WorkState::Cancelled);
                    forgotten += 1;
                }
                Err(StoreError::WrongState { work, .. }) => {
                    assert_eq!((work, claimed[0].lease.work), (order.id, order.id), "round {round}");
                    assert!(store.clusters().get(uuid).await.unwrap().is_some());
                    let signals = store.checkpoint(claimed[0].lease, "s", json!({})).await.unwrap();
                    assert!(!signals.cancel, "round {round}: refused, and asked to stop all the same");
                    store.complete(&[Completion::new(claimed[0].lease, Ending::Completed, json!({}))]).await.unwrap();
                }
                Err(other) => panic!("{other}"),
            }
        }
        // First come, first served; with one writer that is the order of the requests.
        assert!(forgotten > 0);
    }
}

on_both_engines! {
    async fn manifests_are_created_together_listed_expedited_and_cancelled(env: &TestEnvironment) {
        let (store, lane) = (&env.store, Uuid::now_v7());
        let at = |second: i64| Manifest { run_after: Timestamp::from_second(second).unwrap(), ..manifest(lane) };
        let manifests: Vec<(Manifest, Vec<String>)> = (1..=5).map(|it| (at(it), vec!["fleet".to_owned()])).collect();
        store.manifests().create(&manifests, &context()).await.unwrap();
        // An existing one fails the whole request.
        let other = manifest(lane);
        let again = store.manifests().create(&[(other.clone(), vec![]), manifests[0].clone()], &context()).await;
        assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
        assert!(store.manifests().view(other.id).await.unwrap().is_none());

        let (mut ids, mut from) = (Vec::new(), None);
        loop {
            let (views, next) = store.manifests().list_for_cluster(lane, from, 2).await.unwrap();
            assert!(views.iter().all(|it| it.work.as_ref().unwrap().state == WorkState::Pending));
            ids.extend(views.iter().map(|it| it.manifest.uuid));
            from = next;
            if from.is_none() {
                break;
            }
        }
        let mut expect: Vec<Uuid> = manifests.iter().map(|it| it.0.id).collect();
        expect.sort();
        assert_eq!(ids, expect);

        let read = store.manifests().get(manifests[3].0.id).await.unwrap().unwrap();
        store.manifests().expedite(&read, &context()).await.unwrap();
        assert_eq!(store.pending(lane, 9).await.unwrap()[0].id, read.uuid);
        let lease = claim(store, WorkKind::Manifest, lane).await;
        assert_eq!(lease.work, read.uuid);
        assert!(matches!(store.manifests().expedite(&read, &context()).await, Err(StoreError::WrongState { .. })));

        // Running work gets a request, pending work is cancelled at once, finished work can no longer be.
        assert_eq!(store.manifests().cancel(&read, &context()).await.unwrap(), CancelOutcome::Requested);
        assert!(store.checkpoint(lease, "s", json!({})).await.unwrap().cancel);
        store.complete(&[Completion::new(lease, Ending::Cancelled, json!({}))]).await.unwrap();
        assert!(matches!(store.manifests().cancel(&read, &context()).await, Err(StoreError::WrongState { .. })));
        let waiting = store.manifests().get(manifests[1].0.id).await.unwrap().unwrap();
        assert_eq!(store.manifests().cancel(&waiting, &context()).await.unwrap(), CancelOutcome::Cancelled);
        let view = store.manifests().view(waiting.uuid).await.unwrap().unwrap().work.unwrap();
        assert_eq!((view.state, view.result.unwrap().to_json()), (WorkState::Cancelled, json!({ "code": "Cancelled", "message": "cancelled", "by": "tester", "reason": "a test" })));
        let actions: Vec<String> = audited(store).await.into_iter().map(|it| it.record.entry.action).collect();
        assert_eq!(actions[..3], ["manifest.cancel", "manifest.cancel", "manifest.expedite"].map(str::to_owned));
    }
}

on_both_engines! {
    async fn billing_opens_and_closes_once_however_often_it_is_requested(env: &TestEnvironment) {
        let (store, cluster) = (&env.store, Uuid::now_v7());
        store.billing().ensure_closed(&billing(cluster, 1), Timestamp::from_second(5).unwrap(), &context()).await.unwrap();
        assert!(store.billing().find(&billing(cluster, 1).path()).await.unwrap().is_none());
        for second in [10, 20] {
            store.billing().ensure_open(&billing(cluster, second), &context()).await.unwrap();
        }
        for second in [30, 40] {
            store.billing().ensure_closed(&billing(cluster, 1), Timestamp::from_second(second).unwrap(), &context()).await.unwrap();
        }
        store.billing().ensure_open(&billing(cluster, 50), &context()).await.unwrap();
        let read = store.billing().find(&billing(cluster, 1).path()).await.unwrap().unwrap();
        assert_eq!(read.document.creation_time.as_second(), 10);
        assert_eq!(read.document.deletion_time.unwrap().as_second(), 30);
        assert_eq!(counter(read.etag), 2);
    }
}

on_both_engines! {
    async fn every_change_is_audited_in_its_transaction_with_digests_of_before_and_after(env: &TestEnvironment) {
        let store = &env.store;
        let read = written(store, &Note::fresh().saying("one")).await;
        store.collection().update(&read, &read.document.saying("two"), &context()).await.unwrap();
        let now = note(store, read.uuid).await;
        // What fails leaves no entry.
        assert!(store.collection().update(&read, &read.document.saying("three"), &context()).await.is_err());
        assert!(store.collection().create(&read.document, &context()).await.is_err());
        store.collection().delete(&now, &context()).await.unwrap();

        let entries: Vec<_> = audited(store).await.into_iter().rev().map(|it| it.record.entry).collect();
        let [create, update, delete] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!([&create.action, &update.action, &delete.action], ["note.create", "note.update", "note.delete"]);
        for entry in &entries {
            assert_eq!((entry.actor.as_str(), entry.reason.as_str()), ("tester", "a test"));
            assert_eq!((entry.target.as_str(), entry.correlation_id), (read.document.id.as_str(), Some(Uuid::from_u128(7))));
        }
        assert_eq!((&create.before, &delete.after), (&None, &None));
        assert!(create.after.as_ref().unwrap().starts_with("sha256:"));
        assert_eq!((&create.after, &update.after), (&update.before, &delete.before));
        assert_ne!(create.after, update.after);
        // The same document has the same digest, on either engine: its fields are ordered.
        let expect = context().entry("x", "y", None, Some(&json!({ "text": "one", "shelf": "/shelf", "id": read.document.id })));
        assert_eq!(create.after, expect.after);
    }
}

on_both_engines! {
    async fn a_document_that_this_release_cannot_read_is_reported_by_name_and_left_alone(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let read = written(store, &Note::fresh()).await;
        let uuid = raw.uuid(read.uuid);
        raw.execute(&format!("update documents set body = '{{\"id\": 7}}' where uuid = {uuid}")).await;
        let rejection = store.documents::<Note>().get(read.uuid).await.unwrap_err().to_string();
        assert_eq!(rejection, format!("unexpected response of the database (note {} has a form that this release does not support)", read.uuid));
        // Under another type it is not found.
        assert!(store.documents::<Cluster>().get(read.uuid).await.unwrap().is_none());
        assert!(store.documents::<Cluster>().find(&read.document.id).await.unwrap().is_none());
    }
}
