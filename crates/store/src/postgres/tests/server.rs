//! The server: rejected, restored, unavailable, replaced; and other processes.

use std::time::Duration;

use api::work::WorkKind;
use uuid::Uuid;

use super::{create, document, env, options};
use crate::StoreError;
use crate::feed::FeedError;
use crate::notify::Topic;
use crate::open::{Migrate, OpenError, Options};
use crate::postgres::Postgres;

#[tokio::test]
async fn another_process_is_notified() {
    let env = env!();
    let other = Postgres::open(&options(env.database.url())).await.unwrap();
    let mut notifications = other.notifications(Topic::Work(WorkKind::Manifest));
    // Once for starting to listen.
    tokio::time::timeout(Duration::from_secs(10), notifications.next()).await.unwrap();
    env.enqueue(Uuid::new_v4(), WorkKind::Manifest).await;
    tokio::time::timeout(Duration::from_secs(10), notifications.next()).await.unwrap();
    other.close().await;
    assert!(matches!(other.meta("generation").await, Err(StoreError::Unavailable { .. })));
}

#[tokio::test]
async fn an_unsupported_schema_is_rejected_in_one_sentence() {
    let Some(server) = testkit::postgres::shared() else {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    };
    let database = server.database().unwrap();
    let rejection = |options: Options| async move { Postgres::open(&options).await.unwrap_err().to_string() };
    let never = Options { migrate: Migrate::Never, ..options(database.url()) };
    assert!(
        rejection(never)
            .await
            .ends_with("its schema is 0, this release needs 9; run `shipshape store migrate`")
    );
    let schema = Postgres::schema(&options(database.url())).await.unwrap();
    assert_eq!((schema.found, schema.known), (0, 9));
    database.psql("create table theirs (x int)").unwrap();
    assert!(rejection(options(database.url())).await.contains("tables of another program"));
    database.psql("drop table theirs").unwrap();
    Postgres::open(&options(database.url())).await.unwrap().close().await;
    database.psql("update schema set checksum = 'x'").unwrap();
    assert!(matches!(
        Postgres::open(&options(database.url())).await,
        Err(OpenError::Diverged { number: 1, .. })
    ));

    let missing = rejection(options(&server.url("no_such_database"))).await;
    assert!(missing.contains("there is no database no_such_database"), "{missing}");
    for (url, part) in [
        ("postgres://me:hunter2@127.0.0.1:1/x", "cannot be reached"),
        ("postgres://me:hunter2@no-such-host.invalid:1/x?sslmode=disable", "cannot be reached"),
        ("postgres://me:hunter2@h/x?sslmode=hunter2", "unknown value of option sslmode"),
        ("postgres://me:hunter2@h/x?hunter2=1", "invalid syntax"),
    ] {
        let refused = rejection(options(url)).await;
        assert!(refused.contains(part) && !refused.contains("hunter2"), "{refused}");
    }
}

#[tokio::test]
async fn a_restored_database_is_another_generation() {
    let env = env!();
    let before = env.store.feed_end().await.unwrap();
    env.database.psql("update meta set value = '1' where key = 'system_identifier'").unwrap();
    let reopened = Postgres::open(&options(env.database.url())).await.unwrap();
    assert_eq!(reopened.feed_end().await.unwrap().generation, before.generation + 1);
    assert!(matches!(env.store.feed_after(before, 1).await, Err(FeedError::Gone { .. })));
    let again = Postgres::open(&options(env.database.url())).await.unwrap();
    assert_eq!(again.feed_end().await.unwrap().generation, before.generation + 1);
}

#[tokio::test]
async fn a_restarted_server_is_reconnected() {
    use testkit::postgres::{StopMode, TestPostgres};
    if testkit::postgres::shared().is_none() {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    }
    let server = TestPostgres::start(testkit::postgres::PostgresOptions::default()).unwrap();
    let store = Postgres::open(&options(&server.url("postgres"))).await.unwrap();
    store.commit(create(document("/s/a"))).await.unwrap();
    server.stop(StopMode::Immediate).unwrap();
    let started = std::time::Instant::now();
    let error = store.commit(create(document("/s/b"))).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(10));
    server.restart().unwrap();
    let mut notifications = store.notifications(Topic::Feed);
    let mut tries = 0;
    while store.commit(create(document(&format!("/s/c{tries}")))).await.is_err() {
        tries += 1;
        assert!(tries < 20, "it never came back");
    }
    assert!(store.find("/s/a").await.unwrap().is_some());
    tokio::time::timeout(Duration::from_secs(10), notifications.next()).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn after_a_failover_the_new_primary_is_used() {
    use testkit::postgres::TestPostgres;
    if testkit::postgres::shared().is_none() {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    }
    let primary = TestPostgres::start(testkit::postgres::PostgresOptions::default()).unwrap();
    let standby = primary.standby().unwrap();
    let (user, _) = primary
        .url("postgres")
        .split_once('@')
        .map(|(user, rest)| (user.to_owned(), rest.to_owned()))
        .unwrap();
    let url = format!("{user}@127.0.0.1:{},127.0.0.1:{}/postgres", standby.port(), primary.port());
    let store = Postgres::open(&options(&url)).await.unwrap();
    store.commit(create(document("/s/a"))).await.unwrap();
    primary.kill().unwrap();
    standby.promote().unwrap();
    let mut tries = 0;
    while let Err(error) = store.commit(create(document(&format!("/s/c{tries}")))).await {
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
        tries += 1;
        assert!(tries < 20, "the new primary was never found");
    }
    assert!(store.find("/s/a").await.unwrap().is_some());
}

#[tokio::test]
async fn a_wrong_password_is_reported_and_not_shown() {
    use testkit::postgres::TestPostgres;
    if testkit::postgres::shared().is_none() {
        return testkit::prerequisites::skip(testkit::prerequisites::POSTGRESQL, "no server for tests");
    }
    let server =
        TestPostgres::start(testkit::postgres::PostgresOptions::default().with_password("right")).unwrap();
    let url = format!("postgres://postgres:hunter2@127.0.0.1:{}/postgres", server.port());
    let rejection = Postgres::open(&options(&url)).await.unwrap_err().to_string();
    assert!(
        rejection.ends_with("the password of user postgres is wrong") && !rejection.contains("hunter2"),
        "{rejection}"
    );
    let bare = url.replace(":hunter2", "");
    let rejection = Postgres::open(&options(&bare)).await.unwrap_err().to_string();
    assert!(rejection.ends_with("user postgres needs a password, but none is configured"), "{rejection}");
    let given = Options { password: Some(api::secret::Secret::new("right".to_owned())), ..options(&bare) };
    Postgres::open(&given).await.unwrap();
}
