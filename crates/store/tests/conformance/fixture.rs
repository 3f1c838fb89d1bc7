//! Small documents that the tests write, and common assertions.

use std::path::PathBuf;
use std::time::Duration;

use api::doc::{Billing, Cluster, Document, Manifest, Operation, ProvisioningState, Verb};
use jiff::Timestamp;
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;
use serde::{Deserialize, Serialize};
use store::{
    AuditContext, Change, Etag, FeedError, Keyring, Location, Options, Position, Store, Subject,
    VersionedDocument,
};
use uuid::Uuid;

use crate::environment;

/// Longer than anything here takes, short enough that a hanging test is reported by name.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A document type of the tests: a text with a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Path, in the caller's spelling.
    pub(crate) id: String,
    /// Scope.
    pub(crate) shelf: String,
    pub(crate) text: String,
    /// Unique key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
}

impl Note {
    /// A note at `/notes/{name}`.
    pub(crate) fn at(name: &str) -> Note {
        Note { id: format!("/notes/{name}"), shelf: "/shelf".to_owned(), text: String::new(), key: None }
    }

    /// A note that nothing else writes.
    pub(crate) fn fresh() -> Note {
        Note::at(&Uuid::new_v4().to_string())
    }

    /// The same, with another text.
    pub(crate) fn saying(&self, text: impl Into<String>) -> Note {
        Note { text: text.into(), ..self.clone() }
    }

    /// The same, with a unique key.
    pub(crate) fn holding(&self, key: &str) -> Note {
        Note { key: Some(key.to_owned()), ..self.clone() }
    }

    /// The same, in another scope.
    pub(crate) fn on(&self, shelf: &str) -> Note {
        Note { shelf: shelf.to_owned(), ..self.clone() }
    }
}

impl Document for Note {
    const KIND: &'static str = "note";

    fn path(&self) -> String {
        self.id.to_lowercase()
    }

    fn scope(&self) -> String {
        self.shelf.clone()
    }

    fn unique_keys(&self) -> Vec<String> {
        self.key.iter().map(|key| format!("note:{key}")).collect()
    }
}

/// Audit context of these tests.
pub(crate) fn context() -> AuditContext {
    AuditContext {
        actor: "tester".to_owned(),
        reason: "a test".to_owned(),
        correlation_id: Some(Uuid::from_u128(7)),
    }
}

/// A running cluster with that name.
pub(crate) fn cluster(name: &str) -> Cluster {
    Cluster {
        subscription_id: "sub".to_owned(),
        name: name.to_owned(),
        location: "north".to_owned(),
        ..Cluster::new(
            format!("/subscriptions/Sub/resourceGroups/G/clusters/{name}"),
            ProvisioningState::Succeeded,
            Timestamp::UNIX_EPOCH,
        )
    }
}

/// An operation on a cluster.
pub(crate) fn operation(cluster: Uuid, verb: Verb) -> Operation {
    Operation {
        id: Uuid::now_v7(),
        cluster,
        cluster_path: "/subscriptions/sub/resourcegroups/g/clusters/c".to_owned(),
        verb,
        initial_status: ProvisioningState::Creating,
        status: ProvisioningState::Creating,
        start_time: Timestamp::UNIX_EPOCH,
        end_time: None,
        error: None,
        snapshot: None,
        correlation_id: None,
        client_request_id: None,
    }
}

/// A manifest for a cluster that may start at once and never times out.
pub(crate) fn manifest(cluster: Uuid) -> Manifest {
    Manifest {
        id: Uuid::now_v7(),
        cluster,
        cluster_path: "/subscriptions/sub/resourcegroups/g/clusters/c".to_owned(),
        task_id: Uuid::from_u128(1),
        created_by_schedule: None,
        priority: 0,
        run_after: Timestamp::UNIX_EPOCH,
        run_before: "9000-01-01T00:00:00Z".parse().unwrap(),
        parameters: Default::default(),
        created_by: "tester".to_owned(),
        status_text: String::new(),
    }
}

