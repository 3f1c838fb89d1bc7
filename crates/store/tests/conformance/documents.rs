//! Documents change only by compare-and-swap, belong to their uuid and not to their path, and contain nothing that
//! one of the engines could not store.

use std::collections::HashMap;

use api::doc::{Cluster, Document as _, Verb};
use api::work::WorkKind;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::json;
use store::{
    AuditQuery, BODY_BYTES_MAX, DesiredState, DocumentQuery, Etag, KEY_BYTES_MAX, NewWork, StoreError,
    Transaction, VersionedDocument,
};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::short_or_long;
use crate::fixture::{
    Note, cases, cluster, context, eventually, feed_from, manifest, operation, version, written,
};
use crate::raw::RawDatabase;

on_both_engines! {
    async fn cancelled_reads_have_no_side_effects(env: &TestEnvironment) {
        let read = written(&env.store, &Note::fresh()).await;
        let listing = DocumentQuery { kind: Note::KIND.to_owned(), limit: 10, ..DocumentQuery::default() };
        for _ in 0..200 {
            // Polled once, and dropped before its response.
            let _ = tokio::time::timeout(std::time::Duration::ZERO, env.store.list(listing.clone())).await;
        }
        assert_eq!(env.store.list(listing).await.unwrap().len(), 1);
        assert_eq!(env.store.get(read.uuid).await.unwrap().unwrap().etag, read.etag);
    }
}

on_both_engines! {
    async fn a_unique_key_has_one_living_owner_and_changes_hands_within_a_transaction(env: &TestEnvironment) {
        let store = &env.store;
        let read = async |uuid: Uuid| store.documents::<Note>().get(uuid).await.unwrap().unwrap();
        let first = written(store, &Note::fresh().holding("x")).await;
        let taken = store.collection().create(&Note::fresh().holding("x"), &context()).await;
        assert!(matches!(taken, Err(StoreError::KeyTaken { key }) if key == "note:x"));

        // In either order of statements and uuids.
        let mut owner = first;
        for (heir, create_first) in [(Uuid::from_u128(1), true), (Uuid::from_u128(2), false), (Uuid::max(), true)] {
            let freed = Note { key: None, ..owner.document.clone() };
            let create = |it: Transaction| it.create(heir, &Note::fresh().holding("x"), &context()).unwrap();
            let free = |it: Transaction| it.update(&owner, &freed, DesiredState::Unchanged, &context()).unwrap();
            let moved = match create_first {
                true => free(create(Transaction::new())),
                false => create(free(Transaction::new())),
            };
            store.commit(moved).await.unwrap();
            let taken = store.collection().create(&Note::fresh().holding("x"), &context()).await;
            assert!(matches!(taken, Err(StoreError::KeyTaken { .. })));
            owner = read(heir).await;
        }

        // Two of them swap theirs; and a rejected change leaves everything unchanged.
        let other = written(store, &Note::fresh().holding("y")).await;
        let swap = |one: &VersionedDocument<Note>, two: &VersionedDocument<Note>| {
            let (to_one, to_two) = (one.document.holding("y"), two.document.holding("x"));
            let started = Transaction::new().update(one, &to_one, DesiredState::Unchanged, &context()).unwrap();
            started.update(two, &to_two, DesiredState::Unchanged, &context()).unwrap()
        };
        store.commit(swap(&owner, &other)).await.unwrap();
        assert!(matches!(store.commit(swap(&owner, &other)).await, Err(StoreError::Changed { .. })));
        let (owner, other) = (read(owner.uuid).await, read(other.uuid).await);
        assert_eq!((owner.document.key.as_deref(), other.document.key.as_deref()), (Some("y"), Some("x")));
        for key in ["x", "y"] {
            let taken = store.collection().create(&Note::fresh().holding(key), &context()).await;
            assert!(matches!(taken, Err(StoreError::KeyTaken { .. })), "{key}");
        }
        store.collection().delete(&other, &context()).await.unwrap();
        written(store, &Note::fresh().holding("x")).await;
    }
}

