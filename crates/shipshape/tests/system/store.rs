//! The store, looked after from the command line.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::clock::SystemClock;
use api::doc::{Cluster, Operation, ProvisioningState, Verb};
use api::secret::Secret;
use api::work::WorkKind;
use jiff::Timestamp;
use serde_json::json;
use store::{AuditContext, Keyring, Location, Options, Store};
use testkit::{postgres, prerequisites};
use uuid::Uuid;

use super::executable::Home;

/// The data directory of a home that no flag changed.
fn data(home: &Home) -> PathBuf {
    home.directory.path().join(".local/share/shipshape")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().unwrap().block_on(work)
}

/// The store of a home, opened as the executable does.
async fn open(directory: &Path) -> Store {
    let keyring = Keyring::read(&directory.join("keys")).unwrap();
    let location = Location::Sqlite(directory.join("shipshape.db"));
    Store::open(Options::new(location, keyring, Arc::new(SystemClock))).await.unwrap()
}

fn cluster(name: &str) -> Cluster {
    let subscription = "00000000-0000-0000-0000-000000000000";
    Cluster {
        subscription_id: subscription.to_owned(),
        name: name.to_owned(),
        location: "eastus".to_owned(),
        labels: [("ring".to_owned(), "canary".to_owned())].into(),
        credential: Some(format!("client-{name}")),
        ..Cluster::new(
            format!(
                "/subscriptions/{subscription}/resourceGroups/rg1/providers/Microsoft.RedHatOpenShift/openShiftClusters/{name}"
            ),
            ProvisioningState::Creating,
            Timestamp::UNIX_EPOCH,
        )
    }
}

/// A cluster whose creation is under way, claimed and checkpointed by a process that is gone; and an imported one.
async fn fill(store: &Store) -> (Uuid, Uuid) {
    let by =
        AuditContext { actor: "sre@example".to_owned(), reason: "a test".to_owned(), correlation_id: None };
    let created = cluster("One");
    let operation = Operation {
        id: Uuid::now_v7(),
        cluster: Uuid::now_v7(),
        cluster_path: created.id.to_lowercase(),
        verb: Verb::Create,
        initial_status: ProvisioningState::Creating,
        status: ProvisioningState::Creating,
        start_time: Timestamp::UNIX_EPOCH,
        end_time: None,
        error: None,
        snapshot: None,
        correlation_id: None,
        client_request_id: None,
    };
    store.clusters().start_create(&created, &operation, &Default::default(), &by).await.unwrap();
    let claimed = store.claim(WorkKind::Operation, 1, Uuid::new_v4()).await.unwrap();
    store.checkpoint(claimed[0].lease, "network", json!({ "subnet": 7 })).await.unwrap();
    let imported = Cluster { imported: true, ..cluster("Two") };
    let kubeconfig = Secret::new(b"apiVersion: v1, token: hunter2".to_vec());
    let (imported, _, _) = store.clusters().import(&imported, &kubeconfig, &by).await.unwrap();
    (operation.id, imported)
}

/// A home whose store holds something, with nothing running: three versions and their role sets, as of every new one; two
/// clusters and an operation; a kubeconfig and the key of the audit chain.
fn lived_in() -> (Home, Uuid, Uuid) {
    let home = Home::new();
    let up = home.up(&[]);
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
    let (operation, imported) = block_on(async {
        let store = open(&data(&home)).await;
        let filled = fill(&store).await;
        // Whether the process came to sealing before it ended is chance; from here on it is not.
        store.seal_audit(Uuid::new_v4()).await.unwrap();
        store.close().await;
        filled
    });
    (home, operation, imported)
}

