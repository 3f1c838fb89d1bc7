//! Secrets: sealed before they reach the database, never shown unless requested by name, and sealed again with
//! another key while everything continues.

use std::time::Duration;

use api::secret::Secret;
use store::{
    AuditQuery, DocumentQuery, Keyring, Location, OpenError, Options, Reader, Store, StoreError, Transaction,
};
use testkit::postgres;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::environment::{TestEnvironment, block_on, short_or_long};
use crate::fixture::{Folder, Note, assert_sound, close, cluster, context, eventually, feed_from, written};
use crate::raw::RawDatabase;

const PLAIN: &[u8] = b"correct horse battery staple";

async fn put(store: &Store, owner: Uuid, name: &str, plain: &[u8]) {
    store.commit(Transaction::new().put_secret(store.seal(owner, name, plain).unwrap())).await.unwrap();
}

async fn secret(store: &Reader, owner: Uuid, name: &str) -> Vec<u8> {
    store.secret(owner, name).await.unwrap().unwrap().expose().clone()
}

/// A store of either engine whose keys are in a file, so that a second process can read new ones.
struct Keyed {
    store: Store,
    options: Options,
    folder: tempfile::TempDir,
    _database: Option<postgres::TestDatabase>,
}

impl Keyed {
    /// Beside the environment's own store, whose key is in no file.
    async fn beside(env: &TestEnvironment) -> Keyed {
        let folder = tempfile::tempdir().unwrap();
        let keyring = Keyring::read_or_create(&folder.path().join("keys")).unwrap();
        let database = env.is_shared().then(|| postgres::shared().unwrap().database().unwrap());
        let location = match &database {
            Some(database) => database.url().parse().unwrap(),
            None => Location::Sqlite(folder.path().join("store.db")),
        };
        let options = Options { keyring, location, ..env.options.clone() };
        Keyed { store: Store::open(options.clone()).await.unwrap(), options, folder, _database: database }
    }

    /// The same store as another process has it: with a key ring of its own, read from the same file.
    async fn in_another_process(&self) -> Store {
        let keyring = Keyring::read(&self.folder.path().join("keys")).unwrap();
        Store::open(Options { keyring, ..self.options.clone() }).await.unwrap()
    }
}

/// Every occurrence of `needle` in the files of a folder.
fn found_in(folder: &std::path::Path, needle: &[u8]) -> Vec<String> {
    let holds = |bytes: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    std::fs::read_dir(folder)
        .unwrap()
        .flatten()
        .filter(|entry| holds(&std::fs::read(entry.path()).unwrap_or_default()))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

#[test]
fn a_secret_is_in_no_byte_of_the_files() {
    block_on(async {
        let folder = Folder::new();
        let store = folder.open().await;
        let home = folder.path().parent().unwrap().to_owned();
        let note = written(&store, &Note::fresh().saying("visible in the file")).await;
        put(&store, note.uuid, "s", PLAIN).await;
        store
            .clusters()
            .import(
                &api::doc::Cluster { imported: true, ..cluster("c") },
                &Secret::new(PLAIN.to_vec()),
                &context(),
            )
            .await
            .unwrap();
        // The search works: the body is found, in the WAL, before and after the checkpoint.
        for round in ["in the log", "in the file"] {
            assert!(!found_in(&home, b"visible in the file").is_empty(), "{round}");
            assert_eq!(found_in(&home, PLAIN), Vec::<String>::new(), "{round}");
            assert_eq!(found_in(&home, &PLAIN[..8]), Vec::<String>::new(), "{round}");
            crate::raw::open(&folder.path())
                .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))
                .unwrap();
        }
    });
}