on_both_engines! {
    async fn a_document_without_a_feed_row_is_found_by_the_check(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let (in_feed, not_in_feed) = (written(store, &Note::fresh()).await, written(store, &Note::fresh()).await);
        raw.execute(&format!("delete from feed where uuid = {}", raw.uuid(not_in_feed.uuid))).await;
        let broken = async || {
            let findings = store.check().await.unwrap();
            findings.into_iter().filter(|it| !it.faults.is_empty()).flat_map(|it| it.faults).collect::<Vec<_>>()
        };
        // As old as the oldest row: its feed row may have been removed.
        assert_eq!(broken().await, Vec::<String>::new());
        raw.execute("update feed set at = at - 120000000").await;
        let faults = broken().await;
        assert!(faults.len() == 1 && faults[0].replace('-', "") == not_in_feed.uuid.simple().to_string(), "{faults:?}");
        assert_ne!(in_feed.uuid, not_in_feed.uuid);
        // With the row restored, all is well.
        store.collection().update(&not_in_feed, &not_in_feed.document.saying("changed"), &context()).await.unwrap();
        assert_eq!(broken().await, Vec::<String>::new());
    }
}

on_both_engines! {
    async fn of_a_hundred_updates_of_one_version_exactly_one_wins(env: &TestEnvironment) {
        let mut stores = vec![env.store.clone()];
        if env.is_shared() {
            stores.push(env.another().await);
            stores.push(env.another().await);
        }
        let start = env.store.feed_end().await.unwrap();
        let read = written(&env.store, &Note::fresh()).await;
        let mut writers = JoinSet::new();
        for writer in 0..100 {
            let (store, read) = (stores[writer % stores.len()].clone(), read.clone());
            writers.spawn(async move {
                let wanted = read.document.saying(format!("writer {writer}"));
                (writer, store.collection().update(&read, &wanted, &context()).await)
            });
        }
        let mut winners = Vec::new();
        for (writer, outcome) in writers.join_all().await {
            match outcome {
                Ok(_) => winners.push(writer),
                Err(StoreError::Changed { uuid, expected, found }) => {
                    assert_eq!((uuid, expected, found.to_string().as_str()), (read.uuid, read.etag, "\"2\""));
                }
                Err(other) => panic!("writer {writer}: {other}"),
            }
        }
        let now = env.store.documents::<Note>().get(read.uuid).await.unwrap().unwrap();
        assert_eq!(winners.len(), 1);
        assert_eq!(now.document.text, format!("writer {}", winners[0]));
        assert_eq!(now.etag.to_string(), "\"2\"");
        let versions = eventually("both versions are in the feed", async || {
            let feed = feed_from(&env.store, start).await.unwrap();
            let seen: Vec<_> = feed.iter().filter_map(version).filter(|it| it.0 == read.uuid).collect();
            (seen.len() >= 2).then_some(seen)
        }).await;
        assert_eq!(versions, [(read.uuid, read.etag, false), (read.uuid, now.etag, false)]);
    }
}

/// What one of several writers does to one of a few paths, based on its last read.
#[derive(Debug, Clone, Copy)]
enum Step {
    Read {
        writer: usize,
        path: usize,
    },
    Create {
        path: usize,
    },
    Update {
        writer: usize,
        path: usize,
    },
    Delete {
        writer: usize,
        path: usize,
    },
    /// Deletes what it read and creates another under the same path, in one transaction.
    Replace {
        writer: usize,
        path: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0..3usize, 0..2usize, 0..5u8).prop_map(|(writer, path, what)| match what {
        0 => Step::Read { writer, path },
        1 => Step::Create { path },
        2 => Step::Update { writer, path },
        3 => Step::Delete { writer, path },
        _ => Step::Replace { writer, path },
    });
    prop::collection::vec(step, 1..40)
}

/// Expected result of a write, from what the writer had read and what is stored.
fn expected(read: &VersionedDocument<Note>, living: Option<&(Uuid, Etag)>) -> Result<(), String> {
    match living {
        Some((uuid, etag)) if *uuid == read.uuid && *etag == read.etag => Ok(()),
        Some((uuid, etag)) if *uuid == read.uuid => Err(format!(
            "document {} was changed meanwhile: it is at {etag}, the caller had read {}",
            read.uuid, read.etag
        )),
        _ => Err(format!("document {} is gone", read.uuid)),
    }
}

