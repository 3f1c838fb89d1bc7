//! Test environment: a store of either engine, with a clock where the engine takes one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::clock::{SharedClock, SystemClock};
use store::{Keyring, Location, Options, Store};
use testkit::{postgres, prerequisites};

/// A new store and the options to open it again.
pub(crate) struct TestEnvironment {
    pub(crate) store: Store,
    pub(crate) options: Options,
    _place: Place,
}

/// Storage of the store; removed when the test ends.
enum Place {
    Directory(#[expect(dead_code, reason = "removed when dropped")] tempfile::TempDir),
    Database(#[expect(dead_code, reason = "dropped when dropped")] postgres::TestDatabase),
}

impl TestEnvironment {
    /// A new SQLite file.
    pub(crate) async fn sqlite() -> TestEnvironment {
        let directory = tempfile::tempdir().unwrap();
        let options = options(Location::Sqlite(directory.path().join("store.db")));
        TestEnvironment {
            store: Store::open(options.clone()).await.unwrap(),
            options,
            _place: Place::Directory(directory),
        }
    }

    /// A new database on the shared PostgreSQL server; none (and a reported skip) where there is no server.
    pub(crate) async fn postgres() -> Option<TestEnvironment> {
        let Some(server) = postgres::shared() else {
            prerequisites::skip(prerequisites::POSTGRESQL, "no PostgreSQL server was found");
            return None;
        };
        let database = server.database().unwrap();
        let options = options(database.url().parse().unwrap());
        let store = Store::open(options.clone()).await.unwrap();
        Some(TestEnvironment { store, options, _place: Place::Database(database) })
    }

    /// Whether several stores may be open on it at once.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.options.location, Location::Postgres(_))
    }

    /// The same store, opened as by another process; PostgreSQL only.
    pub(crate) async fn another(&self) -> Store {
        assert!(self.is_shared(), "SQLite is for one process");
        Store::open(self.options.clone()).await.unwrap()
    }

    /// The SQLite file.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.options.location {
            Location::Sqlite(path) => path.clone(),
            Location::Postgres(_) => panic!("PostgreSQL has no file"),
        }
    }

    /// Asserts every invariant of the store.
    pub(crate) async fn assert_sound(&self) {
        let broken: Vec<_> =
            self.store.check().await.unwrap().into_iter().filter(|it| !it.faults.is_empty()).collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}

/// Default options, with a key that lives as long as the test.
pub(crate) fn options(location: Location) -> Options {
    let clock: SharedClock = Arc::new(SystemClock);
    Options::new(location, Keyring::ephemeral().unwrap(), clock)
}

/// Runs a test on a runtime of its own, and fails when it hangs.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let limit = if soak() { Duration::from_secs(1800) } else { Duration::from_secs(180) };
    runtime.block_on(async { tokio::time::timeout(limit, test).await.expect("the test hangs") })
}

/// Whether the long variants are requested.
#[expect(clippy::disallowed_methods, reason = "a test's switch, not a setting of the product")]
pub(crate) fn soak() -> bool {
    std::env::var_os("SHIPSHAPE_SOAK").is_some()
}

/// `short` in every run, `long` in the soak.
pub(crate) fn short_or_long<T>(short: T, long: T) -> T {
    if soak() { long } else { short }
}

/// One test on both engines; afterwards every invariant of the store is verified.
macro_rules! on_both_engines {
    ($(#[$meta:meta])* async fn $name:ident($env:ident: &TestEnvironment) $body:block) => {
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports, reason = "some tests need nothing from around them")]
            use super::*;

            async fn run($env: &$crate::environment::TestEnvironment) $body

            #[test]
            fn on_sqlite() {
                $crate::environment::block_on(async {
                    let env = $crate::environment::TestEnvironment::sqlite().await;
                    run(&env).await;
                    env.assert_sound().await;
                });
            }

            #[test]
            fn on_postgresql() {
                $crate::environment::block_on(async {
                    let Some(env) = $crate::environment::TestEnvironment::postgres().await else { return };
                    run(&env).await;
                    env.assert_sound().await;
                });
            }
        }
    };
}