on_both_engines! {
    async fn a_secret_is_returned_only_when_requested_by_name(env: &TestEnvironment) {
        let (store, raw) = (&env.store, RawDatabase::connect(env).await);
        let start = store.feed_end().await.unwrap();
        let note = written(store, &Note::fresh()).await;
        let sealed = store.seal(note.uuid, "s", PLAIN).unwrap();
        let transaction = Transaction::new().put_secret(sealed.clone());
        let shown = format!("{sealed:?} {transaction:?} {store:?} {:?}", env.options);
        store.commit(transaction).await.unwrap();
        assert_eq!(secret(store, note.uuid, "s").await, PLAIN);
        assert_eq!(secret(&store.reader(), note.uuid, "s").await, PLAIN);
        let held = store.secret(note.uuid, "s").await.unwrap();

        let listed = store.list(DocumentQuery { kind: "note".to_owned(), limit: 9, ..DocumentQuery::default() }).await.unwrap();
        let changes = feed_from(store, start).await.unwrap();
        let audited = store.audit_list(AuditQuery { limit: 99, ..AuditQuery::default() }).await.unwrap();
        let rows = raw.rows("select * from secrets").await;
        for text in [shown, format!("{listed:?}"), format!("{changes:?}"), format!("{audited:?}"), format!("{rows:?}"), format!("{held:?}")] {
            assert!(!text.contains("horse"), "{text}");
            assert!(!text.contains("686f727365"), "{text}");
        }
        // A moved or damaged secret is rejected without showing anything of it.
        let other = written(store, &Note::fresh()).await;
        raw.execute(&format!("insert into secrets (owner, name, sealed, key_id, changed)
            select {}, name, sealed, key_id, changed from secrets where owner = {}", raw.uuid(other.uuid), raw.uuid(note.uuid))).await;
        let rejection = store.secret(other.uuid, "s").await.unwrap_err();
        assert_eq!(rejection.to_string(), format!("secret s of {} cannot be opened: it was changed or moved", other.uuid));
        assert!(!format!("{rejection:?}").contains("horse"));
        let faults: Vec<_> = store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert_eq!(faults[0].invariant, "every secret can be opened");
        store.commit(Transaction::new().drop_secret(other.uuid, "s").drop_secret(other.uuid, "none")).await.unwrap();
        assert!(store.secret(other.uuid, "s").await.unwrap().is_none());
        // It is removed with its document.
        store.collection().delete(&note, &context()).await.unwrap();
        assert!(store.secret(note.uuid, "s").await.unwrap().is_none());
    }
}

on_both_engines! {
    async fn the_key_is_changed_while_others_write_secrets(env: &TestEnvironment) {
        let keyed = Keyed::beside(env).await;
        let Keyed { store, options, .. } = &keyed;
        let note = written(store, &Note::fresh()).await;
        for number in 0..50 {
            put(store, note.uuid, &format!("old-{number}"), PLAIN).await;
        }
        // Another process has the same file, and does not know the new key until the store rejects the old one.
        let writers: Vec<Store> = match env.is_shared() {
            true => vec![keyed.in_another_process().await, store.clone(), store.clone()],
            false => vec![store.clone(), store.clone()],
        };
        let first_key = options.keyring.current();
        let (stop, mut tasks) = (tokio_util::sync::CancellationToken::new(), JoinSet::new());
        for (number, writer) in writers.iter().cloned().enumerate() {
            let (stop, owner) = (stop.clone(), note.uuid);
            tasks.spawn(async move {
                let mut written = 0;
                while !stop.is_cancelled() {
                    let text = format!("{written}");
                    put(&writer, owner, &format!("new-{number}-{}", written % 20), text.as_bytes()).await;
                    written += 1;
                }
                written
            });
        }
        let mut keys = vec![first_key];
        for _ in 0..short_or_long(5, 100) {
            let rotation = store.rotate_key(None, &context()).await.unwrap();
            assert!(rotation.resealed >= 50, "{rotation:?}");
            assert!(!keys.contains(&rotation.key_id));
            keys.push(rotation.key_id);
            // Opening it now finds the right key.
            let keyring = Keyring::read(&keyed.folder.path().join("keys")).unwrap();
            let reader = Reader::open(Options { keyring, ..options.clone() }).await.unwrap();
            assert_eq!(secret(&reader, note.uuid, "old-0").await, PLAIN);
            reader.close().await;
        }
        stop.cancel();
        let written = tasks.join_all().await;
        assert!(written.iter().all(|it| *it > 0), "{written:?}");

        // Everything is sealed with the newest key and opens; the old keys can be removed, and the rest still opens.
        assert_sound(store).await;
        let raw = RawDatabase::to(&options.location).await;
        assert_eq!(raw.rows("select distinct key_id from secrets").await, [[keys.last().unwrap().clone()]]);
        store.remove_old_keys().await.unwrap();
        assert_eq!(options.keyring.ids(), [keys.last().unwrap().clone()]);
        for number in 0..50 {
            assert_eq!(secret(store, note.uuid, &format!("old-{number}")).await, PLAIN);
        }
        for writer in &writers {
            put(writer, note.uuid, "after", b"x").await;
        }
    }
}

on_both_engines! {
    async fn a_change_of_key_that_was_interrupted_is_seen_and_finished(env: &TestEnvironment) {
        let keyed = Keyed::beside(env).await;
        let Keyed { store, options, .. } = &keyed;
        let note = written(store, &Note::fresh()).await;
        for number in 0..60 {
            put(store, note.uuid, &format!("s-{number}"), PLAIN).await;
        }
        let raw = RawDatabase::to(&options.location).await;
        let old = options.keyring.current();
        let left = async || raw.one(&format!("select count(*) from secrets where key_id = '{old}'")).await.parse::<usize>().unwrap();
        // Interrupted at any moment at which only some are sealed again.
        let mut rotating = JoinSet::new();
        let rotator = store.clone();
        rotating.spawn(async move { rotator.rotate_key(None, &context()).await });
        eventually("some are sealed anew", async || (left().await < 60).then_some(())).await;
        rotating.shutdown().await;
        if left().await == 0 {
            // Too quick: as if it had been interrupted just before the last one.
            println!("the rotation was over before it could be interrupted");
        } else {
            let rejection = store.remove_old_keys().await.unwrap_err().to_string();
            assert!(rejection.ends_with(&format!("is still sealed with key {old}")), "{rejection}");
            assert_eq!(options.keyring.ids().len(), 2);
            let faults: Vec<_> = store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
            assert_eq!(faults.len(), 1);
            assert_eq!(faults[0].invariant, "secrets are sealed with the store's current key");
        }
        // All open meanwhile, under either key, and a new one takes the new key.
        for number in 0..60 {
            assert_eq!(secret(store, note.uuid, &format!("s-{number}")).await, PLAIN);
        }
        let current = options.keyring.current();
        let before = left().await;
        let rotation = store.rotate_key(Some(&current), &context()).await.unwrap();
        assert_eq!((rotation.key_id.as_str(), rotation.resealed), (current.as_str(), before));
        assert_sound(store).await;
        store.remove_old_keys().await.unwrap();
        let unknown = store.rotate_key(Some("k-unknown"), &context()).await.unwrap_err().to_string();
        assert_eq!(unknown, "the key file does not contain key k-unknown");
    }
}

on_both_engines! {
    async fn two_changes_of_key_at_once_both_end(env: &TestEnvironment) {
        let keyed = Keyed::beside(env).await;
        let Keyed { store, options, .. } = &keyed;
        let note = written(store, &Note::fresh()).await;
        for number in 0..20 {
            put(store, note.uuid, &format!("s-{number}"), PLAIN).await;
        }
        let (one, two, context) = (store.clone(), store.clone(), context());
        let both = tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(one.rotate_key(None, &context), two.rotate_key(None, &context)) });
        let (one, two) = both.await.expect("they undo each other's work for ever");
        assert!(one.is_ok() || two.is_ok(), "{one:?} {two:?}");
        // One more run finishes the rest.
        store.rotate_key(Some(&options.keyring.current()), &context).await.unwrap();
        assert_sound(store).await;
    }
}