on_both_engines! {
    async fn any_interleaving_of_writers_matches_a_simple_model(env: &TestEnvironment) {
        let store = &env.store;
        for steps in cases(short_or_long(40, 2000), steps()) {
            let prefix = Uuid::new_v4();
            let notes = [Note::at(&format!("{prefix}/a")), Note::at(&format!("{prefix}/b"))];
            let mut model: [Option<(Uuid, Etag)>; 2] = [None, None];
            let mut reads: HashMap<(usize, usize), VersionedDocument<Note>> = HashMap::new();
            for (turn, step) in steps.iter().enumerate() {
                let text = |outcome: Result<(), StoreError>| outcome.map_err(|error| error.to_string());
                let path = match *step {
                    Step::Read { path, .. } | Step::Create { path } | Step::Update { path, .. } => path,
                    Step::Delete { path, .. } | Step::Replace { path, .. } => path,
                };
                match *step {
                    Step::Read { writer, path } => {
                        match store.documents().find(&notes[path].id).await.unwrap() {
                            Some(read) => drop(reads.insert((writer, path), read)),
                            None => drop(reads.remove(&(writer, path))),
                        }
                    }
                    Step::Create { path } => {
                        let outcome = store.collection().create(&notes[path].saying(turn.to_string()), &context()).await;
                        match (outcome, &model[path]) {
                            (Ok(made), None) => model[path] = Some(made),
                            (Err(StoreError::Exists { .. }), Some(_)) => {}
                            (outcome, living) => panic!("{outcome:?} with {living:?} at {turn} of {steps:?}"),
                        }
                    }
                    Step::Update { writer, path } => {
                        let Some(read) = reads.get(&(writer, path)) else { continue };
                        let outcome = store.collection().update(read, &notes[path].saying(turn.to_string()), &context()).await;
                        let expect = expected(read, model[path].as_ref());
                        if let Ok(etag) = &outcome {
                            model[path] = Some((read.uuid, *etag));
                        }
                        assert_eq!(text(outcome.map(drop)), expect, "at {turn} of {steps:?}");
                    }
                    Step::Delete { writer, path } => {
                        let Some(read) = reads.get(&(writer, path)) else { continue };
                        let outcome = store.collection().delete(read, &context()).await;
                        let expect = expected(read, model[path].as_ref());
                        if outcome.is_ok() {
                            model[path] = None;
                        }
                        assert_eq!(text(outcome), expect, "at {turn} of {steps:?}");
                    }
                    Step::Replace { writer, path } => {
                        let Some(read) = reads.get(&(writer, path)) else { continue };
                        let fresh = Uuid::now_v7();
                        let replace = Transaction::new().remove(read, &context());
                        let replace = replace.create(fresh, &notes[path].saying(turn.to_string()), &context()).unwrap();
                        let outcome = store.commit(replace).await;
                        let expect = expected(read, model[path].as_ref());
                        if let Ok(committed) = &outcome {
                            model[path] = Some((fresh, committed.etag(fresh).unwrap()));
                        }
                        assert_eq!(text(outcome.map(drop)), expect, "at {turn} of {steps:?}");
                    }
                }
                let found = store.documents::<Note>().find(&notes[path].id).await.unwrap();
                assert_eq!(found.map(|it| (it.uuid, it.etag)), model[path], "after {turn} of {steps:?}");
            }
        }
    }
}