/// A billing record of a cluster.
pub(crate) fn billing(cluster: Uuid, from: i64) -> Billing {
    Billing {
        cluster,
        cluster_path: "/subscriptions/sub/resourcegroups/g/clusters/c".to_owned(),
        subscription_id: "Sub".to_owned(),
        managed_resource_group: None,
        infra_id: None,
        location: "north".to_owned(),
        tenant_id: None,
        creation_time: Timestamp::from_second(from).unwrap(),
        deletion_time: None,
        last_billing_time: None,
    }
}

/// Writes a note and reads it back.
pub(crate) async fn written(store: &Store, note: &Note) -> VersionedDocument<Note> {
    let (uuid, _) = store.collection().create(note, &context()).await.unwrap();
    store.documents::<Note>().get(uuid).await.unwrap().unwrap()
}

/// The counter behind an etag, which callers see as opaque text.
pub(crate) fn counter(etag: Etag) -> i64 {
    i64::from_str_radix(etag.to_string().trim_matches('"'), 16).unwrap()
}

/// The etag of that counter.
pub(crate) fn at(counter: i64) -> Etag {
    format!("\"{counter:x}\"").parse().unwrap()
}

/// A directory for an SQLite store that is opened more than once.
pub(crate) struct Folder {
    pub(crate) options: Options,
    directory: tempfile::TempDir,
}

impl Folder {
    /// An empty one; its key is in a file, like that of a real store.
    pub(crate) fn new() -> Folder {
        let directory = tempfile::tempdir().unwrap();
        let keyring = Keyring::read_or_create(&directory.path().join("keys")).unwrap();
        let location = Location::Sqlite(directory.path().join("store.db"));
        Folder { options: Options { keyring, ..environment::options(location) }, directory }
    }

    /// The store's file.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("store.db")
    }

    /// Another file in the same directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The store.
    pub(crate) async fn open(&self) -> Store {
        Store::open(self.options.clone()).await.unwrap()
    }
}

/// Closes a store so that its file can be opened again.
pub(crate) async fn close(store: Store) {
    store.close().await;
    drop(store);
}

/// Asserts every invariant of the store.
pub(crate) async fn assert_sound(store: &Store) {
    let broken: Vec<_> =
        store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A change of a document: identity, version, and whether it was deleted.
pub(crate) fn version(change: &Change) -> Option<(Uuid, Etag, bool)> {
    match change.subject {
        Subject::Document { etag, deleted } => Some((change.uuid, etag, deleted)),
        Subject::Work => None,
    }
}

/// All changes behind a position, up to the current end of the feed.
pub(crate) async fn feed_from(store: &Store, mut position: Position) -> Result<Vec<Change>, FeedError> {
    let mut all = Vec::new();
    loop {
        let page = store.feed_after(position, 100).await?;
        if page.changes.is_empty() {
            return Ok(all);
        }
        position = page.next;
        all.extend(page.changes);
    }
}

/// Polls for at most [`SOON`]; `what` completes "waited in vain until …". On PostgreSQL another test's open
/// transaction may delay the feed for a moment, so changes become visible a little later.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = tokio::time::Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < SOON, "waited {SOON:?} in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Random cases; every assertion names its case.
pub(crate) fn cases<S: Strategy>(count: usize, strategy: S) -> impl Iterator<Item = S::Value> {
    let mut runner = TestRunner::default();
    (0..count).map(move |_| strategy.new_tree(&mut runner).unwrap().current())
}

/// A small random number generator for load, not for cases; seeded, so that a run can be repeated.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeds come from the operating system unless a test repeats a run.
    pub(crate) fn seeded(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }
}

/// A new seed.
pub(crate) fn seed() -> u64 {
    u64::try_from(Uuid::new_v4().as_u128() & u128::from(u64::MAX)).unwrap()
}