#[test]
fn a_process_that_has_not_seen_the_newest_key_does_not_lose_it_when_it_adds_another() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    let ours = Keyring::read_or_create(&path).unwrap();
    let theirs = Keyring::read(&path).unwrap();
    let first = ours.current();
    let (second, third) = (ours.add_key().unwrap(), theirs.add_key().unwrap());
    let held: std::collections::BTreeSet<String> = Keyring::read(&path).unwrap().ids().into_iter().collect();
    assert_eq!(held, [first, second, third].into_iter().collect());
}

#[test]
fn two_processes_change_the_key_in_turn_and_every_secret_still_opens() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        let keyed = Keyed::beside(&env).await;
        let (one, two) = (&keyed.store, keyed.in_another_process().await);
        let note = written(one, &Note::fresh()).await;
        for number in 0..5 {
            put(one, note.uuid, &number.to_string(), PLAIN).await;
        }
        // Each in its turn, without having read the file since.
        for store in [one, &two, one, &two] {
            assert_eq!(
                store.rotate_key(None, &context()).await.unwrap().resealed,
                6,
                "the five, and the audit chain's key"
            );
        }
        let third = keyed.in_another_process().await;
        for store in [one, &two, &third] {
            for number in 0..5 {
                assert_eq!(secret(store, note.uuid, &number.to_string()).await, PLAIN);
            }
            assert_sound(store).await;
        }
    });
}