on_both_engines! {
    async fn a_path_that_is_deleted_and_created_at_once_has_two_histories(env: &TestEnvironment) {
        let store = &env.store;
        let start = store.feed_end().await.unwrap();
        let (note, old_work) = (Note::fresh(), NewWork::new(Uuid::now_v7(), Uuid::now_v7(), WorkKind::Manifest));
        let mut identities = Vec::new();
        let first = written(store, &note).await;
        let secret = store.seal(first.uuid, "s", b"of generation 0").unwrap();
        store.commit(Transaction::new().put_secret(secret).enqueue(NewWork { lane: first.uuid, ..old_work.clone() })).await.unwrap();
        identities.push(first.uuid);
        for round in 1..=20 {
            let read = store.documents::<Note>().find(&note.id).await.unwrap().unwrap();
            let (deleter, creator) = (store.clone(), store.clone());
            let (deleted, created) = tokio::join!(
                async { deleter.collection().delete(&read, &context()).await },
                async {
                    loop {
                        match creator.collection().create(&note.saying(format!("generation {round}")), &context()).await {
                            Err(StoreError::Exists { .. }) => tokio::task::yield_now().await,
                            outcome => break outcome,
                        }
                    }
                }
            );
            deleted.unwrap();
            let (uuid, _) = created.unwrap();
            let secret = store.seal(uuid, "s", format!("of generation {round}").as_bytes()).unwrap();
            store.commit(Transaction::new().put_secret(secret)).await.unwrap();
            identities.push(uuid);
        }

        // The last one exists, with its own secret; of the others only their work is left.
        let living = store.documents::<Note>().find(&note.id).await.unwrap().unwrap();
        assert_eq!((living.uuid, living.document.text.as_str()), (identities[20], "generation 20"));
        for (generation, uuid) in identities.iter().enumerate() {
            let secret = store.secret(*uuid, "s").await.unwrap().map(|it| it.expose().clone());
            assert_eq!(secret, (generation == 20).then(|| b"of generation 20".to_vec()));
            assert_eq!(store.get(*uuid).await.unwrap().is_some(), generation == 20);
        }
        assert_eq!(store.pending(first.uuid, 9).await.unwrap().len(), 1);
        assert!(store.pending(living.uuid, 9).await.unwrap().is_empty());

        // Each history is separate: created, and then deleted, except for the last.
        let feed = eventually("the last creation is in the feed", async || {
            let feed: Vec<_> = feed_from(store, start).await.unwrap().iter().filter_map(version).collect();
            feed.iter().any(|it| it.0 == living.uuid).then_some(feed)
        }).await;
        for uuid in &identities {
            let history: Vec<_> = feed.iter().filter(|it| it.0 == *uuid).map(|it| (it.1.to_string(), it.2)).collect();
            let whole = [("\"1\"".to_owned(), false), ("\"2\"".to_owned(), true)];
            assert_eq!(history, if *uuid == living.uuid { &whole[..1] } else { &whole[..] });
        }
    }
}

on_both_engines! {
    async fn a_cluster_that_is_created_again_inherits_nothing(env: &TestEnvironment) {
        let store = &env.store;
        let create = operation(Uuid::now_v7(), Verb::Create);
        store.clusters().start_create(&cluster("phoenix"), &create, &Default::default(), &context()).await.unwrap();
        store.manifests().create(&[(manifest(create.cluster), vec![]), (manifest(create.cluster), vec![])], &context()).await.unwrap();
        let read = store.clusters().get(create.cluster).await.unwrap().unwrap();
        store.clusters().delete(&read, &context()).await.unwrap();

        let again = operation(Uuid::now_v7(), Verb::Create);
        store.clusters().start_create(&cluster("phoenix"), &again, &Default::default(), &context()).await.unwrap();
        let found = store.clusters().find(&cluster("PHOENIX").id).await.unwrap().unwrap();
        assert_eq!(found.uuid, again.cluster);
        assert!(store.manifests().list_for_cluster(again.cluster, None, 10).await.unwrap().0.is_empty());
        assert_eq!(store.manifests().list_for_cluster(create.cluster, None, 10).await.unwrap().0.len(), 2);
        let pending = store.pending(again.cluster, 10).await.unwrap();
        assert_eq!(pending.iter().map(|it| it.id).collect::<Vec<_>>(), [again.id]);
        // A holder of the old one cannot write to the new one.
        let late = store.clusters().update(&read, &Cluster { location: "south".to_owned(), ..read.document.clone() }, &context()).await;
        assert!(matches!(late, Err(StoreError::Gone { uuid }) if uuid == create.cluster));
    }
}