#[test]
fn a_store_in_use_can_be_checked_listed_verified_and_copied() {
    let (home, ..) = lived_in();
    let up = home.up(&[]);
    let check = home.run(&["store", "check"]);
    assert_eq!(check.code, Some(0), "{check:?}");
    assert!(
        !check.stdout.contains("BROKEN") && check.stdout.contains("ok      the audit chain is intact"),
        "{check:?}"
    );
    let list = home.run(&["audit", "list", "--action", "cluster."]);
    assert_eq!(list.code, Some(0), "{list:?}");
    assert!(list.stdout.starts_with("TIME") && list.stdout.contains("sre@example"), "{list:?}");
    assert_eq!(list.stdout.lines().count(), 3, "{list:?}");
    testkit::wait_until("the sealer", std::time::Duration::from_secs(20), || {
        let verify = home.run(&["audit", "verify"]);
        assert_eq!(verify.code, Some(0), "{verify:?}");
        verify.stdout.starts_with("9 sealed records verified, 0 not sealed yet").then_some(())
    })
    .unwrap();
    let copy = home.run(&["store", "backup", "copy.db"]);
    assert_eq!(copy.code, Some(0), "{copy:?}");
    let again = home.run(&["store", "backup", "copy.db"]);
    assert_eq!(
        (again.code, again.stderr.as_str()),
        (Some(1), "error: backup copy.db: already exists; pass another name\n")
    );
    let of_copy = home.run(&["store", "check", "--store", "sqlite:copy.db", "-o", "json"]);
    assert_eq!(of_copy.code, Some(0), "{of_copy:?}");
    assert!(of_copy.stdout.contains("\"broken\": 0"), "{of_copy:?}");

    let second = home.failed_up(&[]);
    assert_eq!(second.code, Some(1));
    assert!(second.stderr.contains("shipshape: in use by another process (process "), "{second:?}");
    assert_eq!(second.stderr.lines().count(), 1, "{second:?}");
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn a_tampered_audit_log_is_found_by_verify_and_by_check() {
    let (home, ..) = lived_in();
    let head = home.run(&["audit", "verify"]).stdout.lines().last().unwrap().replace("head ", "");
    assert_eq!(home.run(&["audit", "verify", "--expect", &head]).code, Some(0));
    let path = data(&home).join("shipshape.db");
    let database = rusqlite::Connection::open(path).unwrap();
    database
        .execute("update audit set reason = 'nothing to see here' where action = 'operation.create'", [])
        .unwrap();
    drop(database);
    let verify = home.run(&["audit", "verify"]);
    assert_eq!(verify.code, Some(1));
    assert!(verify.stderr.contains("record 8 (operation.create of /operations/"), "{verify:?}");
    let check = home.run(&["store", "check"]);
    assert_eq!(check.code, Some(1));
    assert!(check.stdout.contains("BROKEN  the audit chain is intact"), "{check:?}");
    let nonsense = home.run(&["audit", "verify", "--expect", "x"]);
    assert_eq!(nonsense.code, Some(1));
    assert!(nonsense.stderr.contains("accepted: NUMBER:SEAL"), "{nonsense:?}");
}

#[test]
fn a_store_moves_from_sqlite_to_postgresql() {
    let Some(server) = postgres::shared() else {
        return prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
    };
    let (home, operation, imported) = lived_in();
    let database = server.database().unwrap();
    let export = home.run(&["store", "export", "fleet.jsonl"]);
    assert_eq!(export.code, Some(0), "{export:?}");
    let exported = home.directory.path().join("fleet.jsonl");
    assert!(!std::fs::read_to_string(&exported).unwrap().contains("hunter2"));
    assert_eq!(std::fs::metadata(&exported).unwrap().permissions().mode() & 0o777, 0o600);
    let import = home.run(&["store", "import", "fleet.jsonl", "--store", database.url()]);
    assert_eq!(import.code, Some(0), "{import:?}");
    assert!(import.stdout.contains("9 documents") && import.stdout.contains("1 work"), "{import:?}");
    let check = home.run(&["store", "check", "--store", database.url()]);
    assert_eq!(check.code, Some(0), "{check:?}");
    let twice = home.run(&["store", "import", "fleet.jsonl", "--store", database.url()]);
    assert_eq!(twice.code, Some(1), "{twice:?}");
    assert!(twice.stderr.contains("is not empty; import into an empty store"), "{twice:?}");

    block_on(async {
        let keyring = Keyring::read(&data(&home).join("keys")).unwrap();
        let options = Options::new(database.url().parse().unwrap(), keyring, Arc::new(SystemClock));
        let store = Store::open(options).await.unwrap();
        // What a lost process had begun goes on after its last checkpoint.
        let claimed = store.claim(WorkKind::Operation, 5, Uuid::new_v4()).await.unwrap();
        assert_eq!((claimed.len(), claimed[0].lease.work), (1, operation));
        assert_eq!(claimed[0].checkpoint, Some(json!({ "subnet": 7 })));
        let kubeconfig = store.clusters().kubeconfig(imported).await.unwrap().unwrap();
        assert!(kubeconfig.expose().ends_with(b"hunter2"));
        store.close().await;
    });
    let up = home.up(&["--store", database.url()]);
    assert_eq!(up.get("/readyz"), (200, "ready\n".to_owned()));
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
}

#[test]
fn files_in_use_by_another_process_are_not_changed() {
    let Some(server) = postgres::shared() else {
        return prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
    };
    let (home, operation, _) = lived_in();
    let database = server.database().unwrap();
    assert_eq!(home.run(&["store", "export", "fleet.jsonl"]).code, Some(0));
    assert_eq!(home.run(&["store", "import", "fleet.jsonl", "--store", database.url()]).code, Some(0));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let keyring = Keyring::read(&data(&home).join("keys")).unwrap();
    let options = Options::new(database.url().parse().unwrap(), keyring, Arc::new(SystemClock));
    let elsewhere = runtime.block_on(Store::open(options)).unwrap();
    // Another process has claimed it, and lives for longer than this test.
    let lease = std::time::Duration::from_secs(3600);
    let claimed = elsewhere.claim_for(WorkKind::Operation, 5, Uuid::new_v4(), lease);
    let claimed = runtime.block_on(claimed).unwrap();
    assert_eq!((claimed.len(), claimed[0].lease.work), (1, operation));

    // `up` works on what is asked of it meanwhile, so it has looked for work,
    let up = home.up(&["--store", database.url(), "--set", "cloud.pace=0"]);
    let made = home.run(&["cluster", "create", "harbour", "--wait"]);
    assert_eq!(made.code, Some(0), "{made:?}");
    // and the other operation is still held.
    let held = runtime.block_on(elsewhere.work(operation)).unwrap().unwrap();
    assert_eq!(held.step.as_deref(), Some("network"), "nobody went on with it");
    let went_on = elsewhere.checkpoint(claimed[0].lease, "subnets", json!({ "subnet": 8 }));
    runtime.block_on(went_on).expect("the hold is as good as before");
    up.signal("TERM");
    assert_eq!(up.end().code, Some(0));
    runtime.block_on(elsewhere.close());
}

#[test]
fn a_rotated_key_opens_everything_and_the_old_one_nothing() {
    let (home, _, imported) = lived_in();
    let keys = data(&home).join("keys");
    let old = std::fs::read_to_string(&keys).unwrap();
    let rotate = home.run(&["store", "rotate-key"]);
    assert_eq!(rotate.code, Some(0), "{rotate:?}");
    assert!(
        rotate.stdout.contains(" is current (2 secrets sealed again); the old keys were removed from "),
        "{rotate:?}"
    );
    assert_eq!(home.run(&["store", "check"]).code, Some(0));
    let audit = home.run(&["audit", "list", "--action", "store.rotate-key"]);
    assert!(audit.stdout.contains("service:rotate-key") && audit.stdout.contains("/keys/k"), "{audit:?}");
    block_on(async {
        let store = open(&data(&home)).await;
        assert!(store.clusters().kubeconfig(imported).await.unwrap().is_some());
        store.close().await;
    });
    std::fs::write(&keys, old).unwrap();
    let rejected = home.run(&["store", "check"]);
    assert_eq!(rejected.code, Some(1));
    assert!(
        rejected.stderr.contains("which the key file does not contain; store.key_file is"),
        "{rejected:?}"
    );
    let rejected = home.run(&["store", "rotate-key", "--to", "nonsense"]);
    assert_eq!(rejected.code, Some(1), "{rejected:?}");
}

#[test]
fn a_lost_key_file_is_not_replaced_by_one_that_opens_nothing() {
    let (home, ..) = lived_in();
    let keys = data(&home).join("keys");
    std::fs::remove_file(&keys).unwrap();
    let rejected = home.failed_up(&[]);
    assert_eq!(rejected.code, Some(1));
    assert!(rejected.stderr.contains("its secrets are sealed with key"), "{rejected:?}");
    assert!(!keys.exists());
}

#[test]
fn commands_on_a_missing_store_fail_with_its_path() {
    let home = Home::new();
    for arguments in [
        &["store", "check"][..],
        &["store", "backup", "x"],
        &["store", "export", "x"],
        &["store", "rotate-key"],
        &["audit", "list"],
    ] {
        let answer = home.run(arguments);
        assert_eq!(answer.code, Some(1), "{arguments:?} {answer:?}");
        assert!(
            answer.stderr.contains("does not exist") || answer.stderr.contains("no store at"),
            "{answer:?}"
        );
        assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    }
    let import = home.run(&["store", "import", "x"]);
    assert!(import.code == Some(1) && import.stderr.contains("the key file"), "{import:?}");
    let migrate = home.run(&["store", "migrate"]);
    assert_eq!(migrate.code, Some(0), "{migrate:?}");
    assert!(migrate.stdout.contains("schema migrated from 0 to 9"), "{migrate:?}");
    assert!(home.run(&["store", "migrate"]).stdout.contains("schema 9 is up to date"));
}

#[test]
fn a_rejected_connection_is_reported_in_one_sentence_without_the_password() {
    let Some(server) = postgres::private(postgres::PostgresOptions::default().with_password("right")) else {
        return prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
    };
    let home = Home::new();
    let with = |user: &str, password: &str, port: u16, database: &str| {
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}")
    };
    let check = |url: String, expect: &str| {
        let answer = home.failed_up(&["--store", &url]);
        assert_eq!(answer.code, Some(1), "{answer:?}");
        assert!(answer.stderr.contains(expect), "{answer:?}");
        assert!(!answer.stderr.contains("hunter2"), "{answer:?}");
        assert_eq!(answer.stderr.lines().count(), 1, "{answer:?}");
    };
    let user =
        server.url("postgres").split("://").nth(1).unwrap().split([':', '@']).next().unwrap().to_owned();
    check(with(&user, "hunter2", server.port(), "postgres"), "password");
    check(with(&user, "right", server.port(), "nowhere"), "nowhere");
    check(with(&user, "hunter2", 1, "postgres"), "127.0.0.1");
    let other = server.database().unwrap();
    other.psql("create table theirs (id int)").unwrap();
    check(other.url().to_owned(), "contains tables of another program");
}

#[test]
fn an_unsupported_postgresql_version_is_rejected() {
    let old = super::old_postgres::OldPostgres::start("12.22");
    let home = Home::new();
    let url = format!("postgres://someone@{}/db", old.address());
    let answer = home.failed_up(&["--store", &url]);
    assert_eq!(answer.code, Some(1), "{answer:?}");
    assert!(answer.stderr.contains("is PostgreSQL 12.22; accepted: 13 or later"), "{answer:?}");
}

#[test]
fn a_killed_process_continues_after_a_restart() {
    let (home, operation, _) = lived_in();
    for _ in 0..3 {
        let up = home.up(&[]);
        up.signal("KILL");
        drop(up);
    }
    assert_eq!(home.run(&["store", "check"]).code, Some(0));
    block_on(async {
        let store = open(&data(&home)).await;
        assert_eq!(store.work(operation).await.unwrap().unwrap().step.as_deref(), Some("network"));
        store.close().await;
    });
}