on_both_engines! {
    async fn a_key_file_that_does_not_match_is_rejected_at_open(env: &TestEnvironment) {
        let Keyed { store, options, folder, _database } = Keyed::beside(env).await;
        let note = written(&store, &Note::fresh()).await;
        put(&store, note.uuid, "s", PLAIN).await;
        let (place, key) = (store.location(), options.keyring.current());
        close(store).await;
        let sentence = format!("store {place}: its secrets are sealed with key {key}, which the key file does not contain");

        let refused = async |keyring: Keyring| {
            let options = Options { keyring, ..options.clone() };
            let written = Store::open(options.clone()).await.unwrap_err();
            assert!(matches!(&written, OpenError::WrongKey { wanted, .. } if *wanted == key));
            assert_eq!(written.to_string(), sentence);
            assert_eq!(Reader::open(options).await.unwrap_err().to_string(), sentence);
        };
        refused(Keyring::ephemeral().unwrap()).await;
        // A wrong key under the right id is detected too.
        let impostor = folder.path().join("impostor");
        std::fs::write(&impostor, format!("{key} AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n")).unwrap();
        std::fs::set_permissions(&impostor, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        refused(Keyring::read(&impostor).unwrap()).await;

        // The right one, even behind another, opens it; and new secrets are sealed with the store's current key.
        let text = std::fs::read_to_string(folder.path().join("keys")).unwrap();
        std::fs::write(&impostor, format!("other AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n{text}")).unwrap();
        let store = Store::open(Options { keyring: Keyring::read(&impostor).unwrap(), ..options.clone() }).await.unwrap();
        assert_eq!(secret(&store, note.uuid, "s").await, PLAIN);
        assert_eq!(store.seal(note.uuid, "t", b"").unwrap().key_id, key);
        let stranger = Keyring::ephemeral().unwrap().seal(note.uuid, "s", b"x").unwrap();
        assert!(store.commit(Transaction::new().put_secret(stranger)).await.is_err());
        assert_eq!(secret(&store, note.uuid, "s").await, PLAIN);
    }
}

on_both_engines! {
    async fn of_many_that_make_a_store_and_its_key_at_once_none_destroys_the_key(env: &TestEnvironment) {
        for _ in 0..short_or_long(5, 100) {
            let folder = tempfile::tempdir().unwrap();
            let keys = folder.path().join("keys");
            let database = env.is_shared().then(|| postgres::shared().unwrap().database().unwrap());
            let location = match &database {
                Some(database) => database.url().parse().unwrap(),
                None => Location::Sqlite(folder.path().join("store.db")),
            };
            // As processes of one host do: none has seen a key file, and each would create one.
            let rings: Vec<Keyring> = (0..6).map(|_| Keyring::read_or_draft(&keys).unwrap()).collect();
            assert!(!keys.exists());
            let mut opening = JoinSet::new();
            for keyring in rings {
                opening.spawn(Store::open(Options { keyring, location: location.clone(), ..env.options.clone() }));
            }
            let opened = opening.join_all().await;
            let stores: Vec<&Store> = opened.iter().flatten().collect();
            // SQLite is for one process; the others fail, and remove nothing.
            assert!(stores.len() == if env.is_shared() { 6 } else { 1 }, "{opened:?}");
            put(stores[0], Uuid::nil(), "s", PLAIN).await;
            for store in &stores {
                assert_eq!(secret(store, Uuid::nil(), "s").await, PLAIN);
                put(store, Uuid::nil(), "s", PLAIN).await;
            }
            for store in stores {
                store.close().await;
            }
            drop(opened);
            // The file has the one key, that of the store.
            let keyring = Keyring::read(&keys).unwrap();
            assert_eq!(keyring.ids().len(), 1);
            let store = Store::open(Options { keyring, location, ..env.options.clone() }).await.unwrap();
            assert_eq!(secret(&store, Uuid::nil(), "s").await, PLAIN);
            store.close().await;
        }
    }
}

on_both_engines! {
    async fn opening_without_the_key_file_fails_and_creates_no_other(env: &TestEnvironment) {
        let keyed = Keyed::beside(env).await;
        let (keys, kept) = (keyed.folder.path().join("keys"), keyed.folder.path().join("kept"));
        keyed.store.close().await;
        std::fs::rename(&keys, &kept).unwrap();
        let lost = Options { keyring: Keyring::read_or_draft(&keys).unwrap(), ..keyed.options.clone() };
        assert!(matches!(Store::open(lost.clone()).await, Err(OpenError::WrongKey { .. })));
        assert!(!keys.exists());
        // Restored while another process waits to open the store, it is used.
        std::fs::rename(&kept, &keys).unwrap();
        let text = std::fs::read(&keys).unwrap();
        Store::open(lost).await.unwrap().close().await;
        assert!(std::fs::read(&keys).unwrap() == text);
    }
}

#[test]
fn of_two_hosts_that_create_a_store_at_once_one_fails_and_keeps_its_own_file() {
    block_on(async {
        let Some(env) = TestEnvironment::postgres().await else { return };
        for _ in 0..short_or_long(5, 50) {
            let database = postgres::shared().unwrap().database().unwrap();
            let mut opening = JoinSet::new();
            let hosts: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
            for host in &hosts {
                let keyring = Keyring::read_or_draft(&host.path().join("keys")).unwrap();
                let location = database.url().parse().unwrap();
                opening.spawn(Store::open(Options { keyring, location, ..env.options.clone() }));
            }
            let opened = opening.join_all().await;
            let (stores, refusals): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
            assert_eq!(stores.len(), 1, "the key of a store that is in use was replaced");
            assert!(refusals.iter().all(|it| matches!(it, Err(OpenError::WrongKey { .. }))));
            for store in stores.into_iter().flatten() {
                put(&store, Uuid::nil(), "s", PLAIN).await;
                assert_sound(&store).await;
                store.close().await;
            }
        }
    });
}

on_both_engines! {
    async fn a_key_rotation_and_its_actor_are_in_the_audit_log(env: &TestEnvironment) {
        let keyed = Keyed::beside(env).await;
        let rotation = keyed.store.rotate_key(None, &context()).await.unwrap();
        let rows = keyed.store.audit_list(AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
        let [row] = &rows[..] else { panic!("{rows:?}") };
        let entry = &row.record.entry;
        assert_eq!((entry.actor.as_str(), entry.action.as_str()), ("tester", "store.rotate-key"));
        assert_eq!(entry.target, format!("/keys/{}", rotation.key_id));
        assert_sound(&keyed.store).await;
    }
}

on_both_engines! {
    async fn a_secret_has_its_limits_too(env: &TestEnvironment) {
        let store = &env.store;
        let note = written(store, &Note::fresh()).await;
        for (name, plain) in [("", vec![1]), ("a\0b", vec![1]), (&"n".repeat(2001), vec![1]), ("big", vec![1; store::BODY_BYTES_MAX])] {
            let sealed = store.seal(note.uuid, name, &plain).unwrap();
            let refused = store.commit(Transaction::new().put_secret(sealed)).await;
            assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        }
        put(store, note.uuid, "empty", b"").await;
        assert_eq!(secret(store, note.uuid, "empty").await, b"");
    }
}