/// A document whose every part a test can choose.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Anything {
    #[serde(skip)]
    path: String,
    #[serde(skip)]
    scope: String,
    #[serde(skip)]
    keys: Vec<String>,
    #[serde(flatten)]
    body: serde_json::Value,
}

impl Anything {
    fn fits() -> Anything {
        Anything {
            path: format!("/any/{}", Uuid::new_v4()),
            scope: "/".to_owned(),
            keys: vec![],
            body: json!({}),
        }
    }
}

impl api::doc::Document for Anything {
    const KIND: &'static str = "anything";

    fn path(&self) -> String {
        self.path.clone()
    }

    fn scope(&self) -> String {
        self.scope.clone()
    }

    fn unique_keys(&self) -> Vec<String> {
        self.keys.clone()
    }
}

/// A JSON object whose text has exactly so many bytes.
fn body_of(bytes: usize) -> serde_json::Value {
    json!({ "x": "y".repeat(bytes - json!({ "x": "" }).to_string().len()) })
}

on_both_engines! {
    async fn input_that_no_engine_could_store_is_rejected_and_nothing_is_stored(env: &TestEnvironment) {
        let store = &env.store;
        let start = store.feed_end().await.unwrap();
        let refused = async |what: &str, uuid: Uuid, document: Anything, expect: &str| {
            let transaction = Transaction::new().create(uuid, &document, &context()).unwrap();
            // Another document in the same transaction is rejected with it.
            let transaction = transaction.create(Uuid::now_v7(), &Note::fresh(), &context()).unwrap();
            match store.commit(transaction).await {
                Err(StoreError::Invalid { what: sentence }) => assert!(sentence.contains(expect), "{what}: {sentence}"),
                outcome => panic!("{what}: {outcome:?}"),
            }
        };
        let id = Uuid::now_v7;
        let it = Anything::fits;
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        refused("one byte too much", id(), Anything { body: body_of(BODY_BYTES_MAX + 1), ..it() }, "at most 1048576 are accepted").await;
        refused("NUL in a value", id(), Anything { body: json!({ "a": [{ "b": "x\0y" }] }), ..it() }, "the character NUL").await;
        refused("NUL in a name", id(), Anything { body: json!({ "a\0": 1 }), ..it() }, "the character NUL").await;
        refused("an empty path", id(), Anything { path: String::new(), ..it() }, "must have 1 to 2000 bytes").await;
        refused("a path too long", id(), Anything { path: long.clone(), ..it() }, "must have 1 to 2000 bytes").await;
        refused("NUL in a path", id(), Anything { path: "/a\0b".to_owned(), ..it() }, "no NUL").await;
        refused("capitals in a path", id(), Anything { path: "/A".to_owned(), ..it() }, "must be in lower case").await;
        refused("a scope too long", id(), Anything { scope: long.clone(), ..it() }, "must have 1 to 2000 bytes").await;
        refused("a key too long", id(), Anything { keys: vec![long.clone()], ..it() }, "must have 1 to 2000 bytes").await;
        refused("an empty key", id(), Anything { keys: vec![String::new()], ..it() }, "must have 1 to 2000 bytes").await;
        // The nil uuid owns the store's own secrets; deleting a document of that uuid would remove them.
        refused("the nil uuid", Uuid::nil(), it(), "nil uuid").await;

        let nil = store.enqueue(vec![NewWork::new(Uuid::nil(), Uuid::now_v7(), WorkKind::Manifest)]).await;
        assert!(matches!(nil, Err(StoreError::Invalid { .. })));
        let nil = store.enqueue(vec![NewWork::new(Uuid::now_v7(), Uuid::nil(), WorkKind::Manifest)]).await;
        assert!(matches!(nil, Err(StoreError::Invalid { .. })));

        assert!(feed_from(store, start).await.unwrap().is_empty());
        assert!(store.audit_list(AuditQuery { limit: 10, ..AuditQuery::default() }).await.unwrap().is_empty());
        let all = |kind: &str| DocumentQuery { kind: kind.to_owned(), limit: 10, ..DocumentQuery::default() };
        assert!(store.list(all("anything")).await.unwrap().is_empty());
        assert!(store.list(all("note")).await.unwrap().is_empty());

        // The largest that fits is stored, byte for byte.
        let big = Anything { body: body_of(BODY_BYTES_MAX), path: format!("/{}", "p".repeat(KEY_BYTES_MAX - 1)), ..it() };
        let (uuid, _) = store.collection().create(&big, &context()).await.unwrap();
        assert_eq!(store.get(uuid).await.unwrap().unwrap().body, big.body);
    }
}

on_both_engines! {
    async fn a_body_that_is_not_an_object_is_rejected(env: &TestEnvironment) {
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[serde(transparent)]
        struct Bare(serde_json::Value);
        impl api::doc::Document for Bare {
            const KIND: &'static str = "bare";
            fn path(&self) -> String {
                "/bare".to_owned()
            }
            fn scope(&self) -> String {
                "/".to_owned()
            }
        }
        for body in [json!(null), json!(1), json!("x"), json!([{}])] {
            let rejection = env.store.collection().create(&Bare(body.clone()), &context()).await.unwrap_err().to_string();
            assert_eq!(rejection, "the body of a bare must be a JSON object", "{body}");
        }
    }
}

on_both_engines! {
    async fn any_text_may_be_queried_and_an_impossible_one_is_not_found(env: &TestEnvironment) {
        let store = &env.store;
        for text in ["", "\0", "a\0b", "%", "_", "'; drop table documents; --", "\u{10FFFF}", "ÄÖ", &"x".repeat(5000)] {
            assert!(store.find(text).await.unwrap().is_none(), "{text:?}");
            assert!(store.secret(Uuid::new_v4(), text).await.unwrap().is_none(), "{text:?}");
            assert!(store.saved_position(text).await.unwrap().is_none(), "{text:?}");
            let some = || Some(text.to_owned());
            let listing = DocumentQuery { kind: "note".to_owned(), parent: some(), prefix: some(), after: Some((text.to_owned(), text.to_owned())), limit: 5 };
            assert!(store.list(listing).await.unwrap().is_empty(), "{text:?}");
            let listing = AuditQuery { actor: some(), target: some(), action: some(), before: None, limit: 5 };
            assert!(store.audit_list(listing).await.unwrap().is_empty(), "{text:?}");
        }
    }
}

on_both_engines! {
    async fn lists_are_ordered_byte_by_byte_on_either_engine(env: &TestEnvironment) {
        let store = &env.store;
        let mut names: Vec<String> =
            ["a", "a-b", "a/b", "ab", "a_b", "a.b", "aa", "é", "z", "~", "ß", "日本", "a b", "0", "10", "9"].map(str::to_owned).into();
        for name in &names {
            written(store, &Note::at(name)).await;
        }
        names.sort();
        let mut listed = Vec::new();
        let mut after = None;
        loop {
            let listing = DocumentQuery { kind: "note".to_owned(), parent: Some("/shelf".to_owned()), prefix: None, after, limit: 3 };
            let page = store.list(listing).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some((last.parent.clone(), last.id.clone()));
            listed.extend(page.into_iter().map(|it| it.id["/notes/".len()..].to_owned()));
        }
        assert_eq!(listed, names);
    }
}

on_both_engines! {
    async fn only_a_change_of_the_desired_state_raises_the_generation(env: &TestEnvironment) {
        let store = &env.store;
        let read = written(store, &Note::fresh()).await;
        let seen = Transaction::new().update(&read, &read.document.saying("seen"), DesiredState::Unchanged, &context()).unwrap();
        store.commit(seen).await.unwrap();
        let read = store.documents::<Note>().get(read.uuid).await.unwrap().unwrap();
        assert_eq!((read.generation, read.etag.to_string().as_str()), (1, "\"2\""));
        let wanted = Transaction::new().update(&read, &read.document.saying("wanted"), DesiredState::Changed, &context()).unwrap();
        store.commit(wanted).await.unwrap();
        let read = store.documents::<Note>().find(&read.document.path()).await.unwrap().unwrap();
        assert_eq!((read.generation, read.etag.to_string().as_str()), (2, "\"3\""));
        assert!(read.created <= read.changed);
    }
}
